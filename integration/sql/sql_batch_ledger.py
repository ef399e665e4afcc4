"""A Spark sink's ledger in the database that the sink writes to, and the transactions of its slots."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any, TypeVar

import tenacity
from sqlalchemy import Connection, Engine, MetaData, Table
from sqlalchemy.exc import SQLAlchemyError

from eos_client.core.batch_claims import Claim, SlotRow
from eos_client.core.batch_ledger import LedgerEntry
from eos_client.errors import EosError
from eos_client.integration.sql.batch_rows import MARKER, BatchRows, ledger_table
from eos_client.integration.sql.bulk_rows import RowsWriter, rows_writer
from eos_client.integration.sql.database_errors import is_databases_fault, store_error, text_of
from eos_client.integration.sql.database_transactions import begin_at_once, commit, once, repeated_after_conflicts
from eos_client.integration.sql.table_checks import (
    check_engine,
    name_and_schema,
    require_key,
    require_rollback,
    require_table,
)
from eos_client.position_store import StoreChangedError, StoreError

T = TypeVar("T")

_PAUSE_S_MAX = 1.0


class RowsRefusedError(StoreError):
    """The database refuses a row that was to be written, and would refuse it again."""


class SqlBatchLedger:
    """The ledger of ``sink_id`` in the table ``table_name`` of ``engine``'s database.

    Its calls raise StoreError, and do not return later than ``timeout_s`` seconds because of a database that is away or
    of a row that another transaction holds.
    """

    def __init__(self, engine: Engine, sink_id: str, table_name: str, *, timeout_s: float) -> None:
        check_engine(engine)
        self._engine = engine
        self._table = ledger_table(*name_and_schema("ledger_table", table_name), MetaData())
        self._rows = BatchRows(self._table, sink_id)
        self._timeout_s = timeout_s

    def prepare(self) -> None:
        """Create the table if it is missing; raises StoreUnfitError for one in which no ledger can be kept."""
        try:
            with self._engine.connect() as connection:
                require_table(connection, self._table)
                require_key(connection, self._table, "two drivers could make a row each for one slot")
                connection.rollback()
                require_rollback(connection, self._table, self._rows.probe, self._rows.remove_probe)
        except StoreError:
            raise
        except Exception as error:
            raise store_error(error, f"the table {self._table.fullname!r} cannot be used") from error

    def read(self, slot: int) -> SlotRow | None:
        """Read the row of ``slot``."""
        read: Callable[[Connection], dict[int, SlotRow]] = lambda c: self._rows.read(c, slot)  # noqa: E731
        return self._repeated("the ledger cannot be read", lambda: once(self._engine, read)).get(slot)

    def read_settled(self, slot: int) -> SlotRow | None:
        """Read the row of ``slot`` once no transaction holds it."""
        read: Callable[[Connection], dict[int, SlotRow]] = lambda c: self._rows.read(c, slot, for_update=True)  # noqa: E731
        return self._repeated("the ledger cannot be read yet", lambda: once(self._engine, read)).get(slot)

    def claim(self, plan: Callable[[dict[int, SlotRow], SlotRow | None], Claim]) -> Claim:
        """Claim all rows of the sink, as ``plan`` says for what they show; what it raises changes nothing."""

        def claim_rows(connection: Connection) -> Claim:
            found = self._rows.read(connection, for_update=True)
            claim = plan({slot: row for slot, row in found.items() if slot != MARKER}, found.get(MARKER))
            self._rows.write(connection, {**claim.slots, MARKER: claim.marker}, found)
            return claim

        # A claim whose COMMIT was not answered is made anew: that one's run is the newer one.
        return self._repeated(
            "the ledger cannot be claimed: another transaction holds a row of it, or the database is away",
            lambda: repeated_after_conflicts(self._engine, claim_rows),
        )

    def move_marker(self, row: SlotRow) -> SlotRow | None:
        """Move the marker of a run; returns None, or what the marker shows where it is another run's."""

        def move(connection: Connection) -> SlotRow | None:
            found = self._rows.read(connection, MARKER, for_update=True).get(MARKER)
            if found is None or found.entry.run != row.entry.run:
                return found or SlotRow(replace(row.entry, run=0))
            self._rows.write(connection, {MARKER: row}, {MARKER: found})
            return None

        return self._repeated("the marker cannot be moved", lambda: once(self._engine, move))

    @contextmanager
    def transaction(self) -> Iterator[SlotTransaction]:
        """Begin the transaction of one slot; what was not committed at the end is rolled back."""
        transaction = self._repeated("no transaction can be begun", lambda: SlotTransaction(self._engine, self._rows))
        try:
            yield transaction
        finally:
            transaction.close()

    def _repeated(self, what: str, work: Callable[[], T]) -> T:
        """Do ``work``, which may be done twice, until it is done or the time is over."""
        retrying = tenacity.Retrying(
            stop=tenacity.stop_after_delay(self._timeout_s),
            wait=tenacity.wait_random_exponential(multiplier=0.05, max=_PAUSE_S_MAX),
            retry=tenacity.retry_if_exception(is_databases_fault),
            reraise=True,
        )
        try:
            done: T = retrying(work)
        except (EosError, StoreError):
            raise
        except Exception as error:
            raise store_error(error, what) from error
        return done


class SlotTransaction:
    """One open transaction: rows, then the move of the slot's row, then COMMIT."""

    def __init__(self, engine: Engine, rows: BatchRows) -> None:
        self._rows = rows
        self._was_committed = False
        self.attempt = secrets.token_hex(16)
        self._connection = engine.connect()
        try:
            self._root = self._connection.begin()
            begin_at_once(self._connection)
        except BaseException:
            self.close()
            raise

    @contextmanager
    def writer(self, table: Table, columns: Sequence[str], *, use_copy: bool) -> Iterator[RowsWriter]:
        """Return a function that writes rows; it and the end of the block raise StoreError and RowsRefusedError."""
        # What the block raises of its own passes.
        with _refusals(SQLAlchemyError), rows_writer(self._connection, table, columns, use_copy=use_copy) as write:

            def named(rows: Iterable[Sequence[Any]]) -> None:
                with _refusals(Exception):
                    write(rows)

            yield named

    def move(self, slot: int, found: LedgerEntry, entry: LedgerEntry, owner: str) -> None:
        """Move the row of ``slot``; raises StoreChangedError where it does not show ``found`` any more."""
        row = SlotRow(entry, self.attempt, owner)
        try:
            was_moved = self._rows.move(self._connection, slot, found, row)
        except Exception as error:
            raise store_error(error, f"the ledger's row of slot {slot} was not moved") from error
        if not was_moved:
            raise StoreChangedError(f"the ledger's row of slot {slot} has changed since it was read")

    def commit(self) -> None:
        """Commit. Raises StoreUnavailableError where it may have taken effect, StoreRefusedError where it did not."""
        commit(self._root)
        self._was_committed = True

    def close(self) -> None:
        """Give the connection back after a commit; else end it, and with it what it has written. Never raises."""
        if not self._was_committed:
            with suppress(Exception):
                self._connection.invalidate()
        with suppress(Exception):
            self._connection.close()


@contextmanager
def _refusals(kind: type[Exception]) -> Iterator[None]:
    """Name what the database says to rows: its own fault, which may pass, or the rows'."""
    try:
        yield
    except kind as error:
        if isinstance(error, StoreError):
            raise
        if is_databases_fault(error):
            raise store_error(error, "the rows were not written") from error
        raise RowsRefusedError(text_of(error, "the database refuses a row")) from error
