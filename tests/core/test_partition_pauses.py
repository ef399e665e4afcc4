"""Pauses of the application and of the library, and when they end."""

from __future__ import annotations

from eos_client.core.partition_events import (
    Assigned,
    Departed,
    Fetched,
    LibraryPauses,
    LibraryResumed,
    Paused,
    PauseOfAllBegan,
    PauseOfAllEnded,
    Resumed,
    Sought,
    UnassignedByHand,
)
from tests.core.gate_language import P0, P1
from tests.core.partition_language import ONLY, after, committed, run, settled, withheld


def test_the_applications_pause_is_known():
    state = after(Paused(ONLY), state=settled(P0, P1))
    assert state.paused == ONLY
    assert not state.due_pauses
    assert not state.due_resumes


def test_a_pause_of_ours_leaves_the_applications_alone():
    state = after(
        PauseOfAllBegan(),
        LibraryPauses(frozenset({P1})),
        PauseOfAllEnded(),
        state=after(Paused(ONLY), state=settled(P0, P1)),
    )
    assert state.due_resumes == frozenset({P1})
    assert state.paused == ONLY


def test_what_the_application_resumes_is_due_to_be_resumed():
    state = after(Paused(ONLY), Resumed(ONLY), state=settled(P0))
    assert state.due_resumes == ONLY
    assert not after(LibraryResumed(ONLY), state=state).unsettled


def test_what_waits_for_its_start_is_resumed_in_name_only():
    before = after(LibraryPauses(ONLY), state=withheld())
    state = after(Paused(ONLY), Resumed(ONLY), state=before)
    assert not state.paused
    assert not state.due_resumes
    assert state.withheld == ONLY
    known = after(committed(15), state=state)
    assert not known.due_resumes
    assert after(Sought(P0, 15), state=known).due_resumes == ONLY


def test_what_is_paused_already_is_not_paused_again():
    assert not after(LibraryPauses(ONLY), state=withheld()).due_pauses


def test_a_paused_partition_that_is_not_assigned_may_be_resumed():
    state = after(Paused(ONLY), UnassignedByHand(ONLY), state=settled(P0))
    assert not state.due_pauses
    assert state.due_resumes == ONLY


def test_a_pause_of_all_holds_until_it_is_over():
    state = after(PauseOfAllBegan(), LibraryPauses(ONLY), state=settled(P0))
    assert not state.due_resumes
    assert after(PauseOfAllEnded(), state=state).due_resumes == ONLY


def test_a_record_during_a_pause_of_all_does_not_end_it():
    state = after(PauseOfAllBegan(), LibraryPauses(ONLY), Fetched((run(P0, 20, 21),)), state=settled(P0))
    assert not state.due_resumes
    assert after(PauseOfAllEnded(), state=state).due_resumes == ONLY


def test_an_awaited_start_is_not_held_by_a_pause_of_all():
    state = after(PauseOfAllBegan(), LibraryPauses(ONLY), Departed(ONLY), Assigned(ONLY), state=settled(P0))
    assert state.due_resumes == ONLY


def test_what_leaves_during_a_pause_of_all_may_be_resumed():
    state = after(PauseOfAllBegan(), LibraryPauses(ONLY), Departed(ONLY), state=settled(P0))
    assert state.due_resumes == ONLY
