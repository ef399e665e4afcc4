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
    application_callback = settings.get(_CALLBACK)
    is_off = str(settings.get("statistics.interval.ms", 0)) == "0"
    if is_off or not (application_callback is None or callable(application_callback)):
        return settings

    def on_statistics(text: str) -> None:
        receive(json.loads(text))
        if application_callback is not None:
            application_callback(text)

    return {**settings, _CALLBACK: on_statistics}
