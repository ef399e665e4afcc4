"""What is true of each input partition of a consumer, as one immutable value.

Theory of operation. `ConsumerState` has one row for each partition and the fetched runs that wait. `next_state` is the
only way it changes: an event goes in, the next state comes out, and the consumer replaces its state by one assignment.
What the client library must be told (pause, seek, resume, ask where a partition starts) *follows from the state* and
not from the event: the functions ``due_*`` read it from the rows. So an action that an exception interrupted is still
due afterwards, and an action that was done is told as an event (``Sought``, ``StartsFound``, ``LibraryResumed``).

A call that takes records from the library marks the state first (``CallBegan``). Its last step is ``HandedOver``, which
counts the records as handed over and clears the mark in the same assignment. A mark that the next call finds belongs
to a call that was interrupted: records may be missing, so ``Interrupted`` drops what waits and lets every partition be
sought where the application's next record is. Facts that callbacks report are applied at once and stay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from types import MappingProxyType
from typing import Any

import msgspec
from msgspec.structs import replace

from eos_client.core import partition_events as events
from eos_client.core.leader_epochs import Misplacement, epoch_at, with_epoch_at
from eos_client.core.model import (
    NO_PARTITIONS,
    InputPartition,
    InputPositions,
    Partitions,
    UnexpectedEventError,
)
from eos_client.core.partition_row import BEGINNING, NO_OFFSET, PartitionRow, ResetPolicy, Start, StartPhase
from eos_client.core.record_runs import Run, without_partitions

_BLANK = PartitionRow()
_NO_ROWS: Mapping[InputPartition, PartitionRow] = MappingProxyType({})
_NO_POSITIONS: InputPositions = MappingProxyType({})


class ConsumerState(msgspec.Struct, frozen=True, gc=False):
    """Everything that is true of a consumer's partitions.

    The sets of partitions are indexes of the rows, so that no call has to look at all rows.
    """

    reset_policy: ResetPolicy = ResetPolicy.EARLIEST
    rows: Mapping[InputPartition, PartitionRow] = _NO_ROWS
    unsettled: Partitions = NO_PARTITIONS
    """Partitions with something due, or with records to come that may have to be dropped.

    Whatever is fetched of other partitions is appended to ``waiting`` without a look at their rows.
    """
    due: Partitions = NO_PARTITIONS
    """Partitions that the library has to seek, pause or resume."""
    asking: Partitions = NO_PARTITIONS
    """Partitions whose start has to be looked up or committed."""
    stopping: Partitions = NO_PARTITIONS
    """Partitions because of which nothing is handed over until the application chooses where they go on."""
    paused: Partitions = NO_PARTITIONS
    """Partitions that the application has paused."""
    positions: InputPositions = _NO_POSITIONS
    """The uncommitted work of each partition that has some, or its orphan."""
    unprocessed: Partitions = NO_PARTITIONS
    """Partitions of which records were handed over since the last ``Processed``."""
    waiting: tuple[Run, ...] = ()
    """What was fetched and is not handed over yet."""
    departed_in_call: Partitions = NO_PARTITIONS
    """Partitions that have left during the library call under way."""
    all_are_paused: bool = False
    """Every partition is paused for a while."""
    call_is_unfinished: bool = False
    """A call is under way, or was interrupted."""
    has_unreported_loss: bool = False
    """The application may hold records of partitions that have left, of which no block has told it."""
    replaced_topic: str | None = None
    """The first input topic that was deleted and created again: nothing more is handed over."""

    # -- what is known -----------------------------------------------------------------------------------------------

    def row(self, partition: InputPartition) -> PartitionRow:
        """Return the row of ``partition``; a blank one if there is none."""
        return self.rows.get(partition, _BLANK)

    @property
    def owned_positions(self) -> InputPositions:
        """The uncommitted work of partitions that have not left since: the others may have a new owner."""
        rows = self.rows
        return {p: work for p in self.positions if (work := rows[p].work) is not None}

    @property
    def has_unprocessed(self) -> bool:
        """Whether records were handed over that are not known to be processed yet."""
        return bool(self.unprocessed) and bool(self.positions)

    @property
    def has_given_all_back(self) -> bool:
        """Whether no record is left that was handed over and is not known to be processed yet."""
        return not any(self.gives_back(partition, BEGINNING) for partition in self.unprocessed)

    def gives_back(self, partition: InputPartition, offset: int) -> bool:
        """Whether unprocessed work of ``partition`` comes again if it goes back to ``offset``."""
        row = self.row(partition)
        return partition in self.unprocessed and row.work is not None and row.kept_up_to(offset) < row.work.next_offset

    @property
    def next_offsets(self) -> Mapping[InputPartition, int]:
        """Where each partition goes on, as far as that is known; an offset may be logical."""
        return {p: row.next_to_hand_over for p, row in self.rows.items() if row.next_to_hand_over is not None}

    @property
    def group_offsets(self) -> Mapping[InputPartition, int]:
        """The group's offsets of the partitions with work, as last known; NO_OFFSET where it had none."""
        known = ((p, self.rows[p].group_offset) for p in self.positions)
        return {p: offset for p, offset in known if offset is not None}

    @property
    def assigned(self) -> Partitions:
        """The partitions that the library fetches, or would if they were not paused."""
        return frozenset(p for p, row in self.rows.items() if row.is_assigned)

    @property
    def has_ready(self) -> bool:
        """Whether anything waits that may be handed over."""
        return any(run.partition not in self.paused for run in self.waiting)

    @property
    def withheld(self) -> Partitions:
        """The partitions of which nothing may be fetched until their start is known."""
        return frozenset(p for p in self.unsettled if self.rows[p].is_withheld)

    @property
    def awaiting_first(self) -> Partitions:
        """The partitions whose start the library may still look up."""
        return frozenset(p for p in self.unsettled if self.rows[p].awaits_first_record)

    @property
    def pausable(self) -> Partitions:
        """The partitions that may be paused for a while; the application's own pauses are left alone."""
        return frozenset(p for p, row in self.rows.items() if row.is_paused_with_all) - self.paused

    @property
    def sought_without_records(self) -> Partitions:
        """The partitions of which nothing has come since they were sought, so that the library may be elsewhere."""
        return frozenset(p for p in self.unsettled if self.rows[p].fetched_up_to is not None)

    def shown_offset(self, partition: InputPartition, library_offset: int) -> int | None:
        """Return the offset of the next record of ``partition`` to hand over; None where it is not known.

        ``library_offset``: where the library goes on. It may have counted records that were not handed over: those that
        wait, those of a call under way or interrupted, those from before a seek that is due, and those before the first
        one that is let through.
        """
        row, first = self.row(partition), self._first_waiting(partition)
        if self.call_is_unfinished or row.needs_seek:
            return row.next_to_hand_over if row.next_to_hand_over is not None and row.next_to_hand_over >= 0 else None
        if first is not None:
            return first
        return None if row.awaits_first_record else library_offset

    def _first_waiting(self, partition: InputPartition) -> int | None:
        return next((r.first_offset for r in self.waiting if r.partition == partition and not r.is_error), None)

    # -- what is due -------------------------------------------------------------------------------------------------

    @property
    def due_pauses(self) -> Partitions:
        """The partitions that the library must pause; see `PartitionRow.must_be_paused`."""
        rows = self.rows
        return frozenset(p for p in self.due if rows[p].must_be_paused and not rows[p].library_paused)

    @property
    def due_seeks(self) -> Mapping[InputPartition, tuple[int, int | None]]:
        """The partitions that the library must seek, with offset and leader epoch, once no callback runs.

        With the epoch, librdkafka asks the broker before it fetches whether the log has been truncated (KIP-320).
        """
        return {
            p: (
                row.next_to_hand_over,
                epoch_at(row.epochs, row.next_to_hand_over) if row.next_to_hand_over >= 0 else None,
            )
            for p in self.due
            if (row := self.rows[p]).needs_seek and row.is_assigned and row.next_to_hand_over is not None
        }

    @property
    def due_resumes(self) -> Partitions:
        """The partitions to resume. librdkafka keeps a pause across rebalances.

        During a pause of all partitions, only departed and newly assigned ones are resumed: librdkafka must look up
        where the latter start.
        """
        paused = ((p, self.rows[p]) for p in self.due if self.rows[p].library_paused)
        return frozenset(
            p for p, row in paused if not row.must_be_paused and not (self.all_are_paused and row.is_paused_with_all)
        )

    def due_starts(self, arrived: Iterable[Run], *, is_time: bool) -> Partitions:
        """Return the partitions whose start must be asked for: records have ``arrived``, or it is time to ask again."""
        rows = self.rows
        came = {run.partition for run in arrived if not run.is_error and run.partition in self.unsettled}
        asked = {p for p in came if rows[p].start_is_unknown and not rows[p].is_withheld}
        if is_time:
            asked.update(p for p in self.asking if rows[p].start_is_unknown and rows[p].is_withheld)
        return frozenset(asked)

    @property
    def unknown_starts(self) -> Partitions:
        """The partitions whose start is not known, but for those that have none."""
        return frozenset(p for p in self.unsettled if self.rows[p].start_is_unknown)

    def due_log_ends(self, arrived: Iterable[Run]) -> Partitions:
        """Return the partitions whose log may end before their start: earlier records have ``arrived``."""
        starts = ((run, self.row(run.partition).start) for run in arrived if not run.is_error)
        return frozenset(
            run.partition for run, start in starts if start is not None and start.may_lie_beyond_the_end(run)
        )

    @property
    def due_start_commits(self) -> Partitions:
        """The partitions whose start is to be committed, so that later owners start there (``latest``)."""
        return frozenset(p for p in self.asking if (start := self.rows[p].start) is not None and start.needs_commit)

    def due_ends(self, partitions: Partitions) -> Partitions:
        """Return which of ``partitions`` need the end of their log: with ``latest`` they may have to start there.

        It is looked up once: the offset stays valid until it can be committed.
        """
        if self.reset_policy is not ResetPolicy.LATEST:
            return NO_PARTITIONS
        starts = ((p, self.row(p).start) for p in partitions)
        return frozenset(p for p, start in starts if start is not None and start.log_end is None)

    def due_end_commits(self, partitions: Partitions) -> Mapping[InputPartition, int]:
        """Return the ends to be committed as starts of ``partitions``, now that the group has said what it has."""
        starts = ((p, self.row(p).start) for p in partitions)
        return {p: start.log_end for p, start in starts if start is not None and start.log_end is not None}

    @property
    def missing_starts(self) -> Partitions:
        """The partitions that have no offset to start at, and may not choose one."""
        return frozenset(p for p in self.stopping if self.rows[p].has_no_start)

    @property
    def truncations(self) -> Mapping[InputPartition, Misplacement]:
        """The partitions whose log was truncated."""
        found = ((p, self.rows[p].truncation) for p in self.stopping)
        return {p: truncation for p, truncation in found if truncation is not None}


