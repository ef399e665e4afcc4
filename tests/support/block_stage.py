"""What an application of `with producer.transaction(consumer)` blocks does, on whatever cluster its stage has."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from eos_client import EosConsumer, EosProducer, Outcome
from eos_client.clients.transaction_block import Transaction
from eos_client.observe import Event
from tests.support.interception import close_the_gate
from tests.support.waiting import WAIT_S, wait_for


class BlockStage(ABC):
    """A source, a sink, and every event that the clients told; waits by ``clock`` for ``wait_s``."""

    source: str
    sink: str
    wait_s = WAIT_S
    fetch_s = 0.1

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.events: list[Event] = []
        self._clock = clock

    @abstractmethod
    def consumer(self, **settings: Any) -> EosConsumer:
        """A consumer of the stage's group."""

    def subscribed(self, *, callbacks: dict[str, Any] | None = None, **settings: Any) -> EosConsumer:
        made = self.consumer(**settings)
        made.subscribe([self.source], **(callbacks or {}))
        return made

    def wait_for(
        self, done: Callable[[], Any], *turns: Callable[[], Any], what: str = "what the test waits for"
    ) -> None:
        """Take turns until ``done``; raises TimeoutError."""
        wait_for(done, what, *turns, timeout_s=self.wait_s, clock=self._clock)

    def collect(self, consumer: Any, count: int) -> list[Any]:
        """Consume until ``count`` records have come."""
        got: list[Any] = []
        self.wait_for(
            lambda: len(got) >= count,
            lambda: got.extend(m for m in consumer.consume(count - len(got), 0.2) if m.error() is None),
            what=f"{count} records",
        )
        return got

    def copy_until(
        self, producer: EosProducer, consumer: EosConsumer, done: Callable[[], Any], *beside: Callable[[], Any]
    ) -> None:
        """Copy source to sink, block by block, until ``done``; ``beside`` runs between them."""

        def one_block() -> None:
            with producer.transaction(consumer) as txn:
                for message in consumer.consume(100, self.fetch_s):
                    txn.produce(self.sink, message.value())

        self.wait_for(done, one_block, *beside)

    def hold(self, producer: EosProducer, consumer: EosConsumer, count: int = 4) -> Transaction:
        """Copy ``count`` records in a block whose transaction the closed gate keeps open: all of it is processed."""
        with producer.transaction(consumer) as txn:
            for record in self.collect(consumer, count):
                txn.produce(self.sink, record.value())
            close_the_gate(consumer)
        assert txn.outcome is Outcome.SKIPPED
        return txn

    def named(self, name: str) -> list[Any]:
        """The events of that name, so far."""
        return [event for event in self.events if event.name == name]
