"""Consecutive records of one partition, found without Python code for each record: this runs on every batch.

A `Batch` finds its runs once; what is dropped on its way to the application is dropped by whole runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from eos_client.core.model import InputPartition


class RecordRun(NamedTuple):
    """``batch[start:stop]``, all of one partition. ``is_error``: only error events, which carry no work."""

    partition: InputPartition
    start: int
    stop: int
    first_offset: int
    next_offset: int
    is_error: bool


def runs(batch: Sequence[Any], *, one_topic: bool = False) -> Iterator[RecordRun]:
    """Split ``batch`` where the partition changes. ``one_topic``: all of it is known to be of one topic."""
    start = 0
    for _, run in groupby(batch, type(batch[0]).partition if one_topic and batch else _place):
        stop = start + len(list(run))
        yield _run(batch, start, stop)
        start = stop


def _place(message: Any) -> tuple[str, int]:
    return message.topic(), message.partition()


def _run(batch: Sequence[Any], start: int, stop: int) -> RecordRun:
    first = batch[start]
    partition = InputPartition(first.topic(), first.partition())
    if first.error() is not None:
        first = next((m for m in batch[start:stop] if m.error() is None), None)
    if first is None:
        return RecordRun(partition, start, stop, -1, -1, is_error=True)
    return RecordRun(
        partition, start, stop, first.offset(), _last_good(batch, start, stop).offset() + 1, is_error=False
    )


def last_good(batch: Sequence[Any], run: RecordRun) -> Any:
    """Return the run's last message that is a record; end-of-partition events may stand behind it."""
    return _last_good(batch, run.start, run.stop)


def _last_good(batch: Sequence[Any], start: int, stop: int) -> Any:
    last = batch[stop - 1]
    if last.error() is None:
        return last
    return next(batch[i] for i in range(stop - 1, start - 1, -1) if batch[i].error() is None)


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

    @property
    def partitions(self) -> frozenset[InputPartition]:
        """The partitions of its messages."""
        return frozenset(run.partition for run in self.runs)

    def without(self, partitions: frozenset[InputPartition]) -> Batch:
        """Return the messages that are not of ``partitions``."""
        return self.of(run for run in self.runs if run.partition not in partitions)

    def only(self, partitions: frozenset[InputPartition]) -> Batch:
        """Return the messages that are of ``partitions``."""
        return self.of(run for run in self.runs if run.partition in partitions)

    def of(self, kept: Iterable[RecordRun]) -> Batch:
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
