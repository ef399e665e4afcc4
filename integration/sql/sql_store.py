"""Keeps positions in a table of an application's database, by SQLAlchemy Core."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine, MetaData, event
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from eos_client.clients.dead_letters import LetterHeader
from eos_client.core.model import GroupGeneration, InputPartition
from eos_client.core.offset_claims import ClaimRefusedError, Move, Position, claim, why_not_moved
from eos_client.errors import ConfigurationError, TransactionStateError
from eos_client.integration.sql.database_errors import (
    code_of,
    is_lost,
    store_error,
)
from eos_client.integration.sql.database_transactions import begin_at_once, commit, repeated_after_conflicts
from eos_client.integration.sql.header_texts import encode_headers
from eos_client.integration.sql.offsets_table import NAME_LENGTH_MAX, OffsetRows, dead_letter_table, offsets_table
from eos_client.integration.sql.table_checks import (
    check_engine,
    name_and_schema,
    require_key,
    require_rollback,
    require_table,
)
from eos_client.ports import OutputRecord
from eos_client.position_store import (
    StoreChangedError,
    StoreError,
    StoreMisusedError,
    StoreRefusedError,
    StoreUnfitError,
)

T = TypeVar("T")

_SAVEPOINT = "eos_client_begin"
_NO_SAVEPOINT = ("3B001", "1305", "SQLITE_ERROR")
MISUSED = (
    "the transaction was ended inside the handler, which tears its rows from their input offsets: by commit(), "
    "rollback() or close() of the connection, by SQL of its own, or by the database for an error that the handler has "
    "caught. Let errors leave the handler, and end nothing there: return, and rows and offsets are committed together; "
    "raise, and nothing of them is"
)


class SqlTransaction:
    """One open transaction on a connection of its own. Only ``commit`` may end it well.

    A handler that committed or rolled back would tear its rows from their offsets, so both are refused on
    ``connection``. That it did not do so by SQL of its own, nor the database after a deadlock, is seen by a savepoint
    from the beginning of the transaction, which is gone then.
    """

    def __init__(self, engine: Engine, rows: OffsetRows, tables: Mapping[str, Any]) -> None:
        self._rows = rows
        self._tables = tables
        self._lock = threading.Lock()  # of the two below: calls run in another thread than the one that gives them up
        self._is_busy = False
        self._is_closed = False
        self._ending = threading.Lock()
        self._is_whole = False
        self._was_committed = False
        self._guard = _EndGuard()
        self._connection: Connection = engine.connect()
        try:
            self._root = self._connection.begin()
            begin_at_once(self._connection)
            self._connection.exec_driver_sql(f"SAVEPOINT {_SAVEPOINT}")
            event.listen(self._connection, "commit", self._guard.refuse)
            event.listen(self._connection, "rollback", self._guard.refuse)
        except BaseException:
            self._end(invalidate=True)
            raise

    @property
    def connection(self) -> Connection:
        """The connection, inside the transaction."""
        return self._connection

    @property
    def was_ended(self) -> bool:
        """Whether the application has ended it; see ``StoreTransaction``."""
        return self._guard.was_misused or self._connection.get_transaction() is not self._root

    def was_ended_by_statement(self) -> bool:
        """Ask for the savepoint from the beginning; see ``StoreTransaction``."""
        try:
            for statement in (f"RELEASE SAVEPOINT {_SAVEPOINT}", f"SAVEPOINT {_SAVEPOINT}"):
                self._connection.exec_driver_sql(statement)
        except SQLAlchemyError as error:  # any other: it can only be rolled back
            return _has_no_savepoint(error)
        return False

    def move(self, moves: Mapping[InputPartition, Move]) -> None:
        """Move the rows; see ``StoreTransaction``."""
        self._run(lambda: self._move(moves), "the offsets were not moved")

    def _move(self, moves: Mapping[InputPartition, Move]) -> None:
        self._require_whole()
        if not moves or self._rows.move(self._connection, moves):
            return
        found = self._rows.read(self._connection, moves.keys())
        raise StoreChangedError(why_not_moved(moves, found) or "a row of the offsets table has changed")

    def write(self, table: str, record: OutputRecord) -> None:
        """Insert a dead letter; see ``StoreTransaction``."""
        letter = self._tables[table].insert()
        self._run(
            lambda: self._connection.execute(letter, _letter_values(record)),
            f"the dead letter was not inserted into {table}",
        )

    def commit(self) -> None:
        """Commit; see ``StoreTransaction``."""
        self._run(self._commit, "the transaction was not committed")

    def _commit(self) -> None:
        self._require_whole()
        self._guard.is_ending = True
        commit(self._root)
        self._was_committed = True

    def _require_whole(self) -> None:
        """Raise StoreMisusedError where the transaction is not any more the one that was begun."""
        if self.was_ended:
            raise StoreMisusedError(MISUSED)
        if self._is_whole:
            return
        try:
            self._connection.exec_driver_sql(f"RELEASE SAVEPOINT {_SAVEPOINT}")
        except DBAPIError as error:
            if _has_no_savepoint(error):
                raise StoreMisusedError(MISUSED) from error
            raise
        self._is_whole = True

    def close(self) -> None:
        """Roll back what is open; see ``StoreTransaction``."""
        with self._lock:
            self._is_closed = True
            is_busy = self._is_busy
        if not is_busy:
            self._end(invalidate=False)

    def _run(self, call: Callable[[], object], what: str) -> None:
        """Run ``call`` unless the transaction was closed; where it is closed meanwhile, the connection ends with it."""
        with self._lock:
            self._is_busy = not self._is_closed
        if not self._is_busy:
            raise StoreRefusedError(f"{what}: the transaction was rolled back meanwhile")
        try:
            call()
        except StoreError:
            raise
        except Exception as error:
            raise store_error(error, what) from error
        finally:
            with self._lock:
                self._is_busy = False
                is_closed = self._is_closed
            if is_closed:
                self._end(invalidate=True)

    def _end(self, *, invalidate: bool) -> None:
        if not self._ending.acquire(blocking=False):
            return  # another thread is about it
        try:
            self._guard.is_ending = True
            # Where a COMMIT was refused, ours or the handler's, SQLAlchemy would take the transaction for ended, and
            # return the connection to the pool with what was written.
            invalidate = invalidate or not (self._was_committed or self._root.is_active)
            try:
                if not invalidate:
                    self._connection.close()
            except Exception:  # noqa: BLE001  # closing the socket ends the transaction as well
                invalidate = True
            if invalidate and not self._connection.closed:
                with suppress(Exception):
                    self._connection.invalidate()
                with suppress(Exception):
                    self._connection.close()
        finally:
            self._ending.release()


def _has_no_savepoint(error: Exception) -> bool:
    return not is_lost(error) and code_of(error).startswith(_NO_SAVEPOINT)


class _EndGuard:
    """Refuses commits and rollbacks of a connection that are not this package's."""

    def __init__(self) -> None:
        self.is_ending = False
        self.was_misused = False

    def refuse(self, connection: Connection) -> None:
        """Raise TransactionStateError unless the transaction is to end, or is lost anyway."""
        if not (self.is_ending or connection.invalidated):
            self.was_misused = True
            raise TransactionStateError(MISUSED)


