"""What an assignment, by the group or by hand, makes of the rows."""

from __future__ import annotations

import pytest

from eos_client.core.leader_epochs import Misplacement
from eos_client.core.model import InputPosition
from eos_client.core.partition_events import (
    Aborted,
    Assigned,
    AssignedByHand,
    Departed,
    EndsFound,
    Fetched,
    LibraryCallBegan,
    LibraryPauses,
    LibraryResumed,
    Paused,
    Retained,
    StartsFound,
    Truncated,
    UnassignedByHand,
)
from eos_client.core.partition_row import PartitionRow, ResetPolicy
from tests.core.gate_language import P0, P1, P2
from tests.core.partition_language import (
    BOTH,
    EARLIEST,
    ERROR,
    G4,
    G5,
    LATEST,
    ONLY,
    TRUNCATION,
    after,
    by_hand,
    committed,
    error_event,
    handed,
    reading,
    run,
    settled,
    started,
    withheld,
)

# -- assignments -------------------------------------------------------------------------------------------------------


def test_an_assigned_partition_awaits_its_first_record():
    state = after(Assigned(ONLY))
    row = state.row(P0)
    assert row.is_assigned
    assert row.awaits_first_record
    assert not row.is_withheld
    assert not state.due_pauses


@pytest.mark.parametrize("policy", ResetPolicy)
def test_only_with_latest_a_start_must_be_committed(policy):
    assert after(Assigned(ONLY), policy=policy).due_start_commits == (ONLY if policy is LATEST else frozenset())


def test_an_assignment_that_is_told_again_keeps_the_end():
    state = after(Assigned(ONLY), EndsFound({P0: (7, 5)}), Assigned(ONLY), policy=LATEST)
    assert (state.row(P0).start.log_end, state.row(P0).start.skipped_by_latest) == (7, 5)


def test_what_was_read_and_is_assigned_again_has_left_in_between():
    state = after(Assigned(ONLY), state=reading(P0))
    assert state.row(P0).orphan == InputPosition(10, 20, G4)
    assert not state.owned_positions
    assert state.unknown_starts == ONLY
    assert state.row(P0).next_to_hand_over is None


@pytest.mark.parametrize("leaves", [UnassignedByHand(ONLY), AssignedByHand(frozenset({P1}), True, False)])
def test_what_was_taken_away_by_hand_stops_nothing(leaves):
    truncated = after(Truncated(P0, Misplacement(10, 1, 5, 2)), state=reading(P0))
    state = after(leaves, state=truncated)
    assert not state.truncations
    assert not state.due_seeks
    assert state.owned_positions == {P0: InputPosition(10, 20, G4)}


def test_a_pause_of_the_library_outlives_an_assignment():
    state = after(LibraryPauses(ONLY), Departed(ONLY), Assigned(ONLY), state=settled(P0))
    assert state.due_resumes == ONLY


def test_what_departs_leaves_nothing_but_its_work():
    state = after(Departed(ONLY), state=reading(P0, P1, waiting_until=25))
    assert state.row(P0) == PartitionRow(orphan=InputPosition(10, 20, G4))
    assert [each.partition for each in state.waiting] == [P1]
    assert state.row(P1) == reading(P0, P1).row(P1)


def test_departed_work_counts_for_the_gate_but_not_as_ours():
    state = after(Departed(ONLY), state=reading(P0, P1))
    assert set(state.positions) == {P0, P1}
    assert set(state.owned_positions) == {P1}


def test_departed_work_is_an_orphan_however_often_it_departs():
    state = after(Departed(ONLY), Departed(ONLY), state=reading(P0))
    assert state.row(P0).orphan == InputPosition(10, 20, G4)


def test_newer_work_departs_in_place_of_an_older_orphan():
    state = after(Departed(ONLY), *started(P0, at=40), handed(run(P0, 40, 45)), Departed(ONLY), state=reading(P0))
    assert state.row(P0).orphan == InputPosition(40, 45, G4)


def test_events_stay_where_their_partition_departs_but_no_end():
    state = after(
        Fetched((error_event(P0), error_event(P0, leaves=True), run(P0, 20, 21))), Departed(ONLY), state=settled(P0)
    )
    assert state.waiting == (error_event(P0),)


def test_the_applications_pause_ends_when_its_partition_departs():
    state = after(Paused(ONLY), LibraryResumed(ONLY), Departed(ONLY), state=settled(P0))
    assert not state.paused
    assert state.due_resumes == ONLY


