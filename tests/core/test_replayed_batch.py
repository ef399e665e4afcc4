"""A batch that is run again: whether it holds what it held, and how it can be ended where it does not."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from eos_client.core.batch_ledger import LedgerEntry, SinkIdentity, SlotContent, joined
from eos_client.core.batch_ledger_start import StartQuestion, plan_start
from eos_client.core.replayed_batch import ReplayedBatch

IDENTITY = SinkIdentity("q-1", 4, 1, "invoices")
WIDER = SinkIdentity("q-1", 6, 1, "invoices")
BATCH = 7
HELD = {0: SlotContent(10, 2**63), 1: SlotContent(0, 0), 2: SlotContent(3, 2**63 + 5), 3: SlotContent(4, 9)}
CHANGED = {**HELD, 2: SlotContent(3, 6)}


def entries(*next_batches, held=HELD):
    return {slot: LedgerEntry(at, IDENTITY, held.get(slot)) for slot, at in enumerate(next_batches)}


HALF = ReplayedBatch(BATCH, entries(8, 7, 8, 7))


@pytest.mark.parametrize(
    "batch", [HALF, ReplayedBatch(BATCH, entries(8, 8, 8, 8)), ReplayedBatch(BATCH, entries(7, 7))]
)
def test_a_batch_that_holds_what_it_held_goes_on(batch):
    assert batch.refusal(HELD) is None


def test_different_rows_in_an_uncommitted_slot_are_accepted():
    assert HALF.refusal({**HELD, 1: SlotContent(7, 7), 3: SlotContent(0, 0)}) is None


def test_other_rows_in_a_committed_slot_are_refused_by_name_with_what_the_way_out_costs():
    said = str(HALF.refusal(CHANGED))
    assert "in slot 2 (3 rows then, 3 rows now)" in said
    assert "Nothing was written" in said
    assert "slots 0, 2 keep what they have committed, and slots 1, 3 write the 4 rows that they have now" in said
    assert f'accept_batch="{HALF.token}"' in said
    assert "lost" in said
    assert "twice" in said


def test_a_whole_batch_has_nothing_left_to_write():
    said = str(ReplayedBatch(BATCH, entries(8, 8, 8, 8)).refusal(CHANGED))
    assert "slots 0, 1, 2, 3 keep what they have committed. " in said


def test_many_slots_are_counted_after_the_first_few():
    batch = ReplayedBatch(BATCH, {slot: LedgerEntry(8, IDENTITY, SlotContent(1, 1)) for slot in range(9)})
    said = str(batch.refusal({slot: SlotContent(1, 2) for slot in range(9)}))
    assert "slot 4 (1 rows then, 1 rows now) and 4 more." in said


def test_slots_that_have_forgotten_what_they_held_are_compared_together():
    forgotten = ReplayedBatch(BATCH, entries(8, 8, 8, 8, held={}), joined(HELD.values()))
    assert forgotten.refusal(HELD) is None
    moved = {0: HELD[3], 1: HELD[2], 2: HELD[1], 3: HELD[0]}
    assert forgotten.refusal(moved) is None
    assert "slot 3 (4 rows now)" in str(forgotten.refusal(CHANGED))
    assert replace(forgotten, whole=None).refusal(CHANGED) is None


def test_a_token_is_of_one_batch_in_one_state():
    others = [
        replace(HALF, batch_id=6),
        replace(HALF, entries=entries(8, 8, 8, 7)),
        replace(HALF, entries=entries(8, 7, 8, 7, held=CHANGED)),
        replace(HALF, whole=SlotContent(1, 1)),
    ]
    tokens = {HALF.token, *(other.token for other in others)}
    assert len(tokens) == len(others) + 1
    assert all(re.fullmatch(r"[0-9a-f]{12}", token) for token in tokens)


# -- what a starting query knows of it --------------------------------------------------------------------------------


@pytest.mark.parametrize("identity", [IDENTITY, WIDER], ids=["as it was", "resized"])
def test_a_start_knows_the_content_of_a_fully_committed_batch(identity):
    found = plan_start(StartQuestion(entries(8, 8, 8, 8), identity, BATCH))
    assert found.content == joined(HELD.values()) == SlotContent(17, 14)


def test_after_a_resize_the_marker_has_the_content_of_the_batch():
    resized = plan_start(StartQuestion(entries(8, 8, 8, 8), WIDER, BATCH))
    marker = LedgerEntry(BATCH + 1, WIDER, resized.content, run=3)
    again = plan_start(StartQuestion(resized.entries, WIDER, BATCH, marker))
    assert again.content == resized.content
    older = plan_start(StartQuestion(resized.entries, WIDER, BATCH, replace(marker, next_batch=BATCH)))
    foreign = replace(marker, identity=replace(WIDER, query_id="q-2"))
    assert older.content is None
    assert plan_start(StartQuestion(resized.entries, WIDER, BATCH, foreign)).content is None


@pytest.mark.parametrize("found", [entries(7, 7, 7, 7), entries(8, 7, 8, 7), {}])
def test_a_start_knows_no_content_of_a_partly_committed_batch(found):
    assert plan_start(StartQuestion(found, IDENTITY, BATCH if found else 0)).content is None


def test_an_adopted_ledger_has_no_content_of_the_batch():
    question = StartQuestion(entries(9, 9, 9, 9), IDENTITY, BATCH)
    assert plan_start(replace(question, adopt=question.token)).content is None
