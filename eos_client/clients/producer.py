"""EosProducer: a drop-in for confluent_kafka's Producer that opens transactions together with a consumer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from eos_client.clients.settings import merged_settings
from eos_client.clients.transaction import TransactionSession
from eos_client.clients.transaction_block import Transaction
from eos_client.clock import MONOTONIC_CLOCK
from eos_client.confluent.producer import ConfluentProducer
from eos_client.core.model import ProducerLimits
from eos_client.observe import Counters, EventHook, log_event
from eos_client.ports import Clock

if TYPE_CHECKING:
    from eos_client.clients.consumer import EosConsumer


class EosProducer(ConfluentProducer):
    """Same constructor dict and methods as ``confluent_kafka.Producer``; ``transactional.id`` is generated if left out.

    Every transactional call has a budget (``limits``, seconds). Errors are subclasses of ``KafkaException`` named for
    what to do. After RebuildProducerError, ``init_transactions()`` builds a new handle with the same id.
    Raises ConfigurationError for settings that would break exactly-once processing.
    """

    def __init__(
        self,
        config: Mapping[str, Any] | None = None,
        /,
        *,
        limits: ProducerLimits | None = None,
        hook: EventHook = log_event,
        counters: Counters | None = None,
        shortest_timeout_s: float = 0.0,
        factory: Callable[[dict[str, Any]], Any] | None = None,
        clock: Clock = MONOTONIC_CLOCK,
        **settings: Any,
    ) -> None:
        chosen: dict[str, Any] = {} if factory is None else {"factory": factory}
        super().__init__(
            merged_settings("EosProducer", config, settings),
            limits=limits,
            hook=hook,
            counters=counters,
            shortest_timeout_s=shortest_timeout_s,
            clock=clock,
            **chosen,
        )
        self._session: TransactionSession | None = None

    def transaction(self, consumer: EosConsumer) -> Transaction:
        """Return a ``with`` block: begin, then commit, hold or abort and rewind, as the gate rules."""
        return Transaction(self.session(consumer))

    def session(self, consumer: EosConsumer) -> TransactionSession:
        """Return the session that joins this producer with ``consumer``; one producer serves one consumer."""
        self._group_fenced = True  # from its first transaction on, whose offsets are sent only at the end
        if self._session is None or not self._session.joins(consumer):
            self._session = consumer.join_transaction(
                TransactionSession(consumer, self, hook=self._hook, counters=self.counters, clock=self._clock)
            )
        return self._session
