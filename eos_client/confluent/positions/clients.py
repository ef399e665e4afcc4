"""Makes clients whose positions and transactions are a store's."""

from __future__ import annotations

from typing import Any

from eos_client.confluent.client_library import CONFLUENT_KAFKA
from eos_client.confluent.positions.claims import Claims
from eos_client.confluent.positions.consumer import PositionedConsumer
from eos_client.confluent.positions.producer import PositionedProducer
from eos_client.ports import ClientLibrary, Clock
from eos_client.position_store import PositionStore, StoreTransaction


class PositionedClients:
    """The clients of one member. Fulfils ``ClientLibrary``; ``clients`` makes the consumer that reads from Kafka."""

    def __init__(self, store: PositionStore, owner: str, clients: ClientLibrary = CONFLUENT_KAFKA) -> None:
        self._clients = clients
        self.claims = Claims(store, owner)

    @property
    def clock(self) -> Clock:
        """The clock of the consumer's library."""
        return self._clients.clock

    def consumer(self, config: dict[str, Any], /) -> Any:
        """Return a consumer whose committed offsets are the store's."""
        settings = {name: value for name, value in config.items() if name != "on_commit"}
        return PositionedConsumer(self._clients.consumer(settings), self.claims, self.clock)

    def producer(self, config: dict[str, Any], /) -> Any:
        """Return a producer whose transactions are the store's."""
        return PositionedProducer(config, self.claims)

    @property
    def transaction(self) -> StoreTransaction:
        """The open transaction, with the connection that the application writes its rows with."""
        if self.claims.transaction is None:
            raise LookupError("no transaction of the database is open")
        return self.claims.transaction
