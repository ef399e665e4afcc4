"""Each rule of the table of partitions: a state, an event, the next state."""

from __future__ import annotations

from itertools import pairwise

import pytest
from confluent_kafka import OFFSET_BEGINNING, OFFSET_END
from hypothesis import given, settings
from hypothesis import strategies as st

from eos_client.core.leader_epochs import Misplacement
from eos_client.core.model import UNJOINED, CommittedOffset, InputPosition, record_count
from eos_client.core.partition_events import (
    Aborted,
    Assigned,
    AssignedByHand,
    CallBegan,
    CallEnded,
    Chosen,
    Closed,
    Committed,
    Departed,
    EndsFound,
    EventsTaken,
    Fetched,
    HandedOver,
    Interrupted,
    LibraryCallBegan,
    LibraryPauses,
    LibraryResumed,
    Misplaced,
    Passed,
    Paused,
    PauseOfAllBegan,
    PauseOfAllEnded,
    Processed,
    PutBack,
    Resumed,
    Retained,
    RewindsRepeated,
    Sought,
    StartsFound,
    TopicReplaced,
    Truncated,
    UnassignedByHand,
    WaitingGivenBack,
    WorkForgotten,
    WorkTakenBack,
)
from eos_client.core.partition_row import BEGINNING, SEEK_ATTEMPTS_MAX, PartitionRow, ResetPolicy, StartPhase
from eos_client.core.partition_states import ConsumerState, apply
from eos_client.core.record_runs import Run, take
from tests.core.gate_language import P0, P1, P2, classic

G4, G5 = classic(4), classic(5)
BOTH = frozenset({P0, P1})
ONLY = frozenset({P0})
END = -1
"""The logical offset of the end of a log, as librdkafka numbers it."""

EARLIEST, LATEST, ERROR = ResetPolicy.EARLIEST, ResetPolicy.LATEST, ResetPolicy.ERROR
TRUNCATION = Misplacement(20, 1, 10, 2)


def after(*happened, state=None, policy=EARLIEST):
    """The state after all that has ``happened``."""
    state = state or ConsumerState(reset_policy=policy)
    for event in happened:
        state = apply(state, event)
    return state


def run(partition, first, following, epoch=None, gaps=()):
    return Run(partition, tuple(range(first, following)), first, following, ((first, epoch),), gaps)


def error_event(partition, *, leaves=False):
    """An error event; ``leaves``: the end of the partition."""
    return Run(partition, ("event",), is_error=True, leaves_with_partition=leaves)


def handed(*runs, waiting=(), generation=G4):
    return HandedOver(runs, waiting, generation)


def committed(offset, partition=P0, epoch=None):
    return StartsFound({partition: CommittedOffset(offset, "", epoch)})


def started(*partitions, at=10):
    """What happens until ``partitions`` wait for their first record, which is to be the one ``at`` an offset."""
    return (Assigned(frozenset(partitions)), *(committed(at, each) for each in partitions))


def reading(*partitions, until=20, waiting_until=None):
    """A state in which the records 10 to before ``until`` are handed over, and others wait."""
    state = after(*started(*partitions))
    for each in partitions:
        state = after(Fetched((run(each, 10, until),)), state=state)
    state = after(handed(*state.waiting), state=state)
    if waiting_until is not None:
        state = after(Fetched(tuple(run(each, until, waiting_until) for each in partitions)), state=state)
    return state


def settled(*partitions, until=20):
    """A state in which everything before ``until`` is committed."""
    return after(Processed(), Committed(dict.fromkeys(partitions, until)), state=reading(*partitions, until=until))


def withheld(policy=EARLIEST):
    """A state in which the start of one partition must be known before anything is fetched of it."""
    return after(Assigned(ONLY), Fetched((run(P0, 10, 12),)), policy=policy)


# -- the table ---------------------------------------------------------------------------------------------------------


def test_what_is_no_event_is_refused():
    with pytest.raises(TypeError, match="not an event"):
        apply(ConsumerState(), "Fetched")


def test_nothing_is_true_of_an_unknown_partition():
    state = ConsumerState()
    assert state.row(P0) == PartitionRow()
    assert state.row(P0).is_plain
    assert not state.row(P0).was_read
    assert state.row(P0).attempts == 0
    assert not state.call_is_unfinished


