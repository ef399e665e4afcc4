"""Makes clients that read an outbox and write to Kafka."""

from __future__ import annotations

from typing import Any

from eos_client.confluent.client_library import CONFLUENT_KAFKA
from eos_client.confluent.outbox.consumer import OutboxConsumer
from eos_client.outbox_store import OutboxStore
from eos_client.ports import ClientLibrary, Clock

_COOPERATIVE = "cooperative"


class OutboxClients:
    """The clients of one relay. Fulfils ``ClientLibrary``; ``clients`` makes those that talk to Kafka.

    ``poll_interval_s``: how long the relay waits, once it has found no new rows, before it looks again.
    """

    def __init__(self, store: OutboxStore, *, poll_interval_s: float, clients: ClientLibrary = CONFLUENT_KAFKA) -> None:
        self._store = store
        self._poll_interval_s = poll_interval_s
        self._clients = clients
        self._consumer: OutboxConsumer | None = None

    @property
    def clock(self) -> Clock:
        """The clock of the library."""
        return self._clients.clock

    @property
    def outage(self) -> str:
        """Why the outbox cannot be read; empty where it can."""
        return "" if self._consumer is None else self._consumer.outage

    def consumer(self, config: dict[str, Any], /) -> Any:
        """Return a consumer whose records are the rows of the outbox."""
        is_member_epoch = str(config.get("group.protocol", "")).lower() == "consumer"
        strategy = str(config.get("partition.assignment.strategy", ""))
        self._consumer = OutboxConsumer(
            self._clients.consumer(config),
            self._store,
            self.clock,
            is_incremental=is_member_epoch or strategy.startswith(_COOPERATIVE),
            poll_interval_s=self._poll_interval_s,
        )
        return self._consumer

    def producer(self, config: dict[str, Any], /) -> Any:
        """Return the library's producer."""
        return self._clients.producer(config)
