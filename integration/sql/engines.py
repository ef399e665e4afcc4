"""Engines of databases that a command names by their URL."""

from __future__ import annotations

from sqlalchemy import Engine, Table, create_engine
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError

from eos_client.errors import ClusterUnavailableError, ConfigurationError
from eos_client.integration.sql.outbox_table import create_outbox, named_outbox

__all__ = ["Engine", "engine_at", "outbox_at"]


def engine_at(url: str) -> Engine:
    """Return the engine of the database at ``url``; raises ConfigurationError for what is no URL of one."""
    try:
        return create_engine(url)
    except (ArgumentError, NoSuchModuleError) as error:
        raise ConfigurationError(
            "this is no URL of a database that SQLAlchemy knows, such as postgresql+psycopg://user@host/orders"
        ) from error
    except ModuleNotFoundError as error:
        raise ConfigurationError(f"the driver of the database is not installed: pip install {error.name}") from error


def outbox_at(engine: Engine, name: str, *, create: bool) -> Table:
    """Return the outbox table ``name``, with ``create`` also made; raises ClusterUnavailableError if it cannot be."""
    table = named_outbox("--outbox", name)
    if create:
        try:
            create_outbox(engine, table)
        except SQLAlchemyError as error:
            raise ClusterUnavailableError(f"the outbox {name} cannot be created: {error}") from error
    return table
