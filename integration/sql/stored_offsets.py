"""Shows and changes the positions in an offsets table, for people and their tools."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TypeVar

from sqlalchemy import Connection, Engine, MetaData, inspect, select, update
from sqlalchemy.exc import SQLAlchemyError

from eos_client.core.model import InputPartition
from eos_client.core.offset_claims import Position
from eos_client.errors import ClusterUnavailableError, ClusterUnfitError, EosError
from eos_client.integration.sql.database_errors import is_lost, store_error
from eos_client.integration.sql.database_transactions import in_transaction
from eos_client.integration.sql.offsets_table import OffsetRows, offsets_table, position_of
from eos_client.integration.sql.table_checks import name_and_schema

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class StoredOffset:
    """One row: where ``group`` goes on with ``partition``, and who has claimed it when."""

    group: str
    partition: InputPartition
    position: Position
    updated_at: datetime


class StoredOffsets:
    """The rows of all groups in the table ``table_name`` of ``engine``'s database.

    Every call raises ClusterUnavailableError where the database does not answer, and ClusterUnfitError where it refuses
    the request or lacks the table.
    """

    def __init__(self, engine: Engine, table_name: str) -> None:
        self._engine = engine
        self._table = offsets_table(*name_and_schema("--table", table_name), MetaData())

    def rows(self, group: str | None = None) -> list[StoredOffset]:
        """Return the rows of ``group``, or of all groups."""
        columns = self._table.c
        wanted = select(self._table).order_by(columns.consumer_group, columns.topic, columns.partition_id)
        if group is not None:
            wanted = wanted.where(columns.consumer_group == group)

        def read(connection: Connection) -> list[StoredOffset]:
            rows = connection.execute(wanted).mappings()
            return [
                StoredOffset(
                    row["consumer_group"],
                    InputPartition(row["topic"], row["partition_id"]),
                    position_of(row),
                    row["updated_at"],
                )
                for row in rows
            ]

        return self._in_transaction("the offsets cannot be read", read)

    def set(self, group: str, offsets: Mapping[InputPartition, int]) -> None:
        """Let ``group`` go on at ``offsets``.

        The fence of each row rises, so that a worker that is running commits nothing more of these partitions. It ends
        with an error, and goes on at the new offset once it is started again.
        """
        statements = OffsetRows(self._table, group)

        def change(connection: Connection) -> None:
            found = statements.read(connection, offsets.keys(), for_update=True)
            missing = {p: Position(offset) for p, offset in offsets.items() if p not in found}
            if missing:
                statements.insert(connection, missing)
            for partition, row in found.items():
                moved = replace(row, next_offset=offsets[partition], leader_epoch=None, fence=row.fence + 1, attempt="")
                statements.replace(connection, partition, moved)

        self._in_transaction("the offsets cannot be set", change)

    def release(self, group: str) -> int:
        """Let members of any generation claim the rows of ``group``; returns how many rows there are.

        Needed where the group was deleted, or is of another cluster than before, because its generations begin anew.
        """
        columns = self._table.c
        released = (
            update(self._table).where(columns.consumer_group == group).values(generation=0, fence=columns.fence + 1)
        )
        return self._in_transaction("the rows cannot be released", lambda c: int(c.execute(released).rowcount))

    def _in_transaction(self, what: str, work: Callable[[Connection], T]) -> T:
        try:
            with in_transaction(self._engine) as connection:
                if not inspect(connection).has_table(self._table.name, schema=self._table.schema):
                    raise ClusterUnfitError(
                        f"the database has no table {self._table.fullname!r}: correct its name. A DatabaseLoop creates "
                        "it at its first start"
                    )
                return work(connection)
        except SQLAlchemyError as error:
            raise _named(error, what) from error


def _named(error: SQLAlchemyError, what: str) -> EosError:
    text = str(store_error(error, what))
    return ClusterUnavailableError(text) if is_lost(error) else ClusterUnfitError(text)
