"""What the library brings: which records wait, and which are dropped."""

from __future__ import annotations

import pytest

from eos_client.core.partition_events import (
    Aborted,
    Assigned,
    CallBegan,
    Chosen,
    Closed,
    Committed,
    Departed,
    ErrorsTaken,
    Fetched,
    LibraryCallBegan,
    Passed,
    Paused,
    Resumed,
    Sought,
    StartsFound,
    WaitingGivenBack,
)
from eos_client.core.partition_row import BEGINNING, SEEK_ATTEMPTS_MAX
from eos_client.core.record_runs import Run, take
from tests.core.gate_language import P0, P1, P2
from tests.core.partition_language import (
    ERROR,
    ONLY,
    after,
    by_hand,
    committed,
    error_event,
    reading,
    run,
    settled,
    started,
    withheld,
)

# -- what the library brings -------------------------------------------------------------------------------------------


def test_what_is_fetched_waits_behind_what_waits():
    state = after(Fetched((run(P0, 20, 22), run(P1, 20, 21))), Fetched((run(P0, 22, 23),)), state=settled(P0, P1))
    assert state.waiting == (run(P0, 20, 22), run(P1, 20, 21), run(P0, 22, 23))


def test_records_of_others_wait_while_one_partition_is_odd():
    state = after(Assigned(ONLY), Fetched((run(P0, 10, 12), run(P1, 20, 21), error_event(P0))), state=settled(P1))
    assert state.waiting == (run(P1, 20, 21), error_event(P0))


def test_records_of_a_partition_that_has_left_are_dropped():
    fetched = Fetched((run(P0, 20, 22), error_event(P0), error_event(P0, leaves=True), run(P1, 20, 21)))
    state = after(LibraryCallBegan(), Departed(ONLY), fetched, state=settled(P0, P1))
    assert state.waiting == (error_event(P0), run(P1, 20, 21))


def test_the_next_call_knows_nothing_of_what_has_left():
    state = after(Departed(ONLY), LibraryCallBegan(), *started(P0, at=20), Fetched((run(P0, 20, 22),)))
    assert state.waiting == (run(P0, 20, 22),)


def test_what_left_and_came_back_in_one_call_begins_anew():
    before = after(LibraryCallBegan(), Departed(ONLY), *started(P0, at=20), state=settled(P0))
    state = after(Fetched((run(P0, 20, 22),)), state=before)
    assert not state.waiting
    assert state.due_seeks == {P0: (20, None)}


def test_what_came_back_with_an_unknown_start_is_withheld():
    state = after(LibraryCallBegan(), Departed(ONLY), Assigned(ONLY), Fetched((run(P0, 20, 22),)), state=settled(P0))
    assert state.withheld == ONLY


def test_what_came_back_without_records_in_it_goes_on():
    before = after(LibraryCallBegan(), Departed(ONLY), Assigned(ONLY), state=settled(P0, P1))
    state = after(Fetched((run(P1, 20, 21), error_event(P0))), state=before)
    assert not state.withheld
    assert state.row(P0).awaits_first_record


def test_what_was_chosen_after_it_came_back_is_sought_there():
    state = after(LibraryCallBegan(), Departed(ONLY), Assigned(ONLY), Chosen(P0, 7), state=settled(P0))
    state = after(Fetched((run(P0, 20, 22),)), state=state)
    assert state.due_seeks == {P0: (7, None)}
    assert not state.waiting


def test_what_came_back_by_hand_begins_at_the_groups_offset():
    back = (by_hand(P0, replaces=False, without_group=False), Chosen(P0, None))
    state = after(LibraryCallBegan(), Departed(ONLY), *back, Fetched((run(P0, 20, 22),)), state=settled(P0))
    assert state.unknown_starts == state.withheld == ONLY


def test_what_left_for_good_in_a_call_is_not_sought():
    state = after(LibraryCallBegan(), Departed(ONLY), Fetched((run(P0, 20, 22),)), state=reading(P0))
    assert not state.due_seeks
    assert not state.withheld


