"""Transactions of a database by SQLAlchemy, begun at once, and work that is done again after a conflict."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import tenacity
from sqlalchemy import Connection, Engine, Transaction
from sqlalchemy.exc import IntegrityError

from eos_client.integration.sql.database_errors import commit_was_refused, is_conflict, text_of
from eos_client.position_store import StoreRefusedError, StoreUnavailableError

T = TypeVar("T")

SQLITE = "sqlite"
_ATTEMPTS_MAX = 5


@contextmanager
def in_transaction(engine: Engine) -> Iterator[Connection]:
    """Return a connection inside a transaction, which is committed at the end."""
    with engine.connect() as connection, connection.begin():
        begin_at_once(connection)
        yield connection


def begin_at_once(connection: Connection) -> None:
    """Begin at once where the driver would wait for the first change; SQLite's writers queue up here.

    Nothing is done where the application's own listeners have begun already.
    """
    if connection.dialect.name == SQLITE and not getattr(connection.connection.dbapi_connection, "in_transaction", 0):
        connection.exec_driver_sql("BEGIN IMMEDIATE")


def repeated_after_conflicts(engine: Engine, work: Callable[[Connection], T]) -> T:
    """Do ``work`` in a transaction of its own, again where a conflict has broken it off.

    Raises what the driver raises.
    """
    retrying = tenacity.Retrying(
        stop=tenacity.stop_after_attempt(_ATTEMPTS_MAX),
        wait=tenacity.wait_random_exponential(multiplier=0.02, max=0.5),
        retry=tenacity.retry_if_exception(lambda error: isinstance(error, IntegrityError) or is_conflict(error)),
        reraise=True,
    )
    done: T = retrying(lambda: once(engine, work))
    return done


def commit(transaction: Transaction) -> None:
    """Commit. Raises StoreUnavailableError where it may have taken effect, StoreRefusedError where it did not."""
    try:
        transaction.commit()
    except Exception as error:
        refused = StoreRefusedError if commit_was_refused(error) else StoreUnavailableError
        raise refused(text_of(error, "COMMIT failed")) from error


def once(engine: Engine, work: Callable[[Connection], T]) -> T:
    """Do ``work`` in a transaction of its own."""
    with in_transaction(engine) as connection:
        return work(connection)
