"""Writes many rows into a table inside an open transaction: by COPY where the driver has it, else by executemany."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from typing import Any

from sqlalchemy import Connection, Table, exc, insert

RowsWriter = Callable[[Iterable[Sequence[Any]]], None]
"""Writes rows, each as its values in the order of the columns; may be called again and again."""

_COPYING_DRIVERS = frozenset({"psycopg"})
_CHUNK_ROWS = 1_000


def can_copy(connection: Connection) -> bool:
    """Whether the driver has COPY."""
    return connection.dialect.driver in _COPYING_DRIVERS


@contextmanager
def rows_writer(
    connection: Connection, table: Table, columns: Sequence[str], *, use_copy: bool
) -> Iterator[RowsWriter]:
    """Return a function that writes rows of ``columns``, of which it holds a few only; all are sent at the end."""
    if use_copy and can_copy(connection):
        with _copying(connection, table, columns) as write:
            yield write
        return
    statement = insert(table)

    def write_in_chunks(rows: Iterable[Sequence[Any]]) -> None:
        left = iter(rows)
        while chunk := list(islice(left, _CHUNK_ROWS)):
            connection.execute(statement, [dict(zip(columns, row, strict=True)) for row in chunk])

    yield write_in_chunks


@contextmanager
def _copying(connection: Connection, table: Table, columns: Sequence[str]) -> Iterator[RowsWriter]:
    quoted = connection.dialect.identifier_preparer
    names = ", ".join(map(quoted.quote, columns))
    with _driver_errors(connection):
        cursor: Any = connection.connection.cursor()
        copying = cursor.copy(f"COPY {quoted.format_table(table)} ({names}) FROM STDIN")
        stream: Any = copying.__enter__()

    def write(rows: Iterable[Sequence[Any]]) -> None:
        write_row = stream.write_row
        with _driver_errors(connection):
            for row in rows:
                write_row(row)

    try:
        yield write
    except BaseException as error:
        # It makes the server forget the rows; what it says to that is of no interest.
        with suppress(Exception):
            copying.__exit__(type(error), error, error.__traceback__)
        raise
    with _driver_errors(connection):
        copying.__exit__(None, None, None)
        cursor.close()


@contextmanager
def _driver_errors(connection: Connection) -> Iterator[None]:
    """Raise errors of the driver as SQLAlchemy does, so that both are named by the same rules."""
    driver = connection.dialect.loaded_dbapi
    try:
        yield
    except driver.Error as error:
        is_lost = connection.dialect.is_disconnect(error, connection.connection.dbapi_connection, None)
        raise exc.DBAPIError.instance(
            "COPY", None, error, driver.Error, connection_invalidated=is_lost, dialect=connection.dialect
        ) from error
