"""Where a partition starts and goes on: odd settings, and the first offset of a log."""

from __future__ import annotations

from functools import reduce

import pytest

from eos_client.core.partition_events import (
    Aborted,
    Assigned,
    AssignedByHand,
    Chosen,
    Departed,
    Fetched,
    HandedOver,
    Interrupted,
    LibraryCallBegan,
    Processed,
    Retained,
    StartsFound,
)
from eos_client.core.partition_row import BEGINNING, ResetPolicy
from eos_client.core.partition_states import ConsumerState, apply
from eos_client.core.record_runs import Run
from tests.core.gate_language import P0, classic

ONLY = frozenset({P0})
END = -1
RECORDS = Run(P0, tuple(range(10, 15)), 10, 15, ((10, None),))


def after(*happened, policy=ResetPolicy.EARLIEST):
    return reduce(apply, happened, ConsumerState(reset_policy=policy))


def test_a_policy_that_nobody_knows_lets_no_start_be_chosen():
    assert ResetPolicy.of("none") is ResetPolicy.ERROR


def test_a_seek_to_the_first_offset_carries_its_leader_epoch():
    assert after(Assigned(ONLY), Chosen(P0, 0, epoch=3), Interrupted({P0: 5})).due_seeks == {P0: (0, 3)}


def test_what_is_read_again_replaces_the_leader_epochs_of_what_was_read_there():
    """The log may have been truncated and have grown again since."""
    before = Run(P0, tuple(range(5, 20)), 5, 20, ((5, 1), (14, 3)))
    grown = Run(P0, tuple(range(10, 15)), 10, 15, ((10, 1), (12, 7)))
    over = (HandedOver((run,), (), classic(4)) for run in (before, grown))
    state = after(Chosen(P0, 5), next(over), Chosen(P0, 10), next(over), Interrupted({P0: 20}))
    assert state.due_seeks == {P0: (15, 7)}


def test_passed_offsets_leave_the_leader_epoch_of_the_start():
    passed = Run(P0, (), 5, 7, ((7, 3),), ((5, 7),))
    state = after(Assigned(ONLY), Chosen(P0, 5, epoch=2), HandedOver((passed,), (), classic(4)), Aborted())
    assert state.due_seeks == {P0: (5, 2)}


@pytest.mark.parametrize("chosen", [15, BEGINNING, END])
def test_an_abort_after_a_choice_goes_back_with_the_leader_epoch(chosen):
    read = HandedOver((Run(P0, tuple(range(10, 20)), 10, 20, ((10, 3),)),), (), classic(4))
    state = after(Assigned(ONLY), Chosen(P0, 10), read, Processed(), Chosen(P0, chosen), Aborted())
    assert state.due_seeks == {P0: (10, 3)}


def test_a_retained_partition_forgets_where_it_went_on():
    row = after(Chosen(P0, 10), HandedOver((RECORDS,), (), classic(4)), Retained(ONLY)).row(P0)
    assert (row.next, row.rejects_earlier, row.was_read) == (None, False, False)


def test_a_broken_off_call_reports_a_start_that_is_known_to_be_missing():
    state = after(Assigned(ONLY), StartsFound({P0: None}), Interrupted({P0: 5}), policy=ResetPolicy.ERROR)
    assert state.missing_starts == ONLY


def test_a_missing_start_stays_missing_when_older_records_arrive():
    retained = (LibraryCallBegan(), Departed(ONLY), Retained(ONLY))
    state = after(*retained, StartsFound({P0: None}), Fetched((RECORDS,)), policy=ResetPolicy.ERROR)
    assert state.missing_starts == ONLY


def test_what_came_back_without_a_chosen_offset_awaits_the_groups():
    by_hand = AssignedByHand(ONLY, replaces=False, without_group=False)
    assert after(LibraryCallBegan(), Departed(ONLY), by_hand, Fetched((RECORDS,))).withheld == ONLY


def test_an_assignment_after_a_choice_awaits_the_groups_offset():
    state = after(LibraryCallBegan(), Departed(ONLY), Chosen(P0, 15), Assigned(ONLY), Fetched((RECORDS,)))
    assert state.withheld == ONLY


def test_a_rewind_to_the_first_offset_drops_what_came_before_it():
    first = Run(P0, tuple(range(5)), 0, 5, ((0, None),))
    state = after(Assigned(ONLY), Chosen(P0, 0), HandedOver((first,), (), classic(4)), Aborted())
    assert (state.row(P0).next, state.row(P0).fetched_up_to) == (0, 5)


def test_at_the_first_offset_nothing_came_before_a_broken_off_call():
    assert after(Assigned(ONLY), Chosen(P0, 0), Interrupted({P0: -1001})).row(P0).fetched_up_to is None
