"""A consumer for loops of one's own, whose blocks are transactions of a database."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, Engine

from eos_client.clients import EosConsumer, EosProducer
from eos_client.confluent.client_library import CONFLUENT_KAFKA
from eos_client.confluent.positions.clients import PositionedClients
from eos_client.core.commit_gate import CommitGate, GateSettings
from eos_client.core.model import Outcome, ProducerLimits
from eos_client.errors import (
    AbortableError,
    ClusterUnavailableError,
    ConfigurationError,
    TransactionStateError,
    UnknownOutcomeError,
)
from eos_client.integration.sql.database_loop import DEFAULT_OFFSETS_TABLE, fault_of_database, owner_name
from eos_client.integration.sql.sql_store import SqlPositionStore
from eos_client.observe import Counters, EventHook, log_event
from eos_client.ports import ClientLibrary

if TYPE_CHECKING:
    from typing_extensions import Self

_PAUSE_MIN_S, _PAUSE_MAX_S = 0.02, 1.0
_UNANSWERED = (
    "the COMMIT of a block without records was not answered: what the block has written by itself is there or not, and "
    "no position shows which"
)


class DatabaseConsumer:
    """Consumes records whose positions are rows of a database, which `database_transaction` commits with yours.

    ``config``: confluent_kafka's settings of a consumer. ``offsets_table`` and where partitions begin: as in
    DatabaseLoop. One thread uses it. Raises ConfigurationError as EosConsumer and DatabaseLoop do.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        *,
        engine: Engine,
        offsets_table: str = DEFAULT_OFFSETS_TABLE,
        gate: GateSettings | None = None,
        limits: ProducerLimits | None = None,
        hook: EventHook = log_event,
        clients: ClientLibrary = CONFLUENT_KAFKA,
    ) -> None:
        if not config.get("group.id"):
            raise ConfigurationError('"group.id" is missing. Set it to the name that all workers of a job share.')
        store = SqlPositionStore(engine, str(config["group.id"]), offsets_table)
        self._clients = PositionedClients(store, owner_name(), clients)
        self.counters = Counters()
        self.limits = limits or ProducerLimits()
        self.clock = clock = self._clients.clock
        self._consumer = EosConsumer(
            config, gate=gate, hook=hook, counters=self.counters, factory=self._clients.consumer, clock=clock
        )
        self._producer = EosProducer(
            {"bootstrap.servers": config.get("bootstrap.servers", "")},
            limits=self.limits,
            hook=hook,
            counters=self.counters,
            generate_id=True,
            factory=self._clients.producer,
            clock=clock,
        )
        self._session = self._producer.session(self._consumer)
        self._is_ready = False

    @property
    def gate(self) -> CommitGate:
        """The commit gate of this member."""
        return self._consumer.gate

    def subscribe(
        self,
        topics: list[str],
        on_assign: Callable[[Any, list[Any]], Any] | None = None,
        on_revoke: Callable[[Any, list[Any]], Any] | None = None,
        on_lost: Callable[[Any, list[Any]], Any] | None = None,
    ) -> None:
        """Join the group; the callbacks are those of ``EosConsumer.subscribe``."""
        self._consumer.subscribe(topics, on_assign, on_revoke, on_lost)

    def database_transaction(self, max_records: int = 500, timeout_s: float = 1.0) -> DatabaseTransaction:
        """Return a ``with`` block that gives a connection inside a transaction, and records.

        At most ``max_records`` of them, none if none came within ``timeout_s`` seconds. The end of the block commits
        the rows together with the positions of the records; an exception rolls both back, and the records are consumed
        again.
        """
        return DatabaseTransaction(self, max_records, timeout_s)

    def _pause(self, seconds: float) -> None:
        self._consumer.adapter.fetching.wait_while_paused(seconds)

    def _begin(self, max_records: int, timeout_s: float) -> tuple[Connection, list[Any]]:
        records = self._consumer.consume(max_records, timeout_s)
        self._session.outputs.begin()
        return self._clients.transaction.connection, records

    def _block(self) -> Any:
        if not self._is_ready:
            self._producer.init_transactions()
            self._is_ready = True
        return self._producer.transaction(self._consumer)

    def close(self) -> None:
        """Leave the group and give the connection back; what is open is rolled back."""
        try:
            self._consumer.close()
        finally:
            self._producer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class DatabaseTransaction:
    """A ``with`` block around one transaction of the database; ``outcome`` and ``reason`` say how it ended.

    They mean what they mean in ``producer.transaction(consumer)``: COMMITTED, ABORTED, or SKIPPED where the commit gate
    holds the transaction open for the next block. Where the COMMIT of a block without records was not answered,
    ``outcome`` stays None, and nothing is raised.
    """

    def __init__(self, consumer: DatabaseConsumer, max_records: int, timeout_s: float) -> None:
        self._consumer = consumer
        self._max_records = max_records
        self._timeout_s = timeout_s
        self._block: Any = None
        self._leave: Any = None
        self._connection: Connection | None = None
        self._records: list[Any] = []
        self._is_unanswered = False

    @property
    def outcome(self) -> Outcome | None:
        """How it ended; None while it is open, or where that is not known."""
        found: Outcome | None = None if self._block is None else self._block.outcome
        return found

    @property
    def reason(self) -> str:
        """Why it ended so."""
        if self._is_unanswered:
            return _UNANSWERED
        return "not entered yet" if self._block is None else str(self._block.reason)

    def __enter__(self) -> tuple[Connection, list[Any]]:
        """Begin. Where the database does not answer, that is tried again for ``limits.recovery_timeout_s`` seconds."""
        if self._block is not None:
            raise TransactionStateError(
                "this block was entered before, and a block is one transaction: call database_transaction() for each"
            )
        clock, limit_s = self._consumer.clock, self._consumer.limits.recovery_timeout_s
        deadline, pause_s = clock() + limit_s, _PAUSE_MIN_S
        while True:
            try:
                return self._enter()
            except AbortableError as error:  # nothing was given to the application yet
                if clock() >= deadline:
                    raise ClusterUnavailableError(f"no block could begin within {limit_s:g} s: {error}") from error
            self._consumer._pause(pause_s)  # noqa: SLF001  # one part of this module
            pause_s = min(_PAUSE_MAX_S, 2 * pause_s)

    def _enter(self) -> tuple[Connection, list[Any]]:
        self._block = self._consumer._block()  # noqa: SLF001
        self._leave = self._block.__exit__  # which shows the block whether this `with` can still end it
        self._block.__enter__()
        try:
            begun = self._consumer._begin(self._max_records, self._timeout_s)  # noqa: SLF001
            self._connection, self._records = begun
        except BaseException:
            self._leave(*sys.exc_info())
            raise
        return begun

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        connection = self._connection
        if error is not None and connection is not None and (fault := fault_of_database(error, connection)):
            broken = AbortableError(f"{fault}. Its records are consumed again.")
            self._consumer._session.block.fail(broken, quietly=True)  # noqa: SLF001
            return bool(self._leave(type(broken), broken, broken.__traceback__))
        try:
            return bool(self._leave(kind, error, trace))
        except UnknownOutcomeError:
            if self._records:
                raise
            self._is_unanswered = True  # no record comes again or is missed, so an idle loop may go on
            return False
