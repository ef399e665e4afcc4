"""Offsets that the application commits outside transactions: stored, pending, and on their way."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from eos_client.core.model import InputPartition

_ANSWER_LIMIT_S = 300.0
"""Every commit is answered within this time; a missing answer was lost to an asynchronous exception."""

Offsets = Mapping[InputPartition, Any]
"""By partition, what confluent_kafka calls a TopicPartition: offset, and metadata and leader epoch where known."""


class PlainOffsets:
    """``stored`` waits for a ``commit()`` without arguments, ``pending`` for the next one that the gate allows.

    ``unfenced``: partitions of which a commit was sent since they came to us. Only once a partition leaves this member
    does the group refuse a copy that is served late.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._sent_at: dict[InputPartition, list[float]] = {}
        self.unfenced: set[InputPartition] = set()
        self.pending: dict[InputPartition, Any] = {}
        self.stored: dict[InputPartition, Any] = {}

    def store(self, topic_partitions: Iterable[Any]) -> None:
        """Store offsets for the next ``commit()`` without arguments."""
        self.stored.update({InputPartition(each.topic, each.partition): each for each in topic_partitions})

    def forget_stored(self, partitions: Iterable[InputPartition]) -> None:
        """Drop what was stored of ``partitions``, which have left."""
        for partition in partitions:
            self.stored.pop(partition, None)

    def drop_stored(self, sent: Mapping[InputPartition, int]) -> None:
        """Drop what was stored up to the offsets that were ``sent``; what lies beyond them is still to be committed."""
        for partition in self.stored.keys() & sent.keys():
            if self.stored[partition].offset <= sent[partition]:
                del self.stored[partition]

    def unanswered(self) -> frozenset[InputPartition]:
        """Return the partitions for which an asynchronous commit was sent that is not answered yet.

        The client library may keep it until it knows the coordinator, and send it under a later membership.
        """
        since = self._clock() - _ANSWER_LIMIT_S
        return frozenset(partition for partition, times in self._sent_at.items() if times[-1] >= since)

    def record_sending(self, partitions: Iterable[InputPartition]) -> None:
        """Record that offsets of ``partitions`` are about to be sent.

        They stay unfenced also where the commit was answered: if its connection was lost, the client library has sent
        it twice.
        """
        self.unfenced.update(partitions)

    def record_in_flight(self, partitions: Iterable[InputPartition]) -> None:
        """Record that offsets of ``partitions`` are in flight: they are pending until ``on_commit`` confirms them."""
        now = self._clock()
        for partition in partitions:
            self._sent_at.setdefault(partition, []).append(now)

    def record_answer(self, partition: InputPartition) -> None:
        """Record that the oldest commit of ``partition`` in flight was answered, or given up."""
        self.unfenced.add(partition)
        times = self._sent_at.get(partition, [])
        if times[1:]:
            del times[0]
        else:
            self._sent_at.pop(partition, None)

    def drop_pending(self, partitions: Iterable[InputPartition]) -> None:
        """Forget what is pending for ``partitions``: offsets that were sent and answered have put it out of date."""
        for partition in partitions:
            self.pending.pop(partition, None)

    def forget(self, partitions: Iterable[InputPartition]) -> None:
        """Forget ``partitions``, which have left: no late commit of ours is accepted for them, and none is sent."""
        for partition in partitions:
            self.unfenced.discard(partition)
            self.pending.pop(partition, None)

    def record_commit(self, partition: InputPartition, offset: int) -> None:
        """Record that ``offset`` was committed; another one that is pending for ``partition`` still is."""
        pending = self.pending.get(partition)
        if pending is not None and pending.offset == offset:
            del self.pending[partition]