def next_state(state: ConsumerState, event: events.PartitionEvent) -> ConsumerState:
    """Return the state after ``event``. Pure; every change of a consumer's state is a case here."""
    change = _CHANGES.get(type(event))
    if change is None:
        raise UnexpectedEventError(f"{event!r} is not an event of a consumer's partitions")
    return _without_void_ends(change(state, event))


def _without_void_ends(state: ConsumerState) -> ConsumerState:
    """Return ``state`` without ends of partitions that go on elsewhere: the library tells their ends again."""
    if not (state.unsettled and state.waiting):
        return state
    remaining = tuple(
        run for run in state.waiting if not (run.is_partition_end and state.row(run.partition).is_elsewhere)
    )
    return state if len(remaining) == len(state.waiting) else replace(state, waiting=remaining)


def _with_work(state: ConsumerState, changed: Mapping[InputPartition, PartitionRow]) -> ConsumerState:
    """Return ``state`` with the rows of ``changed``, which differ in their work alone."""
    rows = {**state.rows, **changed}
    for partition in [p for p, row in changed.items() if not row.is_assigned and row == _BLANK]:
        del rows[partition]
    positions = dict(state.positions)
    for partition, row in changed.items():
        if (position := row.work or row.orphan) is not None:
            positions[partition] = position
        else:
            positions.pop(partition, None)
    return replace(state, rows=rows, positions=positions)


