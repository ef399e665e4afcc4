"""The marks of a call under way, and what an interrupted one leaves to do."""

from __future__ import annotations

import pytest

from eos_client.core.model import InputPosition
from eos_client.core.partition_events import (
    Assigned,
    CallBegan,
    CallEnded,
    Chosen,
    Departed,
    EndsFound,
    Fetched,
    Interrupted,
    LibraryCallBegan,
    LibraryPauses,
    PauseOfAllBegan,
    Sought,
    StartsFound,
)
from eos_client.core.partition_row import ResetPolicy
from tests.core.gate_language import P0, P1
from tests.core.partition_language import (
    BOTH,
    EARLIEST,
    END,
    ERROR,
    G4,
    LATEST,
    ONLY,
    after,
    error_event,
    reading,
    settled,
    started,
    withheld,
)


def test_a_call_is_under_way_until_it_has_ended():
    state = after(CallBegan())
    assert state.call_is_unfinished
    assert not after(CallEnded(), state=state).call_is_unfinished


def test_what_left_is_known_until_the_next_library_call():
    state = after(Departed(ONLY), Departed(frozenset({P1})))
    assert state.departed_in_call == BOTH
    assert not after(LibraryCallBegan(), state=state).departed_in_call


def test_after_an_interrupted_call_what_was_read_goes_on():
    state = after(Fetched((error_event(P0),)), Interrupted({P0: 30}), state=reading(P0, waiting_until=25))
    assert state.waiting == (error_event(P0),)
    assert state.due_seeks == {P0: (20, None)}
    assert (state.row(P0).fetched_up_to, state.row(P0).work) == (30, InputPosition(10, 20, G4))


def test_after_an_interrupted_call_nothing_beyond_next_was_reached():
    state = after(Interrupted({P0: 20}), state=reading(P0))
    assert state.due_seeks == {P0: (20, None)}
    assert state.row(P0).fetched_up_to is None


def test_a_logical_offset_is_sought_after_an_interrupted_call():
    state = after(Interrupted({P0: 30}), state=after(Assigned(ONLY), Chosen(P0, END)))
    assert state.due_seeks == {P0: (END, None)}
    assert state.row(P0).fetched_up_to is None


@pytest.mark.parametrize("policy", [EARLIEST, LATEST])
@pytest.mark.parametrize(("position", "is_withheld"), [(0, True), (7, True), (-1001, False)])
def test_what_was_only_fetched_starts_again(policy, position, is_withheld):
    state = after(Assigned(ONLY), Interrupted({P0: position}), policy=policy)
    assert (state.withheld == ONLY) is is_withheld
    assert state.row(P0).start.may_miss_records is not is_withheld


def test_with_error_every_start_is_asked_for_again():
    state = after(Assigned(ONLY), Interrupted({P0: -1001}), policy=ERROR)
    assert state.unknown_starts == state.withheld == ONLY


def test_a_known_start_is_sought_after_an_interrupted_call():
    state = after(*started(P0), Interrupted({P0: 12}))
    assert state.due_seeks == {P0: (10, None)}


@pytest.mark.parametrize("policy", ResetPolicy)
def test_what_is_withheld_stays_so_after_an_interrupted_call(policy):
    before = withheld(policy)
    assert after(Interrupted({P0: 12}), state=before) == before


def test_a_missing_start_stays_so_after_an_interrupted_call():
    before = after(StartsFound({P0: None}), state=withheld(ERROR))
    assert after(Interrupted({P0: 12}), state=before) == before


def test_an_end_that_was_found_outlives_an_interrupted_call():
    state = after(Assigned(ONLY), EndsFound({P0: (7, 5)}), Interrupted({P0: -1001}), policy=LATEST)
    assert (state.row(P0).start.log_end, state.row(P0).start.skipped_by_latest) == (7, 5)
    assert state.due_start_commits == ONLY


def test_what_was_unknown_is_withheld_after_an_interrupted_call():
    state = after(Interrupted({P0: 7}), policy=LATEST)
    assert state.withheld == ONLY
    assert not state.due_start_commits


def test_what_is_ours_after_an_interrupted_call_is_assigned():
    state = after(Interrupted({P0: -1001}))
    assert state.assigned == ONLY
    assert state.row(P0).awaits_first_record


def test_a_pause_of_all_that_was_interrupted_is_over():
    state = after(PauseOfAllBegan(), LibraryPauses(ONLY), Interrupted({P0: 20}), state=settled(P0))
    assert not state.all_are_paused
    (offset, _) = state.due_seeks[P0]
    assert after(Sought(P0, offset), state=state).due_resumes == ONLY
