"""Which records were handed over and are not committed, by partition."""

from __future__ import annotations

from eos_client.core.model import InputPosition
from eos_client.core.uncommitted_work import UncommittedWork
from tests.core.gate_language import P0, P1, classic

G4, G5 = classic(4), classic(5)


def handed_over(*spans):
    work = UncommittedWork()
    for partition, first, following, generation in spans:
        work.hand_over(partition, InputPosition(first, following, generation))
    return work


def test_nothing_is_uncommitted_at_first():
    assert dict(UncommittedWork().positions) == {}


def test_a_partition_remembers_its_first_record_its_newest_and_the_generation_of_the_first():
    work = handed_over((P0, 10, 20, G4), (P0, 20, 25, G5), (P1, 3, 4, G5))
    assert dict(work.positions) == {P0: InputPosition(10, 25, G4), P1: InputPosition(3, 4, G5)}


def test_the_leader_epoch_is_that_of_the_newest_record():
    work = UncommittedWork()
    work.hand_over(P0, InputPosition(10, 20, G4, 7))
    work.hand_over(P0, InputPosition(20, 30, G4, 8))
    assert work.positions[P0].leader_epoch == 8


def test_aborted_or_compacted_records_are_a_gap_in_the_work():
    assert handed_over((P0, 10, 20, G4), (P0, 35, 36, G4)).positions[P0] == InputPosition(10, 36, G4, gaps=((20, 35),))


def test_records_that_an_application_seeks_back_to_are_uncommitted_too():
    assert handed_over((P0, 10, 20, G4), (P0, 5, 8, G4)).positions[P0] == InputPosition(5, 8, G4)


def test_departed_work_is_shown_to_the_gate_but_does_not_count_as_ours():
    work = handed_over((P0, 10, 20, G4), (P1, 1, 2, G4))
    work.mark_departed([P0])
    assert set(work.positions) == {P0, P1}
    assert set(work.owned) == {P1}


def test_a_partition_that_comes_back_begins_anew_and_its_old_records_are_not_gone_back_to():
    work = handed_over((P0, 10, 20, G4))
    work.mark_departed([P0])
    work.hand_over(P0, InputPosition(40, 45, G5))
    assert dict(work.owned) == {P0: InputPosition(40, 45, G5)}
    assert dict(work.positions) == {P0: InputPosition(40, 45, G5)}


def test_what_came_after_a_return_and_is_taken_back_does_not_cover_what_departed():
    work = handed_over((P0, 10, 20, G4))
    for _ in range(2):
        work.mark_departed([P0])
        work.hand_over(P0, InputPosition(10, 45, G5))
        work.take_back(P0, 10)
        assert dict(work.positions) == {P0: InputPosition(10, 20, G4)}
        assert dict(work.owned) == {}


def test_what_departed_is_forgotten_with_what_came_after_it():
    for over in (
        lambda work: work.forget([P0]),
        lambda work: work.mark_committed_up_to(P0, 45),
        UncommittedWork.clear,
    ):
        work = handed_over((P0, 10, 20, G4))
        work.mark_departed([P0])
        work.hand_over(P0, InputPosition(40, 45, G5))
        over(work)
        work.hand_over(P0, InputPosition(50, 60, G5))
        work.take_back(P0, 50)
        assert dict(work.positions) == {}


def test_a_partition_is_set_back_to_what_it_was_with_what_had_departed():
    work = handed_over((P0, 10, 20, G4))
    before = work.state_of(P0)
    work.mark_departed([P0])
    departed = work.state_of(P0)
    work.hand_over(P0, InputPosition(10, 45, G5))
    came = work.state_of(P0)
    work.take_back(P0, 10)
    work.reset(P0, came)
    assert dict(work.owned) == {P0: InputPosition(10, 45, G5)}
    work.take_back(P0, 10)
    assert dict(work.positions) == {P0: InputPosition(10, 20, G4)}
    work.reset(P0, departed)
    assert (dict(work.positions), dict(work.owned)) == ({P0: InputPosition(10, 20, G4)}, {})
    work.hand_over(P0, InputPosition(10, 45, G5))
    work.reset(P0, before)
    assert dict(work.owned) == {P0: InputPosition(10, 20, G4)}
    work.take_back(P0, 10)
    assert dict(work.positions) == {}