def _with_rows(state: ConsumerState, changed: Mapping[InputPartition, PartitionRow]) -> ConsumerState:
    if not changed:
        return state
    state = _with_work(state, changed)
    keys = frozenset(changed)
    unsettled = {p: row for p, row in changed.items() if not row.is_settled}
    if not unsettled and state.unsettled.isdisjoint(keys):
        return state
    return replace(
        state,
        unsettled=_among(state.unsettled, keys, unsettled.keys()),
        due=_among(state.due, keys, {p for p, row in unsettled.items() if row.has_due_call}),
        asking=_among(state.asking, keys, {p for p, row in unsettled.items() if row.has_due_question}),
        stopping=_among(state.stopping, keys, {p for p, row in unsettled.items() if row.stops_all}),
        paused=_among(state.paused, keys, {p for p, row in unsettled.items() if row.paused_by_application}),
    )


def _among(before: Partitions, changed: Partitions, present: AbstractSet[InputPartition]) -> Partitions:
    """Return ``before`` with those of ``changed`` that are ``present``, and without the others of them."""
    if present <= before and before.isdisjoint(changed - present):
        return before
    return (before - changed) | present


def _each(
    state: ConsumerState, partitions: Iterable[InputPartition], change: Callable[[PartitionRow], PartitionRow]
) -> ConsumerState:
    return _with_rows(state, {partition: change(state.row(partition)) for partition in partitions})


