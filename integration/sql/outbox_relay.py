"""The relay: publishes the rows of an outbox table to Kafka, each exactly once, and in order per key."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import tenacity
from sqlalchemy import Engine, Table

from eos_client.config import EosConfig
from eos_client.confluent.admin.cluster_admin import ClusterAdmin
from eos_client.confluent.client_library import CONFLUENT_KAFKA
from eos_client.confluent.ledger.ledger_topic import LedgerTopic
from eos_client.confluent.outbox.clients import OutboxClients
from eos_client.core.commit_gate import CommitGate
from eos_client.core.loop_health import LoopHealth
from eos_client.errors import ClusterUnavailableError, ClusterUnfitError, ConfigurationError
from eos_client.integration.sql.header_texts import decode_headers
from eos_client.integration.sql.outbox_rows import SqlOutboxStore
from eos_client.integration.sql.outbox_table import named_outbox
from eos_client.integration.sql.table_checks import require_engine
from eos_client.loop import ExactlyOnceLoop
from eos_client.observe import Counters, EventHook, log_event
from eos_client.outbox_store import RowHeader
from eos_client.ports import ClientLibrary, OutputRecord, is_simulated
from eos_client.position_store import StoreError, StoreUnfitError

if TYPE_CHECKING:
    from typing_extensions import Self

DEFAULT_BUCKETS = 16
_BUCKETS_MAX = 1000
_PREPARE_AGAIN_S = 0.5
_RESET = "auto.offset.reset"
_SERIALISERS = ("key_deserializer", "value_deserializer", "key_serializer", "value_serializer")


class OutboxRelay:
    """Publish the rows of ``table``, each exactly once, until ``stop()``, SIGTERM, SIGINT or a fatal error.

    ``table``: an outbox table, as `outbox_table` describes it, or its name (``schema.table`` where it has a schema). A
    row without a topic goes to ``default_topic``. Rows of one key are published in the order in which their
    transactions committed. Published rows are deleted behind the commit; with ``keep`` they stay, and those whose
    ``seq`` is below ``published`` of the table ``<outbox>_buckets`` are published.

    Any number of relays of one ``config.group_id`` share the ``buckets`` and take over from each other; more relays
    than buckets stand by. ``buckets`` can only be changed while all numbered rows are published. The positions are the
    group's offsets of ``ledger_topic`` (``<group>-outbox``), which has a partition for each bucket and no records. A
    missing ledger topic is created on a real cluster.

    ``config.on_error`` decides on a row that cannot be published: without any topic, with headers that are no JSON, too
    large. ``config`` has no (de)serialisers: rows hold bytes. ``poll_interval_s``: how soon the relay looks for new
    rows again once it has found none. ``engine``: a SQLAlchemy 2 engine. ``hook`` and ``clients``: as in
    ExactlyOnceLoop. Raises ConfigurationError.
    """

    def __init__(  # noqa: PLR0913  # each is an option
        self,
        engine: Engine,
        table: Table | str,
        config: EosConfig[Any, Any],
        *,
        buckets: int = DEFAULT_BUCKETS,
        default_topic: str | None = None,
        keep: bool = False,
        poll_interval_s: float = 0.1,
        ledger_topic: str | None = None,
        hook: EventHook = log_event,
        clients: ClientLibrary = CONFLUENT_KAFKA,
    ) -> None:
        _check(engine, config, buckets, poll_interval_s)
        self.ledger_topic = ledger_topic or re.sub(r"[^A-Za-z0-9._-]", "-", config.group_id) + "-outbox"
        self._config = config
        self._bucket_count = buckets
        self._default_topic = default_topic
        self._store = SqlOutboxStore(
            engine,
            table if isinstance(table, Table) else named_outbox("table", table),
            config.group_id,
            buckets,
            keep=keep,
        )
        self._clients = OutboxClients(self._store, poll_interval_s=poll_interval_s, clients=clients)
        self._loop: ExactlyOnceLoop[Any, Any] = ExactlyOnceLoop(
            config, [self.ledger_topic], self._output, output_topic=default_topic, hook=hook, clients=self._clients
        )

    def _output(self, record: Any) -> OutputRecord:
        own: Mapping[str, bytes | None] = dict(record.headers())
        topic = own[RowHeader.TOPIC]
        if topic is None and self._default_topic is None:
            row_id = (own[RowHeader.ROW_ID] or b"").decode()
            raise ValueError(f"row {row_id} of the outbox names no topic, and the relay has no default_topic")
        headers = decode_headers(own[RowHeader.HEADERS])
        name = self._default_topic if topic is None else topic.decode()
        return OutputRecord(name, key=record.key(), value=record.value(), headers=headers)

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
        """Why the relay stops or has stopped; None while it runs."""
        return self._loop.stop_reason

    def health(self) -> LoopHealth:
        """Return whether the relay is live and ready; see ``ExactlyOnceLoop.health``.

        It is not ready while the database does not answer.
        """
        health = self._loop.health()
        if outage := self._clients.outage:
            return replace(health, ready=False, reasons=(*health.reasons, f"{outage[0].upper()}{outage[1:]}."))
        return health

    def run(self, *, until_end: bool = False) -> bool:
        """Work until stopped, then finish or abort what is open, leave the group and return.

        With ``until_end`` it stops by itself once all rows are published that were committed at its start, by it or by
        another relay of the group. See ``ExactlyOnceLoop.run`` for the errors. A database that does not answer at the
        start, for ``config.start_timeout_s``, is a ClusterUnavailableError; later it is waited for, as an idle loop
        waits for its cluster. Raises ClusterUnfitError where the outbox is missing, belongs to another group, or has
        another number of buckets.
        """
        try:
            self._prepare()
        except BaseException:
            self._loop.close()
            raise
        return self._loop.run(until_end=until_end)

    def _prepare(self) -> None:
        clock, limit_s = self._clients.clock, self._config.start_timeout_s
        deadline = clock() + limit_s
        retrying = tenacity.Retrying(
            sleep=clock.sleep,
            retry=tenacity.retry_if_exception_type(StoreError) & tenacity.retry_if_not_exception_type(StoreUnfitError),
            stop=lambda _: clock() >= deadline,
            wait=tenacity.wait_fixed(_PREPARE_AGAIN_S),
            reraise=True,
        )
        try:
            retrying(self._store.prepare)
        except StoreUnfitError as error:
            raise ClusterUnfitError(f"{error}.") from error
        except StoreError as error:
            raise ClusterUnavailableError(f"{error}; it was tried for {limit_s:g} s. Nothing was published.") from error
        if not is_simulated(clock):
            with ClusterAdmin(self._config.kafka["bootstrap.servers"], self._config.kafka, timeout_s=limit_s) as admin:
                LedgerTopic(admin, self.ledger_topic).ensure_partitions(self._bucket_count)

    def stop(self, reason: str = "stop() was called") -> None:
        """Ask the relay to stop; returns at once and may be called from any thread or a signal handler."""
        self._loop.stop(reason)

    def close(self) -> None:
        """Leave the group and release the clients. Open work is aborted first."""
        self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _check(engine: Engine, config: EosConfig[Any, Any], buckets: int, poll_interval_s: float) -> None:
    require_engine(engine)
    if not isinstance(buckets, int) or not 1 <= buckets <= _BUCKETS_MAX:
        raise ConfigurationError(f"buckets={buckets!r} must be a whole number from 1 to {_BUCKETS_MAX}.")
    if not poll_interval_s > 0:
        raise ConfigurationError(f"poll_interval_s={poll_interval_s!r} must be greater than 0.")
    if (reset := str(config.consumer_config()[_RESET])) != "earliest":
        raise ConfigurationError(f'"{_RESET}": {reset!r} would pass rows over. A relay has "earliest", the default.')
    if given := [name for name in _SERIALISERS if getattr(config, name) is not None]:
        raise ConfigurationError(
            f"{given[0]} is of no use to a relay: the rows hold bytes. Serialise what is written into the outbox."
        )
