"""The table of positions, and the one of dead letters, by SQLAlchemy Core."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    DateTime,
    Integer,
    LargeBinary,
    MetaData,
    RowMapping,
    String,
    Table,
    Text,
    Update,
    and_,
    bindparam,
    case,
    delete,
    func,
    insert,
    or_,
    select,
    update,
)
from sqlalchemy.dialects import mysql

from eos_client.core.model import InputPartition
from eos_client.core.offset_claims import NO_OFFSET, Move, Position

NAME_LENGTH_MAX = 249
"""Kafka's limit for the name of a topic; a group's may be longer, and is refused then."""
_TOKEN_LENGTH = 64
# MySQL compares text without regard to case unless the column says otherwise, and Kafka's names differ by case.
NAME = String(NAME_LENGTH_MAX).with_variant(mysql.VARCHAR(NAME_LENGTH_MAX, collation="utf8mb4_bin"), "mysql", "mariadb")
BYTES = LargeBinary().with_variant(mysql.LONGBLOB(), "mysql", "mariadb")
TEXT = Text().with_variant(mysql.LONGTEXT(), "mysql", "mariadb")


def offsets_table(name: str, schema: str | None, metadata: MetaData) -> Table:
    """Describe the table of positions: one row for each partition of a group."""
    return Table(
        name,
        metadata,
        Column("consumer_group", NAME, primary_key=True),
        Column("topic", NAME, primary_key=True),
        Column("partition_id", Integer, primary_key=True, autoincrement=False),
        Column("next_offset", BigInteger, nullable=False),
        Column("leader_epoch", Integer, nullable=True),
        Column("fence", BigInteger, nullable=False),
        Column("generation", Integer, nullable=False),
        Column("owner", String(NAME_LENGTH_MAX), nullable=False),
        Column("attempt", String(_TOKEN_LENGTH), nullable=False),
        Column("updated_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
        schema=schema,
    )


def dead_letter_table(name: str, schema: str | None, metadata: MetaData) -> Table:
    """Describe a table of dead letters: the record, and its headers, which name the error, as JSON."""
    return Table(
        name,
        metadata,
        Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
        Column("topic", NAME, nullable=False),
        Column("partition_id", Integer, nullable=False),
        Column("record_offset", BigInteger, nullable=False),
        Column("record_key", BYTES, nullable=True),
        Column("record_value", BYTES, nullable=True),
        Column("headers", TEXT, nullable=False),
        Column("written_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
        schema=schema,
    )


class OffsetRows:
    """The statements on the rows of one ``group`` in ``table``."""

    def __init__(self, table: Table, group: str) -> None:
        self._table = table
        self._group = group
        self._changes: dict[int, Update] = {}

    def _is_of(self, partitions: Collection[InputPartition]) -> Any:
        columns = self._table.c
        places = or_(*(and_(columns.topic == p.topic, columns.partition_id == p.partition) for p in sorted(partitions)))
        return and_(columns.consumer_group == self._group, places)

    def read(
        self, connection: Connection, partitions: Collection[InputPartition] | None, *, for_update: bool = False
    ) -> dict[InputPartition, Position]:
        """Read the rows of ``partitions``, or all of the group; ``for_update`` fails while another holds one."""
        columns = self._table.c
        is_meant = columns.consumer_group == self._group if partitions is None else self._is_of(partitions)
        if partitions is not None and not partitions:
            return {}
        wanted = select(self._table).where(is_meant).order_by(columns.topic, columns.partition_id)
        rows = connection.execute(wanted.with_for_update(nowait=True) if for_update else wanted).mappings()
        return {InputPartition(row["topic"], row["partition_id"]): position_of(row) for row in rows}

    def probe(self, connection: Connection, name: str) -> None:
        """Insert a row that no consumer reads: ``name`` is no topic."""
        self.insert(connection, {InputPartition(name, 0): Position(NO_OFFSET)})

    def remove_probe(self, connection: Connection, name: str) -> bool:
        """Delete the row that `probe` has inserted; returns whether there was one."""
        return connection.execute(delete(self._table).where(self._is_of([InputPartition(name, 0)]))).rowcount > 0

    def insert(self, connection: Connection, rows: Mapping[InputPartition, Position]) -> None:
        """Insert rows that are missing."""
        connection.execute(insert(self._table), [self._values(partition, row) for partition, row in rows.items()])

    def replace(self, connection: Connection, partition: InputPartition, row: Position) -> None:
        """Replace the row of ``partition``, which is held."""
        values = {**self._values(partition, row), "updated_at": func.now()}
        connection.execute(update(self._table).where(self._is_of([partition])).values(values))

    def move(self, connection: Connection, moves: Mapping[InputPartition, Move]) -> bool:
        """Move the rows that show what was claimed; returns whether all of them did."""
        given: dict[str, Any] = {"of_group": self._group, "by_attempt": next(iter(moves.values())).attempt}
        for number, (partition, move) in enumerate(sorted(moves.items())):
            given |= {
                f"topic_{number}": partition.topic,
                f"partition_{number}": partition.partition,
                f"fence_{number}": move.claimed.fence,
                f"from_{number}": move.claimed.next_offset,
                f"to_{number}": move.next_offset,
                f"epoch_{number}": move.leader_epoch,
            }
        return connection.execute(self._change(len(moves)), given).rowcount == len(moves)

    def _change(self, count: int) -> Update:
        """Return the statement that moves ``count`` rows; to build it takes as long as to execute it."""
        if (known := self._changes.get(count)) is not None:
            return known
        columns = self._table.c
        places = [
            and_(
                columns.topic == bindparam(f"topic_{number}", type_=NAME),
                columns.partition_id == bindparam(f"partition_{number}", type_=Integer),
            )
            for number in range(count)
        ]
        shown = or_(
            *(
                and_(place, columns.fence == bindparam(f"fence_{n}"), columns.next_offset == bindparam(f"from_{n}"))
                for n, place in enumerate(places)
            )
        )
        offsets = (bindparam(f"to_{number}", type_=BigInteger) for number in range(count))
        epochs = (bindparam(f"epoch_{number}", type_=Integer) for number in range(count))
        change = (
            update(self._table)
            .where(columns.consumer_group == bindparam("of_group"), shown)
            .values(
                next_offset=case(*zip(places, offsets, strict=True)),
                leader_epoch=case(*zip(places, epochs, strict=True)),
                attempt=bindparam("by_attempt"),
                updated_at=func.now(),
            )
        )
        self._changes[count] = change
        return change

    def _values(self, partition: InputPartition, row: Position) -> dict[str, Any]:
        return {
            "consumer_group": self._group,
            "topic": partition.topic,
            "partition_id": partition.partition,
            "next_offset": row.next_offset,
            "leader_epoch": row.leader_epoch,
            "fence": row.fence,
            "generation": row.generation,
            "owner": row.owner[:NAME_LENGTH_MAX],
            "attempt": row.attempt,
        }


def position_of(row: RowMapping) -> Position:
    """Return what a row shows."""
    return Position(
        next_offset=int(row["next_offset"]),
        fence=int(row["fence"]),
        generation=int(row["generation"]),
        owner=row["owner"],
        leader_epoch=row["leader_epoch"],
        attempt=row["attempt"],
    )