def _without_waiting(state: ConsumerState, partitions: Partitions | None) -> ConsumerState:
    if not state.waiting:
        return state
    if partitions is None:
        remaining = tuple(run for run in state.waiting if run.is_error)
    else:
        remaining = without_partitions(state.waiting, partitions)
    return replace(state, waiting=remaining)


# -- the assignment ----------------------------------------------------------------------------------------------------


def _assigned(state: ConsumerState, event: events.Assigned) -> ConsumerState:
    # A partition that was read before it is assigned has left in between; the callback for its loss was interrupted.
    again = [p for p in event.partitions & state.rows.keys() if state.rows[p].was_read]
    return _expected(_each(state, again, PartitionRow.departed), event.partitions)


def _expected(state: ConsumerState, partitions: Partitions) -> ConsumerState:
    def start(row: PartitionRow) -> PartitionRow:
        expected = replace(row.start or Start(), needs_commit=state.reset_policy is ResetPolicy.LATEST)
        return replace(row, is_assigned=True, start=expected)

    return _each(state, partitions, start)


def _assigned_by_hand(state: ConsumerState, event: events.AssignedByHand) -> ConsumerState:
    if event.replaces:
        state = _without_waiting(state, None)
        others = state.rows.keys() - event.partitions
        state = _each(state, others, lambda row: replace(row.unassigned_by_hand(), next_to_hand_over=None))
    finds_end = event.without_group and state.reset_policy is ResetPolicy.LATEST

    def begin(row: PartitionRow) -> PartitionRow:
        start = Start(needs_commit=True) if finds_end else row.start
        return replace(row.chosen_anew(), is_assigned=True, start=start)

    return _each(state, event.partitions, begin)


def _unassigned_by_hand(state: ConsumerState, event: events.UnassignedByHand) -> ConsumerState:
    state = _without_waiting(state, event.partitions)
    ours = event.partitions & state.rows.keys()
    return _each(state, ours, PartitionRow.unassigned_by_hand)


def _retained(state: ConsumerState, event: events.Retained) -> ConsumerState:
    return _started_anew(_expected(state, event.partitions), event.partitions)


def _departed(state: ConsumerState, event: events.Departed) -> ConsumerState:
    state = _without_waiting(state, event.partitions)
    state = _each(state, event.partitions & state.rows.keys(), PartitionRow.departed)
    return replace(state, departed_in_call=state.departed_in_call | event.partitions)


def _started_anew(state: ConsumerState, partitions: Partitions) -> ConsumerState:
    """Let ``partitions``, of which the library may have read elsewhere, start anew at the group's offset."""
    return _each(state, partitions, lambda row: row.started_anew(state.reset_policy))


# -- where a partition starts ------------------------------------------------------------------------------------------


def _ends_found(state: ConsumerState, event: events.EndsFound) -> ConsumerState:
    changed = {}
    for partition, (end, skipped_by_latest) in event.ends.items():
        row = state.row(partition)
        if row.start is not None:
            changed[partition] = replace(
                row, start=replace(row.start, log_end=end, skipped_by_latest=skipped_by_latest)
            )
    return _with_rows(state, changed)


