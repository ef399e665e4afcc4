"""Keeps positions in a table of an application's database, by SQLAlchemy Core."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import msgspec
import tenacity
from sqlalchemy import Connection, Engine, MetaData, event, inspect
from sqlalchemy.exc import IntegrityError, SQLAlchemyError

from eos_client.clients.dead_letters import LetterHeader
from eos_client.core.model import GroupGeneration, InputPartition
from eos_client.core.offset_claims import Move, Position, claim, why_not_moved
from eos_client.errors import ConfigurationError, TransactionStateError
from eos_client.integration.sql.database_errors import is_repeatable, store_error
from eos_client.integration.sql.offsets_table import NAME_LENGTH_MAX, OffsetRows, dead_letter_table, offsets_table
from eos_client.ports import OutputRecord
from eos_client.position_store import StoreRefusedError, StoreUnfitError

T = TypeVar("T")

_ATTEMPTS_MAX = 5
_SQLITE = "sqlite"


class SqlTransaction:
    """One open transaction on a connection of its own. Only ``commit`` may end it well.

    A handler that committed or rolled back would tear its rows from their offsets, so both are refused on
    ``connection`` until this package ends the transaction.
    """

    def __init__(self, engine: Engine, rows: OffsetRows, tables: Mapping[str, Any]) -> None:
        self._rows = rows
        self._tables = tables
        self._is_ending = False
        self._is_abandoned = False
        self._busy = threading.Lock()  # COMMIT runs in another thread than the one that may give up waiting for it
        self._connection: Connection = _connect(engine)
        try:
            self._root = self._connection.begin()
            _begin(self._connection)
            event.listen(self._connection, "commit", self._refuse_end)
            event.listen(self._connection, "rollback", self._refuse_end)
        except BaseException:
            self._end(invalidate=True)
            raise

    @property
    def connection(self) -> Connection:
        """The connection, inside the transaction."""
        return self._connection

    def _refuse_end(self, _connection: Connection) -> None:
        if not self._is_ending:
            raise TransactionStateError(
                "commit() or rollback() of the connection inside the handler: its rows would be torn from their input "
                "offsets. Return, and they are committed together; raise, and nothing of them is"
            )

    def move(self, moves: Mapping[InputPartition, Move]) -> None:
        """Move the rows; see ``StoreTransaction``."""
        if self._connection.get_transaction() is not self._root or not self._root.is_active:
            raise StoreRefusedError("the handler has ended the transaction that it was given")
        if not moves:
            return
        try:
            if self._rows.move(self._connection, moves):
                return
            found = self._rows.read(self._connection, moves.keys())
        except SQLAlchemyError as error:
            raise store_error(error, "the offsets were not moved") from error
        raise StoreRefusedError(why_not_moved(moves, found) or "a row of the offsets table has changed")

    def write(self, table: str, record: OutputRecord) -> None:
        """Insert a dead letter; see ``StoreTransaction``."""
        try:
            self._connection.execute(self._tables[table].insert(), _letter_values(record))
        except SQLAlchemyError as error:
            raise store_error(error, f"the dead letter was not inserted into {table}") from error

    def commit(self) -> None:
        """Commit; see ``StoreTransaction``."""
        with self._busy:
            self._is_ending = True
            try:
                self._root.commit()
            except SQLAlchemyError as error:
                raise store_error(error, "COMMIT failed") from error
            finally:
                if self._is_abandoned:
                    self._end(invalidate=True)

    def close(self) -> None:
        """Roll back what is open; see ``StoreTransaction``."""
        if self._busy.acquire(blocking=False):
            try:
                self._end(invalidate=False)
            finally:
                self._busy.release()
        else:
            self._is_abandoned = True

    def _end(self, *, invalidate: bool) -> None:
        self._is_ending = True
        try:
            if not invalidate:
                _release(self._connection)
        except Exception:  # noqa: BLE001  # closing the socket ends the transaction as well
            invalidate = True
        if invalidate:
            with suppress(Exception):
                self._connection.invalidate()
            with suppress(Exception):
                self._connection.close()


class SqlPositionStore:
    """The rows of ``group`` in the table ``table_name`` of ``engine``'s database. Fulfils ``PositionStore``.

    Missing tables are created. Raises ConfigurationError for an engine that cannot keep them.
    """

    def __init__(self, engine: Engine, group: str, table_name: str, dead_letters: str | None = None) -> None:
        if not isinstance(engine, Engine):
            raise ConfigurationError(
                f"engine={engine!r} must be a SQLAlchemy Engine, as create_engine() makes it; an AsyncEngine has one "
                "as its sync_engine."
            )
        if engine.dialect.name == _SQLITE and engine.url.database in {None, "", ":memory:"}:
            raise ConfigurationError(
                "an SQLite database in memory is gone with its connection: name a file, as in sqlite:///orders.db."
            )
        if len(group) > NAME_LENGTH_MAX:
            raise ConfigurationError(
                f"group_id={group!r} is longer than the {NAME_LENGTH_MAX} characters that an offsets table takes: "
                "choose a shorter one."
            )
        self._engine = engine
        schema, _, name = table_name.rpartition(".")
        self._metadata = MetaData(schema=schema or None)
        self._table = offsets_table(name, self._metadata)
        self._letters = {}
        if dead_letters is not None:
            self._letters[dead_letters] = dead_letter_table(dead_letters.rpartition(".")[2], self._metadata)
        self._rows = OffsetRows(self._table, group)

    def prepare(self) -> None:
        """Create the tables that are missing; see ``PositionStore``."""
        try:
            with connected(self._engine) as connection:
                self._require_tables(connection)
        except SQLAlchemyError as error:
            raise store_error(error, "the offsets table cannot be used") from error

    def _require_tables(self, connection: Connection) -> None:
        for table in self._metadata.sorted_tables:
            if not inspect(connection).has_table(table.name, schema=table.schema):
                with suppress(SQLAlchemyError):  # another member may create it at the same moment
                    table.create(connection, checkfirst=True)
                    connection.commit()
                connection.rollback()
            columns = {column["name"] for column in inspect(connection).get_columns(table.name, schema=table.schema)}
            missing = sorted(set(table.columns.keys()) - columns)
            if missing:
                raise StoreUnfitError(
                    f"the table {table.fullname!r} lacks the columns {', '.join(missing)}: it is another one, or of an "
                    "older version. Name another table, or add them"
                )
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
        except SQLAlchemyError as error:
            raise store_error(error, "no transaction can be begun") from error

    def _in_transaction(self, what: str, work: Callable[[Connection], T]) -> T:
        """Do ``work`` in a transaction of its own, again where a conflict has broken it off."""
        retrying = tenacity.Retrying(
            stop=tenacity.stop_after_attempt(_ATTEMPTS_MAX),
            wait=tenacity.wait_random_exponential(multiplier=0.02, max=0.5),
            retry=tenacity.retry_if_exception(lambda error: isinstance(error, IntegrityError) or is_repeatable(error)),
            reraise=True,
        )
        try:
            done: T = retrying(self._once, work)
        except SQLAlchemyError as error:
            raise store_error(error, what) from error
        return done

    def _once(self, work: Callable[[Connection], T]) -> T:
        with in_transaction(self._engine) as connection:
            return work(connection)


def _connect(engine: Engine) -> Connection:
    connection = engine.connect()
    if engine.dialect.name == _SQLITE and connection.connection.dbapi_connection is not None:
        # Python's module begins a transaction only before the first change, and not for reads and savepoints.
        connection.connection.dbapi_connection.isolation_level = None
    return connection


def _release(connection: Connection) -> None:
    """Roll back what is open and return the connection to its pool as it was."""
    raw = connection.connection.dbapi_connection
    connection.close()
    if connection.dialect.name == _SQLITE and raw is not None:
        raw.isolation_level = ""


@contextmanager
def connected(engine: Engine) -> Iterator[Connection]:
    """Return a connection for a while; what is open at the end is rolled back."""
    connection = _connect(engine)
    try:
        yield connection
    finally:
        _release(connection)


@contextmanager
def in_transaction(engine: Engine) -> Iterator[Connection]:
    """Return a connection inside a transaction, which is committed at the end."""
    with connected(engine) as connection, connection.begin():
        _begin(connection)
        yield connection


def _begin(connection: Connection) -> None:
    """Begin at once where the driver would wait for the first change; SQLite's writers queue up here."""
    if connection.dialect.name == _SQLITE:
        connection.exec_driver_sql("BEGIN IMMEDIATE")


def _letter_values(record: OutputRecord) -> dict[str, Any]:
    headers = {name: _text(value) for name, value in _pairs(record.headers)}
    return {
        "topic": headers[LetterHeader.TOPIC],
        "partition_id": int(headers[LetterHeader.PARTITION]),
        "record_offset": int(headers[LetterHeader.OFFSET]),
        "record_key": _bytes(record.key),
        "record_value": _bytes(record.value),
        "headers": msgspec.json.encode(headers).decode(),
    }


def _pairs(headers: Any) -> list[tuple[str, Any]]:
    return list(headers.items()) if isinstance(headers, Mapping) else list(headers or ())


def _text(value: Any) -> str:
    return value.decode(errors="backslashreplace") if isinstance(value, bytes) else "" if value is None else str(value)


def _bytes(value: Any) -> bytes | None:
    return value.encode() if isinstance(value, str) else value
