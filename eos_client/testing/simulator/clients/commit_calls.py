"""The application's calls that commit and store offsets."""

from __future__ import annotations

from confluent_kafka import KafkaException, Message, TopicPartition

from eos_client.testing.simulator.clients.assignment import AssignmentCalls
from eos_client.testing.simulator.clients.client_core import failed, key_of
from eos_client.testing.simulator.clients.kafka_errors import kafka_exception
from eos_client.testing.simulator.clients.offset_commits import (
    already_committed,
    commit_error,
    committed_partitions,
    valid_offsets,
)


class CommitCalls(AssignmentCalls):
    """Methods of ``confluent_kafka.Consumer``."""

    def commit(
        self,
        message: Message | None = None,
        offsets: list[TopicPartition] | None = None,
        asynchronous: bool = True,
    ) -> list[TopicPartition] | None:
        """Commit ``message``, ``offsets`` or, without arguments, the stored offsets that are not committed yet."""
        background = self._use()
        if message is not None and offsets is not None:
            raise ValueError("message and offsets are mutually exclusive")
        if background.session.fatal is not None:
            raise KafkaException(commit_error("_FATAL"))
        rest: list[TopicPartition] = []
        if message is not None:
            sent = valid_offsets([_after(message, "commit")])
        elif offsets is not None:
            sent = valid_offsets(offsets)
        elif background.session.has_lost_partitions:
            raise KafkaException(commit_error("_ASSIGNMENT_LOST"))
        else:
            sent = background.commits.uncommitted(self._assigned)
            rest = already_committed(k for k in self._assigned if k not in sent)
        if asynchronous:
            background.commits.post(sent)
            return None
        return committed_partitions(sent, background.commits.call(sent)) + rest

    def store_offsets(self, message: Message | None = None, offsets: list[TopicPartition] | None = None) -> None:
        """Store offsets for the next ``commit()`` without arguments; needs ``enable.auto.offset.store=false``."""
        background = self._use()
        if message is None and offsets is None:
            raise ValueError("expected either message or offsets")
        if message is not None and offsets is not None:
            raise ValueError("message and offsets are mutually exclusive")
        if background.settings.auto_store:
            raise failed("StoreOffsets failed", "_INVALID_ARG")
        partitions = [_after(message, "store")] if message is not None else offsets or []
        assigned = [p for p in partitions if key_of(p) in self._assigned]
        if partitions and not assigned:
            raise failed("StoreOffsets failed", "_STATE")
        for partition in assigned:
            background.commits.store(key_of(partition), partition.offset, partition.metadata or "")


def _after(message: Message, purpose: str) -> TopicPartition:
    error = message.error()
    if error is not None:
        raise kafka_exception("_INVALID_ARG", f"Cannot {purpose} offsets for message with error: '{error.str()}'")
    return TopicPartition(str(message.topic()), message.partition() or 0, (message.offset() or 0) + 1)
