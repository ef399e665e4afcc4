"""The loop that writes rows: consume, hand the records to the application with a connection, commit both."""

from __future__ import annotations

import inspect
import os
import socket
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic

from sqlalchemy import Connection, Engine

from eos_client.config import EosConfig
from eos_client.confluent.client_library import CONFLUENT_KAFKA
from eos_client.confluent.positions.clients import PositionedClients
from eos_client.confluent.serialisation import DeserializedRecord, Messages
from eos_client.core.commit_gate import CommitGate
from eos_client.core.loop_health import LoopHealth
from eos_client.errors import ConfigurationError
from eos_client.integration.sql.database_errors import is_databases_fault, text_of
from eos_client.integration.sql.sql_store import MISUSED, SqlPositionStore
from eos_client.loop import ExactlyOnceLoop
from eos_client.loop.record_failures import TransactionBrokenError
from eos_client.loop.record_outputs import WithinTransaction
from eos_client.loop.transform_results import TransformUnfitError
from eos_client.observe import Counters, EventHook, log_event
from eos_client.ports import ClientLibrary, K_co, Record, V_co

if TYPE_CHECKING:
    from typing_extensions import Self

Handler = (
    Callable[[Connection, "list[Record[K_co, V_co]]"], object]
    | Callable[[Connection, "list[DeserializedRecord[K_co, V_co]]"], object]
    | Callable[[Connection, Messages], object]
)
"""What writes rows of a list of records, named by any of their types: for type checkers, lists are invariant."""
DEFAULT_OFFSETS_TABLE = "eos_offsets"
_OF_UNFINISHED = ("__await__", "__next__", "__anext__")


def owner_name() -> str:
    """Return the name under which this process claims rows, for people who read the table."""
    return f"{socket.gethostname()}/{os.getpid()}"


