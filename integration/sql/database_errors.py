"""Names what a database has raised: refused for certain, or without an answer; of the records, or of the database."""

from __future__ import annotations

from sqlalchemy import exc

from eos_client.position_store import StoreError, StoreRefusedError, StoreUnavailableError, StoreUnfitError

_LOST = ("08", "57P", "HYT00", "HYT01")
"""Classes of SQLSTATE: connection exceptions, operator intervention, time-outs of a driver."""
_OF_LOST = (exc.TimeoutError, exc.DisconnectionError, exc.PendingRollbackError, ConnectionError, TimeoutError)
_UNFIT = ("42", "28", "3D", "3F")
"""Classes of SQLSTATE: syntax error or access rule violation, invalid authorisation, catalog or schema name."""
_CONFLICTS = ("40001", "40P01", "55P03", "1213", "1205", "3572", "SQLITE_BUSY", "SQLITE_LOCKED")
"""Serialisation failure, deadlock, lock not available: of SQLSTATE, MySQL's numbers, SQLite's names."""
_REFUSED_COMMITS = ("40001", "40002", "40P01", "23", "1213", "SQLITE_BUSY", "SQLITE_CONSTRAINT")
"""With these a COMMIT has not taken effect: a conflict, or a constraint that is checked at the end."""
_FAULTS = (
    *("25006", "25P02", "53", "55", "57", "58"),
    *("1021", "1037", "1038", "1040", "1041", "1114", "1135", "1203", "1290", "1317", "1792", "1836", "3024", "3101"),
    *("SQLITE_IOERR", "SQLITE_FULL", "SQLITE_CANTOPEN", "SQLITE_READONLY", "SQLITE_CORRUPT", "SQLITE_NOTADB"),
    *("SQLITE_NOMEM", "SQLITE_PROTOCOL", "SQLITE_INTERRUPT"),
)
"""The server is read-only, has no room or no memory, stops, or cannot read its files: no record is to blame."""
_NO_SQLSTATE = "HY000"
"""MySQL's SQLSTATE of errors that have none: its number says more."""
_MYSQL_LOST = frozenset({"2006", "2013", "2055", "1053", "4031"})
"""MySQL's numbers: server has gone away, lost connection, shutdown in progress, disconnected by the server."""


def code_of(error: BaseException) -> str:
    """Return the SQLSTATE of a driver's error, or its number, or its name in SQLite; empty where it has none."""
    raised = error.orig if isinstance(error, exc.DBAPIError) else error
    for name in ("sqlstate", "pgcode", "sqlite_errorname"):
        if (found := getattr(raised, name, None)) and found != _NO_SQLSTATE:
            return str(found)
    if type(raised).__module__ == "sqlite3":  # before Python 3.11
        return "SQLITE_BUSY" if "locked" in str(raised) else "SQLITE_ERROR"
    arguments = getattr(raised, "args", ())
    return str(arguments[0]) if arguments and isinstance(arguments[0], int) else ""


def is_lost(error: BaseException) -> bool:
    """Whether the connection was lost, or never made: nothing is known of what it was asked for."""
    if isinstance(error, _OF_LOST):
        return True
    if not isinstance(error, exc.DBAPIError):
        return False
    code = code_of(error)
    if error.connection_invalidated or code.startswith(_LOST) or code in _MYSQL_LOST:
        return True
    # Drivers raise OperationalError without a code where no server answers.
    return isinstance(error, exc.OperationalError) and not code


def is_conflict(error: BaseException) -> bool:
    """Whether the same work may succeed once it is done again: a deadlock, a serialisation failure, a lock."""
    return code_of(error).startswith(_CONFLICTS)


def is_databases_fault(error: BaseException) -> bool:
    """Whether the transaction has failed for a reason of the database's, and not of what was written."""
    return is_lost(error) or is_conflict(error) or code_of(error).startswith(_FAULTS)


def commit_was_refused(error: BaseException) -> bool:
    """Whether a COMMIT that has raised ``error`` has not taken effect for certain."""
    return not is_lost(error) and code_of(error).startswith(_REFUSED_COMMITS)


def store_error(error: Exception, what: str) -> StoreError:
    """Return the StoreError for what the database has raised while ``what`` was done."""
    text = text_of(error, what)
    if is_lost(error):
        return StoreUnavailableError(text)
    if isinstance(error, (exc.NoSuchModuleError, exc.ArgumentError, exc.NoSuchTableError)) or (
        code_of(error).startswith(_UNFIT) and not is_conflict(error)
    ):
        return StoreUnfitError(text)
    return StoreRefusedError(text)


def text_of(error: BaseException, what: str) -> str:
    """Return ``what`` and the driver's own words, without the statement and SQLAlchemy's advice."""
    raised = error.orig if isinstance(error, exc.DBAPIError) and error.orig is not None else error
    return f"{what}: {type(raised).__name__}: {raised}".strip().rstrip(".")
