"""Where a partition starts: what the group and the settings say, and what the first records show."""

from __future__ import annotations

import msgspec
import pytest

from eos_client.core.model import NO_PARTITIONS, CommittedOffset
from eos_client.core.partition_events import (
    Aborted,
    Assigned,
    AssignedByHand,
    Chosen,
    Departed,
    EndsFound,
    Fetched,
    HandedOver,
    Interrupted,
    LibraryCallBegan,
    LogEndFound,
    Paused,
    Processed,
    Retained,
    StartsFound,
)
from eos_client.core.partition_row import BEGINNING, PartitionRow, ResetPolicy, Start, StartPhase
from eos_client.core.record_runs import Run
from tests.core.gate_language import P0, P1, classic
from tests.core.partition_language import (
    BOTH,
    ERROR,
    LATEST,
    ONLY,
    after,
    committed,
    error_event,
    handed,
    run,
    settled,
    started,
    withheld,
)

END = -1
RECORDS = Run(P0, tuple(range(10, 15)), 10, 15, ((10, None),))


def test_records_without_a_known_start_are_dropped_and_withheld():
    state = withheld()
    assert not state.waiting
    assert state.withheld == state.due_pauses == ONLY


def test_records_at_the_known_start_are_let_through():
    state = after(*started(P0), Fetched((run(P0, 10, 12),)))
    assert state.waiting == (run(P0, 10, 12),)
    assert state.row(P0) == PartitionRow(is_assigned=True, next_to_hand_over=10, epochs=(), group_offset=10)


@pytest.mark.parametrize("first", [9, 11])
def test_records_elsewhere_than_the_start_make_a_seek_due(first):
    state = after(*started(P0), Fetched((run(P0, first, 12),)))
    assert not state.waiting
    assert state.due_seeks == {P0: (10, None)}


@pytest.mark.parametrize(
    ("committed_epoch", "found_epoch", "is_sought"), [(3, 4, True), (3, 3, False), (None, 4, False)]
)
def test_a_start_under_another_epoch_is_sought(committed_epoch, found_epoch, is_sought):
    state = after(Assigned(ONLY), committed(10, epoch=committed_epoch), Fetched((run(P0, 10, 12, found_epoch),)))
    assert state.due_seeks == ({P0: (10, 3)} if is_sought else {})
    assert state.waiting == (() if is_sought else (run(P0, 10, 12, found_epoch),))


def test_without_an_offset_whatever_comes_is_the_start():
    state = after(Assigned(ONLY), StartsFound({P0: None}), Fetched((run(P0, 5, 6),)))
    assert state.waiting == (run(P0, 5, 6),)
    assert state.row(P0).next_to_hand_over == 5


def test_an_offset_0_is_no_missing_offset():
    state = after(*started(P0, at=0), Fetched((run(P0, 5, 6),)))
    assert state.due_seeks == {P0: (0, None)}


@pytest.mark.parametrize(("first", "is_sought"), [(0, False), (1, True), (5, True)])
def test_where_records_may_be_missing_the_beginning_is_sought(first, is_sought):
    state = after(Assigned(ONLY), Interrupted({P0: -1001}), StartsFound({P0: None}), Fetched((run(P0, first, 6),)))
    assert state.due_seeks == ({P0: (BEGINNING, None)} if is_sought else {})
    assert state.waiting == (() if is_sought else (run(P0, first, 6),))


@pytest.mark.parametrize("policy", ResetPolicy)
def test_a_withheld_partition_is_sought_once_its_start_is_known(policy):
    state = after(committed(15, epoch=3), state=withheld(policy))
    assert state.due_seeks == {P0: (15, 3)}
    assert not state.withheld
    assert state.row(P0).next_to_hand_over == 15


def test_a_withheld_partition_without_an_offset_starts_at_the_beginning():
    state = after(StartsFound({P0: None}), state=withheld())
    assert state.due_seeks == {P0: (BEGINNING, None)}


def test_with_error_a_withheld_partition_without_an_offset_is_missing():
    state = after(StartsFound({P0: None}), state=withheld(ERROR))
    assert state.missing_starts == state.withheld == ONLY
    assert not state.due_seeks
    assert not state.unknown_starts
    assert not state.row(P0).awaits_first_record


