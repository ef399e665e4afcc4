"""Offset storage of the group coordinator (P4): what a commit writes, and what a restart reads.

A commit is first written to the log, with all its records, and then to the table from which fetches are answered. A new
store on a log recovers: it reads whole commits, ignores torn ones, and writes the offsets in force of their partitions
again, so that a log cleaner, which compares keys only, cannot remove them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from eos_client.testing.simulator.brokers.group_requests import FetchedOffset
from eos_client.testing.simulator.brokers.model import BrokerError, OffsetAndMetadata, PartitionKey, ProducerIdentity
from eos_client.testing.simulator.brokers.offset_log import (
    OffsetLog,
    OffsetLogRecord,
    OffsetMarker,
    OffsetRecord,
    PendingOffsets,
    apply_run,
)
from eos_client.testing.simulator.brokers.offset_table import PARTITIONS_MAX, OffsetTable

METADATA_BYTES_MAX = 4096  # Kafka's offset.metadata.max.bytes
COMPACTION_RECORDS_MIN = 10_000

COMMIT_CODES = (
    "NONE",
    "UNKNOWN_TOPIC_OR_PART",
    "INVALID_REQUEST",
    "OFFSET_METADATA_TOO_LARGE",
    "UNSTABLE_OFFSET_COMMIT",
    "OPERATION_NOT_ATTEMPTED",
)
"""The codes of ``commit``. UNSTABLE_OFFSET_COMMIT: a compare-and-set met an open transaction.
OPERATION_NOT_ATTEMPTED: another partition of the same commit was refused."""


class OffsetMismatchError(Exception):
    """A compare-and-set commit found other offsets than it expected and wrote nothing.

    ``actual``: the offsets now committed for the partitions that differ; None where nothing is committed.
    """

    def __init__(self, actual: Mapping[PartitionKey, int | None], expected: Mapping[PartitionKey, int | None]) -> None:
        found = "; ".join(
            f"{key.topic} [{key.partition}] is at {_text(offset)}, not at {_text(expected[key])}"
            for key, offset in sorted(actual.items())
        )
        super().__init__(f"nothing was committed: {found}")
        self.actual = dict(actual)


@dataclass(frozen=True, slots=True)
class PendingOffset:
    """A partition whose offset may move: the producers with an open transaction that commits it."""

    producers: tuple[ProducerIdentity, ...]


class OffsetStore:
    """Committed and pending offsets of all groups, recovered from ``log``; from then on it is the log's only writer.

    ``partition_count`` returns how many partitions a topic has, 0 for an unknown one; without it every topic exists.
    Raises CoordinatorDiedError if a test lets it die in its recovery; the next store on the same log recovers.
    """

    def __init__(self, log: OffsetLog, *, partition_count: Callable[[str], int] | None = None) -> None:
        self.log = log
        self._partition_count = partition_count
        self._table = OffsetTable()
        self._pending = PendingOffsets()
        self._epochs: dict[int, int] = {}
        self._commit_number = 0
        self._compaction_due = COMPACTION_RECORDS_MIN
        self._writer = log.open()
        self._repair(self._read_log())

    # -- commits -------------------------------------------------------------------------------------------------

    def commit(
        self,
        group_id: str,
        offsets: Mapping[PartitionKey, OffsetAndMetadata],
        *,
        expected: Mapping[PartitionKey, int | None] | None = None,
    ) -> dict[PartitionKey, str]:
        """Commit all of ``offsets``, or none; returns a code of COMMIT_CODES for each partition.

        ``expected`` makes it a compare-and-set: these partitions must be at these offsets now (None: at none), else
        nothing is written and OffsetMismatchError has the actual ones. They need not be those that are committed.
        Raises BrokerError NOT_COORDINATOR if another store has opened the log since.
        """
        refusals = self._refusals(offsets)
        if expected is not None and not refusals:
            unstable = self._pending.of_group(group_id)
            refusals = {key: "UNSTABLE_OFFSET_COMMIT" for key in expected if key in unstable}
        if refusals:
            return {key: refusals.get(key, "OPERATION_NOT_ATTEMPTED") for key in (*offsets, *refusals)}
        if expected is not None:
            self._compare(group_id, expected)
        self._write(self._new_run(group_id, offsets))
        return dict.fromkeys(offsets, "NONE")

    def stage(
        self, group_id: str, producer: ProducerIdentity, offsets: Mapping[PartitionKey, OffsetAndMetadata]
    ) -> None:
        """TxnOffsetCommit: keep ``offsets`` pending until the producer's marker; all of them, or none.

        Raises BrokerError with a code of COMMIT_CODES for the first refused partition, INVALID_PRODUCER_EPOCH if a
        commit or marker had a later epoch of the producer.
        """
        for key, code in self._refusals(offsets).items():
            raise BrokerError(code, f"{key.topic} [{key.partition}]")
        if self._is_fenced(producer):
            raise BrokerError(
                "INVALID_PRODUCER_EPOCH", f"{producer}, epoch {self._epochs[producer.producer_id]} was seen"
            )
        self._write(self._new_run(group_id, offsets, producer))

    def complete(self, group_id: str, producer: ProducerIdentity, *, committed: bool) -> None:
        """Write the marker of the producer's transaction: its staged offsets are committed or dropped.

        A commit of the same partition later in the log overrides the staged one. A marker may have a later epoch than
        the staged offsets (the abort after a time-out does) and may be repeated; one with an earlier epoch than the
        producer's latest has no effect.
        """
        if not self._is_fenced(producer):
            self._write([OffsetMarker(group_id, producer, committed, self._commit_number + 1)])

    def delete_group(self, group_id: str) -> None:
        """Delete all offsets of the group, also those that an open transaction has staged."""
        self.delete(group_id, dict.fromkeys((*self._table.of_group(group_id), *self._pending.of_group(group_id))))

    def delete(self, group_id: str, partitions: Iterable[PartitionKey]) -> None:
        """Delete the group's offsets of ``partitions``, as after the deletion of their topic."""
        self._write(self._new_run(group_id, dict.fromkeys(partitions)))

    # -- queries -------------------------------------------------------------------------------------------------

    def fetch(
        self, group_id: str, partitions: Iterable[PartitionKey] | None, *, require_stable: bool
    ) -> dict[PartitionKey, FetchedOffset]:
        """Return the committed offset, if any, of each of ``partitions``; None: of all the group's partitions.

        An unknown topic or partition has no offset, which is no error. ``require_stable``: a partition with a
        pending transactional commit has code UNSTABLE_OFFSET_COMMIT and no offset (KIP-447).
        """
        unstable = self._pending.of_group(group_id)
        committed = self._table.of_group(group_id) if partitions is None else {}
        wanted = sorted({*committed, *unstable}) if partitions is None else partitions
        answer = {}
        for key in wanted:
            entry = committed[key] if key in committed else self._table.get(group_id, key)
            if require_stable and key in unstable:
                answer[key] = FetchedOffset(None, code="UNSTABLE_OFFSET_COMMIT")
            else:
                answer[key] = FetchedOffset(None) if entry is None else FetchedOffset(entry.offset, entry.metadata)
        return answer

    def pending(self, group_id: str) -> dict[PartitionKey, PendingOffset]:
        """Return the group's partitions that an open transaction has staged offsets for."""
        return {key: PendingOffset(producers) for key, producers in self._pending.of_group(group_id).items()}

    def groups(self) -> tuple[str, ...]:
        """Return the ids of the groups with committed or pending offsets, sorted."""
        return tuple(sorted({*self._table.groups(), *self._pending.groups()}))

    def reopened(self) -> OffsetStore:
        """Return the store of a restarted coordinator on the same log; this store may not write any more."""
        return OffsetStore(self.log, partition_count=self._partition_count)

    # -- recovery ------------------------------------------------------------------------------------------------

    def _read_log(self) -> dict[tuple[str, PartitionKey], None]:
        """Apply every whole commit. Returns the partitions whose last record is part of a torn one."""
        torn: dict[tuple[str, PartitionKey], None] = {}
        for run, is_whole in self.log.runs():
            self._commit_number = run[0].commit_number
            records = [record for record in run if isinstance(record, OffsetRecord)]
            if is_whole:
                self._apply(run)
                for record in records:
                    if record.producer is None:
                        torn.pop((record.group_id, record.partition), None)
            else:
                torn.update(((record.group_id, record.partition), None) for record in records)
        return torn

    def _repair(self, torn: Iterable[tuple[str, PartitionKey]]) -> None:
        for group_id, partition in torn:
            self._commit_number += 1
            entry = self._table.get(group_id, partition)
            record = OffsetRecord(group_id, partition, entry, self._commit_number, 1, repairs=True)
            self.log.append(self._writer, [record])

    # -- one change ----------------------------------------------------------------------------------------------

    def _refusals(self, offsets: Mapping[PartitionKey, OffsetAndMetadata]) -> dict[PartitionKey, str]:
        refusals = {}
        for key, entry in offsets.items():
            count = PARTITIONS_MAX if self._partition_count is None else self._partition_count(key.topic)
            if not 0 <= key.partition < count:
                refusals[key] = "UNKNOWN_TOPIC_OR_PART"
            elif entry.offset < 0:
                refusals[key] = "INVALID_REQUEST"
            elif len(entry.metadata.encode()) > METADATA_BYTES_MAX:
                refusals[key] = "OFFSET_METADATA_TOO_LARGE"
        return refusals

    def _compare(self, group_id: str, expected: Mapping[PartitionKey, int | None]) -> None:
        actual: dict[PartitionKey, int | None] = {}
        for key, offset in expected.items():
            entry = self._table.get(group_id, key)
            now = None if entry is None else entry.offset
            if now != offset:
                actual[key] = now
        if actual:
            raise OffsetMismatchError(actual, expected)

    def _is_fenced(self, producer: ProducerIdentity) -> bool:
        return producer.producer_epoch < self._epochs.get(producer.producer_id, producer.producer_epoch)

    def _new_run(
        self,
        group_id: str,
        offsets: Mapping[PartitionKey, OffsetAndMetadata] | Mapping[PartitionKey, None],
        producer: ProducerIdentity | None = None,
    ) -> list[OffsetRecord]:
        number = self._commit_number + 1
        return [OffsetRecord(group_id, key, entry, number, len(offsets), producer) for key, entry in offsets.items()]

    def _write(self, run: Sequence[OffsetLogRecord]) -> None:
        """Write the log, then the table: a death in between loses nothing, because a restart reads the log."""
        if not run:
            return
        self._commit_number += 1
        self.log.append(self._writer, run)
        self._apply(run)
        if len(self.log) >= self._compaction_due:
            self.log.compact()
            self._compaction_due = max(COMPACTION_RECORDS_MIN, 2 * len(self.log))

    def _apply(self, run: Sequence[OffsetLogRecord]) -> None:
        for record in run:
            if record.producer is not None:
                producer = record.producer
                self._epochs[producer.producer_id] = max(
                    producer.producer_epoch, self._epochs.get(producer.producer_id, 0)
                )
        effective = apply_run(run, self._pending)
        if not effective:
            return
        entries = {record.partition: record.entry for record in effective if record.entry is not None}
        if entries:
            self._table.put(effective[0].group_id, entries)
        else:
            self._table.remove(effective[0].group_id, [record.partition for record in effective])


def _text(offset: int | None) -> str:
    return "no offset" if offset is None else str(offset)