def test_a_partition_that_comes_back_begins_anew():
    state = after(Departed(ONLY), *started(P0, at=40), handed(run(P0, 40, 45), generation=G5), state=reading(P0))
    assert state.owned_positions == state.positions == {P0: InputPosition(40, 45, G5)}


def test_a_retained_partition_goes_on_at_the_committed_offset():
    state = after(LibraryCallBegan(), Departed(ONLY), Retained(ONLY), state=reading(P0))
    assert state.withheld == state.due_pauses == state.unknown_starts == ONLY
    assert state.row(P0).next_to_hand_over is None
    state = after(committed(15), state=state)
    assert state.due_seeks == {P0: (15, None)}
    assert not state.withheld


def test_a_retained_partition_whose_start_is_known_is_sought():
    state = after(*started(P0, at=15), Retained(ONLY))
    assert state.due_seeks == {P0: (15, None)}


@pytest.mark.parametrize("happened", [(), (Aborted(),)])
def test_a_retained_partition_forgets_what_was_read(happened):
    row = after(*happened, Retained(ONLY), state=reading(P0)).row(P0)
    assert (row.next_to_hand_over, row.rejects_earlier, row.was_read, row.needs_seek, row.fetched_up_to) == (
        None,
        False,
        False,
        False,
        None,
    )


@pytest.mark.parametrize("policy", [EARLIEST, LATEST])
def test_a_retained_partition_asks_for_a_missing_start_again(policy):
    state = after(StartsFound({P0: None}), Retained(ONLY), state=withheld(ERROR))
    assert state.unknown_starts == state.withheld == ONLY
    assert not state.missing_starts


# -- assignments by hand -----------------------------------------------------------------------------------------------


def test_an_assignment_by_hand_replaces_all_others():
    state = after(by_hand(P1), state=reading(P0, P1))
    assert state.assigned == frozenset({P1})
    assert P0 not in state.next_offsets
    assert set(state.owned_positions) == {P0, P1}


def test_an_assignment_by_hand_drops_waiting_records_but_no_events():
    state = after(Fetched((error_event(P0), run(P2, 0, 1))), by_hand(P1), state=reading(P0, P1, waiting_until=25))
    assert state.waiting == (error_event(P0),)


def test_an_incremental_assignment_leaves_the_others_alone():
    before = reading(P0, waiting_until=25)
    state = after(by_hand(P1, replaces=False), state=before)
    assert state.assigned == BOTH
    assert (state.row(P0), state.waiting) == (before.row(P0), before.waiting)


def test_an_assignment_by_hand_begins_anew():
    before = after(Truncated(P0, TRUNCATION), state=reading(P0))
    row = after(by_hand(P0, replaces=False), state=before).row(P0)
    assert (row.next_to_hand_over, row.rejects_earlier, row.was_read, row.truncation) == (None, False, False, None)


@pytest.mark.parametrize(
    ("policy", "without_group", "awaits"),
    [(LATEST, True, True), (LATEST, False, False), (EARLIEST, True, False), (ERROR, True, False)],
)
def test_only_without_a_group_latest_starts_are_ours(policy, without_group, awaits):
    state = after(by_hand(P0, without_group=without_group), policy=policy)
    assert (state.due_start_commits == ONLY) is awaits
    assert state.row(P0).awaits_first_record is awaits


def test_an_assignment_by_hand_ends_a_seek_until_its_choice():
    state = after(Aborted(), by_hand(P0, replaces=False), state=reading(P0))
    assert not state.due_seeks


def test_inside_on_assign_an_assignment_keeps_its_start():
    state = after(Assigned(ONLY), by_hand(P0, without_group=False))
    assert state.row(P0).awaits_first_record


def test_what_is_unassigned_by_hand_can_still_be_committed():
    state = after(UnassignedByHand(ONLY), state=reading(P0, P1, waiting_until=25))
    assert state.assigned == frozenset({P1})
    assert set(state.owned_positions) == {P0, P1}
    assert [each.partition for each in state.waiting] == [P1]


def test_what_is_unassigned_by_hand_is_not_sought():
    state = after(Aborted(), UnassignedByHand(ONLY), state=reading(P0))
    assert not state.due_seeks
    assert state.row(P0).fetched_up_to is None
    assert not state.unsettled


def test_unassigning_what_was_never_assigned_changes_nothing():
    assert not after(UnassignedByHand(ONLY)).rows