def test_the_beginning_of_a_log_is_numbered_as_librdkafka_does():
    assert (BEGINNING, END) == (OFFSET_BEGINNING, OFFSET_END)


def test_a_partition_of_which_nothing_is_true_has_no_row():
    state = after(Departed(BOTH), state=settled(P0, P1))
    assert (dict(state.rows), state.not_plain, dict(state.positions)) == ({}, frozenset(), {})


def test_a_partition_that_is_only_read_needs_no_attention():
    assert reading(P0, P1).not_plain == frozenset()


@pytest.mark.parametrize("policy", ResetPolicy)
def test_each_policy_has_the_spellings_of_librdkafka(policy):
    for spelling in policy.value:
        assert ResetPolicy.of(spelling) is policy
        assert ResetPolicy.of(spelling.upper()) is policy


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
    assert (state.row(P0).start.end, state.row(P0).start.passed_over) == (7, 5)


def test_what_was_read_and_is_assigned_again_has_left_in_between():
    state = after(Assigned(ONLY), state=reading(P0))
    assert state.row(P0).orphan == InputPosition(10, 20, G4)
    assert not state.owned_positions
    assert state.unknown_starts == ONLY
    assert state.row(P0).next is None


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


def test_news_stay_where_their_partition_departs_but_no_end():
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
    assert state.row(P0).next is None
    state = after(committed(15), state=state)
    assert state.due_seeks == {P0: (15, None)}
    assert not state.withheld


def test_a_retained_partition_whose_start_is_known_is_sought():
    state = after(*started(P0, at=15), Retained(ONLY))
    assert state.due_seeks == {P0: (15, None)}


