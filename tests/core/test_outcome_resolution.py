"""A commit without an answer is told from the group's committed offsets, or not told at all."""

from __future__ import annotations

import itertools

import pytest

from eos_client.core.model import InputPosition, Outcome
from eos_client.core.outcome_resolution import resolve_outcome
from tests.core.gate_language import P0, P1, classic, parts

# Records 100 .. 109 of each partition; before the transaction 100 was committed, after it 110.
BEFORE, AFTER, LATER = 100, 110, 120


def attempted(*partitions):
    return {p: InputPosition(BEFORE, AFTER, classic(5)) for p in partitions}


@pytest.mark.parametrize(
    ("committed", "ours", "outcome"),
    [
        ({P0: AFTER}, parts(P0), Outcome.COMMITTED),
        ({P0: BEFORE}, parts(P0), Outcome.ABORTED),
        ({}, parts(P0), Outcome.ABORTED),
        ({P0: AFTER - 1}, parts(P0), Outcome.ABORTED),
        ({P0: AFTER}, parts(), None),
        ({P0: BEFORE}, parts(), Outcome.ABORTED),
        ({P0: LATER}, parts(), None),
        ({P0: LATER}, parts(P0), None),
    ],
)
def test_one_partition_tells(committed, ours, outcome):
    assert resolve_outcome(attempted(P0), committed, ours) is outcome


@pytest.mark.parametrize(
    ("committed", "ours", "outcome"),
    [
        ({P0: AFTER, P1: AFTER}, parts(P0, P1), Outcome.COMMITTED),
        ({P0: AFTER, P1: LATER}, parts(P0), Outcome.COMMITTED),
        ({P0: LATER, P1: AFTER}, parts(P0), None),
        ({P0: BEFORE, P1: LATER}, parts(P0), Outcome.ABORTED),
        ({P0: LATER, P1: BEFORE}, parts(P0), Outcome.ABORTED),
        ({P0: LATER, P1: LATER}, parts(), None),
    ],
)
def test_one_partition_that_was_ours_all_along_tells_for_all(committed, ours, outcome):
    assert resolve_outcome(attempted(P0, P1), committed, ours) is outcome


def test_a_transaction_that_consumed_nothing_cannot_be_told():
    assert resolve_outcome({}, {P0: AFTER}, parts(P0)) is None


def test_whatever_another_owner_does_the_answer_is_never_the_wrong_one():
    # P0 stayed ours. P1 may have left; its next owner starts from the committed offset and only moves on.
    for took_effect, p1_is_ours, moved_on in itertools.product((False, True), (False, True), (0, 5, 10, 15, 25)):
        start = AFTER if took_effect else BEFORE
        committed = {P0: start, P1: start if p1_is_ours else start + moved_on}
        ours = parts(P0, P1) if p1_is_ours else parts(P0)
        truth = Outcome.COMMITTED if took_effect else Outcome.ABORTED
        assert resolve_outcome(attempted(P0, P1), committed, ours) is truth
        if not p1_is_ours:
            assert resolve_outcome(attempted(P1), committed, parts()) in {truth, None}