def test_a_missing_start_that_came_back_is_asked_for_again():
    before = after(StartsFound({P0: None}), LibraryCallBegan(), state=withheld(ERROR))
    state = after(Departed(ONLY), Assigned(ONLY), Fetched((run(P0, 20, 22),)), state=before)
    assert state.unknown_starts == state.withheld == ONLY


@pytest.mark.parametrize("is_first", [True, False])
def test_what_the_library_brings_while_it_is_elsewhere_is_dropped(is_first):
    before = after(Aborted(), state=reading(P0, waiting_until=25))
    state = after(Fetched((run(P0, 20, 22) if is_first else run(P0, 25, 30),)), state=before)
    assert not state.waiting
    assert state.due_seeks == {P0: (10, None)}
    assert state.row(P0).fetched_up_to == (25 if is_first else 30)


def test_before_a_first_seek_nothing_was_reached():
    state = after(Fetched((run(P0, 30, 40),)), state=after(committed(15), state=withheld()))
    assert state.row(P0).fetched_up_to is None


@pytest.mark.parametrize(("first", "is_kept"), [(10, True), (19, True), (20, False), (25, False)])
def test_after_a_rewind_records_from_before_it_are_dropped(first, is_kept):
    before = after(Aborted(), Sought(P0, 10), state=reading(P0))
    state = after(Fetched((run(P0, first, 30),)), state=before)
    assert bool(state.waiting) is is_kept
    assert bool(state.due_seeks) is not is_kept
    assert state.row(P0).fetched_up_to == (None if is_kept else 20)


def test_in_one_call_nothing_follows_what_was_dropped():
    fetched = Fetched((run(P0, 20, 22), run(P0, 10, 12)))
    state = after(Aborted(), Sought(P0, 10), fetched, state=reading(P0))
    assert not state.waiting


def test_a_log_without_the_old_offsets_ends_the_seeking():
    state = after(Aborted(), Sought(P0, 10), state=reading(P0))
    for _ in range(SEEK_ATTEMPTS_MAX):
        state = after(Fetched((run(P0, 30, 31),)), state=state)
        assert not state.waiting
        state = after(Sought(P0, 10), state=state)
    assert after(Fetched((run(P0, 30, 31),)), state=state).waiting == (run(P0, 30, 31),)


def test_a_record_of_a_paused_partition_makes_its_pause_due():
    state = after(Paused(ONLY), Fetched((run(P0, 20, 21),)), state=settled(P0))
    assert state.due_pauses == ONLY
    assert state.waiting
    assert not state.has_ready


@pytest.mark.parametrize(("offset", "is_sought"), [(12, True), (10, False)])
def test_passed_offsets_are_compared_with_the_start(offset, is_sought):
    state = after(*started(P0), Passed((Run(P0, (), offset, offset, ((offset, None),)),)))
    assert state.due_seeks == ({P0: (10, None)} if is_sought else {})
    assert state.row(P0).next_to_hand_over == 10
    assert not state.waiting


def test_passed_offsets_change_nothing_where_records_were_read():
    before = settled(P0)
    assert after(Passed((Run(P0, (), 30, 30, ((30, 1),)),)), state=before) == before


def test_error_events_that_were_acted_on_wait_no_longer():
    first, second = error_event(P0), error_event(P1)
    state = after(Fetched((first, run(P0, 20, 21), second)), state=settled(P0))
    assert after(ErrorsTaken((first, run(P0, 20, 21)), (second,)), state=state).waiting == (run(P0, 20, 21), second)


def test_records_wait_though_events_were_acted_on():
    state = after(Fetched((run(P0, 20, 21), error_event(P0))), state=settled(P0))
    assert after(ErrorsTaken(state.waiting, ()), state=state).waiting == (run(P0, 20, 21),)