def test_nothing_is_handed_over_of_a_partition_without_a_start():
    state = after(StartsFound({P0: None}), Fetched((run(P0, 10, 12),)), state=withheld(ERROR))
    assert not state.waiting
    assert state.missing_starts == ONLY
    assert state.row(P0).start.phase is StartPhase.MISSING


def test_an_answer_for_what_has_left_changes_nothing():
    assert not after(Assigned(ONLY), Departed(ONLY), committed(10), EndsFound({P0: (7, 5)})).rows


def test_an_answer_after_the_application_has_chosen_changes_nothing():
    before = after(Assigned(ONLY), Chosen(P0, 3))
    assert after(committed(10), EndsFound({P0: (7, 5)}), state=before) == before


def test_an_end_is_forgotten_once_it_is_committed():
    start = after(Assigned(ONLY), EndsFound({P0: (7, 5)}), committed(7), policy=LATEST).row(P0).start
    assert (start.log_end, start.skipped_by_latest, start.needs_commit) == (None, 0, False)


@pytest.mark.parametrize(
    ("policy", "due"), [(LATEST, ONLY), (ResetPolicy.EARLIEST, NO_PARTITIONS), (ERROR, NO_PARTITIONS)]
)
def test_only_latest_asks_for_the_end_of_a_log(policy, due):
    state = after(Assigned(ONLY), policy=policy)
    assert state.due_ends(ONLY) == due
    assert state.due_ends(NO_PARTITIONS) == NO_PARTITIONS


def test_the_end_of_a_log_is_asked_for_once():
    assert after(Assigned(ONLY), EndsFound({P0: (7, 5)}), policy=LATEST).due_ends(ONLY) == NO_PARTITIONS


def test_with_latest_a_missing_offset_stays_unknown_until_the_end_is_committed():
    state = after(Assigned(ONLY), EndsFound({P0: (7, 5)}), StartsFound({P0: None}), policy=LATEST)
    assert (state.unknown_starts, state.due_end_commits(ONLY)) == (ONLY, {P0: 7})
    state = after(committed(7), state=state)
    assert (state.unknown_starts, state.due_end_commits(ONLY)) == (NO_PARTITIONS, {})


def test_with_latest_other_offsets_count_beside_a_missing_one():
    found = StartsFound({P0: None, P1: CommittedOffset(3, "")})
    assert after(Assigned(BOTH), found, policy=LATEST).unknown_starts == ONLY


def test_no_end_is_committed_where_the_group_has_an_offset():
    state = after(Assigned(ONLY), EndsFound({P0: (7, 5)}), committed(3), policy=LATEST)
    assert state.due_end_commits(ONLY) == {}


def test_an_offset_that_was_deleted_meanwhile_counts_no_more():
    state = after(Assigned(ONLY), committed(10, epoch=3), StartsFound({P0: None}))
    assert (state.row(P0).start.offset, state.row(P0).start.epoch) == (None, None)
    state = after(Fetched((run(P0, 5, 6),)), state=state)
    assert state.waiting == (run(P0, 5, 6),)


def test_a_start_at_0_is_sought_with_its_epoch():
    assert after(committed(0, epoch=3), state=withheld()).due_seeks == {P0: (0, 3)}


def test_without_an_offset_known_epochs_stay():
    before = after(handed(run(P0, 20, 25, 3)), Retained(ONLY), state=settled(P0))
    state = after(StartsFound({P0: None}), state=before)
    assert state.due_seeks == {P0: (BEGINNING, None)}
    assert state.row(P0).epochs == ((20, 3),)


def test_a_start_that_another_owner_has_committed_meanwhile_counts():
    state = after(*started(P0, at=10), committed(12), Fetched((run(P0, 12, 13),)))
    assert state.waiting == (run(P0, 12, 13),)


@pytest.mark.parametrize(("is_time", "due"), [(True, ONLY), (False, frozenset())])
def test_a_withheld_start_is_asked_for_when_it_is_time(is_time, due):
    assert withheld().due_starts([], is_time=is_time) == due


