"""Where a partition goes on: chosen offsets, rewinds, and records from elsewhere."""

from __future__ import annotations

from typing import Any

import pytest

from eos_client.core.hand_over import first_misplaced, misplacement
from eos_client.core.leader_epochs import Misplacement
from eos_client.core.model import CommittedOffset
from eos_client.core.partition_events import (
    Aborted,
    Assigned,
    AssignedByHand,
    Chosen,
    Departed,
    Fetched,
    Misplaced,
    Passed,
    Paused,
    Processed,
    PutBack,
    RewindsRepeated,
    Sought,
    StartsFound,
    TopicReplaced,
    Truncated,
    UnassignedByHand,
    WaitingGivenBack,
    WorkLost,
)
from eos_client.core.partition_row import BEGINNING, StartPhase
from tests.core.gate_language import P0, P1
from tests.core.partition_language import (
    BOTH,
    END,
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


@pytest.mark.parametrize("offset", [0, 30, BEGINNING, END])
def test_a_chosen_offset_is_where_a_partition_goes_on(offset):
    state = after(Assigned(ONLY), Chosen(P0, offset))
    assert state.next_offsets == {P0: offset}
    assert not state.due
    state = after(Fetched((run(P0, 30, 32),)), state=state)
    assert not state.unsettled


@pytest.mark.parametrize("offset", [BEGINNING, END])
@pytest.mark.parametrize("event", [Aborted(), WaitingGivenBack()])
def test_what_was_fetched_from_a_logical_offset_is_sought_where_it_began(offset, event):
    """The library would look the end up again, and skip what was written since."""
    state = after(Assigned(ONLY), Chosen(P0, 10, 3), Chosen(P0, offset), Fetched((run(P0, 30, 32, 4),)), event)
    assert state.due_seeks == {P0: (30, 4)}


def test_a_gap_before_what_was_fetched_does_not_move_the_place_that_was_chosen():
    state = after(Assigned(ONLY), Chosen(P0, 10), Paused(ONLY), Fetched((run(P0, 12, 14),)))
    assert state.next_offsets == {P0: 10}


def test_offsets_without_records_do_not_place_a_partition_that_began_at_a_logical_offset():
    state = after(Assigned(ONLY), Chosen(P0, BEGINNING), Passed((run(P0, 7, 7),)))
    assert state.next_offsets == {P0: BEGINNING}


def test_a_choice_ends_what_was_due():
    before = after(Truncated(P0, TRUNCATION), Aborted(), state=reading(P0, waiting_until=25))
    state = after(Chosen(P0, 30), state=before)
    assert (state.due_seeks, state.truncations, state.waiting, state.unsettled) == ({}, {}, (), frozenset())
    row = state.row(P0)
    assert (row.rejects_earlier, row.was_read, row.fetched_up_to) == (True, False, None)


def test_a_choice_drops_only_its_own_records_that_wait():
    before = after(Fetched((error_event(P0),)), state=reading(P0, P1, waiting_until=25))
    assert after(Chosen(P0, 30), state=before).waiting == (run(P1, 20, 25), error_event(P0))


def test_an_assignment_by_hand_ends_what_was_due():
    before = after(Aborted(), state=reading(P0, waiting_until=25))
    assert (before.row(P0).needs_seek, before.row(P0).fetched_up_to) == (True, 25)
    state = after(AssignedByHand(ONLY, replaces=False, without_group=False), state=before)
    row = state.row(P0)
    assert (row.needs_seek, row.fetched_up_to, row.rejects_earlier, row.was_read) == (False, None, False, False)
    assert not state.due


def test_what_the_application_gives_up_keeps_its_work_and_its_pause():
    read = (handed(run(P0, 40, 42)), Processed(), handed(run(P0, 42, 45)), Paused(ONLY))
    before = after(Departed(ONLY), *started(P0, at=40), *read, state=reading(P0)).row(P0)
    row = after(Departed(ONLY), *started(P0, at=40), *read, UnassignedByHand(ONLY), state=reading(P0)).row(P0)
    assert (row.next_to_hand_over, row.work, row.processed_up_to, row.orphan) == (45, before.work, 42, before.orphan)
    assert (row.paused_by_application, row.library_paused) == (True, True)
    assert not row.is_assigned


def test_the_start_of_one_partition_is_found_though_another_needs_none():
    state = after(
        Assigned(frozenset({P1})), StartsFound(dict.fromkeys((P0, P1), CommittedOffset(7, ""))), state=settled(P0)
    )
    assert state.row(P1).start.phase is StartPhase.KNOWN
    assert state.row(P0).start is None


def test_what_is_left_to_the_group_keeps_its_start():
    state = after(Assigned(ONLY), Chosen(P0, None))
    assert state.row(P0).awaits_first_record
    assert state.next_offsets == {}


def test_what_is_left_to_the_group_keeps_the_epochs_of_its_work():
    state = after(handed(run(P0, 20, 25, 3)), Chosen(P0, None), state=settled(P0))
    assert state.row(P0).epochs == ((20, 3),)


@pytest.mark.parametrize(
    ("offset", "epoch", "epochs"),
    [(25, 6, ((20, 3), (25, 6))), (BEGINNING, None, ((20, 3),)), (END, 6, ((20, 3),)), (0, 6, ((0, 6), (20, 3)))],
)
def test_a_chosen_offset_has_the_epoch_that_it_is_given(offset, epoch, epochs):
    state = after(WorkLost(ONLY), state=after(handed(run(P0, 20, 25, 3)), state=started_at_20()))
    assert after(Chosen(P0, offset, epoch), state=state).row(P0).epochs == epochs


def started_at_20():
    return after(*started(P0, at=20), Fetched((run(P0, 20, 25, 3),)))


@pytest.mark.parametrize("offset", [0, 10])
def test_a_seek_that_is_done_is_no_longer_due(offset):
    state = after(committed(offset), Sought(P0, offset), state=withheld())
    assert not state.due_seeks
    assert state.row(P0).rejects_earlier


def test_after_a_seek_to_a_logical_offset_nothing_is_checked():
    state = after(StartsFound({P0: None}), Sought(P0, BEGINNING), state=withheld())
    assert not state.due_seeks
    assert not state.row(P0).rejects_earlier


def test_a_seek_to_what_is_not_next_stays_due():
    state = after(Aborted(), Sought(P0, 15), state=reading(P0))
    assert state.due_seeks == {P0: (10, None)}


def test_a_seek_that_is_not_due_checks_nothing():
    state = after(Chosen(P0, -2), Sought(P0, 10), state=reading(P0))
    assert not state.row(P0).rejects_earlier


@pytest.mark.parametrize(
    ("offset", "rejects_earlier"), [(0, True), (30, True), (-1, False), (-2, False), (None, False)]
)
def test_records_before_an_offset_that_was_chosen_are_misplaced(offset, rejects_earlier):
    assert after(Chosen(P0, offset), state=reading(P0)).row(P0).rejects_earlier is rejects_earlier


def test_the_seek_of_what_is_not_assigned_is_not_due():
    state = after(Misplaced(P0), by_hand(P1), state=reading(P0))
    assert not state.due_seeks


def test_a_rewind_of_which_nothing_came_is_repeated():
    before = after(Aborted(), Sought(P0, 10), state=reading(P0))
    state = after(RewindsRepeated(BOTH), state=before)
    assert state.due_seeks == {P0: (10, None)}
    assert state.row(P0).fetched_up_to is None
    assert not after(RewindsRepeated(frozenset({P1})), state=before).due_seeks


def test_a_settled_rewind_is_not_repeated():
    before = after(Paused(ONLY), state=settled(P0))
    assert not after(RewindsRepeated(ONLY), state=before).due_seeks


def test_misplaced_records_make_a_seek_due_and_count():
    state = after(Misplaced(P0), state=reading(P0))
    assert state.due_seeks == {P0: (20, None)}
    assert state.row(P0).attempts == 1
    assert after(Misplaced(P0), state=state).row(P0).attempts == 2


def test_a_truncated_log_is_known_until_its_partition_leaves():
    state = after(Truncated(P0, TRUNCATION), state=reading(P0))
    assert state.truncations == {P0: TRUNCATION}
    assert not after(Departed(ONLY), state=state).truncations


@pytest.mark.parametrize(("first", "is_misplaced"), [(19, True), (20, False), (21, False)])
def test_records_before_the_next_one_are_misplaced(first, is_misplaced):
    found = misplacement(after(handed(run(P0, 20, 20, 3)), state=reading(P0)), run(P0, first, 30, 4), None)
    assert found == (Misplacement(20, 3, 19, 4) if is_misplaced else None)


def test_before_a_seek_is_done_nothing_is_misplaced():
    state = after(Aborted(), state=reading(P0))
    assert misplacement(state, run(P0, 5, 6), None) is None


def test_without_a_known_next_offset_nothing_is_misplaced():
    assert misplacement(after(Assigned(ONLY)), run(P0, 5, 6), None) is None


def test_records_before_the_run_ahead_of_them_are_misplaced():
    state = after(*started(P0), Fetched((run(P0, 10, 12, 1),)))
    found = misplacement(state, run(P0, 3, 4, 2), run(P0, 10, 12, 1))
    assert found == Misplacement(12, 1, 3, 2)
    assert misplacement(state, run(P0, 12, 14), run(P0, 10, 12)) is None


@pytest.mark.parametrize("between", [(), (error_event(P0),), (error_event(P0, leaves=True),), (run(P1, 20, 22),)])
def test_the_first_run_that_begins_too_early_is_found_behind_events_too(between):
    taken = (run(P0, 20, 30), *between, run(P0, 25, 31), run(P0, 3, 4))
    found: Any = first_misplaced(settled(P0, P1), taken)
    assert (found.at, found.run, found.misplacement.expected, found.were_read) == (
        len(taken) - 2,
        taken[-2],
        30,
        True,
    )


@pytest.mark.parametrize("was_read", [False, True])
def test_whether_records_were_read_before_a_run_that_begins_too_early(was_read):
    state = settled(P0) if was_read else after(Chosen(P0, 20), Sought(P0, 20), PutBack((run(P0, 20, 21),)))
    found: Any = first_misplaced(state, (error_event(P0), run(P0, 5, 6)))
    assert (found.at, found.were_read) == (1, was_read)


@pytest.mark.parametrize(
    ("attempts", "end", "is_sought"), [(0, None, True), (2, 20, True), (2, 19, False), (3, 20, False)]
)
def test_a_misplaced_partition_is_sought_again_unless_its_log_ends_too_early(attempts, end, is_sought):
    state = after(*[Misplaced(P0), Sought(P0, 20)] * attempts, state=settled(P0))
    found: Any = first_misplaced(state, (run(P0, 5, 6),))
    assert found.is_to_be_sought(end) is is_sought


def test_runs_that_follow_each_other_are_not_misplaced():
    assert (
        first_misplaced(settled(P0, P1), (run(P0, 20, 22), error_event(P0), run(P1, 20, 21), run(P0, 22, 23))) is None
    )


def test_nothing_is_committed_of_a_replaced_topic():
    state = after(TopicReplaced("orders", ONLY), state=reading(P0, P1, waiting_until=25))
    assert state.replaced_topic == "orders"
    assert set(state.positions) == {P1}
    assert after(TopicReplaced("bills", frozenset()), state=state).replaced_topic == "orders"
