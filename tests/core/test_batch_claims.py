"""A sink's ledger in a database: every order of the steps of two drivers and their attempts writes each slot once."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest

from eos_client import errors
from eos_client.core.batch_claims import MoveOutcome, SlotRow, check_run, outcome_of, plan_claim
from eos_client.core.batch_ledger import LedgerEntry, SinkIdentity, SlotContent, SlotDecision, SlotQuestion, decide_slot
from eos_client.core.batch_ledger_start import RunRecord, StartDecision, StartQuestion
from eos_client.core.replayed_batch import ReplayedBatch
from eos_client.errors import BatchLedgerError, LedgerRegressionError, RunFencedError
from tests.core.ledger_entries import BATCH, ELSEWHERE, OURS, TEN, THEIRS, entry

OWNER = "driver-1"


def rows(*next_batches, identity=OURS, run=3, attempt="t"):
    return {
        slot: SlotRow(LedgerEntry(at, identity, TEN, run), attempt, "before") for slot, at in enumerate(next_batches)
    }


def claimed(found, batch=BATCH, marker=None, held_run=None, **question):
    asked = StartQuestion({}, OURS, batch, **question)
    return plan_claim(asked, found, marker, OWNER, held_run=held_run)


def test_a_claim_raises_the_run_of_every_row_and_keeps_what_is_written():
    found = rows(8, 7, 8, 7)
    claim = claimed(found, marker=SlotRow(entry(7)))
    assert claim.run == 4
    assert claim.plan.decision is StartDecision.READY
    for slot, row in claim.slots.items():
        assert row == SlotRow(replace(found[slot].entry, run=4), "t", OWNER)
        assert claim.plan.entries[slot] == replace(row.entry, run=0)
    assert claim.marker == SlotRow(replace(entry(7), run=4), owner=OWNER)


def test_the_token_of_a_batch_fits_the_next_claim():
    first = claimed(rows(8, 7, 8, 7), marker=SlotRow(entry(7)))
    second = claimed(first.slots, marker=first.marker)
    assert second.run == first.run + 1
    tokens = {ReplayedBatch(BATCH, claim.plan.entries).token for claim in (first, second)}
    assert len(tokens) == 1


def test_a_first_claim_makes_a_row_for_every_slot():
    claim = claimed({}, batch=0)
    assert claim.slots == {slot: SlotRow(LedgerEntry(0, OURS, None, 1), "", OWNER) for slot in range(4)}
    assert claim.marker.entry == LedgerEntry(0, OURS, None, 1)


def test_a_claim_raises_the_run_of_retired_slots_too():
    claim = claimed({**rows(7, 7, 7, 7), 4: rows(3)[0], 5: rows(3, run=9)[0]})
    assert {slot: row.entry.run for slot, row in claim.slots.items()} == dict.fromkeys(range(6), 10)


def test_a_claim_with_more_slots_leaves_a_row_for_each():
    claim = plan_claim(StartQuestion({}, replace(OURS, slots=6), BATCH), rows(7, 7, 7, 7), None, OWNER, held_run=None)
    assert claim.plan.decision is StartDecision.RESIZE
    assert [row.entry.next_batch for row in claim.slots.values()] == [BATCH] * 6
    assert {row.entry.identity.slots for row in claim.slots.values()} == {6}


@pytest.mark.parametrize("record_run", [2, 3, 8])
def test_a_run_is_newer_than_all_that_left_a_trace(record_run):
    found = rows(7, 7, 7, 7)
    if record_run > 3:
        with pytest.raises(LedgerRegressionError, match=r"has used another ledger.*backup"):
            claimed(found, marker=SlotRow(entry(7)), record=RunRecord(record_run, "q-1"))
    token = StartQuestion(
        {slot: row.entry for slot, row in found.items()}, OURS, BATCH, record=RunRecord(record_run, "q-1")
    ).token
    claim = claimed(found, marker=SlotRow(entry(7)), record=RunRecord(record_run, "q-1"), adopt=token)
    assert claim.run == 1 + max(record_run, 3)


def test_a_driver_that_takes_up_its_work_again_takes_nothing_from_a_newer_one():
    found = rows(7, 7, 7, 7)
    assert claimed(found, marker=SlotRow(entry(7)), held_run=3).run == 4
    with pytest.raises(RunFencedError, match="run 3 has taken over from run 2"):
        claimed(found, marker=SlotRow(entry(7)), held_run=2)
    for gone in (None, SlotRow(entry(7))):
        with pytest.raises(LedgerRegressionError, match="does not know run 4"):
            claimed(found, marker=gone, held_run=4)


@pytest.mark.parametrize(
    ("found", "batch", "error", "words"),
    [
        ({}, BATCH, errors.LedgerMissingError, "its row was deleted, or this is another database"),
        (rows(7, 7, 7, 7, identity=THEIRS), BATCH, errors.LedgerForeignError, "a sink_id of its own"),
        (rows(8, 7, 8, 7, identity=ELSEWHERE), BATCH, errors.TableChangedError, "start with table='receipts'"),
        (rows(9, 9, 9, 9), BATCH, errors.LedgerAheadError, "restore the newest checkpoint"),
        (rows(7, 7, 5, 7), BATCH, errors.LedgerRegressionError, "a backup of the database was restored"),
        (rows(7, 6, 7, 7), BATCH, errors.BatchUnfinishedError, "are not in the table"),
    ],
)
def test_a_refused_claim_speaks_of_tables_and_not_of_topics(found, batch, error, words):
    with pytest.raises(BatchLedgerError, match=words) as raised:
        claimed(found, batch)
    assert type(raised.value) is error
    assert "topic" not in str(raised.value)
    assert "offset" not in str(raised.value)


def test_only_the_run_that_holds_the_row_goes_on():
    check_run(entry(7), 3)
    with pytest.raises(RunFencedError):
        check_run(entry(7), 2)
    for found in (None, entry(7)):
        with pytest.raises(LedgerRegressionError):
            check_run(found, 4)


def test_a_row_shows_what_became_of_an_attempt():
    row = SlotRow(entry(BATCH + 1), "ours")
    assert outcome_of(row, BATCH, "ours") is MoveOutcome.COMMITTED
    assert outcome_of(row, BATCH, "another") is MoveOutcome.COMMITTED_ELSEWHERE
    assert outcome_of(row, BATCH + 1, "ours") is MoveOutcome.NOT_COMMITTED
    assert outcome_of(None, BATCH, "ours") is MoveOutcome.NOT_COMMITTED


# -- every order of steps ----------------------------------------------------------------------------------------------

ONE = SinkIdentity("q-1", 1, 1, "rows")


@dataclass
class Table:
    """One slot's row of a ledger, and the batches whose rows were committed."""

    row: SlotRow = field(default_factory=lambda: SlotRow(LedgerEntry(0, ONE, run=1)))
    written: list[int] = field(default_factory=list)
    fenced: int = 0


