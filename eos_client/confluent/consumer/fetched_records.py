"""Messages that were fetched and not handed over yet: they count as nothing, and leave with their partition.

They are out of the client library already, so its own pauses and assignments do not hold for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from eos_client.confluent.consumer.record_runs import runs
from eos_client.core.model import InputPartition, Partitions


class FetchedRecords:
    """Records, and error events among them, in the order in which they are to be handed over."""

    def __init__(self) -> None:
        self._waiting: list[Any] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, batch: Iterable[Any]) -> None:
        """Let ``batch`` wait behind the others."""
        self._waiting.extend(batch)

    def put_first(self, batch: Iterable[Any]) -> None:
        """Let ``batch`` wait before the others."""
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
        """Drop everything of ``partitions``."""
        self._waiting = without(partitions, self._waiting)

    def drop_of_topic(self, topic: str) -> None:
        """Drop everything of ``topic``."""
        self._waiting = [m for m in self._waiting if m.topic() != topic]

    def drop_records(self) -> None:
        """Drop what will be fetched again; the library does not tell an error twice."""
        self._waiting = [m for m in self._waiting if m.error() is not None]

    def clear(self) -> None:
        """Drop everything: nothing is handed over any more."""
        self._waiting = []

    def spans(self) -> Mapping[InputPartition, tuple[int, int]]:
        """Return for each partition with records its first offset, and the one behind its last."""
        spans: dict[InputPartition, tuple[int, int]] = {}
        for run in runs(self._waiting):
            if not run.is_error:
                first, _ = spans.get(run.partition, (run.first_offset, 0))
                spans[run.partition] = (first, run.next_offset)
        return spans


def without(partitions: Partitions, messages: Iterable[Any]) -> list[Any]:
    """Return the ``messages`` that are not of ``partitions``."""
    return [m for m in messages if InputPartition(m.topic(), m.partition()) not in partitions]
