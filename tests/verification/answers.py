"""Asking a cluster that may be moving or loading what it is asked for: the judges' questions, never the client's."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from confluent_kafka import KafkaException

_T = TypeVar("_T")
ANSWER_TIMEOUT_S = 30.0
_RETRY_INTERVAL_S = 0.1
_PASSING = frozenset(
    {
        "NOT_COORDINATOR",
        "COORDINATOR_LOAD_IN_PROGRESS",
        "COORDINATOR_NOT_AVAILABLE",
        "NOT_LEADER_FOR_PARTITION",
        "FENCED_LEADER_EPOCH",
        "LEADER_NOT_AVAILABLE",
        "UNKNOWN_LEADER_EPOCH",
        "UNKNOWN_TOPIC_OR_PART",
        "_UNKNOWN_PARTITION",
        "_UNKNOWN_TOPIC",
        "REQUEST_TIMED_OUT",
        "_TIMED_OUT",
        "_TRANSPORT",
        "_WAIT_COORD",
    }
)


def settled(ask: Callable[[], _T], timeout_s: float = ANSWER_TIMEOUT_S) -> _T:
    """The answer, asked for again while a leader or coordinator is on its way; raises the last KafkaException."""
    deadline_s = time.monotonic() + timeout_s
    while True:
        try:
            return ask()
        except KafkaException as exception:  # noqa: PERF203  ten times a second
            if time.monotonic() > deadline_s or exception.args[0].name() not in _PASSING:
                raise
            time.sleep(_RETRY_INTERVAL_S)
