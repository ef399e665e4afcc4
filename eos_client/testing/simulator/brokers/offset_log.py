"""The offsets topic: one record for each partition of a commit, and how its records are read (P4).

Each record has the number of its commit and the number of that commit's records, so a reader recognises a torn commit,
whose writer died. Transactional commits are pending until a marker of their producer; between commits of one partition
the later one in the log wins, not the one with the later marker (KAFKA-16157).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TypeAlias

from eos_client.testing.simulator.brokers.model import BrokerError, OffsetAndMetadata, PartitionKey, ProducerIdentity


class CoordinatorDiedError(BrokerError):
    """The coordinator died while it wrote to its log; the client cannot know how many records were written."""

    def __init__(self, why: str) -> None:
        super().__init__("COORDINATOR_NOT_AVAILABLE", why)


@dataclass(frozen=True, slots=True)
class OffsetRecord:
    """One partition of a commit. ``entry`` None deletes; ``producer`` is set in a transactional commit.

    ``repairs``: it repeats the offset in force, because a torn commit of this partition was found.
    """

    group_id: str
    partition: PartitionKey
    entry: OffsetAndMetadata | None
    commit_number: int
    commit_size: int
    producer: ProducerIdentity | None = None
    repairs: bool = False


@dataclass(frozen=True, slots=True)
class OffsetMarker:
    """The end of a producer's transaction in one group: its pending offsets are committed or dropped."""

    group_id: str
    producer: ProducerIdentity
    committed: bool
    commit_number: int
    commit_size: int = 1


OffsetLogRecord: TypeAlias = OffsetRecord | OffsetMarker


@dataclass(slots=True)
class _Staged:
    record: OffsetRecord
    overtaken: bool = False


class PendingOffsets:
    """The transactional commits without a marker yet, by group and producer id."""

    def __init__(self) -> None:
        self._staged: dict[str, dict[int, dict[PartitionKey, _Staged]]] = {}

    def stage(self, record: OffsetRecord, producer: ProducerIdentity) -> None:
        """Add one partition; it replaces an earlier offset of the same transaction."""
        producers = self._staged.setdefault(record.group_id, {})
        producers.setdefault(producer.producer_id, {})[record.partition] = _Staged(record)

    def overtake(self, later: OffsetRecord) -> None:
        """Let ``later``, which is in force, override offsets of its partition that were staged earlier in the log."""
        for staged in self._of_partition(later):
            if staged.record.commit_number < later.commit_number:
                staged.overtaken = True

    def complete(self, group_id: str, producer_id: int, *, committed: bool) -> list[OffsetRecord]:
        """End a transaction. Returns the records that come into force."""
        offsets = self._staged.get(group_id, {}).pop(producer_id, {})
        self._remove_empty(group_id)
        if not committed:
            return []
        return [staged.record for staged in offsets.values() if not staged.overtaken]

    def of_group(self, group_id: str) -> dict[PartitionKey, tuple[ProducerIdentity, ...]]:
        """Return the partitions with a pending commit, each with the producers whose transactions are open."""
        found: dict[PartitionKey, tuple[ProducerIdentity, ...]] = {}
        for offsets in self._staged.get(group_id, {}).values():
            for partition, staged in offsets.items():
                if staged.record.producer is not None:
                    found[partition] = (*found.get(partition, ()), staged.record.producer)
        return dict(sorted(found.items()))

    def groups(self) -> tuple[str, ...]:
        """Return the ids of the groups with pending commits."""
        return tuple(sorted(self._staged))

    def records(self) -> Iterator[OffsetRecord]:
        """Yield all pending records."""
        for producers in self._staged.values():
            for offsets in producers.values():
                for staged in offsets.values():
                    yield staged.record

    def _of_partition(self, record: OffsetRecord) -> Iterator[_Staged]:
        for offsets in self._staged.get(record.group_id, {}).values():
            if record.partition in offsets:
                yield offsets[record.partition]

    def _remove_empty(self, group_id: str) -> None:
        producers = {number: offsets for number, offsets in self._staged.get(group_id, {}).items() if offsets}
        self._staged.pop(group_id, None)
        if producers:
            self._staged[group_id] = producers


