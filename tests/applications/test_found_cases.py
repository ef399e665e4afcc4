"""Applications that once broke a rule: the names say what they do."""

from __future__ import annotations

from tests.applications import found
from tests.applications.program import Program
from tests.applications.search import judged


def holds(program: Program) -> None:
    verdict = judged(program)
    assert verdict.violations == [], f"{program!r}\nbroke {verdict.violations[:5]}"


def test_a_member_that_a_restarted_coordinator_assigns_again_in_the_same_generation_commits() -> None:
    holds(found.ASSIGNED_AGAIN)


def test_a_member_whose_epoch_had_moved_before_its_assignment_was_told_and_taken_back_commits_in_the_end() -> None:
    holds(found.ASSIGNED_UNHEARD)
    holds(found.ASSIGNED_UNHEARD_AND_RESTARTED)


def test_lost_answers_of_a_commit_and_of_the_next_init_do_not_wedge_an_application_that_goes_on() -> None:
    holds(found.LOST_ANSWERS_OF_A_COMMIT)


def test_an_outage_longer_than_a_recovery_doubles_nothing_where_the_application_goes_on() -> None:
    holds(found.OUTAGE_LONGER_THAN_A_RECOVERY)


def test_outputs_written_at_the_end_of_the_block_after_an_unanswered_commit_are_written_once() -> None:
    holds(found.OUTPUTS_WRITTEN_LATE_AFTER_AN_UNANSWERED_COMMIT)


def test_a_block_that_a_signal_ends_before_its_offsets_are_sent_says_what_became_of_it() -> None:
    holds(found.SIGNAL_BEFORE_THE_OFFSETS)


def test_blocks_that_signals_end_after_their_commit_say_what_became_of_them() -> None:
    holds(found.SIGNAL_AFTER_THE_COMMIT)


def test_a_block_in_which_the_producer_was_closed_says_what_became_of_it() -> None:
    holds(found.CLOSED_INSIDE)


def test_a_refusal_of_a_repeated_commit_after_its_id_was_forgotten_doubles_nothing() -> None:
    holds(found.REPEATED_COMMIT_OF_A_FORGOTTEN_ID)


def test_a_block_that_ends_fenced_says_what_became_of_it() -> None:
    holds(found.FENCED_IN_A_BLOCK)


def test_a_revoke_callback_commits_nothing_of_a_block_whose_outcome_is_not_known_when_the_consumer_is_closed() -> None:
    holds(found.COMMITS_WHILE_IT_LEAVES_AN_UNKNOWN_COMMIT)
    holds(found.COMMITS_WHILE_IT_LEAVES_A_BROKEN_OFF_BLOCK)


def test_a_record_written_while_an_assigned_member_asks_for_the_end_comes_before_the_start_of_latest() -> None:
    holds(found.WRITTEN_WHILE_THE_START_IS_ASKED_FOR)


def test_a_block_in_which_the_consumer_was_closed_says_what_became_of_it_and_closing_again_does_nothing() -> None:
    holds(found.CLOSED_AND_POLLED_INSIDE)
    holds(found.CLOSED_INSIDE_AFTER_A_SWALLOWED_FAILURE)


def test_a_deleted_offset_is_told_although_a_rebalance_or_a_drain_comes_between() -> None:
    holds(found.OFFSET_DELETED_BEFORE_A_REBALANCE)
    holds(found.OFFSET_DELETED_BEFORE_A_DRAIN)


def test_a_member_that_was_evicted_unheard_with_every_record_in_hand_goes_back_although_no_record_follows() -> None:
    holds(found.EVICTED_UNHEARD_WITH_ALL_IN_HAND)


def test_a_member_that_has_lost_partitions_and_keeps_them_is_told_before_it_has_nothing_to_commit() -> None:
    holds(found.LOST_AND_KEPT)


def test_a_commit_that_finds_its_partitions_lost_takes_the_group_back_to_nothing() -> None:
    holds(found.LOST_INSIDE_A_COMMIT)


def test_an_assignment_is_told_once_where_a_signal_strikes_while_its_start_is_committed() -> None:
    holds(found.STRUCK_WHILE_A_START_IS_COMMITTED)


def test_where_a_partition_starts_is_committed_although_the_epoch_of_the_last_revocation_stays() -> None:
    holds(found.START_HELD_BY_THE_GATE)


def test_outputs_of_a_lost_partition_are_not_committed_because_its_records_came_again_and_were_put_back() -> None:
    holds(found.LOST_AND_BACK_AND_PUT_BACK)


def test_no_record_comes_past_others_of_its_partition_that_are_sought_again() -> None:
    holds(found.DELETED_WHAT_A_BLOCK_HAD_IN_HAND)
