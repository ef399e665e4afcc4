"""What is true of one input partition, and what it becomes.

A partition that was just assigned has a `Start` until its first record was let through: librdkafka may start at
``auto.offset.reset`` although an offset is pending (KIP-447), so the first record is compared with the group's stable
committed offset.

A rewind that is decided inside a rebalance callback is sought once the client library's call has returned. That call
may return records from before the rewind, which are dropped while ``needs_seek``. librdkafka's ``seek`` itself discards
all that was fetched before. If the first record after a seek is at or beyond ``fetched_up_to``, the seek did not take
effect: the records are dropped, and the partition is sought again.
"""

from __future__ import annotations

from enum import Enum

import msgspec
from msgspec.structs import replace

from eos_client.core.leader_epochs import EpochChanges, Misplacement, changes_up_to, with_epoch_at
from eos_client.core.model import GroupGeneration, InputPosition
from eos_client.core.record_runs import Run

BEGINNING = -2
"""The logical offset of the first record of a log, as librdkafka numbers it."""

NO_OFFSET = -1001
"""Stands for an offset that there is not, as in librdkafka."""

SEEK_ATTEMPTS_MAX = 3
"""How often in a row a partition is sought again because what came was from elsewhere."""


class ResetPolicy(Enum):
    """What ``auto.offset.reset`` asks for where the group has no offset.

    librdkafka has three spellings each of EARLIEST and LATEST.
    """

    EARLIEST = frozenset({"earliest", "beginning", "smallest"})
    LATEST = frozenset({"latest", "end", "largest"})
    ERROR = frozenset({"error"})

    @classmethod
    def of(cls, setting: object) -> ResetPolicy:
        """Return the policy of a ``setting``; what librdkafka does not know it has refused already."""
        wanted = str(setting).lower()
        return next((policy for policy in cls if wanted in policy.value), cls.ERROR)


class StartPhase(Enum):
    """What is known of where a partition starts."""

    AWAITED = "awaited"
    """The library looks the start up by itself; the group is asked when the first record has come."""
    WITHHELD = "withheld"
    """Nothing is fetched until the group has told the start; then the partition is sought to it."""
    KNOWN = "known"
    """The start is known; the first record that comes is checked against it."""
    MISSING = "missing"
    """The group has no offset to start at, and ``auto.offset.reset=error`` allows no other."""


class Start(msgspec.Struct, frozen=True, gc=False):
    """Where a partition starts whose first record was not let through yet."""

    phase: StartPhase = StartPhase.AWAITED
    needs_commit: bool = False
    """With ``latest``, the start is not committed yet."""
    may_miss_records: bool = False
    """Records before the first to arrive may be missing."""
    offset: int | None = None
    """Where it starts, once that is known; None: at the beginning of the log."""
    epoch: int | None = None
    """The leader epoch that was committed with ``offset``."""
    log_end: int | None = None
    """Where it starts if the group has no offset: with ``latest``, the end of the log."""
    skipped_by_latest: int = 0
    """How many offsets of the log ``latest`` passes over."""

    @property
    def is_unknown(self) -> bool:
        """Whether the group has to be asked for it."""
        return self.phase in {StartPhase.AWAITED, StartPhase.WITHHELD}

    @property
    def goal(self) -> int:
        """The offset to seek to, which may be a logical one."""
        return BEGINNING if self.offset is None else self.offset

    def may_lie_beyond_the_end(self, first: Run) -> bool:
        """Whether the library may have started over at its ``first`` records, because the log ends before the start."""
        return self.offset is not None and self.epoch is not None and first.first_offset < self.offset

    def differs_from(self, first: Run) -> bool:
        """Whether the partition may have to start elsewhere than at its ``first`` records."""
        if self.offset is None:
            return self.may_miss_records and first.first_offset > 0
        return self.offset != first.first_offset or (self.epoch is not None and self.epoch != first.epochs[0][1])


