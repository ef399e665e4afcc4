"""The application's table that a sink writes to, as the database describes it."""

from __future__ import annotations

from sqlalchemy import Connection, Engine, MetaData, Table, text

from eos_client.integration.sql.database_errors import store_error
from eos_client.integration.sql.table_checks import name_and_schema
from eos_client.position_store import StoreUnfitError

_DURABLE, _FOREIGN = "p", "f"


def target_table(engine: Engine, name: str) -> Table:
    """Return the table ``name``; raises StoreUnfitError where there is none, StoreError."""
    table, schema = name_and_schema("table", name)
    try:
        return Table(table, MetaData(), schema=schema, autoload_with=engine)
    except Exception as error:
        raise store_error(error, f"the table {name!r} cannot be read") from error


def require_durable(engine: Engine, table: Table) -> None:
    """Raise StoreUnfitError for a table whose rows the database does not keep with the ledger's.

    They would be committed apart from it, or lost in a crash that the ledger survives.
    """
    try:
        with engine.connect() as connection:
            found = _how_it_is_kept(connection, table)
    except Exception as error:
        raise store_error(error, f"the table {table.fullname!r} cannot be looked at") from error
    if found:
        raise StoreUnfitError(
            f"the table {table.fullname!r} is {found}: its rows and the ledger could not be committed together. Write "
            "to an ordinary table"
        )


def _how_it_is_kept(connection: Connection, table: Table) -> str:
    """Return how the table is kept where that is unfit; empty where it is fit, or nothing is known."""
    name = {"name": table.name, "schema": table.schema}
    if connection.dialect.name == "postgresql":
        question = (
            "SELECT relkind, relpersistence FROM pg_catalog.pg_class AS c "
            "WHERE c.oid = to_regclass(concat_ws('.', quote_ident(cast(:schema AS text)), quote_ident(:name)))"
        )
        kind, persistence = connection.execute(text(question), name).one()
        if kind == _FOREIGN:
            return "a foreign table"
        return "" if persistence == _DURABLE else "unlogged or temporary, so a crash empties it"
    if connection.dialect.name in {"mysql", "mariadb"}:
        question = (
            "SELECT t.engine, e.transactions FROM information_schema.tables AS t "
            "JOIN information_schema.engines AS e ON e.engine = t.engine "
            "WHERE t.table_name = :name AND t.table_schema = coalesce(:schema, database())"
        )
        found = connection.execute(text(question), name).first()
        if found is not None and found[1] != "YES":
            return f"of the storage engine {found[0]}, which has no transactions"
    return ""