def _starts_found(state: ConsumerState, event: events.StartsFound) -> ConsumerState:
    changed = {}
    for partition, committed in event.starts.items():
        row = state.row(partition)
        if row.start is None:
            continue  # the application has chosen a place meanwhile, or the partition has left
        if committed is None and state.reset_policy is ResetPolicy.LATEST:
            continue  # it starts at the end of its log, once that is committed
        start = replace(row.start, phase=StartPhase.KNOWN, offset=None, epoch=None)
        if committed is not None:
            start = replace(
                start,
                offset=committed.offset,
                epoch=committed.leader_epoch,
                needs_commit=False,
                log_end=None,
                skipped_by_latest=0,
            )
        is_withheld = row.start.phase is StartPhase.WITHHELD
        row = replace(row, start=start, group_offset=NO_OFFSET if committed is None else committed.offset)
        changed[partition] = row.sought_at(start, state.reset_policy) if is_withheld else row
    return _with_rows(state, changed)


def _log_end_found(state: ConsumerState, event: events.LogEndFound) -> ConsumerState:
    row = state.row(event.partition)
    if row.start is None or event.end >= row.start.goal:
        return state
    # Without the epoch, librdkafka reports the start beyond the end at once; with it, only when a record is written.
    return _with_rows(state, {event.partition: replace(row, start=replace(row.start, epoch=None))})


# -- what the library brings -------------------------------------------------------------------------------------------


def _fetched(state: ConsumerState, event: events.Fetched) -> ConsumerState:
    if not state.unsettled and not state.departed_in_call:
        return replace(state, waiting=(*state.waiting, *event.runs))
    ours = without_partitions(event.runs, state.departed_in_call)
    if len(ours) < len(event.runs):
        state = _begin_again(state)
    changed: dict[InputPartition, PartitionRow] = {}
    remaining = []
    for run in ours:
        if not run.is_error and run.partition in state.unsettled:
            row, remains = changed.get(run.partition, state.row(run.partition)).received(run)
            changed[run.partition] = row
            if not remains:
                continue
        remaining.append(run)
    return replace(_with_rows(state, changed), waiting=(*state.waiting, *remaining))


def _passed(state: ConsumerState, event: events.Passed) -> ConsumerState:
    of_these = (run for run in event.runs if run.partition in state.unsettled)
    return _with_rows(state, {run.partition: state.row(run.partition).received(run)[0] for run in of_these})


def _errors_taken(state: ConsumerState, event: events.ErrorsTaken) -> ConsumerState:
    return replace(state, waiting=(*(run for run in event.runs if not run.is_error), *event.waiting))


def _begin_again(state: ConsumerState) -> ConsumerState:
    """Let partitions that left and came back in one call begin anew: their older records cannot be told apart.

    librdkafka keeps its old position. If that is the end of the log, no record arrives that would reveal the gap.
    """
    back = frozenset(p for p in state.departed_in_call if state.row(p).is_assigned and not state.row(p).is_withheld)
    chosen = frozenset(p for p in back if state.row(p).start is None and state.row(p).next_to_hand_over is not None)
    state = _each(state, chosen, lambda row: replace(row, needs_seek=True))
    return _started_anew(state, back - chosen)


# -- work --------------------------------------------------------------------------------------------------------------


def _handed_over(state: ConsumerState, event: events.HandedOver) -> ConsumerState:
    changed: dict[InputPartition, PartitionRow] = {}
    for run in event.runs:
        if not run.is_error:
            row = changed.get(run.partition) or _before_handing_over(state, run.partition)
            changed[run.partition] = row.handed_over(run, event.generation)
    state = _with_rows(state, changed)
    unprocessed = state.unprocessed
    if not changed.keys() <= unprocessed:
        unprocessed = unprocessed | changed.keys()
    return replace(state, waiting=event.waiting, unprocessed=unprocessed, call_is_unfinished=False)


def _before_handing_over(state: ConsumerState, partition: InputPartition) -> PartitionRow:
    row = state.row(partition)
    if row.work is None or partition in state.unprocessed:
        return row
    return replace(row, processed_up_to=row.work.next_offset)