def test_an_awaited_start_is_not_asked_for_before_records_arrive():
    assert not after(Assigned(ONLY), policy=LATEST).due_starts([], is_time=True)


@pytest.mark.parametrize("is_time", [True, False])
def test_a_start_is_asked_for_once_records_have_arrived(is_time):
    state = after(Assigned(BOTH))
    assert state.due_starts([run(P0, 10, 12), error_event(P1)], is_time=is_time) == ONLY


def test_a_paused_partition_has_no_start_to_be_asked_for():
    state = after(Paused(ONLY), Assigned(frozenset({P1})), state=settled(P0))
    assert state.unknown_starts == frozenset({P1})
    assert (state.due_start_commits, state.missing_starts, state.truncations) == (frozenset(), frozenset(), {})


def test_a_known_start_is_not_asked_for():
    assert not after(*started(P0)).due_starts([run(P0, 10, 12)], is_time=True)


# -- a start beyond the end of its log ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("offset", "epoch", "first", "may_lie_beyond"),
    [(10, 3, 9, True), (10, 0, 0, True), (10, 3, 10, False), (10, 3, 11, False), (10, None, 9, False)],
)
def test_records_before_a_start_with_an_epoch_may_show_its_end(offset, epoch, first, may_lie_beyond):
    start = after(Assigned(ONLY), committed(offset, epoch=epoch)).row(P0).start
    assert start.may_lie_beyond_the_end(run(P0, first, 20)) is may_lie_beyond


@pytest.mark.parametrize("policy", ResetPolicy)
def test_a_start_without_an_offset_lies_beyond_no_end(policy):
    start = after(Assigned(ONLY), StartsFound({P0: None}), policy=policy).row(P0).start
    assert not start.may_lie_beyond_the_end(run(P0, 0, 5))
    assert not Start(epoch=3).may_lie_beyond_the_end(run(P0, 0, 5))


def test_only_a_log_that_may_end_before_its_start_is_asked_for_its_end():
    state = after(Assigned(BOTH), committed(10, epoch=3), committed(10, P1))
    assert state.due_log_ends([run(P0, 9, 20), run(P1, 9, 20)]) == ONLY
    assert state.due_log_ends([run(P0, 10, 20), Run(P0, (), is_error=True)]) == frozenset()
    assert settled(P0).due_log_ends([run(P0, 0, 20)]) == frozenset()


@pytest.mark.parametrize(("end", "epoch"), [(9, None), (10, 3), (11, 3)])
def test_a_start_beyond_the_end_is_sought_without_its_epoch(end, epoch):
    state = after(Assigned(ONLY), committed(10, epoch=3), LogEndFound(P0, end), Fetched((run(P0, 0, 5, 1),)))
    assert state.due_seeks == {P0: (10, epoch)}
    assert not state.waiting


def test_the_end_of_a_log_changes_nothing_else_of_the_start():
    before = after(Assigned(BOTH), committed(10, epoch=3), committed(7, P1, epoch=2), policy=LATEST)
    state = after(LogEndFound(P0, 9), state=before)
    assert state.row(P0).start == msgspec.structs.replace(before.row(P0).start, epoch=None)
    assert (state.row(P0).start.phase, state.row(P0).start.offset) == (StartPhase.KNOWN, 10)
    assert state.row(P1) == before.row(P1)


@pytest.mark.parametrize("before", [after(), settled(P0)], ids=["left", "started"])
def test_without_a_start_the_end_of_a_log_changes_nothing(before):
    assert after(LogEndFound(P0, 0), state=before) == before


# -- odd settings, and the first offset of a log -----------------------------------------------------------------------


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
    assert (row.next_to_hand_over, row.rejects_earlier, row.was_read) == (None, False, False)


def test_an_interrupted_call_reports_a_start_that_is_known_to_be_missing():
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
    assert (state.row(P0).next_to_hand_over, state.row(P0).fetched_up_to) == (0, 5)


def test_at_the_first_offset_nothing_came_before_an_interrupted_call():
    assert after(Assigned(ONLY), Chosen(P0, 0), Interrupted({P0: -1001})).row(P0).fetched_up_to is None