@pytest.mark.parametrize("happened", [(), (Aborted(),)])
def test_a_retained_partition_forgets_what_was_read(happened):
    row = after(*happened, Retained(ONLY), state=reading(P0)).row(P0)
    assert (row.next, row.rejects_earlier, row.was_read, row.needs_seek, row.fetched_up_to) == (
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


def by_hand(*partitions, replaces=True, without_group=True):
    return AssignedByHand(frozenset(partitions), replaces, without_group)


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
    assert (row.next, row.rejects_earlier, row.was_read, row.truncation) == (None, False, False, None)


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
    assert not state.not_plain


def test_unassigning_what_was_never_assigned_changes_nothing():
    assert not after(UnassignedByHand(ONLY)).rows


# -- where a partition starts ------------------------------------------------------------------------------------------


def test_records_without_a_known_start_are_dropped_and_withheld():
    state = withheld()
    assert not state.waiting
    assert state.withheld == state.due_pauses == ONLY


def test_records_at_the_known_start_are_let_through():
    state = after(*started(P0), Fetched((run(P0, 10, 12),)))
    assert state.waiting == (run(P0, 10, 12),)
    assert state.row(P0) == PartitionRow(is_assigned=True, next=10, epochs=())


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
    assert state.row(P0).next == BEGINNING


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
    assert state.row(P0).next == 15


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
    assert (start.end, start.passed_over, start.needs_commit) == (None, 0, False)


def test_an_offset_that_was_deleted_meanwhile_counts_no_more():
    state = after(*started(P0), StartsFound({P0: None}), Fetched((run(P0, 5, 6),)))
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
    assert state.row(P0).next == 10
    assert not state.waiting


def test_passed_offsets_change_nothing_where_records_were_read():
    before = settled(P0)
    assert after(Passed((Run(P0, (), 30, 30, ((30, 1),)),)), state=before) == before


def test_error_events_that_were_acted_on_wait_no_longer():
    first, second = error_event(P0), error_event(P1)
    state = after(Fetched((first, run(P0, 20, 21), second)), state=settled(P0))
    assert after(EventsTaken((first, run(P0, 20, 21)), (second,)), state=state).waiting == (run(P0, 20, 21), second)


def test_records_wait_though_events_were_acted_on():
    state = after(Fetched((run(P0, 20, 21), error_event(P0))), state=settled(P0))
    assert after(EventsTaken(state.waiting, ()), state=state).waiting == (run(P0, 20, 21),)


def test_of_several_events_the_one_that_was_acted_on_waits_no_longer():
    events = Run(P0, ("first", "second"), is_error=True)
    state = after(Fetched((events,)), state=settled(P0))
    taken, waiting = take(state.waiting, 1, frozenset())
    (left,) = after(EventsTaken(taken, waiting), state=state).waiting
    assert left.messages == ("second",)


# -- what waits --------------------------------------------------------------------------------------------------------


def test_the_next_record_is_the_first_that_waits_and_no_event():
    state = after(Fetched((error_event(P0), run(P1, 3, 4), run(P0, 20, 22), run(P0, 22, 23))), state=settled(P0, P1))
    assert [state.shown_offset(partition, 30) for partition in (P0, P1, P2)] == [20, 3, 30]


def test_inside_a_call_the_next_record_is_the_one_after_those_handed_over():
    state = after(CallBegan(), Fetched((run(P0, 25, 27),)), Chosen(P1, BEGINNING), state=settled(P0, P1))
    assert [state.shown_offset(partition, 30) for partition in (P0, P1, P2)] == [20, None, None]


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
    assert (row.next, row.rejects_earlier, row.was_read) == (25, True, True)
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
    assert state.row(P0).processed == 20
    assert after(Processed(), handed(run(P0, 28, 30)), state=state).row(P0).processed == 28


def test_several_runs_of_one_call_are_unprocessed():
    state = after(Processed(), handed(run(P0, 20, 25), run(P0, 26, 30)), state=reading(P0))
    assert state.row(P0).processed == 20


def test_without_work_nothing_was_processed():
    state = after(Processed(), handed(run(P0, 20, 25)), state=after(Committed({P0: 20}), state=reading(P0)))
    assert state.row(P0).processed is None


def test_records_of_several_calls_are_unprocessed():
    state = after(handed(run(P1, 20, 25)), state=after(Committed({P1: 20}), state=reading(P0)))
    assert state.unprocessed == BOTH


def test_only_what_was_handed_over_since_is_processed():
    came = (Processed(), handed(run(P1, 20, 25)), Processed(), handed(run(P0, 20, 25)), handed(run(P1, 25, 30)))
    state = after(*came, state=reading(P0, P1))
    assert [state.row(each).processed for each in (P0, P1)] == [20, 25]


def test_what_left_before_it_was_processed_has_no_row_again():
    assert not after(Departed(ONLY), Committed({P0: 20}), Processed(), state=reading(P0)).rows


# -- put back, taken back ----------------------------------------------------------------------------------------------


def test_what_is_put_back_comes_first_and_is_no_work():
    back = (run(P0, 15, 17), run(P0, 17, 20))
    state = after(PutBack(back), state=reading(P0, waiting_until=25))
    assert state.waiting == (*back, run(P0, 20, 25))
    assert state.positions == {P0: InputPosition(10, 15, G4)}
    assert (state.row(P0).next, state.row(P0).rejects_earlier) == (15, True)


def test_work_that_is_put_back_wholly_is_none():
    state = after(PutBack((run(P0, 10, 20),)), state=reading(P0))
    assert not state.positions


def test_events_that_are_put_back_move_nothing():
    before = reading(P0)
    state = after(PutBack((error_event(P0),)), state=before)
    assert (state.rows, state.waiting) == (before.rows, (error_event(P0),))


def test_what_is_put_back_after_a_seek_is_expected():
    state = after(Chosen(P0, 30), PutBack((run(P0, 18, 20),)), state=reading(P0))
    assert (state.row(P0).next, state.row(P0).rejects_earlier) == (18, True)


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


def test_a_commit_where_no_work_is_left_changes_nothing():
    before = settled(P0)
    assert after(Committed({P0: 25}), state=before) == before


def test_what_was_committed_wholly_was_not_processed_any_more():
    state = after(Processed(), handed(run(P0, 20, 25)), Committed({P0: 25}), state=reading(P0))
    assert state.row(P0).processed is None


def test_what_was_committed_in_part_was_processed_all_the_same():
    state = after(Processed(), handed(run(P0, 20, 25)), Committed({P0: 15}), state=reading(P0))
    assert state.row(P0).processed == 20


ENDINGS = {
    "forgotten": (WorkForgotten(ONLY),),
    "committed": (Committed({P0: 45}),),
    "aborted": (Aborted(),),
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_an_orphan_ends_with_the_work_that_came_after_it(ending):
    read = (handed(run(P0, 40, 42)), Processed(), handed(run(P0, 42, 45)))
    came = (Departed(ONLY), *started(P0, at=40), *read)
    state = after(*came, *ENDINGS[ending], state=reading(P0))
    row = state.row(P0)
    assert (row.work, row.orphan, row.processed) == (None, None, None)
    assert not state.positions


def test_only_what_is_named_is_forgotten():
    state = after(WorkForgotten(ONLY), WorkForgotten(ONLY), state=reading(P0, P1))
    assert set(state.positions) == {P1}
    assert state.unprocessed == frozenset({P1})


def test_forgetting_what_never_was_changes_nothing():
    assert not after(WorkForgotten(ONLY)).rows


def test_what_is_aborted_goes_back_to_its_first_record():
    state = after(Aborted(), state=reading(P0, P1, waiting_until=25))
    assert not state.positions
    assert not state.waiting
    assert state.due_seeks == {P0: (10, None), P1: (10, None)}
    assert state.row(P0).fetched_up_to == 25


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
    assert state.row(P0).next == 15


def test_work_of_an_unassigned_partition_is_aborted_without_a_seek():
    state = after(UnassignedByHand(ONLY), Aborted(), state=reading(P0))
    assert not state.positions
    assert not state.not_plain


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


# -- where a partition goes on -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("offset", [0, 30, BEGINNING, END])
def test_a_chosen_offset_is_where_a_partition_goes_on(offset):
    state = after(Assigned(ONLY), Chosen(P0, offset))
    assert state.next_offsets == {P0: offset}
    assert not state.not_plain


def test_a_choice_ends_what_was_due():
    before = after(Truncated(P0, TRUNCATION), Aborted(), state=reading(P0, waiting_until=25))
    state = after(Chosen(P0, 30), state=before)
    assert (state.due_seeks, state.truncations, state.waiting, state.not_plain) == ({}, {}, (), frozenset())
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
    assert (row.next, row.work, row.processed, row.orphan) == (45, before.work, 42, before.orphan)
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
    state = after(WorkForgotten(ONLY), state=after(handed(run(P0, 20, 25, 3)), state=started_at_20()))
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
    misplacement = after(handed(run(P0, 20, 20, 3)), state=reading(P0)).misplacement(run(P0, first, 30, 4), None)
    assert misplacement == (Misplacement(20, 3, 19, 4) if is_misplaced else None)


def test_before_a_seek_is_done_nothing_is_misplaced():
    state = after(Aborted(), state=reading(P0))
    assert state.misplacement(run(P0, 5, 6), None) is None


def test_without_a_known_next_offset_nothing_is_misplaced():
    assert after(Assigned(ONLY)).misplacement(run(P0, 5, 6), None) is None


def test_records_before_the_run_ahead_of_them_are_misplaced():
    state = after(*started(P0), Fetched((run(P0, 10, 12, 1),)))
    found = state.misplacement(run(P0, 3, 4, 2), run(P0, 10, 12, 1))
    assert found == Misplacement(12, 1, 3, 2)
    assert state.misplacement(run(P0, 12, 14), run(P0, 10, 12)) is None


@pytest.mark.parametrize("between", [(), (error_event(P0),), (error_event(P0, leaves=True),), (run(P1, 20, 22),)])
def test_the_first_run_that_begins_too_early_is_found_behind_events_too(between):
    taken = (run(P0, 20, 30), *between, run(P0, 25, 31), run(P0, 3, 4))
    found = settled(P0, P1).first_misplaced(taken)
    assert (found.at, found.run, found.misplacement.expected, found.were_read) == (
        len(taken) - 2,
        taken[-2],
        30,
        True,
    )


@pytest.mark.parametrize("was_read", [False, True])
def test_whether_records_were_read_before_a_run_that_begins_too_early(was_read):
    state = settled(P0) if was_read else after(Chosen(P0, 20), Sought(P0, 20), PutBack((run(P0, 20, 21),)))
    found = state.first_misplaced((error_event(P0), run(P0, 5, 6)))
    assert (found.at, found.were_read) == (1, was_read)


@pytest.mark.parametrize(
    ("attempts", "end", "is_sought"), [(0, None, True), (2, 20, True), (2, 19, False), (3, 20, False)]
)
def test_a_misplaced_partition_is_sought_again_unless_its_log_ends_too_early(attempts, end, is_sought):
    state = after(*[Misplaced(P0), Sought(P0, 20)] * attempts, state=settled(P0))
    assert state.first_misplaced((run(P0, 5, 6),)).is_to_be_sought(end) is is_sought


def test_runs_that_follow_each_other_are_not_misplaced():
    assert settled(P0, P1).first_misplaced((run(P0, 20, 22), error_event(P0), run(P1, 20, 21), run(P0, 22, 23))) is None


def test_nothing_is_committed_of_a_replaced_topic():
    state = after(TopicReplaced("orders", ONLY), state=reading(P0, P1, waiting_until=25))
    assert state.replaced_topics == {"orders"}
    assert set(state.positions) == {P1}
    assert after(TopicReplaced("bills", frozenset()), state=state).replaced_topics == {"orders", "bills"}


# -- pauses ------------------------------------------------------------------------------------------------------------


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
    assert not after(LibraryResumed(ONLY), state=state).not_plain


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


# -- calls -------------------------------------------------------------------------------------------------------------


def test_a_call_is_under_way_until_it_has_ended():
    state = after(CallBegan())
    assert state.call_is_unfinished
    assert not after(CallEnded(), state=state).call_is_unfinished


def test_what_left_is_known_until_the_next_library_call():
    state = after(Departed(ONLY), Departed(frozenset({P1})))
    assert state.departed == BOTH
    assert not after(LibraryCallBegan(), state=state).departed


def test_after_a_broken_off_call_what_was_read_goes_on():
    state = after(Fetched((error_event(P0),)), Interrupted({P0: 30}), state=reading(P0, waiting_until=25))
    assert state.waiting == (error_event(P0),)
    assert state.due_seeks == {P0: (20, None)}
    assert (state.row(P0).fetched_up_to, state.row(P0).work) == (30, InputPosition(10, 20, G4))


def test_after_a_broken_off_call_nothing_beyond_next_was_reached():
    state = after(Interrupted({P0: 20}), state=reading(P0))
    assert state.due_seeks == {P0: (20, None)}
    assert state.row(P0).fetched_up_to is None


def test_a_logical_offset_is_sought_after_a_broken_off_call():
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


def test_a_known_start_is_sought_after_a_broken_off_call():
    state = after(*started(P0), Interrupted({P0: 12}))
    assert state.due_seeks == {P0: (10, None)}


@pytest.mark.parametrize("policy", ResetPolicy)
def test_what_is_withheld_stays_so_after_a_broken_off_call(policy):
    before = withheld(policy)
    assert after(Interrupted({P0: 12}), state=before) == before


def test_a_missing_start_stays_so_after_a_broken_off_call():
    before = after(StartsFound({P0: None}), state=withheld(ERROR))
    assert after(Interrupted({P0: 12}), state=before) == before


def test_an_end_that_was_found_outlives_a_broken_off_call():
    state = after(Assigned(ONLY), EndsFound({P0: (7, 5)}), Interrupted({P0: -1001}), policy=LATEST)
    assert (state.row(P0).start.end, state.row(P0).start.passed_over) == (7, 5)
    assert state.due_start_commits == ONLY


def test_what_was_unknown_is_withheld_after_a_broken_off_call():
    state = after(Interrupted({P0: 7}), policy=LATEST)
    assert state.withheld == ONLY
    assert not state.due_start_commits


def test_what_is_ours_after_a_broken_off_call_is_assigned():
    state = after(Interrupted({P0: -1001}))
    assert state.assigned == ONLY
    assert state.row(P0).awaits_first_record


def test_a_pause_of_all_that_was_broken_off_is_over():
    state = after(PauseOfAllBegan(), LibraryPauses(ONLY), Interrupted({P0: 20}), state=settled(P0))
    assert not state.all_are_paused
    (offset, _) = state.due_seeks[P0]
    assert after(Sought(P0, offset), state=state).due_resumes == ONLY