def _put_back(state: ConsumerState, event: events.PutBack) -> ConsumerState:
    first_offsets = {run.partition: run.first_offset for run in reversed(event.runs) if not run.is_error}
    changed = {
        partition: replace(state.row(partition).taken_back(offset), next_to_hand_over=offset, rejects_earlier=True)
        for partition, offset in first_offsets.items()
    }
    return replace(_with_rows(state, changed), waiting=(*event.runs, *state.waiting))


def _work_taken_back(state: ConsumerState, event: events.WorkTakenBack) -> ConsumerState:
    if event.partition not in state.unprocessed:
        return state  # its outputs are in the open transaction

    return _each(state, [event.partition], lambda row: row.taken_back(row.kept_up_to(event.offset)))


def _committed(state: ConsumerState, event: events.Committed) -> ConsumerState:
    return _with_work(state, {p: state.row(p).committed_up_to(offset) for p, offset in event.offsets.items()})


def _without_work_of(state: ConsumerState, partitions: Partitions) -> ConsumerState:
    state = _each(state, partitions & state.positions.keys(), PartitionRow.without_work)
    return replace(state, unprocessed=state.unprocessed - partitions)


def _work_lost(state: ConsumerState, event: events.WorkLost) -> ConsumerState:
    is_lost = not event.partitions.isdisjoint(state.owned_positions)
    state = _without_work_of(state, event.partitions)
    return replace(state, has_unreported_loss=True) if is_lost else state


def _aborted(state: ConsumerState, _: events.Aborted) -> ConsumerState:
    ends = _waiting_ends(state)
    changed = {}
    for partition in state.positions.keys() | ends.keys():
        row = state.row(partition)
        without = row.without_work()
        fetched_up_to = ends.get(partition, 0)
        if row.work is not None:
            without = replace(without, next_to_hand_over=row.work.first_offset)
            fetched_up_to = max(fetched_up_to, row.work.next_offset)
        has_to_go_back = row.is_assigned and (row.work is not None or partition in ends)
        changed[partition] = without.rewound(fetched_up_to) if has_to_go_back else without
    return replace(_with_rows(_without_waiting(state, None), changed), unprocessed=NO_PARTITIONS)


def _committed_by_others(state: ConsumerState, _: events.CommittedByOthers) -> ConsumerState:
    ours = frozenset(p for p in state.owned_positions if state.rows[p].is_assigned)
    return _retained(_aborted(state, events.Aborted()), events.Retained(ours))


def _waiting_ends(state: ConsumerState) -> dict[InputPartition, int]:
    return {run.partition: run.next_offset for run in state.waiting if not run.is_error}


def _waiting_given_back(state: ConsumerState, _: events.WaitingGivenBack) -> ConsumerState:
    changed = {p: state.row(p).rewound(end) for p, end in _waiting_ends(state).items() if state.row(p).is_assigned}
    return _with_rows(_without_waiting(state, None), changed)


# -- where a partition goes on -----------------------------------------------------------------------------------------


def _chosen(state: ConsumerState, event: events.Chosen) -> ConsumerState:
    def choose(row: PartitionRow) -> PartitionRow:
        anew = row.chosen_anew()
        if event.offset is None:
            return anew
        is_logical = event.offset < 0
        epochs = row.epochs if is_logical else with_epoch_at(row.epochs, event.offset, event.epoch)
        return replace(anew, start=None, next_to_hand_over=event.offset, rejects_earlier=not is_logical, epochs=epochs)

    return _each(_without_waiting(state, frozenset({event.partition})), [event.partition], choose)


def _sought(state: ConsumerState, event: events.Sought) -> ConsumerState:
    row = state.row(event.partition)
    if not row.needs_seek or row.next_to_hand_over != event.offset:
        return state  # something else has become due meanwhile
    return _with_rows(state, {event.partition: replace(row, needs_seek=False, rejects_earlier=event.offset >= 0)})


def _rewinds_repeated(state: ConsumerState, event: events.RewindsRepeated) -> ConsumerState:
    return _each(
        state,
        event.partitions & state.sought_without_records,
        lambda row: replace(row, needs_seek=True, fetched_up_to=None),
    )


