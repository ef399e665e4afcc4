"""Checks an engine and the tables of ours before the first row is written: what would tear rows from positions."""

from __future__ import annotations

import secrets
from collections.abc import Callable

from sqlalchemy import Connection, Engine, Table, inspect
from sqlalchemy.exc import SQLAlchemyError

from eos_client.errors import ConfigurationError
from eos_client.integration.sql.database_transactions import SQLITE, begin_at_once
from eos_client.position_store import StoreUnfitError


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
    if engine.dialect.name == SQLITE and (not database or ":memory:" in database or "mode=memory" in str(engine.url)):
        raise ConfigurationError(
            "an SQLite database in memory is gone with its connection: name a file, as in sqlite:///orders.db."
        )


def name_and_schema(option: str, name: object) -> tuple[str, str | None]:
    """Return the parts of a table's name; raises ConfigurationError, naming ``option``, for what is none."""
    if not isinstance(name, str) or not name.rpartition(".")[2].strip():
        raise ConfigurationError(f"{option}={name!r} must be the name of a table, or schema.table.")
    schema, _, table = name.rpartition(".")
    return table, schema or None


def require_table(connection: Connection, table: Table) -> None:
    """Create ``table`` where it is missing; raises StoreUnfitError where it lacks columns."""
    _require_exists(connection, table)
    columns = {column["name"] for column in inspect(connection).get_columns(table.name, schema=table.schema)}
    missing = sorted(set(table.columns.keys()) - columns)
    if missing:
        raise StoreUnfitError(
            f"the table {table.fullname!r} lacks the columns {', '.join(missing)}: it is another one, or of an "
            "older version. Name another table, or add them"
        )


def require_key(connection: Connection, table: Table, what_two_rows_would_do: str) -> None:
    """Raise StoreUnfitError where ``table`` has no primary key of the columns that are meant."""
    name, schema = table.name, table.schema
    wanted = set(table.primary_key.columns.keys())
    found = inspect(connection).get_pk_constraint(name, schema=schema)["constrained_columns"]
    unique = [each["column_names"] for each in inspect(connection).get_unique_constraints(name, schema=schema)]
    if not any(set(columns) == wanted for columns in (found, *unique)):
        raise StoreUnfitError(
            f"the table {table.fullname!r} has no primary key of {', '.join(sorted(wanted))}: "
            f"{what_two_rows_would_do}. Add it"
        )


def require_rollback(
    connection: Connection,
    table: Table,
    probe: Callable[[Connection, str], None],
    remove_probe: Callable[[Connection, str], bool],
) -> None:
    """Raise StoreUnfitError where ROLLBACK does not undo what was written to ``table``.

    ``probe`` inserts a row under a name that is nobody else's; ``remove_probe`` deletes it, and returns whether it was
    there.
    """
    name = f"? {secrets.token_hex(8)}"
    with connection.begin() as probing:
        begin_at_once(connection)
        probe(connection, name)
        probing.rollback()
    with connection.begin():
        was_kept = remove_probe(connection, name)
    if was_kept:
        raise StoreUnfitError(
            f"what is written to {table.fullname!r} is not undone by ROLLBACK: the engine commits each "
            "statement (isolation_level AUTOCOMMIT, or the driver's autocommit), or the table's storage engine has "
            "no transactions. Rows and offsets could not be committed together. Correct that"
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
