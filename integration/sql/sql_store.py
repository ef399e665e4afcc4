"""Keeps positions in a table of an application's database, by SQLAlchemy Core."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import tenacity
from sqlalchemy import Connection, Engine, MetaData, Table, event, inspect
from sqlalchemy.exc import DBAPIError, IntegrityError, SQLAlchemyError

from eos_client.clients.dead_letters import LetterHeader
from eos_client.core.model import GroupGeneration, InputPartition
from eos_client.core.offset_claims import ClaimRefusedError, Move, Position, claim, why_not_moved
from eos_client.errors import ConfigurationError, TransactionStateError
from eos_client.integration.sql.database_errors import (
    code_of,
    commit_was_refused,
    is_conflict,
    is_lost,
    store_error,
    text_of,
)
from eos_client.integration.sql.header_texts import encode_headers
from eos_client.integration.sql.offsets_table import NAME_LENGTH_MAX, OffsetRows, dead_letter_table, offsets_table
from eos_client.ports import OutputRecord
from eos_client.position_store import (
    StoreChangedError,
    StoreError,
    StoreMisusedError,
    StoreRefusedError,
    StoreUnavailableError,
    StoreUnfitError,
)

T = TypeVar("T")

_ATTEMPTS_MAX = 5
_SQLITE = "sqlite"
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
            _begin(self._connection)
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
        try:
            self._root.commit()
        except Exception as error:
            refused = StoreRefusedError if commit_was_refused(error) else StoreUnavailableError
            raise refused(text_of(error, "COMMIT failed")) from error
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
            if not is_lost(error) and code_of(error).startswith(_NO_SAVEPOINT):
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
                    self._require_rollback(connection)
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

    def _require_rollback(self, connection: Connection) -> None:
        name = f"? {secrets.token_hex(8)}"
        with connection.begin() as probing:
            _begin(connection)
            self._rows.probe(connection, name)
            probing.rollback()
        with connection.begin():
            was_kept = self._rows.remove_probe(connection, name)
        if was_kept:
            raise StoreUnfitError(
                f"what is written to {self._table.fullname!r} is not undone by ROLLBACK: the engine commits each "
                "statement (isolation_level AUTOCOMMIT, or the driver's autocommit), or the table's storage engine has "
                "no transactions. Rows and offsets could not be committed together. Correct that"
            )

    def _require_tables(self, connection: Connection) -> None:
        for table in self._metadata.sorted_tables:
            _require_exists(connection, table)
            columns = {column["name"] for column in inspect(connection).get_columns(table.name, schema=table.schema)}
            missing = sorted(set(table.columns.keys()) - columns)
            if missing:
                raise StoreUnfitError(
                    f"the table {table.fullname!r} lacks the columns {', '.join(missing)}: it is another one, or of an "
                    "older version. Name another table, or add them"
                )
            if table is self._table:
                self._require_key(connection)
            connection.rollback()

    def _require_key(self, connection: Connection) -> None:
        name, schema = self._table.name, self._table.schema
        wanted = set(self._table.primary_key.columns.keys())
        found = inspect(connection).get_pk_constraint(name, schema=schema)["constrained_columns"]
        unique = [each["column_names"] for each in inspect(connection).get_unique_constraints(name, schema=schema)]
        if not any(set(columns) == wanted for columns in (found, *unique)):
            raise StoreUnfitError(
                f"the table {self._table.fullname!r} has no primary key of {', '.join(sorted(wanted))}: two members "
                "could make a row each for one partition. Add it"
            )

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
        """Do ``work`` in a transaction of its own, again where a conflict has broken it off."""
        retrying = tenacity.Retrying(
            stop=tenacity.stop_after_attempt(_ATTEMPTS_MAX),
            wait=tenacity.wait_random_exponential(multiplier=0.02, max=0.5),
            retry=tenacity.retry_if_exception(lambda error: isinstance(error, IntegrityError) or is_conflict(error)),
            reraise=True,
        )
        try:
            done: T = retrying(lambda: self._once(work))
        except ClaimRefusedError:
            raise
        except Exception as error:
            raise store_error(error, what) from error
        return done

    def _once(self, work: Callable[[Connection], T]) -> T:
        with in_transaction(self._engine) as connection:
            return work(connection)


@contextmanager
def in_transaction(engine: Engine) -> Iterator[Connection]:
    """Return a connection inside a transaction, which is committed at the end."""
    with engine.connect() as connection, connection.begin():
        _begin(connection)
        yield connection


def require_engine(engine: object) -> Engine:
    """Return ``engine``; raises ConfigurationError for what is none, or is one of an async driver."""
    if not isinstance(engine, Engine) or engine.dialect.is_async:
        raise ConfigurationError(
            f"engine={engine!r} must be a SQLAlchemy Engine, as create_engine() makes it of a driver that is not "
            "async. An AsyncEngine, or its sync_engine, cannot be used in the threads of a loop."
        )
    return engine


def check_engine(given: object) -> None:
    """Raise ConfigurationError for what is no engine whose database can keep positions."""
    engine = require_engine(given)
    database = engine.url.database or ""
    if engine.dialect.name == _SQLITE and (not database or ":memory:" in database or "mode=memory" in str(engine.url)):
        raise ConfigurationError(
            "an SQLite database in memory is gone with its connection: name a file, as in sqlite:///orders.db."
        )


def _require_exists(connection: Connection, table: Table) -> None:
    if inspect(connection).has_table(table.name, schema=table.schema):
        return
    try:
        table.create(connection, checkfirst=True)
        connection.commit()
    except SQLAlchemyError:
        connection.rollback()
        if not inspect(connection).has_table(table.name, schema=table.schema):
            raise  # else another member has created it at the same moment


def name_and_schema(option: str, name: object) -> tuple[str, str | None]:
    """Return the parts of a table's name; raises ConfigurationError, naming ``option``, for what is none."""
    if not isinstance(name, str) or not name.rpartition(".")[2].strip():
        raise ConfigurationError(f"{option}={name!r} must be the name of a table, or schema.table.")
    schema, _, table = name.rpartition(".")
    return table, schema or None


def _begin(connection: Connection) -> None:
    """Begin at once where the driver would wait for the first change; SQLite's writers queue up here.

    Nothing is done where the application's own listeners have begun already.
    """
    if connection.dialect.name == _SQLITE and not getattr(connection.connection.dbapi_connection, "in_transaction", 0):
        connection.exec_driver_sql("BEGIN IMMEDIATE")


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