class SqlPositionStore:
    """The rows of ``group`` in the table ``table_name`` of ``engine``'s database. Fulfils ``PositionStore``.

    Missing tables are created. Raises ConfigurationError for an engine that cannot keep them.
    """

    def __init__(self, engine: Engine, group: str, table_name: str, dead_letters: str | None = None) -> None:
        check_engine(engine)
        if len(group) > NAME_LENGTH_MAX:
            raise ConfigurationError(
                f"the group {group!r} has a name of more than the {NAME_LENGTH_MAX} characters that an offsets table "
                "takes: choose a shorter one."
            )
        self._engine = engine
        self._metadata = MetaData()
        self._table = offsets_table(*name_and_schema("offsets_table", table_name), self._metadata)
        self._letters = {}
        if dead_letters is not None:
            name, schema = name_and_schema("dead_letter_topic", dead_letters)
            if (name, schema) == (self._table.name, self._table.schema):
                raise ConfigurationError(
                    f"dead_letter_topic={dead_letters!r} is the offsets table: name another table for dead letters."
                )
            self._letters[dead_letters] = dead_letter_table(name, schema, self._metadata)
        self._rows = OffsetRows(self._table, group)
        self._was_prepared = False

    def prepare(self) -> None:
        """Create the tables that are missing; see ``PositionStore``.

        Raises StoreUnfitError where two connections are one, or where what was written cannot be rolled back.
        """
        try:
            with self._engine.connect() as connection:
                self._require_tables(connection)
                if not self._was_prepared:
                    self._require_another_connection(connection)
                    require_rollback(connection, self._table, self._rows.probe, self._rows.remove_probe)
        except StoreError:
            raise
        except Exception as error:
            raise store_error(error, f"the table {self._table.fullname!r} cannot be used") from error
        self._was_prepared = True

    def _require_another_connection(self, connection: Connection) -> None:
        with self._engine.connect() as another:
            if another.connection.dbapi_connection is connection.connection.dbapi_connection:
                raise StoreUnfitError(
                    "the engine's pool gives out one connection twice, on which what is claimed would be committed "
                    "together with half of a batch: use QueuePool or NullPool, and two connections for each worker"
                )

    def _require_tables(self, connection: Connection) -> None:
        for table in self._metadata.sorted_tables:
            require_table(connection, table)
            if table is self._table:
                require_key(connection, table, "two members could make a row each for one partition")
            connection.rollback()

    def read(self, partitions: Collection[InputPartition]) -> Mapping[InputPartition, Position]:
        """Read rows; see ``PositionStore``."""
        return self._in_transaction("the offsets cannot be read", lambda c: self._rows.read(c, partitions))

    def read_settled(self, partitions: Collection[InputPartition]) -> Mapping[InputPartition, Position]:
        """Read rows that nobody holds; see ``PositionStore``."""
        what = "the offsets cannot be read yet"
        return self._in_transaction(what, lambda c: self._rows.read(c, partitions, for_update=True))

    def claim(
        self, starts: Mapping[InputPartition, Position], generation: GroupGeneration, owner: str
    ) -> Mapping[InputPartition, Position]:
        """Claim rows; see ``PositionStore``."""

        def claim_rows(connection: Connection) -> dict[InputPartition, Position]:
            found = self._rows.read(connection, starts.keys(), for_update=True)
            missing = {p: start for p, start in starts.items() if p not in found}
            if missing:
                self._rows.insert(connection, missing)  # who inserts them first, claims them first
            claimed = {p: claim(row, generation, owner) for p, row in {**missing, **found}.items()}
            for partition, row in sorted(claimed.items()):
                self._rows.replace(connection, partition, row)
            return claimed

        return self._in_transaction("the rows cannot be claimed", claim_rows)

    def begin(self) -> SqlTransaction:
        """Begin a transaction; see ``PositionStore``."""
        try:
            return SqlTransaction(self._engine, self._rows, self._letters)
        except Exception as error:
            raise store_error(error, "no transaction can be begun") from error

    def _in_transaction(self, what: str, work: Callable[[Connection], T]) -> T:
        try:
            return repeated_after_conflicts(self._engine, work)
        except ClaimRefusedError:
            raise
        except Exception as error:
            raise store_error(error, what) from error


def _letter_values(record: OutputRecord) -> dict[str, Any]:
    headers = record.headers or ()
    named: dict[str, Any] = dict(headers)  # the letter's own stand behind the record's
    return {
        "topic": _text(named[LetterHeader.TOPIC]),
        "partition_id": int(named[LetterHeader.PARTITION]),
        "record_offset": int(named[LetterHeader.OFFSET]),
        "record_key": _bytes(record.key),
        "record_value": _bytes(record.value),
        "headers": encode_headers(headers),
    }


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _bytes(value: Any) -> bytes | None:
    return value.encode() if isinstance(value, str) else value