def test_a_departure_without_uncommitted_records_leaves_no_mark():
    work = UncommittedWork()
    work.mark_departed([P0])
    work.hand_over(P0, InputPosition(10, 20, G4))
    work.hand_over(P0, InputPosition(20, 30, G5))
    assert dict(work.owned) == {P0: InputPosition(10, 30, G4)}


def test_a_departure_is_over_when_its_work_is_forgotten_or_settled():
    for over in (lambda work: work.forget([P0]), UncommittedWork.clear):
        work = handed_over((P0, 10, 20, G4))
        work.mark_departed([P0])
        over(work)
        assert dict(work.positions) == {}
        work.hand_over(P0, InputPosition(20, 30, G5))
        assert set(work.owned) == {P0}


def test_records_taken_back_are_not_part_of_the_work():
    work = handed_over((P0, 10, 20, G4), (P1, 1, 2, G4))
    work.take_back(P0, 15)
    assert work.positions[P0] == InputPosition(10, 15, G4)
    work.take_back(P0, 10)
    assert set(work.positions) == {P1}


def test_taking_back_what_was_never_handed_over_changes_nothing():
    work = handed_over((P0, 10, 20, G4))
    work.take_back(P0, 20)
    work.take_back(P0, 25)
    work.take_back(P1, 0)
    assert dict(work.positions) == {P0: InputPosition(10, 20, G4)}


def test_a_partial_commit_leaves_the_rest_with_the_generation_of_its_beginning():
    work = handed_over((P0, 10, 20, G4))
    work.mark_committed_up_to(P0, 15)
    assert work.positions[P0] == InputPosition(15, 20, G4)
    work.mark_committed_up_to(P0, 15)
    work.mark_committed_up_to(P0, 3)
    assert work.positions[P0] == InputPosition(15, 20, G4)
    work.mark_committed_up_to(P0, 20)
    assert P0 not in work.positions


def test_a_commit_beyond_the_work_ends_it_and_one_of_another_partition_does_not():
    work = handed_over((P0, 10, 20, G4))
    work.mark_committed_up_to(P1, 99)
    assert P0 in work.positions
    work.mark_committed_up_to(P0, 99)
    assert P0 not in work.positions


def test_forgetting_drops_only_what_it_names():
    work = handed_over((P0, 10, 20, G4), (P1, 1, 2, G4))
    work.forget([P0])
    work.forget([P0])
    assert set(work.positions) == {P1}


def test_after_all_was_committed_or_rewound_new_records_begin_anew():
    work = handed_over((P0, 10, 20, G4), (P1, 1, 2, G4))
    work.clear()
    assert dict(work.positions) == {}
    work.hand_over(P0, InputPosition(20, 21, G5))
    assert work.positions[P0] == InputPosition(20, 21, G5)


def test_clearing_does_not_empty_what_a_commit_is_about_to_send():
    work = handed_over((P0, 10, 20, G4))
    sent = work.positions
    work.clear()
    assert dict(sent) == {P0: InputPosition(10, 20, G4)}


def test_records_are_in_hand_until_they_are_processed_or_gone():
    work = UncommittedWork()
    assert not work.in_hand
    work.hand_over(P0, InputPosition(0, 3, G4))
    assert work.in_hand
    work.mark_processed()
    assert not work.in_hand
    assert work.positions
    work.hand_over(P0, InputPosition(3, 4, G4))
    assert work.in_hand
    work.mark_committed_up_to(P0, 4)
    assert not work.in_hand
    work.hand_over(P0, InputPosition(4, 5, G4))
    work.clear()
    work.hand_over(P1, InputPosition(0, 1, G4))
    assert work.in_hand
