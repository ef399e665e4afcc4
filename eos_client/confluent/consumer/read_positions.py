"""The offset that each partition is read on from, so that a read from elsewhere is noticed before it is handed over.

librdkafka moves a position by itself when the broker does not have the offset. A move forward, to the start of the log,
loses nothing that is still in the log. A move backward means that the position lay behind the end: the log was
truncated, or the topic was deleted and created again. Which of its records were processed cannot be known then.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from confluent_kafka import KafkaError

from eos_client.confluent.consumer.fetched_records import RecordRun
from eos_client.confluent.failures import KafkaInputPositionError
from eos_client.core.model import InputPartition

_NO_RESET = KafkaError._AUTO_OFFSET_RESET  # noqa: SLF001  # confluent_kafka's public spelling of a local code
_SEEK_ATTEMPTS_MAX = 3
_WAY_OUT = "End the process, reset the group's offset of this partition, then start again."


class ReadPositions:
    """Where each partition goes on."""

    def __init__(self) -> None:
        self._next: dict[InputPartition, int] = {}
        self._attempts: dict[InputPartition, int] = {}
        self._read: set[InputPartition] = set()

    def goes_on_at(self, partition: InputPartition, offset: int) -> None:
        """``partition`` was sought to ``offset``; a logical one may be anywhere."""
        if offset < 0:
            self._next.pop(partition, None)
        else:
            self._next[partition] = offset

    def forget(self, partitions: Iterable[InputPartition]) -> None:
        """``partitions`` have left, or start anew."""
        for partition in partitions:
            self._next.pop(partition, None)
            self._read.discard(partition)

    def misses(self, run: RecordRun) -> bool:
        """Whether ``run`` begins before the offset that its partition was to go on at."""
        return run.first_offset < self._next.get(run.partition, 0)

    def has_read(self, partition: InputPartition) -> bool:
        """Whether records of ``partition`` were handed over since it was assigned."""
        return partition in self._read

    def expected(self, partition: InputPartition) -> int:
        """Return the offset that ``partition`` was to go on at."""
        return self._next[partition]

    def may_seek_again(self, partition: InputPartition) -> bool:
        """Count an attempt to go on where ``partition`` should; returns False when there were enough."""
        attempts = self._attempts.get(partition, 0) + 1
        self._attempts[partition] = attempts
        return attempts <= _SEEK_ATTEMPTS_MAX

    def read(self, run: RecordRun) -> None:
        """``run`` was read."""
        self._next[run.partition] = run.next_offset
        self._read.add(run.partition)
        if self._attempts:
            self._attempts.pop(run.partition, None)


def forbidden_reset(partition: InputPartition, message: Any) -> KafkaInputPositionError | None:
    """Return the error if ``message`` says that the library may not go on, under ``auto.offset.reset=error``."""
    error = message.error()
    if error is None or error.code() != _NO_RESET:
        return None
    if message.offset() is None or message.offset() < 0:
        return no_offset(partition, error)
    return KafkaInputPositionError(
        error,
        f"{partition} cannot be read on at offset {message.offset()} ({error.str()}), and auto.offset.reset=error "
        f"allows no other. {_WAY_OUT}",
        partition.topic,
        partition.partition,
        message.offset(),
    )


def no_offset(partition: InputPartition, error: KafkaError | None = None) -> KafkaInputPositionError:
    """Return the error for a partition that has no committed offset and may not choose another start."""
    return KafkaInputPositionError(
        error or KafkaError(_NO_RESET, "no committed offset"),
        f"{partition} has no committed offset, and auto.offset.reset=error allows no other start. Commit an offset for "
        "the group, or set auto.offset.reset to earliest or latest, then start again.",
        partition.topic,
        partition.partition,
    )


def behind_the_end(partition: InputPartition, expected: int, found: int) -> KafkaInputPositionError:
    """Return the error for a partition whose position the log does not reach."""
    message = (
        f"{partition} was to be read on at offset {expected}, which lies behind the end of its log: the log was "
        "truncated, or the topic was deleted and created again. Which of its records were processed cannot be known; "
        f"the client library offered offset {found}. {_WAY_OUT}"
    )
    return KafkaInputPositionError(KafkaError(KafkaError.OFFSET_OUT_OF_RANGE, message), message, *partition, expected)


def topic_replaced(topic: str) -> KafkaInputPositionError:
    """Return the error for a named topic that is another than the one that was read so far."""
    message = (
        f"the input topic {topic!r} was deleted and created again: offsets of the old one say nothing about the new "
        "one. Nothing of the new one was handed over. End the process, delete or reset the group's offsets of this "
        "topic, then start again."
    )
    error = KafkaError(KafkaError.UNKNOWN_TOPIC_ID, message)
    return KafkaInputPositionError(error, message, topic)
