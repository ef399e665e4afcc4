"""Hears librdkafka's statistics beside the application's own ``stats_cb``, where the application has them made."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

_CALLBACK = "stats_cb"


def with_statistics_heard(settings: dict[str, Any], hear: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Return ``settings`` whose statistics go to ``hear`` and then, as the text that they are, to the application.

    Where there are none, or the application's callback is one that the client library refuses, nothing changes.
    """
    theirs = settings.get(_CALLBACK)
    if str(settings.get("statistics.interval.ms", 0)) == "0" or not (theirs is None or callable(theirs)):
        return settings

    def on_statistics(text: str) -> None:
        hear(json.loads(text))
        if theirs is not None:
            theirs(text)

    return {**settings, _CALLBACK: on_statistics}