class Attempt:
    """Reads the row, then moves it as SqlBatchLedger does: two steps between which anything may happen."""

    def __init__(self, table, run, batch, name, *, compares=True):
        self.table, self.run, self.batch, self.name, self.compares = table, run, batch, name, compares
        self.found = None

    def read(self):
        row = self.table.row
        try:
            check_run(row.entry, self.run)
        except RunFencedError:
            self.table.fenced += 1
            return
        if decide_slot(SlotQuestion(row.entry, ONE, self.batch)).decision is SlotDecision.WRITE:
            self.found = row.entry

    def move(self):
        row = self.table.row.entry
        is_as_found = self.found is not None and (row.run, row.next_batch) == (self.found.run, self.found.next_batch)
        if self.found is None or (self.compares and not is_as_found):
            return
        self.table.row = SlotRow(LedgerEntry(self.batch + 1, ONE, SlotContent(1, 1), self.run), self.name)
        self.table.written.append(self.batch)


class Driver:
    """Claims the row and goes on at its batch."""

    def __init__(self, table):
        self.table = table

    def claim(self):
        asked = StartQuestion({}, ONE, min(self.table.row.entry.next_batch, 1))
        self.table.row = plan_claim(asked, {0: self.table.row}, None, "next", held_run=None).slots[0]


def orders(*stories):
    """Every order of the steps of stories, each of which keeps its own order; as the numbers of the stories."""
    if not any(stories):
        yield []
    for number, left in enumerate(stories):
        if left:
            rest = (*stories[:number], left - 1, *stories[number + 1 :])
            yield from ([number, *order] for order in orders(*rest))


def all_tables(**changes):
    """Two attempts of an older run at batch 0, and a newer run that claims, and writes batches 0 and 1."""
    for order in orders(2, 2, 5):
        table = Table()
        first, sibling = (Attempt(table, 1, 0, name, **changes) for name in "ab")
        new_owner, following = (Attempt(table, 2, batch, name, **changes) for batch, name in ((0, "c"), (1, "d")))
        stories = (
            iter([first.read, first.move]),
            iter([sibling.read, sibling.move]),
            iter([Driver(table).claim, new_owner.read, new_owner.move, following.read, following.move]),
        )
        for number in order:
            next(stories[number])()
        yield table


def test_whatever_the_order_each_batch_of_a_slot_is_written_once():
    tables = list(all_tables())
    assert len(tables) == 756
    assert {tuple(table.written) for table in tables} == {(0, 1)}
    assert any(table.fenced for table in tables)
    assert {table.row.attempt for table in tables} == {"d"}


def test_without_the_comparison_of_the_row_some_order_doubles():
    assert any(table.written.count(0) > 1 for table in all_tables(compares=False))