def test_of_several_events_the_one_that_was_acted_on_waits_no_longer():
    events = Run(P0, ("first", "second"), is_error=True)
    state = after(Fetched((events,)), state=settled(P0))
    taken, waiting = take(state.waiting, 1, frozenset())
    (left,) = after(ErrorsTaken(taken, waiting), state=state).waiting
    assert left.messages == ("second",)


# -- what waits --------------------------------------------------------------------------------------------------------


def test_the_next_record_is_the_first_that_waits_and_no_event():
    state = after(Fetched((error_event(P0), run(P1, 3, 4), run(P0, 20, 22), run(P0, 22, 23))), state=settled(P0, P1))
    assert [state.shown_offset(partition, 30) for partition in (P0, P1, P2)] == [20, 3, 30]


def test_inside_a_call_the_next_record_is_the_one_after_those_handed_over():
    state = after(CallBegan(), Fetched((run(P0, 25, 27),)), Chosen(P1, BEGINNING), state=settled(P0, P1))
    assert [state.shown_offset(partition, 30) for partition in (P0, P1, P2)] == [20, None, None]


def test_inside_a_call_the_next_record_may_be_the_first_of_its_log():
    assert after(CallBegan(), Chosen(P0, 0)).shown_offset(P0, 30) == 0


def test_the_next_record_after_an_abort_is_the_first_uncommitted_one_before_it_is_sought():
    state = after(Aborted(), state=reading(P0))
    assert (state.row(P0).needs_seek, state.shown_offset(P0, 30)) == (True, 10)


def test_no_next_record_is_known_before_the_first_was_let_through():
    assert after(Assigned(ONLY)).shown_offset(P0, 30) is None


def test_what_waits_of_a_paused_partition_is_not_ready():
    state = after(Fetched((run(P0, 20, 22),)), state=settled(P0, P1))
    assert state.has_ready
    state = after(Paused(ONLY), state=state)
    assert not state.has_ready
    assert after(Fetched((run(P1, 20, 22),)), state=state).has_ready
    assert after(Resumed(ONLY), state=state).has_ready


def test_a_closed_consumer_hands_nothing_over():
    assert not after(Fetched((error_event(P0),)), Closed(), state=reading(P0, waiting_until=25)).waiting


def test_what_is_given_back_is_fetched_again():
    state = after(WaitingGivenBack(), state=reading(P0, waiting_until=25))
    assert not state.waiting
    assert state.due_seeks == {P0: (20, None)}
    assert state.row(P0).fetched_up_to == 25
    assert state.owned_positions == reading(P0).owned_positions


def test_nothing_is_given_back_of_what_is_not_assigned():
    before = after(Fetched((run(P1, 3, 4),)), state=settled(P0))
    state = after(WaitingGivenBack(), state=before)
    assert not state.waiting
    assert state.rows == before.rows


def test_events_are_not_given_back():
    state = after(Fetched((error_event(P0),)), WaitingGivenBack(), state=settled(P0))
    assert state.waiting == (error_event(P0),)
    assert not state.due_seeks


def test_an_end_that_waits_is_void_once_its_partition_goes_back():
    ends = (error_event(P0, leaves=True), error_event(P1, leaves=True))
    state = after(Fetched(ends), Aborted(), state=after(Committed({P1: 20}), state=reading(P0, P1)))
    assert state.waiting == (error_event(P1, leaves=True),)


def test_an_end_that_comes_before_a_due_seek_or_a_known_start_is_void():
    end = Fetched((error_event(P0, leaves=True),))
    assert after(Aborted(), end, state=reading(P0)).waiting == ()
    assert after(end, state=withheld()).waiting == ()
    assert after(*started(P0, at=10), Fetched((run(P0, 5, 9), error_event(P0, leaves=True)))).waiting == ()


def test_the_end_of_an_empty_partition_is_told_before_its_start_is_known():
    state = after(Assigned(ONLY), Fetched((error_event(P0, leaves=True),)))
    assert state.waiting == (error_event(P0, leaves=True),)
