"""Whether a handle lost a connection: then librdkafka may have sent a request twice without a word.

It sends EndTxn and TxnOffsetCommit again on the next connection, with the same epoch, and reports success; the first
copy may reach the broker after the next transaction has begun, and end it or move its offsets (KAFKA-17754). Only the
client library's log tells of it: neither ``error_cb`` nor the call's result does.
"""

from __future__ import annotations

import logging
import sys
import time
from typing import Any

_INFO = 6
_FALSE = frozenset({"false", "f", "0"})
_LOST = ("in state UP)", "in flight")  # an established connection, or a request on it, was given up
_LOST_FACILITIES = frozenset({"FAIL", "REQTMOUT"})
# What librdkafka's levels are in Python, as confluent_kafka translates them; and back.
_PYTHON_LEVELS = (logging.CRITICAL,) * 3 + (logging.ERROR, logging.WARNING, logging.INFO, logging.INFO, logging.DEBUG)
_LEVELS = {logging.CRITICAL: 0, logging.ERROR: 3, logging.WARNING: 4, logging.INFO: _INFO, logging.DEBUG: 7}


class ConnectionWatch:
    """Stands in for the application's ``logger``, and passes on what the application's settings ask for."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.lost = False
        self._theirs = settings.get("logger")
        level = str(settings.get("log_level", _INFO))
        self._level = min(7, int(level)) if level.isdigit() else _INFO  # the client library refuses what is no level
        self._closes = str(settings.get("log.connection.close", True)).lower() not in _FALSE

    def added_to(self, settings: dict[str, Any]) -> dict[str, Any]:
        """Return ``settings`` with this watch in them, and with what it needs to hear."""
        added = {**settings, "logger": self}
        if self._level < _INFO:
            added["log_level"] = _INFO
        if not self._closes:
            added["log.connection.close"] = True
        return added

    def log(self, level: int, text: str, *arguments: Any) -> None:
        """Take note of a line; called while the handle is polled."""
        facility, line = str(arguments[0]), str(arguments[-1])
        closed = facility in _LOST_FACILITIES and any(sign in line for sign in _LOST)
        self.lost = self.lost or closed
        if level < _PYTHON_LEVELS[self._level] or (closed and level <= logging.INFO and not self._closes):
            return
        if self._theirs is not None:
            self._theirs.log(level, text, *arguments)
        else:
            sys.stderr.write(f"%{_LEVELS[level]}|{time.time():.3f}|{facility}|{arguments[1]}| {line}\n")
