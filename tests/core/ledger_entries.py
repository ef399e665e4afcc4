"""Entries of a sink's ledger, and the identities of the sinks that own them."""

from __future__ import annotations

from eos_client.core.batch_ledger import (
    LedgerEntry,
    SinkIdentity,
    SlotContent,
)

OURS = SinkIdentity("q-1", 4, 1, "invoices")


THEIRS = SinkIdentity("q-2", 4, 1, "invoices")


WIDER = SinkIdentity("q-1", 6, 1, "invoices")


RENEWED = SinkIdentity("q-1", 4, 2, "invoices")


ELSEWHERE = SinkIdentity("q-1", 4, 1, "receipts")


BATCH = 7


TEN = SlotContent(10, 99)


OTHER = SlotContent(10, 98)


def entry(next_batch, identity=OURS, content=TEN):
    return LedgerEntry(next_batch, identity, content, 3)