def apply_run(run: Sequence[OffsetLogRecord], pending: PendingOffsets) -> list[OffsetRecord]:
    """Apply one whole commit, or one marker, to ``pending``; returns the records that come into force."""
    effective: list[OffsetRecord] = []
    for record in run:
        if isinstance(record, OffsetMarker):
            effective += pending.complete(record.group_id, record.producer.producer_id, committed=record.committed)
        elif record.producer is None:
            effective.append(record)
        else:
            pending.stage(record, record.producer)
    for record in effective:
        if not record.repairs:
            pending.overtake(record)
    return effective


class OffsetLog:
    """The durable log, which survives its store. Only the store that opened it last may write."""

    def __init__(self, records: Iterable[OffsetLogRecord] = ()) -> None:
        self._records: list[OffsetLogRecord] = list(records)
        self._writer = 0
        self._records_until_death: int | None = None

    def __len__(self) -> int:
        """Return the number of records."""
        return len(self._records)

    @property
    def records(self) -> tuple[OffsetLogRecord, ...]:
        """All records, including torn commits and markers."""
        return tuple(self._records)

    def runs(self) -> Iterator[tuple[list[OffsetLogRecord], bool]]:
        """Yield the commits in the order of the log, each with whether it is whole."""
        for _, records in groupby(self._records, lambda record: record.commit_number):
            run = list(records)
            yield run, len(run) == run[0].commit_size

    def open(self) -> int:
        """Become the log's only writer. Returns the writer's number, for `append`."""
        self._writer += 1
        return self._writer

    def append(self, writer: int, records: Sequence[OffsetLogRecord]) -> None:
        """Write ``records`` one after the other; they are durable when this returns.

        Raises BrokerError NOT_COORDINATOR if another writer has opened the log since, or the writer died, and
        CoordinatorDiedError if it dies here.
        """
        if writer != self._writer:
            raise BrokerError("NOT_COORDINATOR", "the offsets log has another writer")
        remaining = self._records_until_death
        if remaining is None or remaining > len(records):
            self._records += records
            self._records_until_death = None if remaining is None else remaining - len(records)
            return
        self._records += records[:remaining]
        self._records_until_death = None
        self._writer += 1
        raise CoordinatorDiedError(f"after {remaining} of {len(records)} records")

    def die_after(self, records: int) -> None:
        """Let the writer die, once, after that many more records: a test's fault, also within a commit.

        At the last record of a commit it dies after writing and before it answers.
        """
        self._records_until_death = records

    def compact(self) -> None:
        """Remove records without an effect.

        It keeps the latest record of each group and partition, with all records of its commit (else that commit would
        look torn) and the marker that brought it into force; pending commits; and each producer's last marker, which
        has its epoch.
        """
        keep = _Live(self.runs()).commit_numbers
        self._records = [record for record in self._records if record.commit_number in keep]


class _Live:
    """Finds the commits that a compaction must keep."""

    def __init__(self, runs: Iterable[tuple[list[OffsetLogRecord], bool]]) -> None:
        self._latest: dict[tuple[str, PartitionKey], OffsetRecord] = {}
        self._pending = PendingOffsets()
        self._marked_by: dict[int, int] = {}
        self._last_markers: dict[int, int] = {}
        self._partitions: dict[int, list[tuple[str, PartitionKey]]] = {}
        for run, is_whole in runs:
            if is_whole:
                self._read(run)

    def _read(self, run: Sequence[OffsetLogRecord]) -> None:
        number = run[0].commit_number
        effective = apply_run(run, self._pending)
        for record in run:
            if isinstance(record, OffsetMarker):
                self._last_markers[record.producer.producer_id] = number
            else:
                self._partitions.setdefault(number, []).append((record.group_id, record.partition))
        for record in effective:
            # A repair repeats the offset in force, and is removed together with the torn commit that it covers.
            if not record.repairs:
                self._latest[record.group_id, record.partition] = record
            if record.producer is not None:
                self._marked_by[record.commit_number] = number

    @property
    def commit_numbers(self) -> set[int]:
        """The numbers of the commits and markers to keep."""
        values = {record.commit_number for record in self._latest.values() if record.entry is not None}
        values |= {record.commit_number for record in self._pending.records()}
        kept_partitions = {key for number in values for key in self._partitions[number]}
        deletions = {
            record.commit_number
            for key, record in self._latest.items()
            if record.entry is None and key in kept_partitions
        }
        markers = {self._marked_by[number] for number in values if number in self._marked_by}
        return values | deletions | markers | set(self._last_markers.values())
