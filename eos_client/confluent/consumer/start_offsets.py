"""Where a newly assigned partition starts, checked against the group's committed offset (KIP-447).

librdkafka may start at ``auto.offset.reset`` although an offset is pending, and applies it to a deleted offset, too. So
the first record of a partition is let through only when the stable committed offset says so. ``latest`` is implemented
here: the end of the log is looked up and committed when a partition without an offset is assigned, so that a later
owner starts there. Until its start is known, the drain does not pause a partition, which would make librdkafka look it
up again. librdkafka validates a start against truncation (KIP-320) only when it is sought with a leader epoch: that is
done if the first record has another epoch than the committed offset.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from confluent_kafka import OFFSET_BEGINNING

from eos_client.confluent.consumer.fetched_records import Batch
from eos_client.confluent.consumer.library_consumer import LibraryConsumer, ResetPolicy
from eos_client.confluent.consumer.rewinding import Seeks
from eos_client.confluent.failures.position_failures import no_offset
from eos_client.core.model import CommittedOffset, InputPartition, format_partitions
from eos_client.core.passed_offsets import PassedOffset

_RETRY_INTERVAL_S = 0.5
_REPORT_AFTER_S = 30.0


class _FirstRecord(NamedTuple):
    """The offset and the leader epoch of the first record to arrive."""

    offset: int
    epoch: int | None


@dataclass(slots=True)
class _Start:
    """What is known of one partition whose first record was not let through yet.

    ``is_withheld``: nothing is fetched until its start is known. ``lacks_start``: it has no offset to start at, and
    may not choose one. ``needs_commit``: with ``latest``, its start offset is not committed yet. ``is_recreated``:
    it is of another topic than before, so no committed offset counts. ``may_miss_records``: records before the first to
    arrive may be missing. ``end``: where it starts without a committed offset, ``before`` that many offsets of the log.
    ``offset``: where it starts, once ``is_known``; None: at the beginning of the log. ``epoch``: the leader epoch that
    was committed with it.
    """

    is_withheld: bool = False
    lacks_start: bool = False
    needs_commit: bool = False
    is_recreated: bool = False
    may_miss_records: bool = False
    is_known: bool = False
    offset: int | None = None
    epoch: int | None = None
    end: int | None = None
    before: int = 0

    def learn(self, offset: int | None, epoch: int | None) -> None:
        """Record where the partition starts: the offset was read from the group, or committed by us."""
        self.is_known, self.offset, self.epoch = True, offset, epoch
        if offset is not None:
            self.needs_commit = self.is_recreated = False
            self.end = None

    def forget(self) -> None:
        """Drop what was learned."""
        self.is_known, self.offset, self.epoch = False, None, None

    def differs_from(self, first: _FirstRecord) -> bool:
        """Whether the partition may have to start at another offset than its ``first`` record."""
        if self.offset is None:
            return self.may_miss_records and first.offset > 0
        return self.offset != first.offset or (self.epoch is not None and self.epoch != first.epoch)

    @property
    def goal(self) -> int:
        """The offset to seek to, which may be a logical one."""
        return OFFSET_BEGINNING if self.offset is None else self.offset


class SoughtStart(NamedTuple):
    """An ``offset`` that the application has sought, maybe a logical one; the group had ``committed_then``."""

    committed_then: int | None
    offset: int


@dataclass(eq=False, repr=False)
class StartOffsets:
    """The partitions whose first record has not come yet, and those of them that wait for a pending offset.

    ``_commit`` commits start offsets, if that is allowed now; it returns whether they were committed.
    """

    _library: LibraryConsumer
    _commit: Callable[[Mapping[InputPartition, int]], bool]
    _seeks: Seeks
    _report: Callable[[str], None]
    _clock: Callable[[], float]
    _starts: dict[InputPartition, _Start] = field(default_factory=dict, init=False)
    _sought: dict[InputPartition, SoughtStart] = field(default_factory=dict, init=False)
    _passed_over: dict[InputPartition, int] = field(default_factory=dict, init=False)
    _ask_at: float = field(default=0.0, init=False)
    _unanswered_since: float | None = field(default=None, init=False)

    @property
    def waiting(self) -> frozenset[InputPartition]:
        """Partitions whose first record was not let through yet: nobody else may pause or resume them."""
        return frozenset(p for p, start in self._starts.items() if not start.lacks_start)

    @property
    def withheld(self) -> frozenset[InputPartition]:
        """Partitions of which nothing may be fetched until their start is known."""
        return frozenset(p for p, start in self._starts.items() if start.is_withheld or start.lacks_start)

    def take_passed_over(self) -> Mapping[InputPartition, int]:
        """Return how many offsets lie before the end at which partitions have started since the last call."""
        passed_over, self._passed_over = self._passed_over, {}
        return passed_over

    def expect(self, partitions: Iterable[InputPartition]) -> None:
        """Let ``partitions``, which were assigned, start at the group's offset."""
        started = frozenset(partitions)
        for partition in started:
            start = self._start_of(partition)
            start.needs_commit = self._library.reset_policy is ResetPolicy.LATEST
            start.is_withheld = start.is_withheld or partition in self._sought
        self._library.resume(started)  # a drain's pause outlives a revocation during the drain

    def continue_at(self, sought: Mapping[InputPartition, SoughtStart]) -> None:
        """Let partitions start where the application has sought, once they are assigned again.

        If the group has committed another offset by then, another member has, and that one counts.
        """
        self._sought.update(sought)

    def commit_missing(self) -> None:
        """With ``latest``, commit the present end as the start offset of assigned partitions that have none.

        What cannot be read or committed now is tried again while records are fetched.
        """
        if uncommitted := {p for p, start in self._starts.items() if start.needs_commit}:
            self._resolve(uncommitted)

    def await_committed(self, partitions: frozenset[InputPartition]) -> None:
        """Fetch nothing of ``partitions``, which were read too early, until their start is known."""
        starts = [self._start_of(partition) for partition in partitions]
        self._library.pause(partitions)
        for start in starts:
            start.is_withheld, start.lacks_start = True, False
        self._resolve({p for p in partitions if not self._starts[p].is_known})
        self._seek_known_starts({})

    def mark_may_miss_records(self, partitions: frozenset[InputPartition]) -> None:
        """Record that the client library may have dropped the first records of ``partitions``, or an error event.

        A seek would end its own look-up of where they start, so what arrives is compared first. With ``error`` nothing
        arrives after an error event that was dropped.
        """
        if self._library.reset_policy is ResetPolicy.ERROR:
            self.await_committed(partitions)
            return
        for partition in partitions:
            self._start_of(partition).may_miss_records = True

    def restart_recreated(self, partitions: frozenset[InputPartition], read: frozenset[InputPartition]) -> None:
        """Let ``partitions``, which are of another topic now, start at its beginning.

        Of those in ``read``, the old topic's records were handed over in this assignment, so no committed offset can
        be the new topic's; for the others, one that the group still has counts.
        """
        for partition in partitions:
            start = self._start_of(partition)
            start.forget()
            start.is_recreated = start.is_recreated or partition in read
            if partition in read or self._library.reset_policy is ResetPolicy.LATEST:
                start.end = start.before = 0
        self.await_committed(partitions)

    def forget(self, partitions: Iterable[InputPartition]) -> None:
        """Forget ``partitions``, which have left, or for which the application has chosen a start."""
        withheld = self.withheld & frozenset(partitions)
        for partition in partitions:
            self._starts.pop(partition, None)
            self._sought.pop(partition, None)
        if withheld:
            self._library.resume(withheld)

    def filter_batch(self, batch: Batch) -> Batch:
        """Return the records that may be handed over; seeks the partitions that started elsewhere than they should."""
        if not self._starts:
            return batch
        if self._clock() >= self._ask_at:
            self.commit_missing()
        arrived: dict[InputPartition, _FirstRecord] = {}
        waiting = self.waiting
        for run in batch.runs:
            if run.partition in waiting and not run.is_error and run.partition not in arrived:
                epoch = batch.messages[run.start].leader_epoch()
                arrived[run.partition] = _FirstRecord(run.first_offset, epoch)
        self._learn(arrived)
        withheld = frozenset(p for p in arrived if not self._starts[p].is_known and not self._starts[p].is_withheld)
        self._library.pause(withheld)
        for partition in withheld:
            self._starts[partition].is_withheld = True
        refused = self._seek_known_starts(arrived) | (arrived.keys() & self.withheld)
        return batch.without(frozenset(refused)) if refused else batch

    def check_passed(self, passed: Mapping[InputPartition, PassedOffset]) -> None:
        """Seek the partitions whose start has ``passed`` offsets without a record before any record came.

        They are treated as a first record is: the client library may have started elsewhere, and it asks the broker
        whether the log was truncated only where it is sought with a leader epoch.
        """
        arrived = {partition: _FirstRecord(*passed[partition]) for partition in passed.keys() & self.waiting}
        self._learn(arrived)
        self._seek_known_starts(arrived)

    def _start_of(self, partition: InputPartition) -> _Start:
        return self._starts.setdefault(partition, _Start())

    def _learn(self, arrived: Mapping[InputPartition, _FirstRecord]) -> None:
        """Read all unknown offsets in one request; if one of them is pending, read the needed ones one by one."""
        unknown = {p: start for p, start in self._starts.items() if not start.is_known and not start.lacks_start}
        is_time = self._clock() >= self._ask_at
        needed = [p for p, start in unknown.items() if (is_time if start.is_withheld else p in arrived)]
        if not needed:
            return
        has_answered = self._resolve(set(unknown))
        self._record_answer(has_answered, needed)
        if not has_answered and len(self.waiting) > 1:
            for partition in needed:
                self._resolve({partition})

    def _record_answer(self, has_answered: bool, needed: list[InputPartition]) -> None:
        """Report every _REPORT_AFTER_S seconds that the group does not say where ``needed`` start."""
        now = self._clock()
        if has_answered:
            self._unanswered_since = None
        elif self._unanswered_since is None:
            self._unanswered_since = now
        elif now - self._unanswered_since >= _REPORT_AFTER_S:
            self._unanswered_since = now
            self._report(
                f"nothing of {format_partitions(frozenset(needed))} is handed over: the group has not answered with a "
                f"stable committed offset for {_REPORT_AFTER_S:g} s or more. Either the cluster does not answer, or "
                "a transaction with offsets of this group is still open; the coordinator ends it at its "
                "transaction.timeout.ms"
            )

    def _resolve(self, partitions: set[InputPartition]) -> bool:
        """Find start offsets of ``partitions``, commit them with ``latest``; returns whether the group has answered."""
        asked = {p for p in partitions if not self._starts[p].is_recreated}
        answer = self._library.committed_offsets(asked) if asked else {}
        known: dict[InputPartition, CommittedOffset | None] = dict(answer or {})
        if self._library.reset_policy is ResetPolicy.LATEST:
            # Look each end up once: the offset stays valid until it can be committed.
            for partition in sorted(p for p in asked - known.keys() if self._starts[p].end is None):
                if (span := self._library.span_of(partition)) is None:
                    break
                self._starts[partition].end, self._starts[partition].before = span[1], span[1] - span[0]
        if answer is not None:
            ends = {p: end for p in partitions - known.keys() if (end := self._starts[p].end) is not None}
            if ends and self._commit(ends):
                known.update({partition: CommittedOffset(end, "") for partition, end in ends.items()})
                self._passed_over.update({p: before for p in ends if (before := self._starts[p].before)})
            if self._library.reset_policy is not ResetPolicy.LATEST:
                known.update(dict.fromkeys(asked - known.keys()))
        for partition, entry in known.items():
            offset, epoch = (None, None) if entry is None else (entry.offset, entry.leader_epoch)
            sought = self._sought.pop(partition, None)
            if sought and sought.committed_then == offset:
                offset, epoch = sought.offset, None
            self._starts[partition].learn(offset, epoch)
        self._ask_at = self._clock() + _RETRY_INTERVAL_S
        return answer is not None

    def _seek_known_starts(self, arrived: Mapping[InputPartition, _FirstRecord]) -> set[InputPartition]:
        """Seek the partitions whose start is known where that is needed, and return those."""
        sought: set[InputPartition] = set()
        decided = {p: s for p, s in self._starts.items() if s.is_known and (s.is_withheld or p in arrived)}
        for partition, start in decided.items():
            if start.is_withheld and start.offset is None and self._library.reset_policy is ResetPolicy.ERROR:
                start.forget()
                start.is_withheld, start.lacks_start = False, True
                continue
            self._record_epoch(partition, start, arrived.get(partition))
            if start.is_withheld or start.differs_from(arrived[partition]):
                self._seeks.seek(partition, start.goal)
                sought.add(partition)
            else:
                # If the call that hands it over is interrupted, the next one goes back to there.
                self._seeks.handed.set_next_offset(partition, start.goal)
            del self._starts[partition]
            if start.is_withheld:
                self._library.resume(frozenset({partition}))
        return sought

    def _record_epoch(self, partition: InputPartition, start: _Start, first: _FirstRecord | None) -> None:
        """Record the committed leader epoch for the seek to the committed offset, and for later ones.

        Without it, librdkafka reports an offset that lies beyond the end of the log at once, by starting over; with it,
        only when the next record is written.
        """
        if start.offset is None or start.offset < 0:
            return
        epoch = start.epoch
        if first is not None and first.offset < start.offset:
            end = self._library.end_of(partition)
            epoch = None if end is not None and end < start.offset else epoch
        self._seeks.epochs.record(partition, start.offset, epoch)

    def require_starts(self) -> None:
        """Raise InputPositionError when a partition has no offset to start at, and may not choose one."""
        for partition in sorted(p for p, start in self._starts.items() if start.lacks_start):
            raise no_offset(partition)
