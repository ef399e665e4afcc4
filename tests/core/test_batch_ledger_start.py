"""The table of a starting query: its ledger in every situation, what is committed then, and how it is overruled."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from eos_client.core.batch_ledger import (
    NO_IDENTITY,
    LedgerEntry,
)
from eos_client.core.batch_ledger_start import (
    ANY_QUERY,
    START_RULES,
    RunRecord,
    StartDecision,
    StartQuestion,
    decode_record,
    marker_of,
    plan_start,
)
from eos_client.errors import (
    BatchLedgerError,
    BatchUnfinishedError,
    LedgerAheadError,
    LedgerForeignError,
    LedgerMissingError,
    LedgerRegressionError,
    LedgerUnreadableError,
    SlotsChangedError,
    TopicChangedError,
)
from tests.core.ledger_entries import BATCH, ELSEWHERE, OURS, RENEWED, TEN, THEIRS, WIDER, entry


def ledger(*next_batches, identity=OURS):
    return {slot: entry(next_batch, identity) for slot, next_batch in enumerate(next_batches)}


def adopting(question):
    return replace(question, adopt=question.token)


MISSING_ONE = {slot: each for slot, each in ledger(7, 7, 7, 7).items() if slot != 2}


STARTS = {
    "ready: the batch is new": (StartQuestion(ledger(7, 7, 7, 7), OURS, BATCH), StartDecision.READY),
    "ready: half of it is written": (StartQuestion(ledger(8, 7, 8, 7), OURS, BATCH), StartDecision.READY),
    "ready: all of it is written": (StartQuestion(ledger(8, 8, 8, 8), OURS, BATCH), StartDecision.READY),
    "ready: batches were left out before": (StartQuestion(ledger(5, 5, 5, 5), OURS, BATCH), StartDecision.READY),
    "ready: retired entries do not count": (
        StartQuestion({**ledger(7, 7, 7, 7), 4: entry(3), 5: entry(3)}, OURS, BATCH),
        StartDecision.READY,
    ),
    "ready: the marker is a hint and may lag": (
        StartQuestion(ledger(7, 7, 7, 7), OURS, BATCH, entry(5)),
        StartDecision.READY,
    ),
    "ready: a marker of another query says nothing": (
        StartQuestion(ledger(7, 7, 7, 7), OURS, BATCH, entry(9, THEIRS)),
        StartDecision.READY,
    ),
    "ready: adoption was asked for but is not needed": (
        adopting(StartQuestion(ledger(8, 7, 8, 7), OURS, BATCH)),
        StartDecision.READY,
    ),
    "initialise: a new query on a new ledger": (StartQuestion({}, OURS, 0), StartDecision.INITIALISE),
    "ready: a record says nothing of a ledger that is there": (
        StartQuestion(ledger(7, 7, 7, 7), OURS, BATCH, entry(7), record=RunRecord(3, "q-1")),
        StartDecision.READY,
    ),
    "ready: the record of another query says nothing": (
        StartQuestion(ledger(7, 7, 7, 7), OURS, BATCH, entry(7), record=RunRecord(4, "q-2")),
        StartDecision.READY,
    ),
    "used_other_ledger: a later run has used another ledger": (
        StartQuestion(ledger(7, 7, 7, 7), OURS, BATCH, entry(7), record=RunRecord(4, "q-1")),
        LedgerRegressionError,
    ),
    "used_other_ledger: a later run has used another ledger, and this one has no marker": (
        StartQuestion(ledger(7, 7, 7, 7), OURS, BATCH, record=RunRecord(4, ANY_QUERY)),
        LedgerRegressionError,
    ),
    "adopt: used_other_ledger": (
        adopting(StartQuestion(ledger(7, 7, 7, 7), OURS, BATCH, entry(7), record=RunRecord(4, "q-1"))),
        StartDecision.ADOPT,
    ),
    "unfinished: the batch before was written in part": (
        StartQuestion(ledger(7, 6, 7, 7), OURS, BATCH, entry(6)),
        BatchUnfinishedError,
    ),
    "unfinished: an earlier batch was written in part": (
        StartQuestion(ledger(4, 4, 3, 3), OURS, BATCH),
        BatchUnfinishedError,
    ),
    "regressed: one slot is behind a whole batch": (
        StartQuestion(ledger(7, 6, 7, 7), OURS, BATCH, entry(7)),
        LedgerRegressionError,
    ),
    "adopt: unfinished": (
        adopting(StartQuestion(ledger(7, 6, 7, 7), OURS, BATCH, entry(6))),
        StartDecision.ADOPT,
    ),
    "bare: reset, so that only offsets are left": (
        StartQuestion(ledger(7, 7, 7, 7, identity=NO_IDENTITY), OURS, BATCH),
        LedgerUnreadableError,
    ),
    "bare: one slot was reset": (
        StartQuestion({**ledger(7, 7, 7, 7), 2: entry(5, NO_IDENTITY)}, OURS, BATCH),
        LedgerUnreadableError,
    ),
    "bare: reset at the first batch": (
        StartQuestion(ledger(0, 0, 0, 0, identity=NO_IDENTITY), OURS, 0),
        LedgerUnreadableError,
    ),
    "adopt: bare": (
        adopting(StartQuestion({**ledger(7, 7, 7, 7), 2: entry(5, NO_IDENTITY)}, OURS, BATCH)),
        StartDecision.ADOPT,
    ),
    "restore: closed before the batch": (
        StartQuestion({}, OURS, BATCH, record=RunRecord(3, "q-1", BATCH, TEN)),
        StartDecision.RESTORE,
    ),
    "restore: closed before the first batch": (
        StartQuestion({}, OURS, 0, record=RunRecord(3, "q-1", 0)),
        StartDecision.RESTORE,
    ),
    "restore: batches were left out since": (
        StartQuestion({}, OURS, BATCH, record=RunRecord(3, "q-1", BATCH - 2, TEN)),
        StartDecision.RESTORE,
    ),
    "restore: the batch was whole": (
        StartQuestion({}, OURS, BATCH, record=RunRecord(3, "q-1", BATCH + 1, TEN)),
        StartDecision.RESTORE,
    ),
    "restore: the first batch was whole": (
        StartQuestion({}, OURS, 0, record=RunRecord(3, "q-1", 1, TEN)),
        StartDecision.RESTORE,
    ),
    "missing: all, and the last run was not closed": (
        StartQuestion({}, OURS, BATCH, record=RunRecord(3, "q-1")),
        LedgerMissingError,
    ),
    "missing: all at the first batch, which a run has begun": (
        StartQuestion({}, OURS, 0, record=RunRecord(3, "q-1")),
        LedgerMissingError,
    ),
    "missing: all at the first batch, and a record that cannot be read": (
        StartQuestion({}, OURS, 0, record=RunRecord(3, ANY_QUERY)),
        LedgerMissingError,
    ),
    "missing: all, and another query was closed": (
        StartQuestion({}, OURS, BATCH, record=RunRecord(3, "q-2", BATCH, TEN)),
        LedgerMissingError,
    ),
    "initialise: a new query where another one was": (
        StartQuestion({}, OURS, 0, record=RunRecord(3, "q-2")),
        StartDecision.INITIALISE,
    ),
    "missing: all, and an old checkpoint": (
        StartQuestion({}, OURS, BATCH, record=RunRecord(3, "q-1", BATCH + 2, TEN)),
        LedgerMissingError,
    ),
    "missing: one, and the last run was closed": (
        StartQuestion(MISSING_ONE, OURS, BATCH, record=RunRecord(3, "q-1", BATCH, TEN)),
        LedgerMissingError,
    ),
    "adopt: missing at the first batch, which a run has begun": (
        adopting(StartQuestion({}, OURS, 0, record=RunRecord(3, "q-1"))),
        StartDecision.ADOPT,
    ),
    "resize: between two batches": (StartQuestion(ledger(7, 7, 7, 7), WIDER, BATCH), StartDecision.RESIZE),
    "resize: the batch is whole": (StartQuestion(ledger(8, 8, 8, 8), WIDER, BATCH), StartDecision.RESIZE),
    "resize: another slot function": (StartQuestion(ledger(7, 7, 7, 7), RENEWED, BATCH), StartDecision.RESIZE),
    "resize: another topic": (StartQuestion(ledger(7, 7, 7, 7), ELSEWHERE, BATCH), StartDecision.RESIZE),
    "changed: half written to another topic": (StartQuestion(ledger(8, 7, 8, 7), ELSEWHERE, BATCH), TopicChangedError),
    "changed: half written": (StartQuestion(ledger(8, 7, 8, 7), WIDER, BATCH), SlotsChangedError),
    "changed: half written, fewer": (
        StartQuestion(ledger(8, 7, 7, 7, 7, 7, identity=WIDER), OURS, BATCH),
        SlotsChangedError,
    ),
    "missing: all, after the first batch": (StartQuestion({}, OURS, BATCH), LedgerMissingError),
    "missing: one": (StartQuestion(MISSING_ONE, OURS, BATCH), LedgerMissingError),
    "missing: one, at the first batch": (
        StartQuestion({s: entry(0) for s in (0, 1, 3)}, OURS, 0),
        LedgerMissingError,
    ),
    "foreign: a deleted checkpoint": (StartQuestion(ledger(7, 7, 7, 7, identity=THEIRS), OURS, 0), LedgerForeignError),
    "ahead: an old checkpoint": (StartQuestion(ledger(9, 9, 9, 9), OURS, BATCH), LedgerAheadError),
    "regressed: one slot is behind the others": (
        StartQuestion(ledger(7, 7, 5, 7), OURS, BATCH),
        LedgerRegressionError,
    ),
    "regressed: all slots are behind the marker": (
        StartQuestion(ledger(5, 5, 5, 5), OURS, BATCH, entry(7)),
        LedgerRegressionError,
    ),
    "adopt: missing": (adopting(StartQuestion({}, OURS, BATCH)), StartDecision.ADOPT),
    "adopt: one is missing": (adopting(StartQuestion(MISSING_ONE, OURS, BATCH)), StartDecision.ADOPT),
    "adopt: foreign": (
        adopting(StartQuestion(ledger(9, 9, 9, 9, identity=THEIRS), OURS, 0)),
        StartDecision.ADOPT,
    ),
    "adopt: ahead": (adopting(StartQuestion(ledger(9, 9, 9, 9), OURS, BATCH)), StartDecision.ADOPT),
    "adopt: regressed": (adopting(StartQuestion(ledger(7, 7, 5, 7), OURS, BATCH)), StartDecision.ADOPT),
    "adopt: nothing to adopt at the first batch": (adopting(StartQuestion({}, OURS, 0)), StartDecision.INITIALISE),
}


def start(question, rules=START_RULES):
    try:
        return plan_start(question, rules).decision
    except BatchLedgerError as error:
        return type(error)
    except StopIteration:
        return None


@pytest.mark.parametrize("name", STARTS)
def test_a_query_starts_as_its_ledger_allows(name):
    question, wanted = STARTS[name]
    assert start(question) == wanted


@pytest.mark.parametrize("rule", START_RULES, ids=lambda rule: rule.decision.value)
def test_without_any_rule_of_the_start_table_some_start_is_wrong(rule):
    rest = tuple(each for each in START_RULES if each is not rule)
    assert any(start(question, rest) != wanted for question, wanted in STARTS.values())


def plan(name):
    return plan_start(STARTS[name][0])


def test_a_ready_ledger_is_left_as_it_is():
    assert plan("ready: half of it is written").commits == {}


def test_a_new_ledger_gets_an_entry_for_every_slot_so_that_missing_is_never_normal():
    commits = plan("initialise: a new query on a new ledger").commits
    assert commits == {slot: LedgerEntry(0, OURS) for slot in range(4)}


def test_a_restored_ledger_has_an_entry_for_every_slot_and_knows_what_a_whole_batch_held():
    made = plan("restore: closed before the batch")
    assert made.commits == made.entries == {slot: LedgerEntry(BATCH, OURS) for slot in range(4)}
    assert made.content is None
    skipped = plan("restore: batches were left out since")
    assert set(skipped.entries.values()) == {LedgerEntry(BATCH, OURS)}
    whole = plan("restore: the batch was whole")
    assert whole.commits == whole.entries == {slot: LedgerEntry(BATCH + 1, OURS) for slot in range(4)}
    assert whole.content == TEN


@pytest.mark.parametrize(
    "record",
    [RunRecord(3, "q-1"), RunRecord(3, "q-1", 8, TEN), RunRecord(3, "q\n\u00e9", 0)],
    ids=["open", "closed", "odd"],
)
def test_a_record_comes_back_as_it_was_left(record):
    line = record.encode()
    assert line.isascii()
    assert "\n" not in line
    assert decode_record(3, line) == record


@pytest.mark.parametrize(
    "line", ["", "{", "[]", '{"eos":2,"query":"q-1","next":8}', '{"eos":1,"query":"q-1","next":"x"}']
)
def test_a_record_that_cannot_be_read_says_only_that_there_was_a_ledger(line):
    assert decode_record(3, line) == RunRecord(3, ANY_QUERY)


def test_a_resized_ledger_remembers_whether_the_batch_is_whole():
    assert {e.next_batch for e in plan("resize: between two batches").entries.values()} == {BATCH}
    assert {e.next_batch for e in plan("resize: the batch is whole").entries.values()} == {BATCH + 1}
    assert all(e.identity == WIDER and e.content is None for e in plan("resize: the batch is whole").entries.values())


def test_another_topic_keeps_what_each_slot_held_of_a_whole_batch():
    made = plan_start(StartQuestion(ledger(8, 8, 8, 8), ELSEWHERE, BATCH))
    assert set(made.entries.values()) == {LedgerEntry(BATCH + 1, ELSEWHERE, TEN)}
    assert made.commits == made.entries


def test_fewer_slots_retire_the_entries_beyond_them():
    question = StartQuestion(ledger(7, 7, 7, 7, 7, 7, identity=WIDER), OURS, BATCH)
    made = plan_start(question)
    assert sorted(made.commits) == [0, 1, 2, 3, 4, 5]
    assert sorted(made.entries) == [0, 1, 2, 3]
    again = StartQuestion(dict(made.commits), OURS, BATCH)
    assert plan_start(again).decision is StartDecision.READY


def test_what_was_committed_of_the_batch_is_kept_by_an_adoption():
    entries = ledger(8, 7, 5, 7)
    made = plan_start(adopting(StartQuestion(entries, OURS, BATCH)))
    assert made.entries[0] is entries[0]
    assert {made.entries[slot].next_batch for slot in (1, 2, 3)} == {BATCH}


@pytest.mark.parametrize("name", [name for name, (_, wanted) in STARTS.items() if isinstance(wanted, StartDecision)])
def test_whatever_a_start_commits_is_a_ready_ledger_for_the_next_start(name):
    question, _ = STARTS[name]
    made = plan_start(question)
    after = {**question.entries, **made.commits}
    whole = LedgerEntry(min(e.next_batch for e in made.entries.values()), question.identity)
    again = plan_start(StartQuestion(after, question.identity, question.batch_id, whole))
    assert again.decision is StartDecision.READY
    assert again.entries == made.entries


REFUSED = [name for name in STARTS if name.startswith(("missing: one", "foreign", "ahead", "regressed"))]


def printed_token(question):
    with pytest.raises(BatchLedgerError) as refused:
        plan_start(question)
    return re.findall(r'adopt_ledger="(\w+)"', str(refused.value))[-1]


@pytest.mark.parametrize("name", REFUSED)
def test_the_token_that_a_refusal_prints_adopts_this_ledger_in_this_state_only(name):
    question, _ = STARTS[name]
    token = printed_token(question)
    assert plan_start(replace(question, adopt=token)).decision is StartDecision.ADOPT
    moved = {**question.entries, 1: entry(6, THEIRS)}
    for other in (
        replace(question, entries=moved, adopt=token),
        replace(question, identity=replace(question.identity, query_id="q-3"), adopt=token),
    ):
        assert printed_token(other) != token
        with pytest.raises(BatchLedgerError, match=f"adopt_ledger='{token}' was printed for another state"):
            plan_start(other)


def test_two_queries_cannot_adopt_the_ledger_from_each_other_by_the_tokens_that_they_had():
    ours, theirs = StartQuestion(ledger(7, 7, 7, 7, identity=THEIRS), OURS, 3), StartQuestion({}, THEIRS, 9)
    kept = printed_token(ours)
    adopted = plan_start(replace(ours, adopt=kept)).entries
    back = replace(theirs, entries=adopted)
    taken_back = plan_start(replace(back, adopt=printed_token(back))).entries
    with pytest.raises(LedgerForeignError):
        plan_start(replace(ours, entries=taken_back, adopt=kept))


def test_an_announced_run_leaves_the_token_as_it_was():
    question, _ = STARTS["foreign: a deleted checkpoint"]
    announced = replace(question, marker=marker_of(question.marker, question.identity, 2))
    assert announced.token == question.token


def test_an_unfinished_batch_names_the_number_of_slots_to_go_back_to():
    with pytest.raises(SlotsChangedError, match=r"half written with 4 slots.*start with slots=4"):
        plan("changed: half written")


def test_an_unfinished_batch_names_the_topic_to_go_back_to():
    with pytest.raises(TopicChangedError, match=r"half written to 'invoices'.*start with topic='invoices'"):
        plan("changed: half written to another topic")


def test_a_marker_announces_a_run_and_keeps_its_batch_unless_it_is_another_querys():
    assert marker_of(entry(5), WIDER, 9) == LedgerEntry(5, WIDER, TEN, 9)
    assert marker_of(entry(5, THEIRS), OURS, 9) == LedgerEntry(0, OURS, run=9)
    assert marker_of(None, OURS, 1) == LedgerEntry(0, OURS, run=1)
