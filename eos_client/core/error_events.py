"""The meaning of an error event among consumed records, as one table; the first match wins.

librdkafka returns fetch errors as messages with ``error()``. It recovers from most of them by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from eos_client.core.error_codes import (
    GROUP_NOT_ADMITTED,
    GROUP_UNKNOWN,
    PARTITION_END,
    READING_FORBIDDEN,
    TOPIC_MISSING,
)


class EventMeaning(Enum):
    """What is done about an error event."""

    IGNORE = "ignore"
    REPORT = "report"
    STOP_UNFIT = "stop_unfit"
    STOP_FATAL = "stop_fatal"


@dataclass(frozen=True, slots=True)
class ErrorEvent:
    """One error event. ``code``: the error's name in Kafka. ``fatal``: librdkafka has given the consumer up.

    ``is_named``: the topic was subscribed by name; a topic that only a pattern has matched may come and go.
    """

    code: str
    fatal: bool = False
    is_named: bool = True


@dataclass(frozen=True, slots=True)
class EventRule:
    """One row of the table."""

    applies: Callable[[ErrorEvent], bool]
    meaning: EventMeaning
    reason: str


EVENT_RULES: tuple[EventRule, ...] = (
    EventRule(lambda e: e.code == PARTITION_END, EventMeaning.IGNORE, "a partition was read to its end"),
    # Before the fatal ones: a new consumer would meet the same again, until somebody repairs the cluster.
    EventRule(lambda e: e.code in READING_FORBIDDEN, EventMeaning.STOP_UNFIT, "reading is not permitted"),
    EventRule(lambda e: e.code in GROUP_NOT_ADMITTED, EventMeaning.STOP_UNFIT, "the group does not admit the consumer"),
    EventRule(
        lambda e: e.fatal and e.code == GROUP_UNKNOWN,
        EventMeaning.STOP_UNFIT,
        "brokers answer that to a KIP-848 member of a classic group",
    ),
    EventRule(lambda e: e.fatal, EventMeaning.STOP_FATAL, "the client cannot go on"),
    EventRule(
        lambda e: e.code in TOPIC_MISSING and e.is_named, EventMeaning.STOP_UNFIT, "a named topic does not exist"
    ),
    EventRule(lambda _: True, EventMeaning.REPORT, "the client library goes on by itself"),
)


def meaning_of(event: ErrorEvent) -> EventMeaning:
    """Return what ``event`` means."""
    return next(rule.meaning for rule in EVENT_RULES if rule.applies(event))
