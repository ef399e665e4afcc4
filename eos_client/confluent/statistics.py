"""Passes librdkafka's statistics on to this package and the application, if ``statistics.interval.ms`` is set."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

_CALLBACK = "stats_cb"


def with_statistics_received(settings: dict[str, Any], receive: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Return ``settings`` whose statistics go, parsed, to ``receive`` and then, as text, to the application.

    Without statistics, or with a callback of the application that the client library refuses, nothing changes.
    """
    theirs = settings.get(_CALLBACK)
    if str(settings.get("statistics.interval.ms", 0)) == "0" or not (theirs is None or callable(theirs)):
        return settings

    def on_statistics(text: str) -> None:
        receive(json.loads(text))
        if theirs is not None:
            theirs(text)

    return {**settings, _CALLBACK: on_statistics}
