"""What was handed over and is not committed: put back, taken back, committed, forgotten or aborted."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eos_client.core.model import UNJOINED, InputPosition, record_count
from eos_client.core.partition_events import (
    Aborted,
    Assigned,
    AssignedByHand,
    CallBegan,
    Chosen,
    Committed,
    CommittedByOthers,
    Departed,
    Fetched,
    Interrupted,
    LibraryCallBegan,
    LossReported,
    Misplaced,
    Processed,
    PutBack,
    Sought,
    StartsFound,
    UnassignedByHand,
    WorkLost,
    WorkTakenBack,
)
from eos_client.core.partition_row import NO_OFFSET
from eos_client.core.partition_states import ConsumerState
from tests.core.gate_language import P0, P1
from tests.core.partition_language import (
    BOTH,
    END,
    G4,
    G5,
    ONLY,
    after,
    committed,
    error_event,
    handed,
    reading,
    run,
    settled,
    started,
)

# -- work --------------------------------------------------------------------------------------------------------------


def test_work_has_the_generation_of_its_first_record():
    state = after(handed(run(P0, 20, 25), generation=G5), state=reading(P0))
    assert state.positions == {P0: InputPosition(10, 25, G4)}


def test_work_has_the_leader_epoch_of_its_newest_record():
    state = after(handed(run(P0, 20, 30, 7), run(P0, 30, 40, 8)), state=settled(P0))
    assert state.positions == {P0: InputPosition(20, 40, G4, 8)}
    assert state.row(P0).epochs == ((20, 7), (30, 8))


def test_offsets_without_a_record_are_gaps_in_the_work():
    state = after(handed(run(P0, 35, 39, gaps=((36, 38),))), state=reading(P0))
    assert state.positions[P0] == InputPosition(10, 39, G4, gaps=((20, 35), (36, 38)))


def test_what_is_handed_over_is_expected_to_go_on():
    state = after(handed(run(P0, 20, 25), waiting=(run(P0, 25, 26),)), state=settled(P0))
    row = state.row(P0)
    assert (row.next_to_hand_over, row.rejects_earlier, row.was_read) == (25, True, True)
    assert state.waiting == (run(P0, 25, 26),)


def test_what_is_handed_over_ends_a_rewind():
    before = after(Aborted(), Sought(P0, 10), Misplaced(P0), Sought(P0, 10), state=reading(P0))
    row = after(handed(run(P0, 10, 12)), state=before).row(P0)
    assert (row.fetched_up_to, row.attempts) == (None, 0)


def test_events_that_are_handed_over_are_no_work():
    before = settled(P0)
    state = after(handed(error_event(P0)), state=before)
    assert (state.rows, state.unprocessed) == (before.rows, frozenset())


def test_the_last_step_of_a_call_ends_it():
    assert not after(CallBegan(), handed(run(P0, 20, 21)), state=settled(P0)).call_is_unfinished


def test_the_epochs_of_what_was_handed_over_are_known():
    state = after(handed(run(P0, 20, 22, 3)._replace(epochs=((20, 3), (21, 4)))), state=settled(P0))
    assert state.row(P0).epochs[-2:] == ((20, 3), (21, 4))
    assert after(Aborted(), state=state).due_seeks == {P0: (20, 3)}


def test_records_further_back_have_their_epochs_too():
    first = run(P0, 20, 30, 4)
    state = after(handed(first), handed(run(P0, 5, 30)._replace(epochs=((5, 1), (12, 4)))), state=settled(P0))
    assert state.row(P0).epochs == ((5, 1), (12, 4))


def test_a_newer_epoch_of_a_later_call_is_known():
    state = after(handed(run(P0, 20, 30, 3)), handed(run(P0, 30, 40, 4)), state=settled(P0))
    assert state.row(P0).epochs == ((20, 3), (30, 4))


def test_under_a_known_epoch_nothing_new_is_remembered():
    state = after(handed(run(P0, 20, 30, 4)), handed(run(P0, 30, 40, 4)), state=settled(P0))
    assert state.row(P0).epochs[-1] == (20, 4)


def test_records_are_unprocessed_until_they_are_processed():
    state = reading(P0)
    assert state.has_unprocessed
    state = after(Processed(), state=state)
    assert not state.has_unprocessed
    assert state.positions
    assert after(handed(run(P0, 20, 21)), state=state).has_unprocessed


def test_records_are_unprocessed_only_while_they_are_work():
    assert not after(Committed({P0: 20}), state=reading(P0)).has_unprocessed


def test_records_that_are_aborted_are_not_unprocessed():
    state = after(Aborted(), state=reading(P0))
    assert not state.unprocessed
    assert after(handed(run(P0, 10, 11)), state=state).has_unprocessed


def test_what_was_processed_is_counted_up_to_its_end():
    state = after(Processed(), handed(run(P0, 20, 25)), handed(run(P0, 25, 28)), state=reading(P0))
    assert state.row(P0).processed_up_to == 20
    assert after(Processed(), handed(run(P0, 28, 30)), state=state).row(P0).processed_up_to == 28


def test_several_runs_of_one_call_are_unprocessed():
    state = after(Processed(), handed(run(P0, 20, 25), run(P0, 26, 30)), state=reading(P0))
    assert state.row(P0).processed_up_to == 20


def test_without_work_nothing_was_processed():
    state = after(Processed(), handed(run(P0, 20, 25)), state=after(Committed({P0: 20}), state=reading(P0)))
    assert state.row(P0).processed_up_to is None


def test_records_of_several_calls_are_unprocessed():
    state = after(handed(run(P1, 20, 25)), state=after(Committed({P1: 20}), state=reading(P0)))
    assert state.unprocessed == BOTH


def test_only_what_was_handed_over_since_is_processed():
    came = (Processed(), handed(run(P1, 20, 25)), Processed(), handed(run(P0, 20, 25)), handed(run(P1, 25, 30)))
    state = after(*came, state=reading(P0, P1))
    assert [state.row(each).processed_up_to for each in (P0, P1)] == [20, 25]


def test_what_left_before_it_was_processed_has_no_row_again():
    assert not after(Departed(ONLY), Committed({P0: 20}), Processed(), state=reading(P0)).rows


# -- put back, taken back ----------------------------------------------------------------------------------------------


def test_what_is_put_back_comes_first_and_is_no_work():
    back = (run(P0, 15, 17), run(P0, 17, 20))
    state = after(PutBack(back), state=reading(P0, waiting_until=25))
    assert state.waiting == (*back, run(P0, 20, 25))
    assert state.positions == {P0: InputPosition(10, 15, G4)}
    assert (state.row(P0).next_to_hand_over, state.row(P0).rejects_earlier) == (15, True)


def test_work_that_is_put_back_wholly_is_none():
    state = after(PutBack((run(P0, 10, 20),)), state=reading(P0))
    assert not state.positions


def test_events_that_are_put_back_move_nothing():
    before = reading(P0)
    state = after(PutBack((error_event(P0),)), state=before)
    assert (state.rows, state.waiting) == (before.rows, (error_event(P0),))


@pytest.mark.parametrize("offset", [30, END])
def test_what_is_put_back_after_a_seek_is_expected(offset):
    state = after(Chosen(P0, offset), PutBack((run(P0, 18, 20),)), state=reading(P0))
    assert (state.row(P0).next_to_hand_over, state.row(P0).rejects_earlier) == (18, True)


@pytest.mark.parametrize(("offset", "left"), [(15, (10, 15)), (10, None), (3, None), (20, (10, 20)), (25, (10, 20))])
def test_records_that_are_sought_to_count_as_not_consumed(offset, left):
    state = after(WorkTakenBack(P0, offset), state=reading(P0))
    assert state.positions == ({} if left is None else {P0: InputPosition(left[0], left[1], G4)})


@pytest.mark.parametrize(("offset", "following"), [(3, 20), (15, 20), (22, 22), (25, 25)])
def test_processed_records_are_not_taken_back(offset, following):
    state = after(Processed(), handed(run(P0, 20, 25)), WorkTakenBack(P0, offset), state=reading(P0))
    assert state.positions == {P0: InputPosition(10, following, G4)}


def test_nothing_is_taken_back_once_all_was_processed():
    before = after(Processed(), state=reading(P0))
    assert after(WorkTakenBack(P0, 15), state=before) == before


def test_taking_back_what_was_never_handed_over_changes_nothing():
    assert not after(WorkTakenBack(P1, 0)).rows


def test_what_is_taken_back_leaves_an_orphan_to_the_gate():
    came = (Departed(ONLY), *started(P0), handed(run(P0, 10, 45), generation=G5))
    state = after(*came, WorkTakenBack(P0, 10), state=reading(P0))
    assert state.positions == {P0: InputPosition(10, 20, G4)}
    assert not state.owned_positions


# -- committed, forgotten, aborted -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("offset", "left"), [(15, (15, 20)), (10, (10, 20)), (3, (10, 20)), (20, None), (99, None)])
@pytest.mark.parametrize("departs", [False, True])
def test_a_commit_leaves_the_work_that_lies_beyond_it(offset, left, departs):
    before = after(Departed(ONLY), state=reading(P0)) if departs else reading(P0)
    state = after(Committed({P0: offset}), state=before)
    assert state.positions == ({} if left is None else {P0: InputPosition(left[0], left[1], G4)})
    assert state.owned_positions == ({} if departs else state.positions)


def test_a_commit_of_nothing_new_in_one_partition_takes_the_work_of_another():
    state = after(Committed({P0: 5, P1: 20}), state=reading(P0, P1))
    assert set(state.positions) == {P0}


def test_a_commit_of_another_partition_changes_nothing():
    before = reading(P0)
    assert after(Committed({P1: 99}), state=before) == before


def test_a_commit_where_no_work_is_left_changes_the_groups_offset_alone():
    before = settled(P0)
    assert after(Committed({P0: 25}), Committed({P0: 20}), state=before) == before
    assert after(Committed({P0: 25}), state=before).row(P0).group_offset == 25


def test_the_groups_offset_before_a_commit_is_the_one_it_told_or_was_last_sent():
    assert reading(P0).group_offsets == {P0: 10}
    assert after(Committed({P0: 15}), state=reading(P0)).group_offsets == {P0: 15}
    none_yet = after(Assigned(ONLY), StartsFound({P0: None}), Fetched((run(P0, 0, 5),)), handed(run(P0, 0, 5)))
    assert none_yet.group_offsets == {P0: NO_OFFSET}
    assert after(Departed(ONLY), Committed({P0: 30}), state=reading(P0)).group_offsets == {}
    by_hand = (AssignedByHand(ONLY, replaces=True, without_group=False), Chosen(P0, 10), handed(run(P0, 10, 12)))
    assert after(*by_hand).group_offsets == {}


def test_what_was_committed_wholly_was_not_processed_any_more():
    state = after(Processed(), handed(run(P0, 20, 25)), Committed({P0: 25}), state=reading(P0))
    assert state.row(P0).processed_up_to is None


def test_what_was_committed_in_part_was_processed_all_the_same():
    state = after(Processed(), handed(run(P0, 20, 25)), Committed({P0: 15}), state=reading(P0))
    assert state.row(P0).processed_up_to == 20


ENDINGS = {
    "forgotten": (WorkLost(ONLY),),
    "committed": (Committed({P0: 45}),),
    "aborted": (Aborted(),),
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_an_orphan_ends_with_the_work_that_came_after_it(ending):
    read = (handed(run(P0, 40, 42)), Processed(), handed(run(P0, 42, 45)))
    came = (Departed(ONLY), *started(P0, at=40), *read)
    state = after(*came, *ENDINGS[ending], state=reading(P0))
    row = state.row(P0)
    assert (row.work, row.orphan, row.processed_up_to) == (None, None, None)
    assert not state.positions


def test_only_what_is_named_is_forgotten():
    state = after(WorkLost(ONLY), WorkLost(ONLY), state=reading(P0, P1))
    assert set(state.positions) == {P1}
    assert state.unprocessed == frozenset({P1})


def test_work_that_left_with_its_partition_is_reported_once():
    state = after(WorkLost(ONLY), state=reading(P0, P1))
    assert (set(state.positions), state.has_unreported_loss) == ({P1}, True)
    assert after(WorkLost(ONLY), state=state).has_unreported_loss
    state = after(LossReported(), state=state)
    assert not state.has_unreported_loss
    assert set(state.positions) == {P1}


def test_what_left_without_work_or_long_before_is_no_loss():
    assert not after(WorkLost(ONLY)).has_unreported_loss
    assert not after(Departed(ONLY), WorkLost(ONLY), state=reading(P0)).has_unreported_loss


def test_forgetting_what_never_was_changes_nothing():
    assert not after(WorkLost(ONLY)).rows


def test_what_is_aborted_goes_back_to_its_first_record():
    state = after(Aborted(), state=reading(P0, P1, waiting_until=25))
    assert not state.positions
    assert not state.waiting
    assert state.due_seeks == {P0: (10, None), P1: (10, None)}
    assert state.row(P0).fetched_up_to == 25


def test_work_that_others_have_committed_goes_on_at_the_groups_offset():
    state = after(CommittedByOthers(), state=reading(P0, waiting_until=25))
    assert (state.positions, state.waiting, state.due_pauses) == ({}, (), ONLY)
    assert state.due_starts((), is_time=True) == ONLY
    state = after(committed(30), state=state)
    assert state.due_seeks == {P0: (30, None)}


def test_what_only_waits_beside_work_that_others_have_committed_is_fetched_again():
    happened = (Committed({P1: 20}), Fetched((run(P1, 20, 22),)), CommittedByOthers())
    state = after(*happened, state=reading(P0, P1))
    assert state.due_seeks == {P1: (20, None)}
    assert state.row(P1).fetched_up_to == 22
    assert state.unknown_starts == ONLY


def test_orphans_and_unassigned_work_that_others_have_committed_are_forgotten():
    left = after(Departed(ONLY), CommittedByOthers(), state=reading(P0))
    unassigned = after(UnassignedByHand(ONLY), CommittedByOthers(), state=reading(P0))
    assert not left.rows
    assert (unassigned.positions, unassigned.unsettled) == ({}, frozenset())


def test_what_only_waits_is_fetched_again_after_an_abort():
    state = after(Fetched((run(P0, 20, 22),)), Aborted(), state=settled(P0))
    assert state.due_seeks == {P0: (20, None)}
    assert state.row(P0).fetched_up_to == 22


def test_what_has_no_work_is_not_sought_after_an_abort():
    state = after(Aborted(), state=settled(P0))
    assert not state.due_seeks


def test_error_events_that_wait_outlive_an_abort():
    state = after(Fetched((error_event(P0),)), Aborted(), state=settled(P0))
    assert state.waiting == (error_event(P0),)
    assert not state.due_seeks


def test_departed_work_is_not_gone_back_to():
    state = after(Departed(ONLY), Aborted(), state=reading(P0))
    assert not state.rows


def test_an_orphan_of_a_partition_that_came_back_moves_nothing():
    came_back = (Departed(ONLY), LibraryCallBegan(), *started(P0, at=15), Fetched((run(P0, 15, 16),)), handed())
    state = after(*came_back, Aborted(), state=reading(P0))
    assert not state.positions
    assert not state.due_seeks
    assert state.row(P0).next_to_hand_over == 15


def test_work_of_an_unassigned_partition_is_aborted_without_a_seek():
    state = after(UnassignedByHand(ONLY), Aborted(), state=reading(P0))
    assert not state.positions
    assert not state.unsettled


def test_a_rewind_to_0_drops_what_came_before_it():
    state = after(Aborted(), state=after(handed(run(P0, 0, 5)), state=after(*started(P0, at=0))))
    assert state.due_seeks == {P0: (0, None)}
    assert state.row(P0).fetched_up_to == 5


def test_a_rewind_that_is_repeated_remembers_what_was_reached():
    state = after(Aborted(), Sought(P0, 10), Interrupted({P0: -1001}), state=reading(P0, until=30))
    assert state.row(P0).fetched_up_to == 30


def test_an_abort_lets_seeks_be_repeated_anew():
    state = after(Misplaced(P0), Aborted(), state=reading(P0))
    assert state.row(P0).attempts == 0


def test_after_an_abort_new_records_begin_anew():
    state = after(Aborted(), handed(run(P0, 20, 21), generation=G5), state=reading(P0))
    assert state.positions == {P0: InputPosition(20, 21, G5)}


def test_what_a_commit_is_about_to_send_is_not_emptied():
    before = reading(P0)
    sent = before.positions
    after(Aborted(), state=before)
    assert sent == {P0: InputPosition(10, 20, G4)}


@settings(max_examples=300)
@given(st.sets(st.integers(0, 30)), st.data())
def test_exactly_the_records_in_between_are_counted(offsets, data):
    log = sorted(offsets)  # where records are; every other offset is a marker, or was aborted or compacted
    state, at, committed_up_to = ConsumerState(), 0, 0
    for _ in range(data.draw(st.integers(1, 12))):
        step = data.draw(st.sampled_from(["hand over", "take back", "commit"]))
        ahead = [offset for offset in log if offset >= at]
        behind = [offset for offset in log if committed_up_to <= offset < at]
        if step == "hand over" and ahead:
            taken = ahead[: data.draw(st.integers(1, len(ahead)))]
            gaps = tuple((a + 1, b) for a, b in pairwise(taken) if a + 1 < b)
            at = taken[-1] + 1
            state = after(handed(run(P0, taken[0], at, gaps=gaps), generation=UNJOINED), state=state)
        elif step == "take back" and behind:
            at = data.draw(st.sampled_from(behind))
            state = after(WorkTakenBack(P0, at), state=state)
        elif step == "commit" and behind:
            committed_up_to = data.draw(st.sampled_from(behind)) + 1
            state = after(Committed({P0: committed_up_to}), state=state)
        assert record_count(state.positions) == len([offset for offset in log if committed_up_to <= offset < at])
