"""The loop that writes rows: consume, hand the records to the application with a connection, commit both."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic

from sqlalchemy import Connection, Engine

from eos_client.config import EosConfig
from eos_client.confluent.client_library import CONFLUENT_KAFKA
from eos_client.confluent.positions.clients import PositionedClients
from eos_client.core.commit_gate import CommitGate
from eos_client.core.loop_health import LoopHealth
from eos_client.errors import AbortableError
from eos_client.integration.sql.database_errors import is_repeatable
from eos_client.integration.sql.sql_store import SqlPositionStore
from eos_client.loop import ExactlyOnceLoop
from eos_client.observe import Counters, EventHook, log_event
from eos_client.ports import ClientLibrary, K_co, Record, V_co

if TYPE_CHECKING:
    from typing_extensions import Self

Handler = Callable[[Connection, "list[Record[K_co, V_co]]"], object]
DEFAULT_OFFSETS_TABLE = "eos_offsets"


def owner_name() -> str:
    """Return the name under which this process claims rows, for people who read the table."""
    return f"{socket.gethostname()}/{os.getpid()}"


class DatabaseLoop(Generic[K_co, V_co]):
    """Consume records and write rows, each record exactly once, until ``stop()``, SIGTERM, SIGINT or a fatal error.

    ``handler`` gets a connection inside an open transaction and a list of records, and writes what it makes of them.
    When it returns, the rows and the positions of the records are committed together; when it raises, nothing of the
    records is, and ``config.on_error`` decides. It may run again for the same records after an abort, with a connection
    on which nothing of the first run is left, so it must have no effects elsewhere. It must not end the transaction:
    ``commit()`` and ``rollback()`` of the connection raise TransactionStateError.

    The positions stand in ``offsets_table`` (``schema.table`` where it has a schema), which is created if it is
    missing, one row for each group, topic and partition. A partition without a row begins where the group's offsets in
    Kafka are, else where ``auto.offset.reset`` says; later the group's offsets in Kafka follow behind, for tools that
    show its lag, and are never read. With ``on_error="dead_letter"``, ``config.dead_letter_topic`` names a table of the
    same database: letters are rows of the same transaction.

    ``engine``: a SQLAlchemy 2 engine. ``hook`` and ``clients``: as in ExactlyOnceLoop. Raises ConfigurationError for an
    engine that cannot keep positions.
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
        self._handler = handler
        self._keeps_rest = config.on_error != "stop" or config.retry_policy is not None
        store = SqlPositionStore(engine, config.group_id, offsets_table, config.dead_letter_topic)
        self._clients = PositionedClients(store, owner_name(), clients)
        self._loop: ExactlyOnceLoop[K_co, V_co] = ExactlyOnceLoop(
            config, topics, transform_batch=self._handle, hook=hook, clients=self._clients
        )

    def _handle(self, records: list[Any]) -> None:
        self._loop.session.outputs.begin()
        connection = self._clients.connection
        try:
            if self._keeps_rest:
                with connection.begin_nested():  # of a record that fails, nothing stays
                    self._handler(connection, records)
            else:
                self._handler(connection, records)
        except Exception as error:
            raise_if_repeatable(error, connection)
            raise

    @property
    def counters(self) -> Counters:
        """What was committed, aborted, held and failed so far."""
        return self._loop.counters

    @property
    def gate(self) -> CommitGate:
        """The commit gate; its ``counters`` show what it has cost and saved."""
        return self._loop.gate

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


def raise_if_repeatable(error: BaseException, connection: Connection) -> None:
    """Raise AbortableError where ``error`` is the database's and no record's: a lost connection, a conflict."""
    each: BaseException | None = error
    while each is not None:
        if is_repeatable(each):
            break
        each = each.__cause__ or each.__context__
    if each is not None or connection.invalidated:
        raise AbortableError(
            f"the database broke the transaction off, and its records are consumed again: {each or error}"
        ) from error
