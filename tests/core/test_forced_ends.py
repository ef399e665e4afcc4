"""What a rebalance and a close do with open work: each fact that decides, written down once more."""

from __future__ import annotations

from itertools import product

import pytest

from eos_client.core.forced_ends import (
    ForcedEnd,
    WorkFacts,
    end_after_failed_callback,
    end_at_close,
    end_at_departure,
    end_at_revocation,
)
from eos_client.core.transaction_lifecycle import NEEDS_REBUILD, NOTHING_SENT, OUTCOME_PENDING, Phase, TransactionState

ALL_WORK = [
    WorkFacts(TransactionState(phase, has_begun), *facts)
    for phase in Phase
    for has_begun in (False, True)
    for facts in product((False, True), repeat=7)
]
CHOICES = [end_at_revocation, end_after_failed_callback]


def of_phases(phases: tuple[Phase, ...]) -> list[WorkFacts]:
    return [work for work in ALL_WORK if work.transaction.phase in phases]


@pytest.mark.parametrize("choose", CHOICES)
def test_nothing_ends_in_a_callback_without_records_or_while_closing(choose):
    assert {choose(work) for work in ALL_WORK if work.is_closing or not work.has_records} == {ForcedEnd.NONE}


@pytest.mark.parametrize("choose", CHOICES)
def test_a_callback_finds_out_what_became_of_a_commit(choose):
    works = [work for work in of_phases((*OUTCOME_PENDING, Phase.ABORTED)) if work.has_records and not work.is_closing]
    assert {choose(work) for work in works} == {ForcedEnd.RESUME}


@pytest.mark.parametrize("choose", CHOICES)
def test_an_interrupted_abort_is_left_to_its_own_step(choose):
    assert {choose(work) for work in of_phases(NEEDS_REBUILD)} == {ForcedEnd.NONE}


def test_a_revocation_commits_what_is_processed_and_aborts_the_rest():
    for work in of_phases(NOTHING_SENT):
        if work.has_records and not work.is_closing:
            is_open = work.in_block or work.is_held or work.transaction.has_begun
            unprocessed = ForcedEnd.ABORT if is_open else ForcedEnd.NONE
            assert end_at_revocation(work) is (unprocessed if work.is_unprocessed else ForcedEnd.COMMIT)


def test_nothing_is_committed_after_a_failed_callback():
    works = [work for work in of_phases(NOTHING_SENT) if work.has_records and not work.is_closing]
    assert {end_after_failed_callback(work) for work in works} == {ForcedEnd.ABORT}


def test_only_open_work_with_records_is_aborted_by_a_departure():
    for work in ALL_WORK:
        is_open = work.in_block or work.is_held or work.transaction.has_begun
        is_aborted = work.has_records and is_open and work.transaction.phase not in OUTCOME_PENDING
        assert end_at_departure(work) is (ForcedEnd.ABORT if is_aborted else ForcedEnd.NONE)


def test_a_close_leaves_the_outcome_of_a_commit_unknown():
    assert {end_at_close(work) for work in of_phases(OUTCOME_PENDING)} == {ForcedEnd.LEAVE_UNKNOWN}


def test_a_close_aborts_a_left_block_and_open_work():
    for work in ALL_WORK:
        if work.transaction.phase in OUTCOME_PENDING:
            continue
        is_open = work.in_block or work.transaction.has_begun or work.transaction.needs_resume
        has_work = (work.transaction.has_begun or work.has_records) and not work.is_closing
        is_aborted = work.is_leaving_block or (is_open and (has_work or work.is_abort_unfinished))
        assert end_at_close(work) is (ForcedEnd.ABORT if is_aborted else ForcedEnd.NONE)
        assert work.counts_as_aborted is (has_work or work.is_abort_unfinished)
