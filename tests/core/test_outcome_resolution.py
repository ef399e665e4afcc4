"""A commit without an answer is told by its own token in the group's committed offsets, or not told at all."""

from __future__ import annotations

import itertools

import pytest

from eos_client.core.model import CommittedOffset, InputPosition, Outcome
from eos_client.core.outcome_resolution import NO_LOG, AttemptToken, needs_log_end, resolve_outcome
from eos_client.core.partition_row import NO_OFFSET
from tests.core.gate_language import P0, P1, classic

# Records 100 .. 109 of each partition; before the transaction 100 was committed, after it 110.
BEFORE, AFTER, LATER = 100, 110, 120
TOKEN = AttemptToken("ours").next().next()
OURS, EARLIER, THEIRS, PLAIN = str(TOKEN), str(AttemptToken("ours").next()), str(AttemptToken("theirs", 2)), ""


def attempted(*partitions):
    return {p: InputPosition(BEFORE, AFTER, classic(5)) for p in partitions}


def committed(**entries):
    return {{"p0": P0, "p1": P1}[name]: CommittedOffset(*entry) for name, entry in entries.items()}


def resolved(entries, *partitions, before=BEFORE):
    known = {} if before is None else dict.fromkeys(partitions, before)
    return resolve_outcome(attempted(*partitions), known, entries, TOKEN, dict.fromkeys(partitions, AFTER))


@pytest.mark.parametrize(
    ("entry", "outcome"),
    [
        ((AFTER, OURS), Outcome.COMMITTED),
        ((BEFORE, EARLIER), Outcome.ABORTED),
        ((BEFORE, THEIRS), Outcome.ABORTED),
        ((AFTER, EARLIER), Outcome.ABORTED),  # a replay of what was committed before
        ((LATER, EARLIER), Outcome.ABORTED),
        ((AFTER, THEIRS), None),
        ((AFTER, PLAIN), None),
        ((AFTER - 1, PLAIN), None),
        ((BEFORE - 1, PLAIN), None),
        ((LATER, THEIRS), None),
    ],
)
def test_the_entry_of_one_partition_resolves_the_outcome(entry, outcome):
    assert resolved(committed(p0=entry), P0) is outcome


@pytest.mark.parametrize(
    ("p0", "p1", "outcome"),
    [
        ((AFTER, OURS), (AFTER, OURS), Outcome.COMMITTED),
        ((AFTER, OURS), (LATER, THEIRS), Outcome.COMMITTED),
        ((AFTER, OURS), (BEFORE, THEIRS), Outcome.COMMITTED),  # somebody has set P1 back since
        ((BEFORE, EARLIER), (LATER, THEIRS), Outcome.ABORTED),
        ((LATER, THEIRS), (AFTER, EARLIER), Outcome.ABORTED),
        ((LATER, THEIRS), (LATER, THEIRS), None),
    ],
)
def test_any_partition_that_resolves_the_outcome_decides_for_all(p0, p1, outcome):
    assert resolved(committed(p0=p0, p1=p1), P0, P1) is outcome
    assert resolved(committed(p0=p1, p1=p0), P0, P1) is outcome


def test_where_nothing_is_committed_it_did_not_take_effect_unless_something_was():
    assert resolved({}, P0, before=NO_OFFSET) is Outcome.ABORTED
    assert resolved({}, P0) is None  # the topic was deleted, and the group's offsets with it


@pytest.mark.parametrize(
    ("before", "entries", "is_needed"),
    [
        ({P0: NO_OFFSET}, {}, True),
        ({}, {}, True),
        ({P0: BEFORE}, {}, False),
        ({P0: NO_OFFSET}, committed(p0=(AFTER, OURS)), False),
        ({}, committed(p1=(AFTER, OURS)), True),
    ],
)
def test_the_end_of_a_log_is_needed_where_the_group_has_and_had_no_offset(before, entries, is_needed):
    assert needs_log_end(P0, before, entries) is is_needed


@pytest.mark.parametrize("before", [{P0: NO_OFFSET}, {}])
@pytest.mark.parametrize(
    ("log_ends", "outcome"), [({}, None), ({P0: NO_LOG}, None), ({P0: AFTER - 1}, None), ({P0: AFTER}, Outcome.ABORTED)]
)
def test_without_an_offset_only_a_log_that_was_not_deleted_shows_an_abort(before, log_ends, outcome):
    assert resolve_outcome(attempted(P0), before, {}, TOKEN, log_ends) is outcome


@pytest.mark.parametrize(
    ("entry", "outcome"),
    [
        ((BEFORE, THEIRS), Outcome.ABORTED),
        ((AFTER - 1, PLAIN), Outcome.ABORTED),
        ((AFTER, THEIRS), None),
        ((AFTER, OURS), Outcome.COMMITTED),
    ],
)
def test_where_the_offset_before_is_not_known_any_one_behind_counts_as_it(entry, outcome):
    assert resolved(committed(p0=entry), P0, before=None) is outcome
    assert resolved({}, P0, before=None) is Outcome.ABORTED


def test_a_transaction_without_input_has_no_readable_outcome():
    assert resolved(committed(p0=(AFTER, OURS))) is None


def test_no_two_attempts_and_no_two_sessions_have_the_same_token():
    tokens = [AttemptToken(session, number) for session in ("a", "a-1", "b") for number in range(20)]
    assert len({str(token) for token in tokens}) == len(tokens)
    first = AttemptToken("a", 1)
    assert first.marks_earlier(str(AttemptToken("a", 0)))
    assert not first.marks_earlier(str(first))
    assert not first.marks_earlier(str(AttemptToken("b", 0)))
    assert len(str(AttemptToken("0123456789ab", 1 << 40)).encode()) < 64


def test_whatever_was_committed_before_or_by_another_owner_since_the_answer_is_never_the_wrong_one():
    before = [(offset, text) for offset in (50, BEFORE, AFTER, LATER) for text in (EARLIER, THEIRS, PLAIN)]
    since = [None, *((offset, text) for offset in (AFTER, LATER) for text in (THEIRS, PLAIN))]
    for took_effect, found_0, found_1, then_1 in itertools.product((False, True), before, before, since):
        p0 = (AFTER, OURS) if took_effect else found_0
        p1 = then_1 or ((AFTER, OURS) if took_effect else found_1)
        truth = Outcome.COMMITTED if took_effect else Outcome.ABORTED
        answer = resolved(committed(p0=p0, p1=p1), P0, P1)
        assert answer is truth or (answer is None and not took_effect)
        assert resolved(committed(p1=p1), P1) in {truth, None}


def test_each_attempt_of_a_session_has_a_token_of_its_own():
    token = AttemptToken("ours", 7)
    assert token.next() == AttemptToken("ours", 8)
    assert token.next().marks_earlier(str(token))
    assert not token.marks_earlier(str(token))
