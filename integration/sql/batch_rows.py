"""The table of a sink's ledger, by SQLAlchemy Core: a row for each slot, and one for the batch-complete marker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    DateTime,
    Integer,
    MetaData,
    RowMapping,
    String,
    Table,
    delete,
    func,
    insert,
    select,
    update,
)

from eos_client.core.batch_claims import SlotRow
from eos_client.core.batch_ledger import LedgerEntry, SinkIdentity, SlotContent
from eos_client.integration.sql.offsets_table import NAME, NAME_LENGTH_MAX

MARKER = -1
"""The slot of the batch-complete marker."""
_HASH_LENGTH = 16
_TOKEN_LENGTH = 64


def ledger_table(name: str, schema: str | None, metadata: MetaData) -> Table:
    """Describe the table of ledgers. It holds a sink's slots, and not its batches, so it does not grow."""
    return Table(
        name,
        metadata,
        Column("sink_id", NAME, primary_key=True),
        Column("slot", Integer, primary_key=True, autoincrement=False),
        Column("next_batch", BigInteger, nullable=False),
        Column("run", BigInteger, nullable=False),
        Column("query_id", NAME, nullable=False),
        Column("slots", Integer, nullable=False),
        Column("slot_function", Integer, nullable=False),
        Column("target_table", NAME, nullable=False),
        Column("row_count", BigInteger, nullable=True),
        Column("row_hash", String(_HASH_LENGTH), nullable=True),
        Column("owner", String(NAME_LENGTH_MAX), nullable=False),
        Column("attempt", String(_TOKEN_LENGTH), nullable=False),
        Column("updated_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
        schema=schema,
    )


class BatchRows:
    """The statements on the rows of one sink in ``table``."""

    def __init__(self, table: Table, sink_id: str) -> None:
        self._table = table
        self._sink_id = sink_id

    def read(self, connection: Connection, *slots: int, for_update: bool = False) -> dict[int, SlotRow]:
        """Read the rows of ``slots``, or all without any; ``for_update`` fails while another transaction holds one."""
        columns = self._table.c
        wanted = select(self._table).where(columns.sink_id == self._sink_id).order_by(columns.slot)
        if slots:
            wanted = wanted.where(columns.slot.in_(slots))
        rows = connection.execute(wanted.with_for_update(nowait=True) if for_update else wanted).mappings()
        return {int(row["slot"]): row_of(row) for row in rows}

    def write(self, connection: Connection, rows: Mapping[int, SlotRow], found: Mapping[int, SlotRow]) -> None:
        """Insert or replace ``rows`` by slot, where ``found`` is what the transaction holds."""
        columns = self._table.c
        for slot, row in sorted(rows.items()):
            if slot in found:
                values = {**self._values(slot, row), "updated_at": func.now()}
                where = (columns.sink_id == self._sink_id, columns.slot == slot)
                connection.execute(update(self._table).where(*where).values(values))
        missing = [self._values(slot, row) for slot, row in sorted(rows.items()) if slot not in found]
        if missing:
            connection.execute(insert(self._table), missing)

    def move(self, connection: Connection, slot: int, found: LedgerEntry, row: SlotRow) -> bool:
        """Replace the row of ``slot`` if it still shows the run and the batch of ``found``; returns whether it did."""
        columns = self._table.c
        change = (
            update(self._table)
            .where(
                columns.sink_id == self._sink_id,
                columns.slot == slot,
                columns.run == found.run,
                columns.next_batch == found.next_batch,
            )
            .values({**self._values(slot, row), "updated_at": func.now()})
        )
        return connection.execute(change).rowcount == 1

    def probe(self, connection: Connection, name: str) -> None:
        """Insert a row that no sink reads: ``name`` is none."""
        row = SlotRow(LedgerEntry(0, SinkIdentity("", 0, 0, "")))
        connection.execute(insert(self._table), [{**self._values(0, row), "sink_id": name}])

    def remove_probe(self, connection: Connection, name: str) -> bool:
        """Delete the row that `probe` has inserted; returns whether there was one."""
        return connection.execute(delete(self._table).where(self._table.c.sink_id == name)).rowcount > 0

    def _values(self, slot: int, row: SlotRow) -> dict[str, Any]:
        entry = row.entry
        content = entry.content
        return {
            "sink_id": self._sink_id,
            "slot": slot,
            "next_batch": entry.next_batch,
            "run": entry.run,
            "query_id": entry.identity.query_id,
            "slots": entry.identity.slots,
            "slot_function": entry.identity.slot_function,
            "target_table": entry.identity.topic,
            "row_count": None if content is None else content.rows,
            "row_hash": None if content is None else f"{content.fingerprint:0{_HASH_LENGTH}x}",
            "owner": row.owner[:NAME_LENGTH_MAX],
            "attempt": row.attempt,
        }


def row_of(row: RowMapping) -> SlotRow:
    """Return what a row shows."""
    identity = SinkIdentity(row["query_id"], int(row["slots"]), int(row["slot_function"]), row["target_table"])
    is_known = row["row_count"] is not None and row["row_hash"] is not None
    content = SlotContent(int(row["row_count"]), int(row["row_hash"], 16)) if is_known else None
    entry = LedgerEntry(int(row["next_batch"]), identity, content, int(row["run"]))
    return SlotRow(entry, row["attempt"], row["owner"])
