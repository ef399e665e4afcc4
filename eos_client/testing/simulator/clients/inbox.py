"""What waits for the application's next ``poll``: records, rebalances, errors, and reports of commits."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from random import Random
from typing import Any

from confluent_kafka import KafkaError, Message, TopicPartition

from eos_client.testing.simulator.brokers.model import PartitionKey, StoredRecord
from eos_client.testing.simulator.clients.flow import Flow

_CREATE_TIME = 1
_IN_TIME = 0.5


class RebalanceKind(Enum):
    """What a rebalance does with its partitions."""

    ASSIGN = "assign"
    REVOKE = "revoke"
    LOSE = "lose"


@dataclass(frozen=True, slots=True)
class Rebalance:
    """The application is to be told; the session waits for it."""

    kind: RebalanceKind
    partitions: tuple[PartitionKey, ...]


@dataclass(frozen=True, slots=True)
class Fetched:
    """A record of ``flow``, or without one only the news that the flow goes on at ``next_offset``.

    ``seeks``: the flow's at the time.
    """

    flow: Flow
    seeks: int
    next_offset: int
    record: StoredRecord | None = None

    @property
    def message(self) -> Message:
        """The record as the application gets it."""
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
            leader_epoch=0,
        )


@dataclass(frozen=True, slots=True)
class Trouble:
    """An error event, handed over as a message that has ``error()``.

    ``lasts``: whatever the application does with the partition, it is told. librdkafka does not tell it twice.
    """

    error: KafkaError
    partition: PartitionKey | None = None
    offset: int | None = None
    lasts: bool = False

    @property
    def message(self) -> Message:
        """The error as the application gets it."""
        given: dict[str, Any] = {"error": self.error}
        if self.partition is not None:
            given.update(topic=self.partition.topic, partition=self.partition.partition)
        if self.offset is not None:
            given["offset"] = self.offset
        return Message(**given)


@dataclass(frozen=True, slots=True)
class CommitReport:
    """For ``on_commit``: what became of an asynchronous commit."""

    error: KafkaError | None
    offsets: list[TopicPartition]


@dataclass(frozen=True, slots=True)
class Told:
    """For ``stats_cb``, ``error_cb`` or ``throttle_cb``: ``call`` calls it."""

    call: Callable[[], object]


Item = Rebalance | Fetched | Trouble | CommitReport | Told


class Inbox:
    """First in, first out.

    ``collected``: what the running ``consume`` has taken and not returned yet; ``passed``: what it has passed over.
    """

    def __init__(self, random: Random) -> None:
        self.collected: list[Fetched | Trouble] = []
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
        """Remove and return what came first."""
        if not self._items:
            return None
        item = self._items.popleft()
        if isinstance(item, Fetched):
            self._waiting[item.flow.partition] -= 1
        return item

    def waiting(self, partition: PartitionKey) -> int:
        """Return how many records of ``partition`` wait."""
        return self._waiting[partition]

    def void(self, partitions: Iterable[PartitionKey]) -> None:
        """Drop the records of ``partitions``, and the events that do not last.

        What a running ``consume`` has taken is dropped, too, or not: in librdkafka the news of a pause, a seek or an
        unassign reaches it through another thread and may come too late.
        """
        gone = frozenset(partitions)
        if any(self._waiting[p] for p in gone) or any(isinstance(i, Trouble) for i in self._items):
            self._items = deque(i for i in self._items if not _goes_with(i, gone))
        for partition in gone:
            self._waiting.pop(partition, None)
        if any(_goes_with(i, gone) for i in self.collected) and self._random.random() < _IN_TIME:
            self.collected[:] = [i for i in self.collected if not _goes_with(i, gone)]
            self.passed[:] = [i for i in self.passed if not _goes_with(i, gone)]

    def taken_until(self, flow: Flow) -> int | None:
        """Return how far the running ``consume`` has taken ``flow``; None: nothing of it since the last seek."""
        taken = [i for i in (*self.collected, *self.passed) if isinstance(i, Fetched) and i.flow is flow]
        return max((i.next_offset for i in taken if i.seeks == flow.seeks), default=None)


def _goes_with(item: Item, gone: frozenset[PartitionKey]) -> bool:
    """Whether ``item`` is void once the records of the partitions in ``gone`` are."""
    if isinstance(item, Fetched):
        return item.flow.partition in gone
    return isinstance(item, Trouble) and item.partition in gone and not item.lasts
