"""An SQLite driver whose connections break: at a chosen statement, or at random ones."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from pathlib import Path
from random import Random
from typing import Any

from sqlalchemy import Engine, create_engine

BUSY_TIMEOUT_S = 0.01


class Fault(Enum):
    """What becomes of a statement."""

    LOST = "the connection is lost, and the statement has no effect"
    LOST_AFTER = "the connection is lost once the statement has taken effect"
    BUSY = "the statement is refused, and the transaction stays open"
    DEADLOCK = "the database rolls the transaction back, and the connection stays usable"
    SERIALISATION = "the statement is refused: could not serialize access"


class Statement(Enum):
    """Which statement it is."""

    CONNECT = "connect"
    BEGIN = "BEGIN"
    SAVEPOINT = "SAVEPOINT"
    RELEASE = "RELEASE"
    READ = "SELECT"
    MOVE = "UPDATE"
    ROW = "INSERT INTO rows"
    INSERT = "INSERT"
    COMMIT = "COMMIT"
    ROLLBACK = "ROLLBACK"
    OTHER = ""


def statement_of(sql: str) -> Statement:
    return next(each for each in Statement if sql.lstrip().upper().startswith(each.value.upper()))


Plan = Callable[[Statement], "Fault | None"]


class Driver:
    """Makes connections that ask ``plan`` before each statement; ``statements`` are those that were asked for."""

    def __init__(self) -> None:
        self.plan: Plan = lambda _: None
        self.statements: list[Statement] = []
        self.struck: list[tuple[Statement, Fault]] = []
        self.is_down = False
        self._made: list[sqlite3.Connection] = []

    def die(self) -> None:
        """End every connection, as those of a process that is killed."""
        self.is_down = True
        for each in self._made:
            with suppress(sqlite3.ProgrammingError):  # it was closed before
                sqlite3.Connection.rollback(each)
            each.close()

    def connect(self, path: Path) -> sqlite3.Connection:
        if self._ask(Statement.CONNECT) is not None or self.is_down:
            raise error("unable to connect to server", "08001")
        connect: Any = sqlite3.connect
        made: sqlite3.Connection = connect(
            path, timeout=BUSY_TIMEOUT_S, check_same_thread=False, factory=lambda *a, **k: _Connection(self, *a, **k)
        )
        for setting in ("synchronous = off", "journal_mode = memory"):
            sqlite3.Connection.execute(made, f"pragma {setting}").close()
        self._made.append(made)
        return made

    def _ask(self, statement: Statement) -> Fault | None:
        if self.is_down:
            return Fault.LOST
        self.statements.append(statement)
        if (fault := self.plan(statement)) is not None:
            self.struck.append((statement, fault))
        return fault

    def performing(self, connection: _Connection, statement: Statement, perform: Callable[[], Any]) -> Any:
        fault = self._ask(statement)
        if fault is None:
            return perform()
        if fault is Fault.LOST_AFTER and isinstance(made := perform(), sqlite3.Cursor):
            made.close()  # or it keeps its lock
        if fault in {Fault.LOST, Fault.LOST_AFTER}:
            sqlite3.Connection.rollback(connection)  # close() alone keeps the lock until its cursors are gone
            connection.close()
            raise sqlite3.ProgrammingError("Cannot operate on a closed database.")
        if fault is Fault.BUSY:
            raise error("database is locked", "55P03")
        sqlite3.Connection.rollback(connection)
        raise error("deadlock detected", "40P01" if fault is Fault.DEADLOCK else "40001")

    def engine(self, path: Path, **options: Any) -> Engine:
        return create_engine(f"sqlite:///{path}", creator=lambda: self.connect(path), **options)


def error(text: str, sqlstate: str) -> Any:
    made: Any = sqlite3.OperationalError(text)
    made.sqlstate = sqlstate
    return made


class _Connection(sqlite3.Connection):
    def __init__(self, driver: Driver, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.driver = driver

    def cursor(self, *_: Any) -> Any:
        return super().cursor(_Cursor)

    def commit(self) -> None:
        self.driver.performing(self, Statement.COMMIT, super().commit)

    def rollback(self) -> None:
        self.driver.performing(self, Statement.ROLLBACK, super().rollback)


class _Cursor(sqlite3.Cursor):
    def execute(self, sql: str, *parameters: Any) -> Any:
        connection: Any = self.connection
        return connection.driver.performing(
            connection, statement_of(sql), lambda: super(_Cursor, self).execute(sql, *parameters)
        )

    def executemany(self, sql: str, *parameters: Any) -> Any:
        connection: Any = self.connection
        return connection.driver.performing(
            connection, statement_of(sql), lambda: super(_Cursor, self).executemany(sql, *parameters)
        )


def at(number: int, fault: Fault) -> Plan:
    """Strike the ``number``-th statement from now."""
    left = [number]

    def plan(_: Statement) -> Fault | None:
        left[0] -= 1
        return fault if left[0] == 0 else None

    return plan


def first(statement: Statement, fault: Fault, times: int = 1, after: int = 0) -> Plan:
    """Strike the first ``times`` statements of a kind, once ``after`` of them have passed."""
    seen = [0]

    def plan(asked: Statement) -> Fault | None:
        if asked is not statement:
            return None
        seen[0] += 1
        return fault if after < seen[0] <= after + times else None

    return plan


def at_random(random: Random, chance: float) -> Plan:
    """Strike each statement with this ``chance``."""
    return lambda _: random.choice(list(Fault)) if random.random() < chance else None