def _misplaced(state: ConsumerState, event: events.Misplaced) -> ConsumerState:
    return _each(state, [event.partition], lambda row: replace(row, needs_seek=True, attempts=row.attempts + 1))


def _truncated(state: ConsumerState, event: events.Truncated) -> ConsumerState:
    return _each(state, [event.partition], lambda row: replace(row, truncation=event.misplacement))


def _topic_replaced(state: ConsumerState, event: events.TopicReplaced) -> ConsumerState:
    state = _without_work_of(state, event.partitions)
    return replace(state, replaced_topic=state.replaced_topic or event.topic)


# -- pauses, calls -----------------------------------------------------------------------------------------------------


def _paused(state: ConsumerState, event: events.Paused) -> ConsumerState:
    return _each(state, event.partitions, lambda row: replace(row, paused_by_application=True, library_paused=True))


def _resumed(state: ConsumerState, event: events.Resumed) -> ConsumerState:
    return _each(state, event.partitions, lambda row: replace(row, paused_by_application=False))


def _library_pauses(state: ConsumerState, event: events.LibraryPauses) -> ConsumerState:
    return _each(state, event.partitions, lambda row: replace(row, library_paused=True))


def _library_resumed(state: ConsumerState, event: events.LibraryResumed) -> ConsumerState:
    return _each(state, event.partitions, lambda row: replace(row, library_paused=False))


def _interrupted(state: ConsumerState, event: events.Interrupted) -> ConsumerState:
    state = replace(_without_waiting(state, None), all_are_paused=False)
    changed = {}
    withheld = set()
    for partition, fetched_up_to in event.positions.items():
        row = replace(state.row(partition), is_assigned=True)
        if row.next_to_hand_over is not None:
            row = row.rewound(fetched_up_to)
        elif not row.is_withheld:
            # A seek would end the library's own look-up of the start, so what arrives is compared first. With ``error``
            # nothing arrives after an error event that was dropped.
            if fetched_up_to >= 0 or state.reset_policy is ResetPolicy.ERROR:
                withheld.add(partition)
            else:
                row = replace(row, start=replace(row.start or Start(), may_miss_records=True))
        changed[partition] = row
    return _started_anew(_with_rows(state, changed), frozenset(withheld))


_CHANGES: Mapping[type, Callable[[ConsumerState, Any], ConsumerState]] = {
    events.CallBegan: lambda state, _: replace(state, call_is_unfinished=True),
    events.CallEnded: lambda state, _: replace(state, call_is_unfinished=False),
    events.Closed: lambda state, _: replace(state, waiting=()),
    events.LibraryCallBegan: lambda state, _: replace(state, departed_in_call=NO_PARTITIONS),
    events.Assigned: _assigned,
    events.AssignedByHand: _assigned_by_hand,
    events.UnassignedByHand: _unassigned_by_hand,
    events.Retained: _retained,
    events.Departed: _departed,
    events.EndsFound: _ends_found,
    events.StartsFound: _starts_found,
    events.LogEndFound: _log_end_found,
    events.Fetched: _fetched,
    events.Passed: _passed,
    events.ErrorsTaken: _errors_taken,
    events.HandedOver: _handed_over,
    events.PutBack: _put_back,
    events.Processed: lambda state, _: replace(state, unprocessed=NO_PARTITIONS),
    events.Committed: _committed,
    events.WorkLost: _work_lost,
    events.LossReported: lambda state, _: replace(state, has_unreported_loss=False),
    events.Aborted: _aborted,
    events.CommittedByOthers: _committed_by_others,
    events.WaitingGivenBack: _waiting_given_back,
    events.Chosen: _chosen,
    events.WorkTakenBack: _work_taken_back,
    events.Sought: _sought,
    events.RewindsRepeated: _rewinds_repeated,
    events.Misplaced: _misplaced,
    events.Truncated: _truncated,
    events.TopicReplaced: _topic_replaced,
    events.Paused: _paused,
    events.Resumed: _resumed,
    events.LibraryPauses: _library_pauses,
    events.LibraryResumed: _library_resumed,
    events.PauseOfAllBegan: lambda state, _: replace(state, all_are_paused=True),
    events.PauseOfAllEnded: lambda state, _: replace(state, all_are_paused=False),
    events.Interrupted: _interrupted,
}
