"""Offsets that the application commits outside transactions: stored, pending, and what was sent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any

from eos_client.core.model import InputPartition
from eos_client.ports import input_partition

Offsets = Mapping[InputPartition, Any]
"""By partition, what confluent_kafka calls a TopicPartition: offset, and metadata and leader epoch where known."""


class PlainUse(Enum):
    """How offsets of a consumer can reach its group outside the transactions of a session."""

    COMMIT = "has called commit()"
    PENDING = "has offsets of a commit() pending"
    METADATA = "has handed out consumer_group_metadata()"
    START = "has committed where a partition starts (auto.offset.reset=latest)"


class PlainOffsets:
    """``stored`` waits for a ``commit()`` without arguments, ``pending`` for the next one that the gate allows."""

    def __init__(self) -> None:
        self._uses: set[PlainUse] = set()
        self.pending: dict[InputPartition, Any] = {}
        self.stored: dict[InputPartition, Any] = {}

    @property
    def uses(self) -> list[PlainUse]:
        """How offsets have left, or will leave, outside the transactions of a session."""
        return [use for use in PlainUse if use in self._uses or (use is PlainUse.PENDING and self.pending)]

    def record_use(self, use: PlainUse) -> None:
        """Record that offsets are about to leave by ``use``.

        Nothing of Kafka refuses an OffsetCommit within one generation, and the client library sends it twice where its
        connection is lost: the copy may be served after any transaction.
        """
        self._uses.add(use)

    def store(self, topic_partitions: Iterable[Any]) -> None:
        """Store offsets for the next ``commit()`` without arguments."""
        self.stored.update({input_partition(each): each for each in topic_partitions})

    def forget_stored(self, partitions: Iterable[InputPartition]) -> None:
        """Drop what was stored of ``partitions``, which have left."""
        for partition in partitions:
            self.stored.pop(partition, None)

    def drop_stored(self, sent: Mapping[InputPartition, int]) -> None:
        """Drop what was stored up to the offsets that were ``sent``; what lies beyond them is still to be committed."""
        for partition in self.stored.keys() & sent.keys():
            if self.stored[partition].offset <= sent[partition]:
                del self.stored[partition]

    def drop_pending(self, partitions: Iterable[InputPartition]) -> None:
        """Forget what is pending for ``partitions``: it was sent and answered, or the partitions have left."""
        for partition in partitions:
            self.pending.pop(partition, None)

    def take_back(self, partition: InputPartition, offset: int) -> None:
        """Forget what is stored or pending beyond ``offset``: the application has sought back to there."""
        for offsets in (self.stored, self.pending):
            known = offsets.get(partition)
            if known is not None and known.offset > offset:
                del offsets[partition]

    def record_commit(self, partition: InputPartition, offset: int) -> None:
        """Record that ``offset`` was committed; another one that is pending for ``partition`` still is."""
        pending = self.pending.get(partition)
        if pending is not None and pending.offset == offset:
            del self.pending[partition]
