"""A micro-batch of the Spark sink that is interrupted and run again: what is in each slot, and in the ledger.

What a slot does is asked of `decide_slot`, which decides it for a task.
"""

from __future__ import annotations

from dataclasses import replace

from eos_client.core.batch_ledger import LedgerEntry, SinkIdentity, SlotContent, SlotDecision, SlotQuestion, decide_slot
from scripts.pictures.svg import Drawing

_SLOTS, _BATCH = 4, 7
_KILLED_AFTER = 2
"""How many slots of the batch are committed when the driver dies."""
_LEFT, _WIDTH, _ROW = 214.0, 170.0, 44.0
_COLOURS = {SlotDecision.WRITE: "good", SlotDecision.SKIP: "held", SlotDecision.REFUSE: "bad"}
_IDENTITY = SinkIdentity("query", _SLOTS, 1, "receipts")
_CONTENT = SlotContent(rows=25, fingerprint=1)


def _decide(entry: LedgerEntry) -> SlotDecision:
    return decide_slot(SlotQuestion(entry, _IDENTITY, _BATCH, content=_CONTENT)).decision


def _written(entry: LedgerEntry) -> LedgerEntry:
    if _decide(entry) is not SlotDecision.WRITE:
        return entry
    return replace(entry, next_batch=_BATCH + 1, content=_CONTENT)


def slots() -> str:
    """Draw the ledger before the batch, the attempt that was interrupted, the ledger then, and the second attempt."""
    before = [LedgerEntry(_BATCH, _IDENTITY)] * _SLOTS
    between = [*map(_written, before[:_KILLED_AFTER]), *before[_KILLED_AFTER:]]
    after = list(map(_written, between))
    drawing = Drawing(_LEFT + _SLOTS * _WIDTH + 110, 6 * _ROW + 30, "Slots and ledger of a Spark sink")
    for slot in range(_SLOTS):
        drawing.text(_x(slot), 34, f"slot {slot}", "strong middle")
    drawing.text(_x(_SLOTS) - 30, 34, "marker", "strong middle")
    _ledger(drawing, 1, "ledger: next batch", before, _BATCH)
    _attempt(drawing, 2, f"batch {_BATCH}, driver killed", before, _KILLED_AFTER)
    _ledger(drawing, 3, "ledger", between, _BATCH)
    _attempt(drawing, 4, f"batch {_BATCH} again", between, _SLOTS)
    _ledger(drawing, 5, "ledger", after, _BATCH + 1)
    return drawing.svg()


def _x(slot: int) -> float:
    return _LEFT + (slot + 0.5) * _WIDTH


def _y(row: int) -> float:
    return 20 + row * _ROW


def _ledger(drawing: Drawing, row: int, name: str, entries: list[LedgerEntry], marker: int) -> None:
    drawing.text(14, _y(row) + 5, name)
    for slot, entry in enumerate(entries):
        drawing.label(_x(slot), _y(row), str(entry.next_batch), "plain", width=46)
    drawing.label(_x(_SLOTS) - 30, _y(row), str(marker), "plain", width=46)


def _attempt(drawing: Drawing, row: int, name: str, entries: list[LedgerEntry], reached: int) -> None:
    drawing.text(14, _y(row) + 5, name)
    for slot, entry in enumerate(entries):
        if slot < reached:
            decision = _decide(entry)
            text = "rows + entry" if decision is SlotDecision.WRITE else "committed"
            drawing.label(_x(slot), _y(row), f"{decision.name}: {text}", _COLOURS[decision], width=_WIDTH - 10)
        else:
            drawing.label(_x(slot), _y(row), "never committed", "bad dashed", width=_WIDTH - 10)
