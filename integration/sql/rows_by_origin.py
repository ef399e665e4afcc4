"""A table whose rows say which record they were made of: what ``eos-client demo --database`` writes and reads back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sqlalchemy import BigInteger, Column, Connection, Engine, Integer, MetaData, Table, insert, select

from eos_client.integration.sql.offsets_table import BYTES

_READ_STEP = 10_000


class RowsByOrigin:
    """The table ``name``: one row for each insert, without any unique constraint but that of its own ids."""

    def __init__(self, engine: Engine, name: str) -> None:
        self._engine = engine
        self._table = Table(
            name,
            MetaData(),
            Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
            Column("partition_id", Integer, nullable=False),
            Column("record_offset", BigInteger, nullable=False),
            Column("content", BYTES, nullable=False),
        )

    def create(self) -> None:
        """Create the table."""
        self._table.create(self._engine)

    def drop(self, *others: str) -> None:
        """Drop the table, and ``others``, as far as they are there."""
        for name in (self._table.name, *others):
            Table(name, MetaData()).drop(self._engine, checkfirst=True)

    def insert(self, connection: Connection, rows: Sequence[tuple[int, int, bytes]]) -> None:
        """Insert ``rows``, each a partition, an offset and a content, in the transaction of ``connection``."""
        names = ("partition_id", "record_offset", "content")
        connection.execute(insert(self._table), [dict(zip(names, row, strict=True)) for row in rows])

    def read(self) -> Iterator[tuple[int, int, bytes]]:
        """Return all rows in the order in which they were inserted."""
        columns = self._table.c
        with self._engine.connect() as connection:
            wanted = select(columns.partition_id, columns.record_offset, columns.content).order_by(columns.id)
            for partition, offset, content in connection.execution_options(yield_per=_READ_STEP).execute(wanted):
                yield partition, offset, bytes(content)