class PartitionRow(msgspec.Struct, frozen=True, gc=False):
    """What is true of one partition. One that is neither assigned, paused nor has work has no row."""

    is_assigned: bool = False
    start: Start | None = None
    """None once the first record was let through, or the application has chosen where to go on."""
    next_to_hand_over: int | None = None
    """An offset, which may be logical; None until the start is known."""
    rejects_earlier: bool = False
    """A record before ``next_to_hand_over`` is an error."""
    was_read: bool = False
    """Something was handed over since the assignment."""
    needs_seek: bool = False
    """The library is elsewhere, so what it brings is dropped."""
    fetched_up_to: int | None = None
    """The end of what was fetched before the rewind; None once a record before it has come: all that follow are new."""
    attempts: int = 0
    """How often in a row records came from elsewhere."""
    truncation: Misplacement | None = None
    """What showed that the log was truncated."""
    epochs: EpochChanges = ()
    """The leader epochs of what was read."""
    group_offset: int | None = None
    """The group's committed offset as last known, NO_OFFSET where it had none; None: not known."""
    work: InputPosition | None = None
    """Handed over and not committed."""
    processed_up_to: int | None = None
    """While records of it are unprocessed: the outputs of the work before this offset are written."""
    orphan: InputPosition | None = None
    """Work from before the partition left, which no transaction may commit; the gate knows it as lost or revoked."""
    paused_by_application: bool = False
    library_paused: bool = False
    """The library may have it paused."""

    # -- what is known -----------------------------------------------------------------------------------------------

    @property
    def start_is_unknown(self) -> bool:
        """Whether it awaits its first record, and the group has to be asked where that is."""
        return self.start is not None and self.start.is_unknown

    @property
    def is_withheld(self) -> bool:
        """Whether nothing of it may be fetched until its start is known."""
        return self.start is not None and self.start.phase in {StartPhase.WITHHELD, StartPhase.MISSING}

    @property
    def is_elsewhere(self) -> bool:
        """Whether the library is not where it goes on, so that an end which it has reached says nothing."""
        return self.needs_seek or self.is_withheld

    @property
    def has_no_start(self) -> bool:
        """Whether it has no offset to start at, and may not choose one."""
        return self.start is not None and self.start.phase is StartPhase.MISSING

    @property
    def awaits_first_record(self) -> bool:
        """Whether the library may still look up its start: a pause would make it forget the look-up."""
        return self.start is not None and self.start.phase is not StartPhase.MISSING

    @property
    def is_paused_with_all(self) -> bool:
        """Whether a pause of all partitions pauses it: not one whose look-up of a start would be forgotten by that."""
        return self.is_assigned and not self.awaits_first_record

    @property
    def is_at_logical_offset(self) -> bool:
        """Whether the library has to look up where it goes on, as at the end of the log."""
        return self.next_to_hand_over is not None and self.next_to_hand_over < 0

    @property
    def may_be_sought_again(self) -> bool:
        """Whether fewer than SEEK_ATTEMPTS_MAX seeks in a row have missed."""
        return self.attempts < SEEK_ATTEMPTS_MAX

    @property
    def is_settled(self) -> bool:
        """Whether nothing is due for it, and all that is fetched of it may be handed over."""
        return (
            self.start is None
            and not self.needs_seek
            and not self.is_at_logical_offset
            and self.fetched_up_to is None
            and self.truncation is None
            and not self.paused_by_application
            and not self.library_paused
        )

    @property
    def must_be_paused(self) -> bool:
        """Whether the library must not fetch it.

        It is paused before a seek, too, because a pause discards what the library has fetched ahead. That is not needed
        where ``fetched_up_to`` tells the records that were fetched before the seek from those after it.
        """
        is_to_start = self.needs_seek and self.fetched_up_to is None
        return self.is_assigned and (self.paused_by_application or self.is_withheld or is_to_start)

    @property
    def has_due_call(self) -> bool:
        """Whether the library has to seek, pause or resume it."""
        return self.needs_seek or self.must_be_paused != self.library_paused

    @property
    def has_due_question(self) -> bool:
        """Whether the group has to be asked for its start without a record that has come, or told its start."""
        start = self.start
        return start is not None and (start.needs_commit or start.phase is StartPhase.WITHHELD)

    @property
    def stops_all(self) -> bool:
        """Whether nothing may be handed over because of it, until the application has chosen where it goes on."""
        return self.truncation is not None or self.has_no_start

    # -- where it goes on ----------------------------------------------------------------------------------------------

    def started(self, start: Start) -> PartitionRow:
        """Return the row that goes on at ``start``, which is known."""
        epochs = self.epochs
        if start.offset is not None and start.offset >= 0:
            epochs = with_epoch_at(epochs, start.offset, start.epoch)
        return replace(self, start=None, next_to_hand_over=start.goal, rejects_earlier=False, epochs=epochs)

    def sought_at(self, start: Start, policy: ResetPolicy) -> PartitionRow:
        """Return the withheld row that is sought at its ``start``, which is known, or has none."""
        if start.offset is None and policy is ResetPolicy.ERROR:
            return replace(self, start=replace(start, phase=StartPhase.MISSING))
        return replace(self.started(start), needs_seek=True)

    def without_position(self) -> PartitionRow:
        """Return the row of a partition that goes on elsewhere: where it was read so far says nothing any more.

        The leader epochs stay, because an abort may go back to work that is not committed; what is read again replaces
        them. A truncation stays, too, unless the application chooses: ``chosen_anew``.
        """
        return replace(
            self, next_to_hand_over=None, rejects_earlier=False, was_read=False, needs_seek=False, fetched_up_to=None
        )

    def chosen_anew(self) -> PartitionRow:
        """Return the row `without_position` of a partition for which the application has chosen where it goes on."""
        return replace(self.without_position(), truncation=None)

    def started_anew(self, policy: ResetPolicy) -> PartitionRow:
        """Return the row that starts at the group's offset: the library may have read elsewhere."""
        start = self.start or Start()
        is_known = start.phase is StartPhase.KNOWN
        start = start if is_known else replace(start, phase=StartPhase.WITHHELD)
        anew = replace(self.without_position(), start=start)
        return anew.sought_at(start, policy) if is_known else anew

    def rewound(self, fetched_up_to: int) -> PartitionRow:
        """Return the row to be sought at ``next_to_hand_over``, which must be known; see ``fetched_up_to``."""
        fetched_up_to = max(fetched_up_to, self.fetched_up_to or 0)
        is_behind = self.next_to_hand_over is not None and 0 <= self.next_to_hand_over < fetched_up_to
        return replace(
            self, needs_seek=True, rejects_earlier=False, fetched_up_to=fetched_up_to if is_behind else None, attempts=0
        )

    def departed(self) -> PartitionRow:
        """Return the row after the partition has left: its work is nobody's to commit here."""
        return PartitionRow(
            orphan=self.work or self.orphan, library_paused=self.library_paused or self.paused_by_application
        )

    def unassigned_by_hand(self) -> PartitionRow:
        """Return the row after the application has taken it from the assignment: its work can still be committed."""
        return PartitionRow(
            next_to_hand_over=self.next_to_hand_over,
            work=self.work,
            processed_up_to=self.processed_up_to,
            orphan=self.orphan,
            paused_by_application=self.paused_by_application,
            library_paused=self.library_paused,
        )

    # -- records and work ----------------------------------------------------------------------------------------------

    def received(self, run: Run) -> tuple[PartitionRow, bool]:
        """Return the row after ``run`` was fetched, and whether the run remains; else it is dropped."""
        row = self
        if row.paused_by_application:
            row = replace(row, library_paused=False)  # librdkafka ignores a pause before a topic's first assignment
        if row.needs_seek:
            return replace(row, fetched_up_to=row.fetched_up_to and max(row.fetched_up_to, run.next_offset)), False
        if row.fetched_up_to is not None:
            if run.first_offset >= row.fetched_up_to and row.may_be_sought_again:
                return replace(row, needs_seek=True, attempts=row.attempts + 1), False
            row = replace(row, fetched_up_to=None)
        start = row.start
        if start is None:
            return row.placed_at(run), True
        if start.phase is not StartPhase.KNOWN:
            return replace(row, start=replace(start, phase=StartPhase.WITHHELD) if start.is_unknown else start), False
        started = row.started(start)
        if start.differs_from(run):
            return replace(started, needs_seek=True), False
        return started.placed_at(run), True

    def placed_at(self, first: Run) -> PartitionRow:
        """Return the row at its ``first`` run: the library would look a logical offset up again, and be elsewhere."""
        if not (self.is_at_logical_offset and first.messages):
            return self
        epochs = with_epoch_at(changes_up_to(self.epochs, first.first_offset), *first.epochs[0])
        return replace(self, next_to_hand_over=first.first_offset, epochs=epochs)

    def handed_over(self, run: Run, generation: GroupGeneration) -> PartitionRow:
        """Return the row with ``run`` as work, which the group has shown ``generation`` for."""
        position = InputPosition(run.first_offset, run.next_offset, generation, run.leader_epoch, run.gaps)
        epochs = self.epochs
        if not epochs or epochs[-1][1] != run.leader_epoch or epochs[-1][0] > run.first_offset:
            epochs = changes_up_to(epochs, run.first_offset)
            for offset, epoch in run.epochs:
                epochs = with_epoch_at(epochs, offset, epoch)
        work = position if self.work is None else self.work.followed_by(position)
        return replace(
            self,
            next_to_hand_over=run.next_offset,
            rejects_earlier=True,
            was_read=True,
            fetched_up_to=None,
            attempts=0,
            epochs=epochs,
            work=work,
        )

    def kept_up_to(self, offset: int) -> int:
        """Return how far its work stays if it goes back to ``offset``: the outputs of processed work are written."""
        return offset if self.processed_up_to is None else max(offset, self.processed_up_to)

    def taken_back(self, offset: int) -> PartitionRow:
        """Return the row without the work from ``offset`` on."""
        work = self.work
        if work is None or offset >= work.next_offset:
            return self
        return replace(self, work=work.between(work.first_offset, offset) if offset > work.first_offset else None)

    def committed_up_to(self, offset: int) -> PartitionRow:
        """Return the row after the group has committed ``offset``."""
        group_offset, known = offset if self.is_assigned else None, self.work or self.orphan
        if known is None or offset <= known.first_offset:
            return replace(self, group_offset=group_offset)
        if offset >= known.next_offset:
            return replace(self, group_offset=group_offset, work=None, processed_up_to=None, orphan=None)
        remaining = known.between(offset, known.next_offset)
        if self.work is None:
            return replace(self, group_offset=group_offset, orphan=remaining)
        return replace(self, group_offset=group_offset, work=remaining)

    def without_work(self) -> PartitionRow:
        """Return the row without any work."""
        return replace(self, work=None, processed_up_to=None, orphan=None)
