"""Counts what a slot of a batch holds, from the hashes that Spark has made of its rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eos_client.core.batch_ledger import SlotContent, joined

if TYPE_CHECKING:
    import pyarrow as pa

FINGERPRINT = "eos_fingerprint"
"""The column with the hash of each row."""


class ContentCount:
    """Adds up what a slot holds, whatever the order of its rows; ``row_bytes`` is the largest mean of a batch."""

    def __init__(self) -> None:
        self.content = SlotContent(0, 0)
        self.row_bytes = 0.0

    def add(self, batch: pa.RecordBatch) -> None:
        """Count one Arrow batch."""
        if batch.num_rows:
            self.row_bytes = max(self.row_bytes, batch.nbytes / batch.num_rows)
            added = SlotContent(batch.num_rows, batch.column(FINGERPRINT).sum().as_py())
            self.content = joined((self.content, added))
