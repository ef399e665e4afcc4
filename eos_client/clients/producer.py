"""EosProducer: a drop-in for confluent_kafka's Producer that opens transactions together with a consumer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn, SupportsIndex, cast

from eos_client.clients import session_close
from eos_client.clients.transaction_block import Transaction
from eos_client.clients.transaction_session import TransactionSession
from eos_client.clock import MONOTONIC_CLOCK
from eos_client.config.client_settings import (
    check_ids_in_transactions,
    check_transaction_timeout,
    held_and_committed_s,
    merged_settings,
)
from eos_client.config.secret_settings import MaskedSettings
from eos_client.confluent.client_library import Producer, nothing_inherited
from eos_client.confluent.failures.client_failures import misplaced_call, not_to_be_copied
from eos_client.confluent.failures.producer_failures import close_begun_error, closed_error
from eos_client.confluent.producer.confluent_producer import ConfluentProducer
from eos_client.confluent.producer.output_arguments import named_arguments
from eos_client.confluent.serialisation import Serializers
from eos_client.confluent.thread_ownership import NeverBuilt, ThreadOwnership, counts_as_call, owned
from eos_client.core.commit_gate import GateSettings
from eos_client.core.model import ProducerLimits
from eos_client.core.producer_states import OffsetsCarryFence
from eos_client.observe import Counters, EventHook, log_event, safe_hook
from eos_client.ports import Clock

if TYPE_CHECKING:
    from typing_extensions import Self

    from eos_client.clients.consumer import EosConsumer

_NEVER_BUILT = NeverBuilt("Producer has been closed")


@nothing_inherited
class EosProducer(Producer):
    """Same constructor dict and methods as ``confluent_kafka.Producer``.

    Without a ``transactional.id`` it is an idempotent producer, which any thread may use, until ``init_transactions()``
    gives it a generated one; ``generate_id`` does so at once.
    ``key.serializer`` and ``value.serializer`` are those of ``confluent_kafka.SerializingProducer``; a None is written
    as null without them.
    Every transactional call has a budget (``limits``, seconds). Errors are subclasses of ``KafkaException`` named for
    what to do. After RebuildProducerError, ``init_transactions()`` builds a new handle with the same id.
    Raises ConfigurationError for settings that would break exactly-once processing.

    A block writes and ends its transaction without these methods: an override of one is called by the application only.

    Beyond confluent_kafka's methods: ``transaction``, ``close``, ``counters``, ``limits``, ``transactional_id`` and
    ``settings`` (of librdkafka, with this package's defaults). ``adapter`` and ``session`` are for this package's own
    loop.

    It is a ``confluent_kafka.Producer`` for ``isinstance`` and for type checkers; the base class is never built, and
    nothing of it is inherited.
    """

    adapter: ConfluentProducer = cast("ConfluentProducer", _NEVER_BUILT)
    _ownership: ThreadOwnership | NeverBuilt = _NEVER_BUILT
    _session: TransactionSession | None = None

    _serializers: Serializers | None = None  # also for a subclass that did not call __init__

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
        merged = merged_settings("EosProducer", config, settings)
        self._serializers = Serializers.taken_from(merged) or None
        self._counters = counters or Counters()
        if merged.get("transaction.timeout.ms") is None:  # long enough for a consumer with the usual gate
            usual_s = held_and_committed_s(GateSettings(), limits or ProducerLimits())
            shortest_timeout_s = max(shortest_timeout_s, usual_s)
        self._hook = safe_hook(hook)
        self._clock = clock
        self.adapter = ConfluentProducer(
            merged,
            limits=limits,
            counters=self._counters,
            shortest_timeout_s=shortest_timeout_s,
            generate_id=generate_id,
            hook=self._hook,
            factory=factory,
            clock=clock,
            may_look_up_partitions=lambda: self._session is not None and self._session.state.has_begun,
        )
        self._ownership = self.adapter.ownership
        self.adapter.library.start()

    def __reduce_ex__(self, _protocol: SupportsIndex) -> NoReturn:
        raise not_to_be_copied(self)

    def __del__(self) -> None:
        """End the handle of a producer that was dropped without ``close()``."""
        # Here and not in a part, which may be finalised before an application's own __del__ closes the producer.
        if not isinstance(self._ownership, NeverBuilt):
            self.adapter.library.end_dropped()

    @property
    def counters(self) -> Counters:
        """Totals of records and transactions since this producer was built."""
        return self._counters

    @property
    def limits(self) -> ProducerLimits:
        """How long transactional work may take."""
        return self.adapter.limits

    @limits.setter
    def limits(self, limits: ProducerLimits) -> None:
        self.adapter.limit_by(limits)

    @property
    def transactional_id(self) -> str:
        """The producer's stable name across restarts and rebuilds; empty until it has one."""
        return self.adapter.library.transactional_id

    @property
    def settings(self) -> Mapping[str, Any]:
        """A copy of the librdkafka settings in force, the defaults of this package included."""
        return MaskedSettings(self.adapter.library.settings)

    def transaction(self, consumer: EosConsumer) -> Transaction:
        """Return a ``with`` block: begin, then commit, hold or abort and rewind, as the gate rules.

        From this call on the consumer's offsets are committed by blocks alone, until it is closed. With
        ``auto.offset.reset=latest`` make it before the first ``poll``.

        Raises TransactionStateError while either client has open work, or an interrupted end of a block, with another
        partner. Raises it as well for a consumer whose offsets can reach the group outside blocks, because it has
        committed plainly, has a commit pending or has handed out ``consumer_group_metadata()``: build another one.
        Entering the block raises it inside another block, inside a rebalance callback, beside a transaction that
        ``begin_transaction()`` began, and for a consumer that has not subscribed: only a group's membership fences its
        offsets. Raises ConfigurationError when ``transaction.timeout.ms`` is shorter than the consumer's gate may hold
        a transaction and its commit may take, and for ids of the consumer that are not printable ASCII.
        """
        if not hasattr(consumer, "open_work"):
            raise TypeError(f"transaction() expects an EosConsumer, not {consumer!r}")
        self.session(consumer)
        return Transaction(lambda: self._session_of_block(consumer), self._ownership)

    def _session_of_block(self, consumer: EosConsumer) -> TransactionSession:
        consumer.open_work.require_group_membership()
        return self.session(consumer)

    def session(self, consumer: EosConsumer) -> TransactionSession:
        """Return the session that joins this producer with ``consumer``; one producer serves one consumer at a time.

        Raises TransactionStateError and ConfigurationError as ``transaction`` does, and ClientClosedError once
        ``close()`` has begun, even if an exception has interrupted it.
        """
        if self._session is not None and self._session.is_over:
            raise close_begun_error(self.transactional_id)
        adapter = consumer.adapter
        if self.transactional_id:  # without one there is no time-out yet
            check_transaction_timeout(self.adapter.library.settings, adapter.gate.settings, self.limits)
        self.adapter.calls.tell(OffsetsCarryFence())  # from its first transaction on, which sends them only at its end
        session = self._session
        if session is None or session.consumer is not adapter:
            check_ids_in_transactions(adapter.settings)
            if session is not None and session.has_open_work:
                raise misplaced_call(
                    f"the producer {self.transactional_id!r} has an open transaction with another consumer: end that "
                    "one first, by blocks with that consumer until the outcome is not SKIPPED"
                )
            if session is not None and session.has_unfinished_end:
                raise misplaced_call(
                    f"the end of the last block of the producer {self.transactional_id!r} was interrupted, and its own "
                    "consumer has to finish it: enter the next block with that one, or close it"
                )
            needs_resume = session is not None and session.state.needs_resume
            session = TransactionSession(
                *(adapter, self.adapter, self._serializers, self._hook, self._counters, self._clock),
                needs_resume=needs_resume,
            )
        before, self._session = self._session, consumer.open_work.join(session)
        if before is not None and before is not self._session:
            before.end_service()
        return self._session

    # -- transactions by hand ------------------------------------------------------------------------------------

    def _refuse_beside_block(self, call: str) -> None:
        if self._session is not None:
            self._session.refuse_call_by_hand(call)

    def init_transactions(self, timeout: float = -1) -> None:
        """Register the id, fencing every older instance with it; builds a new handle when this one is finished.

        A producer without an id gets a generated one, and belongs to the calling thread from now on; records that it
        has produced before are flushed first.
        Waits ``timeout`` seconds, or ``start_timeout_s`` when negative. Raises ClusterUnavailableError when no broker
        answers, ClusterUnfitError with the real reason when one does, ProducerFencedError, FatalClientError,
        TransactionStateError inside a block, and RetriableError when the earlier records are not acknowledged in time.
        What delivery callbacks raise meanwhile is raised at the end; repeating the call before the first transaction
        does nothing.
        """
        if self.adapter.calls.state.why_unusable is None:
            self._refuse_beside_block("init_transactions()")
        self.adapter.init_transactions(timeout)

    @counts_as_call
    def begin_transaction(self) -> None:
        """Begin a transaction; sends nothing. Raises TransactionStateError beside the transaction of a block."""
        self._refuse_beside_block("begin_transaction()")
        self.adapter.ownership.take_refused_write()  # refused before this transaction, so no output of it
        self.adapter.begin_transaction()

    @counts_as_call
    def send_offsets_to_transaction(  # pyright: ignore[reportIncompatibleMethodOverride]  # no keywords there, either
        self, positions: Any, group_metadata: Any, timeout: float = -1, /
    ) -> None:
        """Add input offsets, fenced by the group (KIP-447). Raises TransactionStateError beside those of a block."""
        self._refuse_beside_block("send_offsets_to_transaction()")
        self.adapter.send_offsets_to_transaction(positions, group_metadata, timeout)

    @counts_as_call
    def commit_transaction(self, timeout: float = -1) -> None:
        """Commit. Raises AbortableError, or UnknownOutcomeError when no definite answer came in time.

        Once a call has raised AbortableError in this transaction, that error is raised again and nothing is sent; so it
        is raised where a write of another thread was refused. Raises TransactionStateError beside the transaction of a
        block.
        """
        self._refuse_beside_block("commit_transaction()")
        if refused := self.adapter.ownership.take_refused_write():
            raise self.adapter.calls.must_abort(
                f"another thread has tried to write an output of this transaction, which lacks it: {refused} Call "
                "abort_transaction(), and process the records again."
            ) from refused
        self.adapter.commit_transaction(timeout)

    @counts_as_call
    def abort_transaction(self, timeout: float = -1) -> None:
        """Abort. Raises RebuildProducerError when unconfirmed in time, TransactionStateError beside a block's."""
        self._refuse_beside_block("abort_transaction()")
        self.adapter.abort_transaction(timeout)

    # -- records -------------------------------------------------------------------------------------------------

    @owned(claims=True)
    def produce(self, topic: str, *args: Any, **kwargs: Any) -> None:
        """Queue a record, inside a block as a part of its transaction.

        Raises OutputRefusedError (OutputNotSerializedError where it was a serialiser), AbortableError, BufferError when
        the local queue is full.
        """
        if self._serializers is not None:
            args, kwargs = (), self._serializers.arguments(topic, named_arguments(*args, **kwargs))
        session = self._session_in_block()
        if session is None:
            self._refuse_beside_held_work("produce()")
            self.adapter.queue(topic, *args, **kwargs)
            self._count_beside_block(1)
            return
        with session.block.failing_on_write_error:
            session.outputs.produce(topic, *args, **kwargs)

    def _refuse_beside_held_work(self, call: str) -> None:
        if self._session is not None and self._session.is_held:
            self._session.call_guard.refuse_outside_callbacks(call)

    def _count_beside_block(self, count: int) -> None:
        """Count outputs that a callback has written into the open transaction, while its block ends or is held."""
        if self._session is not None and self._session.state.has_begun:
            self._session.outputs.count(count)

    @counts_as_call
    def produce_batch(self, topic: str, messages: list[dict[str, Any]], *args: Any, **kwargs: Any) -> int:
        """Queue many records at once, inside a block as a part of its transaction.

        confluent_kafka drops their headers and timestamps. Returns how many were queued; a message that was not has a
        KafkaError as its ``_error``. Raises TypeError for what is no list of dicts, ValueError for a message with a
        ``partition``, which confluent_kafka ignores (``partition`` of the call is for all of them), and
        OutputNotSerializedError before anything is queued.
        """
        if self._serializers is None:
            return self._produce_batch(topic, messages, *args, **kwargs)
        serialized = self._serializers.messages(topic, messages)
        queued = self._produce_batch(topic, serialized, *args, **kwargs)
        for message, sent in zip(messages, serialized, strict=True):
            if "_error" in sent:
                message["_error"] = sent["_error"]
        return queued

    def _produce_batch(self, topic: str, messages: list[dict[str, Any]], *args: Any, **kwargs: Any) -> int:
        session = self._session_in_block()
        if session is None:
            self._refuse_beside_held_work("produce_batch()")
            queued = self.adapter.produce_batch(topic, messages, *args, **kwargs)
            self._count_beside_block(queued)
            return queued
        with session.block.failing_on_write_error:
            session.outputs.begin()
            queued = self.adapter.produce_batch(topic, messages, *args, **kwargs)
            session.outputs.count(queued)
            return queued

    def _session_in_block(self) -> TransactionSession | None:
        session = self._session
        if session is None:
            return None
        self.adapter.ownership.require_caller("produce")
        block = session.block
        if not block.is_open or block.is_left():
            session.resolve_left_block()
        return session if block.is_open else None

    def poll(self, timeout: float = -1) -> int:
        """Serve delivery reports; returns how many events were served."""
        return self.adapter.poll(timeout)

    def flush(self, timeout: float = -1) -> int:
        """Wait for outstanding records; returns how many are left. ``timeout`` in seconds, negative for no limit."""
        return self.adapter.flush(timeout)

    @owned()
    def purge(self, in_queue: bool = True, in_flight: bool = True, blocking: bool = True) -> None:
        """Drop records that are not acknowledged yet."""
        self.adapter.calls.require_serving()
        self.adapter.library.raw.purge(in_queue, in_flight, blocking)

    def __len__(self) -> int:
        raw = None if isinstance(self._ownership, NeverBuilt) else self.adapter.library.raw
        return 0 if raw is None else len(raw)

    def __bool__(self) -> bool:
        return True

    # -- the cluster, closing ------------------------------------------------------------------------------------

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> Any:
        """Return the cluster's metadata."""
        return self.adapter.list_topics(topic, timeout)

    @owned()
    def cluster_id(self, timeout: float = -1) -> str:
        """Return the cluster's id."""
        self.adapter.calls.require_serving()
        return str(self.adapter.library.call(lambda: self.adapter.library.raw.cluster_id(timeout)))

    @owned()
    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Replace the SASL credentials; a rebuilt handle uses them too."""
        self.adapter.calls.require_serving()
        self.adapter.library.set_sasl_credentials(username, password)

    @owned(exclusive=True)
    def close(self) -> bool:
        """Leave the handle; a transaction begun by hand is left to ``transaction.timeout.ms`` or the next init.

        A block that is open ends as ABORTED, and so does a transaction that the gate holds. A producer without an id
        first waits for outstanding records without limit, as confluent_kafka's does. At the end raises what callbacks
        of the application have raised. What ``error_cb``, ``stats_cb``, ``throttle_cb`` and ``logger`` have raised is
        reported and not raised, but for KeyboardInterrupt and SystemExit.

        Raises TransactionStateError in a callback or a signal handler that has come inside another call of this
        producer, or while a block begins or ends, and in a signal handler inside a call of the consumer of its blocks.
        """
        if isinstance(self._ownership, NeverBuilt):
            return True
        session = self._session
        if session is None:
            return self.adapter.close()
        session.call_guard.refuse_within_a_step("producer.close()")
        session.call_guard.refuse_inside_a_consumer_call("producer.close()")
        if session.block.is_open:  # first: whatever is raised from here on, the block commits nothing
            session.block.fail(closed_error(self.transactional_id), quietly=False)
        try:
            session_close.prepare_producer_close(session)
        finally:
            is_closed = self.adapter.close()
        return is_closed

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
