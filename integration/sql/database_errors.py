"""Names what a database has raised: refused for certain, or without an answer."""

from __future__ import annotations

from sqlalchemy import exc

from eos_client.position_store import StoreError, StoreRefusedError, StoreUnavailableError, StoreUnfitError

_LOST = ("08", "57P", "HYT00", "HYT01", "58")
"""Classes of SQLSTATE: connection exceptions, operator intervention, time-outs of a driver, system errors."""
_UNFIT = ("42", "28", "3D", "3F")
"""Classes of SQLSTATE: syntax error or access rule violation, invalid authorisation, catalog or schema name."""
_REPEATABLE_CODES = frozenset({"40001", "40P01", "55P03", "1213", "1205"})
"""Serialisation failure, deadlock, lock not available: of SQLSTATE, and MySQL's numbers."""
_MYSQL_LOST = frozenset({"2006", "2013", "2055", "1053", "4031"})
"""MySQL's numbers: server has gone away, lost connection, shutdown in progress, disconnected by the server."""


def code_of(error: BaseException) -> str:
    """Return the SQLSTATE of a driver's error, or its number; empty where it has none."""
    raised = error.orig if isinstance(error, exc.DBAPIError) else error
    for name in ("sqlstate", "pgcode", "sqlite_errorname"):
        if found := getattr(raised, name, None):
            return str(found)
    arguments = getattr(raised, "args", ())
    return str(arguments[0]) if arguments and isinstance(arguments[0], int) else ""


def is_lost(error: BaseException) -> bool:
    """Whether the connection was lost, or never made: nothing is known of what it was asked for."""
    if isinstance(error, (exc.TimeoutError, exc.DisconnectionError, ConnectionError, TimeoutError)):
        return True
    if not isinstance(error, exc.DBAPIError):
        return False
    code = code_of(error)
    if error.connection_invalidated or code.startswith(_LOST) or code in _MYSQL_LOST:
        return True
    # Drivers raise OperationalError without a code where no server answers.
    return isinstance(error, exc.OperationalError) and not code


def is_repeatable(error: BaseException) -> bool:
    """Whether the same work may succeed once it is done again: a lost connection, a deadlock, a conflict."""
    return is_lost(error) or code_of(error) in _REPEATABLE_CODES or code_of(error).startswith("SQLITE_BUSY")


def store_error(error: Exception, what: str) -> StoreError:
    """Return the StoreError for what the database has raised while ``what`` was done."""
    raised = error.orig if isinstance(error, exc.DBAPIError) and error.orig is not None else error
    text = f"{what}: {type(raised).__name__}: {raised}".strip()
    if is_lost(error):
        return StoreUnavailableError(text)
    if isinstance(error, (exc.NoSuchModuleError, exc.ArgumentError, exc.NoSuchTableError)) or (
        code_of(error).startswith(_UNFIT) and not is_repeatable(error)
    ):
        return StoreUnfitError(text)
    return StoreRefusedError(text)
