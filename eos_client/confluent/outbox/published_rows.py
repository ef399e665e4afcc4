"""Clears published rows away, behind the group's committed offsets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from confluent_kafka import KafkaException, TopicPartition

from eos_client.core.model import InputPartition
from eos_client.outbox_store import OutboxStore
from eos_client.ports import Clock, input_partition
from eos_client.position_store import StoreError

_INTERVAL_S = 1.0
_ANSWER_LIMIT_S = 0.5
_LAST_ROUNDS_MAX = 100


class PublishedRows:
    """Asks the group, at most every ``_INTERVAL_S``, what it has committed, and clears the rows before that.

    The committed offset of a transaction that is open is never returned (KIP-447), so nothing is cleared that might not
    be published. What fails is repeated: the rows cost room, and nothing else.
    """

    def __init__(self, consumer: Any, store: OutboxStore, clock: Clock) -> None:
        self._consumer = consumer
        self._store = store
        self._clock = clock
        self._cleared: dict[InputPartition, int] = {}
        self._clear_at = clock() + _INTERVAL_S

    def clear_due(self, perhaps: Callable[[], Mapping[InputPartition, int]]) -> None:
        """Clear some rows if it is time; ``perhaps`` says below which number rows may be published."""
        if self._clock() >= self._clear_at:
            self._clear_at = self._clock() + _INTERVAL_S
            if self._clear(perhaps()):
                self._clear_at = self._clock()

    def clear_rest(self, perhaps: Mapping[InputPartition, int]) -> None:
        """Clear what is published now: this member leaves."""
        for _ in range(_LAST_ROUNDS_MAX):
            if not self._clear(perhaps):
                return

    def _clear(self, perhaps: Mapping[InputPartition, int]) -> bool:
        """Clear some rows; returns whether there are more."""
        behind = [p for p, offset in perhaps.items() if self._cleared.get(p, 0) < offset]
        committed: dict[InputPartition, int] = {}
        with suppress(KafkaException, StoreError):
            if behind:
                answer = self._consumer.committed([TopicPartition(*p) for p in behind], _ANSWER_LIMIT_S)
                committed = {input_partition(p): p.offset for p in answer if p.error is None and p.offset > 0}
            committed = {p: offset for p, offset in committed.items() if self._cleared.get(p, 0) < offset}
            if committed:
                cleared = self._store.clear({p.partition: offset for p, offset in committed.items()})
                self._cleared.update({p: cleared[p.partition] for p in committed})
                return any(self._cleared[p] < offset for p, offset in committed.items())
        return False
