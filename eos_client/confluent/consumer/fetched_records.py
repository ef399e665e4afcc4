"""Fetched messages: those that wait to be handed over, and batches in runs of consecutive records of one partition.

Runs are found without Python code for each record, because this is done for every batch. A `Batch` finds its runs once;
what is dropped on its way to the application is dropped by whole runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby, pairwise
from typing import Any, NamedTuple

from eos_client.core.error_codes import PARTITION_END
from eos_client.core.model import InputPartition, OffsetGaps, Partitions


class RecordRun(NamedTuple):
    """``batch[start:stop]``, all of one partition. ``is_error``: only error events, which carry no work."""

    partition: InputPartition
    start: int
    stop: int
    first_offset: int
    next_offset: int
    is_error: bool


def runs(batch: Sequence[Any], *, one_topic: bool = False) -> Iterator[RecordRun]:
    """Split ``batch`` where the partition changes, and after error events in front of its records.

    ``one_topic``: all its records are known to be of one topic.
    """
    start = 0
    for _, run in groupby(batch, type(batch[0]).partition if one_topic and batch else _place):
        stop = start + len(list(run))
        if batch[start].error() is not None:  # such an event may be of no topic, or the end of the client
            good = next((i for i in range(start, stop) if batch[i].error() is None), stop)
            yield RecordRun(InputPartition(*_place(batch[start])), start, good, -1, -1, is_error=True)
            start = good
        if start < stop:
            next_offset = last_good(batch, start, stop).offset() + 1
            partition = InputPartition(*_place(batch[start]))
            yield RecordRun(partition, start, stop, batch[start].offset(), next_offset, is_error=False)
        start = stop


def _place(message: Any) -> tuple[str, int]:
    return message.topic(), message.partition()


def last_good(batch: Sequence[Any], start: int, stop: int) -> Any:
    """Return the last message of a run that is a record; end-of-partition events may follow it."""
    last = batch[stop - 1]
    if last.error() is None:
        return last
    return next(batch[i] for i in range(stop - 1, start - 1, -1) if batch[i].error() is None)


def offset_gaps(batch: Sequence[Any], run: RecordRun) -> OffsetGaps:
    """Return the offsets inside ``run`` that hold no record: transaction markers, aborted and compacted records."""
    records = batch[run.start : run.stop]
    if any(map(type(records[0]).error, records)):
        records = [message for message in records if message.error() is None]
    if len(records) == run.next_offset - run.first_offset:
        return ()
    offsets = (message.offset() for message in records)
    return tuple((before + 1, after) for before, after in pairwise(offsets) if before + 1 < after)


class Batch:
    """Messages in the order in which they came, with their runs. ``one_topic``: as for `runs`."""

    __slots__ = ("_one_topic", "_runs", "messages")

    def __init__(
        self, messages: list[Any], *, one_topic: bool = False, known_runs: Sequence[RecordRun] | None = None
    ) -> None:
        self.messages = messages
        self._one_topic = one_topic
        self._runs = known_runs

    def __len__(self) -> int:
        return len(self.messages)

    @property
    def runs(self) -> Sequence[RecordRun]:
        """The runs of the batch, found when somebody first asks for them."""
        if self._runs is None:
            self._runs = list(runs(self.messages, one_topic=self._one_topic))
        return self._runs

    def without(self, partitions: frozenset[InputPartition]) -> Batch:
        """Return the messages that do not leave with ``partitions``: their error events come last."""
        kept = self.select(run for run in self.runs if run.partition not in partitions)
        errors = [message for message in self._of(partitions).messages if not leaves_with_partition(message)]
        return Batch([*kept.messages, *errors], one_topic=self._one_topic) if errors else kept

    def only(self, partitions: frozenset[InputPartition]) -> Batch:
        """Return the messages that leave with ``partitions``."""
        leaving = [message for message in self._of(partitions).messages if leaves_with_partition(message)]
        return Batch(leaving, one_topic=self._one_topic)

    def _of(self, partitions: frozenset[InputPartition]) -> Batch:
        return self.select(run for run in self.runs if run.partition in partitions)

    def select(self, kept: Iterable[RecordRun]) -> Batch:
        """Return the messages of those runs of this batch that were ``kept``."""
        kept = list(kept)
        if len(kept) == len(self.runs):
            return self
        messages: list[Any] = []
        moved: list[RecordRun] = []
        for run in kept:
            start = len(messages)
            messages += self.messages[run.start : run.stop]
            moved.append(run._replace(start=start, stop=len(messages)))
        return Batch(messages, one_topic=self._one_topic, known_runs=moved)


class FetchedRecords:
    """Records, and error events among them, that wait in the order in which they are to be handed over.

    They count neither as handed over nor as processed, and are dropped with their partition. librdkafka no longer has
    them, so its pauses and assignments do not apply to them.
    """

    def __init__(self) -> None:
        self._waiting: list[Any] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, batch: Iterable[Any]) -> None:
        """Buffer ``batch`` after the others."""
        self._waiting.extend(batch)

    def put_first(self, batch: Iterable[Any]) -> None:
        """Buffer ``batch`` before the others."""
        self._waiting = [*batch, *self._waiting]

    def ready(self, paused: Partitions) -> list[Any]:
        """Return what may be handed over while the application has ``paused`` some partitions."""
        if not paused or not self._waiting:
            return self._waiting
        return [m for m in self._waiting if InputPartition(m.topic(), m.partition()) not in paused]

    def take(self, count: int, paused: Partitions) -> list[Any]:
        """Take out the first ``count`` that are ready."""
        batch = self.ready(paused)[:count]
        if batch:
            taken = set(map(id, batch))
            self._waiting = [m for m in self._waiting if id(m) not in taken] if paused else self._waiting[count:]
        return batch

    def drop_of(self, partitions: Partitions) -> None:
        """Drop what leaves with ``partitions``."""
        self._waiting = in_order_without(partitions, self._waiting)

    def drop_of_topic(self, topic: str) -> None:
        """Drop everything of ``topic``."""
        self._waiting = [m for m in self._waiting if m.topic() != topic]

    def drop_records(self) -> None:
        """Drop what will be fetched again; the library does not report an error twice."""
        self._waiting = [m for m in self._waiting if m.error() is not None]

    def clear(self) -> None:
        """Drop everything: nothing is handed over any more."""
        self._waiting = []

    def spans(self) -> Mapping[InputPartition, tuple[int, int]]:
        """Return for each partition with records its first offset, and the one after its last."""
        spans: dict[InputPartition, tuple[int, int]] = {}
        for run in runs(self._waiting):
            if not run.is_error:
                first, _ = spans.get(run.partition, (run.first_offset, 0))
                spans[run.partition] = (first, run.next_offset)
        return spans


def leaves_with_partition(message: Any) -> bool:
    """Whether ``message`` is of no use without its partition: a record, or the end of the partition.

    Other errors are reported once, and some of them under a partition that they are not about: librdkafka reports a
    topic that was deleted as an event of its partition 0.
    """
    error = message.error()
    return error is None or error.name() == PARTITION_END


def in_order_without(partitions: Partitions, messages: Iterable[Any]) -> list[Any]:
    """Return the ``messages`` that do not leave with ``partitions``; unlike `Batch.without`, all in their order."""
    return [
        m
        for m in messages
        if InputPartition(m.topic(), m.partition()) not in partitions or not leaves_with_partition(m)
    ]
