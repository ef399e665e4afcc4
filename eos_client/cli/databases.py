"""Connects the commands to the databases of applications; needs the extra ``[sql]``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eos_client.cli.failures import CommandLineError, extra_needed

if TYPE_CHECKING:
    from sqlalchemy import Engine


def database_engine(url: str, need: str) -> Engine:
    """Return the engine of the database at ``url``, as SQLAlchemy takes it. ``need``: who needs SQLAlchemy.

    :raises ExtraMissingError: SQLAlchemy or the database's driver is not installed.
    :raises CommandLineError: the URL is none.
    """
    with extra_needed("sql", "sqlalchemy", need):
        from sqlalchemy import create_engine  # noqa: PLC0415  the extra may be missing
        from sqlalchemy.exc import ArgumentError, NoSuchModuleError  # noqa: PLC0415
    try:
        return create_engine(url)
    except (ArgumentError, NoSuchModuleError) as error:
        raise CommandLineError(
            "--database is no URL of a database that SQLAlchemy knows, such as postgresql+psycopg://user@host/orders"
        ) from error
    except ModuleNotFoundError as error:
        raise CommandLineError(f"the driver of --database is not installed: pip install {error.name}") from error
