"""What only the client library's log tells of a producer: neither ``error_cb`` nor the result of a call does.

A lost connection: librdkafka sends EndTxn and TxnOffsetCommit again on the next one, with the same epoch, and reports
success. The first copy may reach the broker after the next transaction has begun, and end it or move its offsets
(KAFKA-17754).

Outputs taken for written because later ones of their partition were (``IMPLICITACK``). A broker that refuses the first
batch, because it has only just become the leader, knows nothing of the producer yet and takes any sequence number of
the second: the first would be missing from what is committed (confluent-kafka-go #921).
"""

from __future__ import annotations

import logging
import sys
import time
from typing import Any

_INFO = 6
_DEBUG = 7
_FALSE = frozenset({"false", "f", "0"})
_LOST = ("in state UP)", "in flight")  # an established connection, or a request on it, was given up
_LOST_FACILITIES = frozenset({"FAIL", "REQTMOUT"})
_IMPLIED = "IMPLICITACK"
_IMPLIED_CONTEXT = "eos"
# What librdkafka's levels are in Python, as confluent_kafka translates them; and back.
_PYTHON_LEVELS = (logging.CRITICAL,) * 3 + (logging.ERROR, logging.WARNING, logging.INFO, logging.INFO, logging.DEBUG)
_LEVELS = {logging.CRITICAL: 0, logging.ERROR: 3, logging.WARNING: 4, logging.INFO: _INFO, logging.DEBUG: _DEBUG}


class ClientLog:
    """Stands in for the application's ``logger``, and passes on what the application's settings ask for."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.lost_connection = False
        self.implied = ""
        self._theirs = settings.get("logger")
        self._debug = str(settings.get("debug") or "")
        level = str(settings.get("log_level", _INFO))
        # The client library refuses what is no level, and takes "debug" for the highest.
        given = min(_DEBUG, int(level)) if level.isdigit() else _INFO
        self._lowest = _PYTHON_LEVELS[_DEBUG if self._debug else given]
        self._closes = str(settings.get("log.connection.close", True)).lower() not in _FALSE

    def added_to(self, settings: dict[str, Any]) -> dict[str, Any]:
        """Return ``settings`` with this log in them, and with what it needs to hear."""
        added = {**settings, "logger": self, "debug": ",".join(filter(None, (self._debug, _IMPLIED_CONTEXT)))}
        if not self._closes:
            added["log.connection.close"] = True
        return added

    def forget(self) -> None:
        """Begin a transaction: nothing is under way, and nothing is taken for written."""
        self.lost_connection = False
        self.implied = ""

    def log(self, level: int, text: str, *arguments: Any) -> None:
        """Take note of a line; called while the handle is polled."""
        facility, line = str(arguments[0]), str(arguments[-1])
        closed = facility in _LOST_FACILITIES and any(sign in line for sign in _LOST)
        self.lost_connection = self.lost_connection or closed
        if facility == _IMPLIED:
            self.implied = self.implied or line
        if level < self._lowest or (closed and level <= logging.INFO and not self._closes):
            return
        if self._theirs is not None:
            self._theirs.log(level, text, *arguments)
        else:
            sys.stderr.write(f"%{_LEVELS[level]}|{time.time():.3f}|{facility}|{arguments[1]}| {line}\n")
