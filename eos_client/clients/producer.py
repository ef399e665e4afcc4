"""EosProducer: a drop-in for confluent_kafka's Producer that opens transactions together with a consumer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from eos_client.clients.settings import merged_settings
from eos_client.clients.transaction import TransactionSession
from eos_client.clients.transaction_block import Transaction
from eos_client.clock import MONOTONIC_CLOCK
from eos_client.config import check_ids_in_transactions, check_transaction_timeout
from eos_client.confluent.failures import closed_error, misplaced_call
from eos_client.confluent.producer.confluent_producer import ConfluentProducer
from eos_client.confluent.thread_ownership import owned, whole_call
from eos_client.core.commit_gate import GateSettings
from eos_client.core.model import ProducerLimits
from eos_client.observe import Counters, EventHook, log_event
from eos_client.ports import Clock

if TYPE_CHECKING:
    from eos_client.clients.consumer import EosConsumer

_TIMEOUT = "transaction.timeout.ms"


class EosProducer(ConfluentProducer):
    """Same constructor dict and methods as ``confluent_kafka.Producer``.

    Without a ``transactional.id`` it is an idempotent producer, which any thread may use, until ``init_transactions()``
    gives it a generated one; ``generate_id`` does so at once.
    Every transactional call has a budget (``limits``, seconds). Errors are subclasses of ``KafkaException`` named for
    what to do. After RebuildProducerError, ``init_transactions()`` builds a new handle with the same id.
    Raises ConfigurationError for settings that would break exactly-once processing.
    """

    _session: TransactionSession | None = None

    def __init__(
        self,
        config: Mapping[str, Any] | None = None,
        /,
        *,
        limits: ProducerLimits | None = None,
        hook: EventHook = log_event,
        counters: Counters | None = None,
        shortest_timeout_s: float = 0.0,
        generate_id: bool = False,
        factory: Callable[[dict[str, Any]], Any] | None = None,
        clock: Clock = MONOTONIC_CLOCK,
        **settings: Any,
    ) -> None:
        chosen: dict[str, Any] = {} if factory is None else {"factory": factory}
        merged = merged_settings("EosProducer", config, settings)
        if merged.get(_TIMEOUT) is None:  # long enough for a consumer with the usual gate
            usual_s = GateSettings().hold_limit_s + (limits or ProducerLimits()).commit_timeout_s
            shortest_timeout_s = max(shortest_timeout_s, usual_s)
        super().__init__(
            merged,
            limits=limits,
            hook=hook,
            counters=counters,
            shortest_timeout_s=shortest_timeout_s,
            generate_id=generate_id,
            clock=clock,
            **chosen,
        )

    def transaction(self, consumer: EosConsumer) -> Transaction:
        """Return a ``with`` block: begin, then commit, hold or abort and rewind, as the gate rules.

        Raises TransactionStateError while either client has open work with another one. Entering the block raises it
        inside another block, inside a rebalance callback, beside a transaction that ``begin_transaction()`` began, and
        for a consumer that has not subscribed: only a group's membership fences its offsets. Raises ConfigurationError
        when ``transaction.timeout.ms`` is shorter than the consumer's gate may hold a transaction and its commit may
        take, and for ids of the consumer that are not printable ASCII.
        """
        if not hasattr(consumer, "open_work"):
            raise TypeError(f"transaction() expects an EosConsumer, not {consumer!r}")
        self.session(consumer)
        return Transaction(lambda: self._session_of_block(consumer))

    def _session_of_block(self, consumer: EosConsumer) -> TransactionSession:
        consumer.open_work.require_group_membership()
        return self.session(consumer)

    def session(self, consumer: EosConsumer) -> TransactionSession:
        """Return the session that joins this producer with ``consumer``; one producer serves one consumer at a time.

        Raises TransactionStateError while either has open work with another one, ConfigurationError as ``transaction``
        does.
        """
        member = consumer.member
        if self.transactional_id:  # without one there is no time-out yet
            check_transaction_timeout(
                self.transaction_timeout_s,
                hold_limit_s=member.gate.settings.hold_limit_s,
                commit_timeout_s=self.limits.commit_timeout_s,
            )
        self._group_fenced = True  # from its first transaction on, whose offsets are sent only at the end
        session = self._session
        if session is None or not session.joins(member):
            check_ids_in_transactions(member.settings)
            if session is not None and session.has_open_work:
                raise misplaced_call(
                    f"the producer {self.transactional_id!r} has an open transaction with another consumer: end that "
                    "one first, by blocks with that consumer until the outcome is not SKIPPED"
                )
            session = TransactionSession(
                member,
                self,
                hook=self._hook,
                counters=self.counters,
                clock=self._clock,
                handle_in_doubt=session is not None and session.handle_in_doubt,
            )
        self._session = consumer.open_work.join(session)
        return self._session

    # -- what the application itself calls -----------------------------------------------------------------------

    def _refuse_beside_block(self, call: str) -> None:
        if self._session is not None:
            self._session.refuse_beside(call)

    def init_transactions(self, timeout: float = -1) -> None:
        """Register the id; see ``ProducerHandle.init_transactions``. Raises TransactionStateError inside a block."""
        if self._finished is None:
            self._refuse_beside_block("init_transactions()")
        super().init_transactions(timeout)

    @whole_call
    def begin_transaction(self) -> None:
        """Begin a transaction; sends nothing. Raises TransactionStateError beside the transaction of a block."""
        self._refuse_beside_block("begin_transaction()")
        super().begin_transaction()

    @whole_call
    def send_offsets_to_transaction(self, positions: Any, group_metadata: Any, timeout: float = -1, /) -> None:
        """Add input offsets, fenced by the group (KIP-447). Raises TransactionStateError beside those of a block."""
        self._refuse_beside_block("send_offsets_to_transaction()")
        super().send_offsets_to_transaction(positions, group_metadata, timeout)

    @whole_call
    def commit_transaction(self, timeout: float = -1) -> None:
        """Commit; see ``ConfluentProducer``. Raises TransactionStateError beside the transaction of a block."""
        self._refuse_beside_block("commit_transaction()")
        super().commit_transaction(timeout)

    @whole_call
    def abort_transaction(self, timeout: float = -1) -> None:
        """Abort; see ``ConfluentProducer``. Raises TransactionStateError beside the transaction of a block."""
        self._refuse_beside_block("abort_transaction()")
        super().abort_transaction(timeout)

    @whole_call
    def produce(self, topic: str, *args: Any, **kwargs: Any) -> None:
        """Queue a record, inside a block as a part of its transaction.

        Raises OutputRefusedError, AbortableError, BufferError when the local queue is full.
        """
        session = self._session_in_block()
        if session is None:
            super().produce(topic, *args, **kwargs)
            return
        with session.block.writing():
            session.begin()
            super().produce(topic, *args, **kwargs)
            session.wrote(1)

    @whole_call
    def produce_batch(self, topic: str, messages: list[dict[str, Any]], *args: Any, **kwargs: Any) -> int:
        """Queue many records at once, inside a block as a part of its transaction."""
        session = self._session_in_block()
        if session is None:
            return super().produce_batch(topic, messages, *args, **kwargs)
        with session.block.writing():
            session.begin()
            queued = super().produce_batch(topic, messages, *args, **kwargs)
            session.wrote(queued)
            return queued

    def _session_in_block(self) -> TransactionSession | None:
        session = self._session
        if session is None:
            return None
        block = session.block
        if not block.is_open or block.is_left():
            session.conclude_block()
        return session if block.is_open else None

    @owned(alone=True)
    def close(self) -> bool:
        """Leave the handle; see ``ConfluentProducer.close``. A block that is open ends as ABORTED.

        Raises TransactionStateError in a callback or a signal handler that has come inside another call of this
        producer, or while a block begins or ends.
        """
        session = self._session
        if session is not None:
            session.refuse_within_a_step("producer.close()")
            session.producer_closes()
            if session.block.is_open:
                session.block.fail(closed_error(self.transactional_id), quietly=False)
        return super().close()