class DatabaseLoop(Generic[K_co, V_co]):
    """Consume records and write rows, each record exactly once, until ``stop()``, SIGTERM, SIGINT or a fatal error.

    ``handler`` gets a connection inside an open transaction and a list of records, and writes what it makes of
    them. When it returns, the rows and the positions of the records are committed together; when it raises, nothing
    of the records is, and ``config.on_error`` decides. It may run again for the same records after an abort, with a
    connection on which nothing of the first run is left, so it must have no effects elsewhere. It must not end the
    transaction: ``commit()`` and ``rollback()`` of the connection raise TransactionStateError, and whatever ends it
    by SQL ends the loop with a ConfigurationError or a TransactionStateError. An error of the database must leave
    the handler, which then gets the records again.

    The positions stand in ``offsets_table`` (``schema.table`` where it has a schema), which is created if it is
    missing, one row for each group, topic and partition. A partition without a row begins where the group's offsets in
    Kafka are, else where ``auto.offset.reset`` says; later the group's offsets in Kafka follow behind, for tools that
    show its lag, and are never read. With ``on_error="dead_letter"``, ``config.dead_letter_topic`` names a table of the
    same database: letters are rows of the same transaction.

    ``engine``: a SQLAlchemy 2 engine. ``hook`` and ``clients``: as in ExactlyOnceLoop. Raises ConfigurationError for an
    engine that cannot keep positions, a handler that cannot be called with a connection and records, and a config with
    settings of a producer.
    """

    def __init__(
        self,
        config: EosConfig[K_co, V_co],
        topics: Sequence[str],
        handler: Handler[K_co, V_co],
        *,
        engine: Engine,
        offsets_table: str = DEFAULT_OFFSETS_TABLE,
        hook: EventHook = log_event,
        clients: ClientLibrary = CONFLUENT_KAFKA,
    ) -> None:
        _check_config(config)
        _check_handler(handler)
        self._handler = handler
        self._keeps_rest = config.on_error != "stop" or config.retry_policy is not None
        store = SqlPositionStore(engine, config.group_id, offsets_table, config.dead_letter_topic)
        self._clients = PositionedClients(store, owner_name(), clients)
        self._loop: ExactlyOnceLoop[K_co, V_co] = ExactlyOnceLoop(
            config, topics, transform_batch=WithinTransaction(self._handle), hook=hook, clients=self._clients
        )

    def _handle(self, records: list[Any]) -> None:
        transaction = self._clients.transaction
        connection: Connection = transaction.connection
        try:
            if self._keeps_rest:
                with connection.begin_nested():  # of a record that fails, nothing stays
                    made = self._handler(connection, records)
            else:
                made = self._handler(connection, records)
        except Exception as error:
            self._keeps_rest = True  # the batch is halved, after an abort, to find the record that fails
            if fault := fault_of_database(error, connection):
                raise TransactionBrokenError(f"{fault}. Its records are consumed again.") from error
            if transaction.was_ended or transaction.was_ended_by_statement():
                raise HandlerUnfitError(f"{MISUSED}.") from error
            raise
        if transaction.was_ended:
            raise HandlerUnfitError(f"{MISUSED}.")
        if any(hasattr(made, name) for name in _OF_UNFINISHED):
            raise HandlerUnfitError(
                f"the handler has returned a {type(made).__name__} and not run to its end: make it a plain function, "
                "without async and without yield."
            )

    @property
    def counters(self) -> Counters:
        """What was committed, aborted, held and failed so far."""
        return self._loop.counters

    @property
    def gate(self) -> CommitGate:
        """The commit gate; its ``counters`` show what it has cost and saved."""
        return self._loop.gate

    @property
    def stop_reason(self) -> str | None:
        """As that of ExactlyOnceLoop."""
        return self._loop.stop_reason

    def health(self) -> LoopHealth:
        """Return whether the loop is live and ready; see ``ExactlyOnceLoop.health``."""
        return self._loop.health()

    def run(self, *, until_end: bool = False) -> bool:
        """Work until stopped, then finish or abort what is open, leave the group and return.

        See ``ExactlyOnceLoop.run`` for ``until_end`` and the errors. A database that does not answer for
        ``config.recovery_timeout_s`` ends the loop with an error.
        """
        return self._loop.run(until_end=until_end)

    def stop(self, reason: str = "stop() was called") -> None:
        """Ask the loop to stop; returns at once and may be called from any thread or a signal handler."""
        self._loop.stop(reason)

    def close(self) -> None:
        """Leave the group and release the clients and the connection. Open work is rolled back first."""
        self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class HandlerUnfitError(TransformUnfitError):
    """The handler cannot be used as it is, which is no failure of a record."""


def fault_of_database(error: BaseException, connection: Connection) -> str:
    """Return what the database has failed with, where that and no record is behind ``error``; else nothing."""
    each: BaseException | None = error
    while each is not None and not is_databases_fault(each):
        each = each.__cause__ or each.__context__
    if each is None and not connection.invalidated:
        return ""
    return text_of(each or error, "the database has broken the transaction off")


def _check_config(config: EosConfig[Any, Any]) -> None:
    meant_for_outputs = {
        "producer": config.producer,
        "transactional_id": config.transactional_id,
        "key_serializer": config.key_serializer,
        "value_serializer": config.value_serializer,
    }
    if given := [name for name, value in meant_for_outputs.items() if value]:
        raise ConfigurationError(
            f"{', '.join(given)} of the config: a DatabaseLoop has no producer, its rows and dead letters are written "
            "on the engine's connections. Leave that out."
        )


def _check_handler(handler: object) -> None:
    if not callable(handler):
        raise ConfigurationError(f"handler={handler!r} is a {type(handler).__name__}, not a function.")
    called = getattr(handler, "func", handler)
    if inspect.iscoroutinefunction(called) or inspect.isgeneratorfunction(called) or inspect.isasyncgenfunction(called):
        raise ConfigurationError(
            f"handler={handler!r} is async, or has a yield: it would return before it runs. Make it a plain function."
        )
    try:
        signature = inspect.signature(handler, follow_wrapped=False)
    except ValueError:  # some builtins have none: let the call show
        return
    try:
        signature.bind(object(), object())
    except TypeError as error:
        raise ConfigurationError(
            f"handler={handler!r}{signature} cannot be called with a connection and a list of records: {error}."
        ) from error
