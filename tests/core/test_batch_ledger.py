"""The table of one slot of one batch against an independent account of what is right, and the format of the entries."""

from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eos_client.core.batch_ledger import (
    CODEC_VERSION,
    METADATA_BYTES_MAX,
    NO_IDENTITY,
    SLOT_RULES,
    LedgerEntry,
    SinkIdentity,
    SlotContent,
    SlotDecision,
    SlotQuestion,
    decide_slot,
    decode_entry,
)
from eos_client.errors import (
    BatchContentError,
    BatchLedgerError,
    LedgerAheadError,
    LedgerForeignError,
    LedgerMissingError,
    LedgerRegressionError,
    LedgerUnreadableError,
    SlotsChangedError,
    TopicChangedError,
)
from tests.core.ledger_entries import BATCH, ELSEWHERE, OTHER, OURS, RENEWED, TEN, THEIRS, WIDER, entry

# -- one slot of one batch -------------------------------------------------------------------------------------------


ENTRIES = [None] + [
    entry(next_batch, identity, content)
    for next_batch, identity, content in itertools.product(
        range(5, 11), (OURS, THEIRS, WIDER, RENEWED, ELSEWHERE, NO_IDENTITY), (TEN, OTHER, None)
    )
]


QUESTIONS = [
    SlotQuestion(found, OURS, BATCH, floor, content)
    for found, floor, content in itertools.product(ENTRIES, (0, 7, 8), (None, TEN, OTHER))
]


def right(question):  # noqa: PLR0911  # one for each way that it can be
    """What should be done, told from the outside: the error class, or the decision."""
    found = question.entry
    if found is None:
        return LedgerMissingError
    if found.identity == NO_IDENTITY:
        return LedgerUnreadableError
    if found.identity.query_id != "q-1":
        return LedgerForeignError
    if found.identity.topic != "invoices":
        return TopicChangedError
    if (found.identity.slots, found.identity.slot_function) != (4, 1):
        return SlotsChangedError
    if found.next_batch < question.floor:
        return LedgerRegressionError
    if found.next_batch in (9, 10):
        return LedgerAheadError
    if found.next_batch != 8:
        return SlotDecision.WRITE
    compared = question.content is not None and found.content is not None
    return BatchContentError if compared and found.content != question.content else SlotDecision.SKIP


def answer(question, rules=SLOT_RULES):
    ruling = decide_slot(question, rules)
    return ruling.error if ruling.decision is SlotDecision.REFUSE else ruling.decision


def test_every_situation_of_a_slot_is_decided_rightly():
    assert [q for q in QUESTIONS if answer(q) != right(q)] == []
    assert {right(q) for q in QUESTIONS} >= {SlotDecision.WRITE, SlotDecision.SKIP, *(r.error for r in SLOT_RULES[:8])}


@pytest.mark.parametrize("rule", SLOT_RULES, ids=lambda rule: rule.reason[:40])
def test_without_any_rule_of_the_slot_table_some_answer_is_wrong(rule):
    rest = tuple(each for each in SLOT_RULES if each is not rule)

    def wrong(question):
        try:
            return answer(question, rest) != right(question)
        except (LookupError, StopIteration):
            return True

    assert any(wrong(q) for q in QUESTIONS)


def test_each_refusal_has_an_error_class_of_its_own_and_says_the_way_out():
    refusals = [rule for rule in SLOT_RULES if rule.decision is SlotDecision.REFUSE]
    assert len({rule.error for rule in refusals}) == len(refusals)
    assert all(issubclass(rule.error, BatchLedgerError) and rule.error is not BatchLedgerError for rule in refusals)
    words = ("adopt_ledger", "sink_id", "Restart", "start it again", "stable_input")
    assert all(any(word in rule.reason for word in words) for rule in refusals)


def test_a_slot_that_no_rule_applies_to_is_an_error():
    with pytest.raises(StopIteration):
        decide_slot(QUESTIONS[0], ())


# -- the codec -------------------------------------------------------------------------------------------------------


COUNTS = st.integers(0, 2**64 - 1)


@given(
    st.builds(
        LedgerEntry,
        COUNTS,
        st.builds(SinkIdentity, st.text(max_size=100), COUNTS, COUNTS, st.text(max_size=100)),
        st.none() | st.builds(SlotContent, COUNTS, COUNTS),
        COUNTS,
    )
)
def test_an_entry_is_read_as_it_was_written(written):
    text = written.encode()
    assert len(text.encode()) <= METADATA_BYTES_MAX
    assert decode_entry(written.next_batch, text) == written


def test_the_format_is_pinned_because_clusters_keep_it():
    assert LedgerEntry(8, OURS, TEN, 3).encode() == (
        '{"eos":2,"query":"q-1","slots":4,"fn":1,"topic":"invoices","run":3,"rows":10,"sum":99}'
    )
    assert LedgerEntry(0, OURS).encode() == '{"eos":2,"query":"q-1","slots":4,"fn":1,"topic":"invoices","run":0}'


def test_an_entry_too_long_for_a_broker_is_refused_before_it_is_sent():
    with pytest.raises(LedgerUnreadableError, match="shorten query_id"):
        LedgerEntry(0, SinkIdentity("q" * 5000, 4, 1, "invoices")).encode()


FIELDS = json.loads(entry(8).encode())


@pytest.mark.parametrize(
    "metadata",
    [
        "{",
        "[]",
        "7",
        '{"eos":2}',
        *(json.dumps({k: v for k, v in FIELDS.items() if k != gone}) for gone in FIELDS if gone != "rows"),
        *(json.dumps({**FIELDS, field: -1}) for field in ("slots", "fn", "run", "rows", "sum")),
        *(json.dumps({**FIELDS, field: True}) for field in ("slots", "rows")),
        *(json.dumps({**FIELDS, field: 7}) for field in ("query", "topic")),
    ],
)
def test_foreign_metadata_is_told_as_such_with_the_way_out(metadata):
    with pytest.raises(LedgerUnreadableError, match=r"no entry of a Spark sink.*sink_id"):
        decode_entry(8, metadata)


@pytest.mark.parametrize("metadata", [None, ""])
def test_an_offset_without_metadata_is_a_bare_entry(metadata):
    found = decode_entry(8, metadata)
    assert found == LedgerEntry(8, NO_IDENTITY)
    assert found.is_bare
    assert not entry(8).is_bare


def test_a_newer_format_says_that_a_newer_version_wrote_it():
    with pytest.raises(LedgerUnreadableError, match=r"format 3.*knows 2.*run the version that wrote it"):
        decode_entry(8, json.dumps({**FIELDS, "eos": CODEC_VERSION + 1}))
