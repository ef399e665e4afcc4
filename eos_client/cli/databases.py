"""Connects the commands to the databases of applications; needs the extra ``[sql]``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eos_client.cli.failures import CommandLineError, extra_needed
from eos_client.errors import ConfigurationError

if TYPE_CHECKING:
    from eos_client.integration.sql.engines import Engine


def database_engine(url: str, need: str) -> Engine:
    """Return the engine of the database at ``url``, as SQLAlchemy takes it. ``need``: who needs SQLAlchemy.

    :raises ExtraMissingError: SQLAlchemy or the database's driver is not installed.
    :raises CommandLineError: the URL is none.
    """
    with extra_needed("sql", "sqlalchemy", need):
        from eos_client.integration.sql.engines import engine_at  # noqa: PLC0415  the extra may be missing
    try:
        return engine_at(url)
    except ConfigurationError as error:
        raise CommandLineError(f"--database: {error}") from error
