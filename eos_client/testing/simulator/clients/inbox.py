"""The queue that the application's next ``poll`` serves: records, rebalances, errors, and results of commits."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from random import Random
from typing import Any

from confluent_kafka import KafkaError, Message, TopicPartition

from eos_client.testing.simulator.brokers.model import PartitionKey, StoredRecord
from eos_client.testing.simulator.clients.flow import LEADER_EPOCH, Flow

_CREATE_TIME = 1
_IN_TIME_PROBABILITY = 0.5


class RebalanceKind(Enum):
    """Whether a rebalance assigns, revokes or loses its partitions."""

    ASSIGN = "assign"
    REVOKE = "revoke"
    LOSE = "lose"


@dataclass(frozen=True, slots=True)
class Rebalance:
    """A rebalance whose callback is to be called; the group session waits until it has returned."""

    kind: RebalanceKind
    partitions: tuple[PartitionKey, ...]


@dataclass(frozen=True, slots=True)
class Fetched:
    """A record of ``flow``; without one, only that the flow continues at ``next_offset``, behind control records.

    ``seeks``: the flow's number of seeks when it was fetched.
    """

    flow: Flow
    seeks: int
    next_offset: int
    record: StoredRecord | None = None

    @property
    def message(self) -> Message:
        """The record as a Message of confluent_kafka."""
        key, record = self.flow.partition, self.record
        if record is None:
            raise ValueError(f"{key} has no record before {self.next_offset}")
        return Message(
            topic=key.topic,
            partition=key.partition,
            offset=record.offset,
            key=record.key,
            value=record.value,
            headers=list(record.headers) or None,
            timestamp=(_CREATE_TIME, record.timestamp_ms),
            leader_epoch=LEADER_EPOCH,
        )


@dataclass(frozen=True, slots=True)
class ErrorEvent:
    """An error event, returned by ``poll`` as a message that has ``error()``.

    ``outlasts_drop``: it is reported even if the partition is paused, sought or unassigned first, because librdkafka
    reports it only once.
    """

    error: KafkaError
    partition: PartitionKey | None = None
    offset: int | None = None
    outlasts_drop: bool = False

    @property
    def message(self) -> Message:
        """The error as a Message of confluent_kafka."""
        given: dict[str, Any] = {"error": self.error}
        if self.partition is not None:
            given.update(topic=self.partition.topic, partition=self.partition.partition)
        if self.offset is not None:
            given["offset"] = self.offset
        return Message(**given)


@dataclass(frozen=True, slots=True)
class CommitReport:
    """The result of an asynchronous commit, for ``on_commit``."""

    error: KafkaError | None
    offsets: list[TopicPartition]


@dataclass(frozen=True, slots=True)
class ClientCallback:
    """A call of ``stats_cb``, ``error_cb`` or ``throttle_cb``."""

    call: Callable[[], object]


Item = Rebalance | Fetched | ErrorEvent | CommitReport | ClientCallback


class Inbox:
    """A first-in-first-out queue.

    ``collected``: the messages that the running ``consume`` has taken and will return; ``passed``: the items without a
    record that it has taken.
    """

    def __init__(self, random: Random) -> None:
        self.collected: list[Fetched | ErrorEvent] = []
        self.passed: list[Fetched] = []
        self._items: deque[Item] = deque()
        self._waiting: Counter[PartitionKey] = Counter()
        self._random = random

    def __bool__(self) -> bool:
        return bool(self._items)

    def put(self, item: Item) -> None:
        """Append ``item``."""
        self._items.append(item)
        if isinstance(item, Fetched):
            self._waiting[item.flow.partition] += 1

    def take(self) -> Item | None:
        """Remove and return the oldest item; None if the queue is empty."""
        if not self._items:
            return None
        item = self._items.popleft()
        if isinstance(item, Fetched):
            self._waiting[item.flow.partition] -= 1
        return item

    def waiting(self, partition: PartitionKey) -> int:
        """Return how many items of ``partition`` are queued."""
        return self._waiting[partition]

    def drop(self, partitions: Iterable[PartitionKey], *, is_seek: bool = False) -> None:
        """Drop the queued records of ``partitions``, and their error events without ``outlasts_drop``.

        A seek drops what a running ``consume`` has taken, too, as in librdkafka. A pause and an unassign drop that at
        random: a rebalance does both in another thread of librdkafka, and may come too late.
        """
        dropped = frozenset(partitions)
        if any(self._waiting[p] for p in dropped) or any(isinstance(i, ErrorEvent) for i in self._items):
            self._items = deque(i for i in self._items if not _is_dropped_with(i, dropped))
        for partition in dropped:
            self._waiting.pop(partition, None)
        is_taken = any(_is_dropped_with(i, dropped) for i in self.collected)
        if is_taken and (is_seek or self._random.random() < _IN_TIME_PROBABILITY):
            self.collected[:] = [i for i in self.collected if not _is_dropped_with(i, dropped)]
            self.passed[:] = [i for i in self.passed if not _is_dropped_with(i, dropped)]

    def taken_until(self, flow: Flow) -> int | None:
        """Return the next offset of ``flow`` after those that the running ``consume`` has taken; None: it has none."""
        taken = [i for i in (*self.collected, *self.passed) if isinstance(i, Fetched) and i.flow is flow]
        return max((i.next_offset for i in taken if i.seeks == flow.seeks), default=None)


def _is_dropped_with(item: Item, dropped: frozenset[PartitionKey]) -> bool:
    """Whether ``item`` is dropped with the records of the partitions in ``dropped``."""
    if isinstance(item, Fetched):
        return item.flow.partition in dropped
    return isinstance(item, ErrorEvent) and item.partition in dropped and not item.outlasts_drop
