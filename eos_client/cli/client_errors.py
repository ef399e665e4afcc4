"""Logs what the Kafka client reports through ``error_cb``, mostly lost connections, without flooding the log.

librdkafka reports each failed attempt to reconnect, twenty a second. One line for each kind of error and interval is
enough; the loop's own events say what the error means for the loop.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import structlog

REPEAT_INTERVAL_S = 10.0
LOG_LEVEL_CRITICAL = "2"
"""Keeps librdkafka's own lines off stderr but for emergencies: everything else comes through the callback."""


class ClientErrors:
    """An ``error_cb`` that logs each kind of error at most once every ``interval_s`` seconds, with its repetitions."""

    def __init__(self, *, interval_s: float = REPEAT_INTERVAL_S, clock: Callable[[], float] = time.monotonic) -> None:
        self._interval_s = interval_s
        self._clock = clock
        self._logged_at: dict[str, float] = {}
        self._repeated: dict[str, int] = {}

    def __call__(self, error: Any) -> None:
        """Log the KafkaError ``error`` unless its kind was logged within the interval."""
        kind, now = error.name(), self._clock()
        if kind in self._logged_at and now - self._logged_at[kind] < self._interval_s:
            self._repeated[kind] = self._repeated.get(kind, 0) + 1
            return
        self._logged_at[kind] = now
        repeated = self._repeated.pop(kind, 0)
        structlog.get_logger("eos_client").warning("client_error", kind=kind, error=error.str(), repeated=repeated)
