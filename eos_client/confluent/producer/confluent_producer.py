"""A transactional producer over confluent_kafka's: bounded calls, errors named for what to do, a replaceable handle.

It knows nothing of consumers or the gate. Applications hold an ``EosProducer``, which has confluent_kafka's methods;
transaction sessions and the loop hold this producer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from confluent_kafka import KafkaException, TopicPartition

from eos_client.clock import MONOTONIC_CLOCK
from eos_client.confluent.client_library import CONFLUENT_KAFKA, factory_or
from eos_client.confluent.failures.kafka_errors import kafka_error
from eos_client.confluent.failures.producer_failures import (
    OUTPUT,
    OutputWords,
    closed_error,
    larger_than_queue,
    not_transactional,
)
from eos_client.confluent.group_metadata import decode
from eos_client.confluent.last_errors import RefusedDelivery
from eos_client.confluent.producer.bounded_calls import FLUSH_SLICE_S, BoundedCalls
from eos_client.confluent.producer.library_producer import LibraryProducer, ProducerFactory
from eos_client.confluent.producer.output_arguments import (
    UNCHANGEABLE,
    as_written,
    describe_output,
    guard_call,
    guard_messages,
    is_fit,
    named_arguments,
)
from eos_client.confluent.producer.registration import Registration
from eos_client.confluent.signal_handlers import is_of_a_handler
from eos_client.confluent.thread_ownership import ThreadOwnership, owned
from eos_client.core.error_codes import PARTITION_UNKNOWN
from eos_client.core.model import WITHOUT_A_FENCE, InputPositions, ProducerLimits
from eos_client.core.producer_recovery import TransactionalRequest
from eos_client.core.producer_states import Began, CallAnswered, Ended, HandleFinished, OffsetsCarryFence, OffsetsFollow
from eos_client.errors import EosError, TransactionStateError
from eos_client.observe import ClientReported, Counters, EventHook, log_event, safe_hook
from eos_client.ports import Clock

_WORKING_SLICE_S = 0.02
_QUEUE_WAIT_S = 0.05
_ABORT_AND_CONTINUE = "Abort, rewind and go on."
_SMALLER = (
    "Where a client quota or a slow broker is the reason, smaller transactions help (of a loop: `max_records` and "
    "`batch_size`), or a longer `commit_timeout_s`"
)
_CONTENTS = 2  # of the unnamed arguments of produce(), after the topic: value and key
_BEFORE_CALLBACK = 3  # of the unnamed arguments of produce(), after the topic: value, key and partition
_TIMESTAMP = 5  # of the same


def offsets_to_send(positions: InputPositions, metadata: str) -> list[TopicPartition]:
    """Return the next offsets of ``positions``, each with ``metadata``, for ``send_offsets_to_transaction``."""
    return [
        TopicPartition(*p, at.next_offset, metadata, -1 if at.leader_epoch is None else at.leader_epoch)
        for p, at in positions.items()
    ]


def _of_group(group_metadata: Any) -> str:
    generation = decode(group_metadata)
    return "" if generation is None else f"; its offsets are of group {generation.group_id!r}"


class ConfluentProducer:
    """Begins and ends transactions and queues their records, on the handle that its parts build, bound and replace.

    Built without a handle: ``library.start()`` comes next. ``init_attempt_s``: how long one attempt of
    ``init_transactions`` takes at most before it is repeated. ``recovers_from_own_fence``: whether to recover from a
    fence that our own abandoned init may have caused, and to replace a handle that may have sent a request twice. If
    False, every fence counts as another instance's. ``words``: the texts for the refusal of an output.
    ``may_look_up_partitions``: whether ``produce`` looks up a partition that librdkafka does not know, which blocks,
    before it refuses the output; so it does in the transactions of sessions and slots.
    ``flush_share``: the share of its time limit that the last transaction waited for acknowledgements; 1.0: in vain.
    """

    def __init__(  # noqa: PLR0913  # all have names
        self,
        settings: Mapping[str, Any],
        *,
        limits: ProducerLimits | None = None,
        counters: Counters | None = None,
        shortest_timeout_s: float = 0.0,
        generate_id: bool = False,
        hook: EventHook = log_event,
        factory: ProducerFactory | None = None,
        clock: Clock = MONOTONIC_CLOCK,
        init_attempt_s: float = 1.0,
        recovers_from_own_fence: bool = True,
        words: OutputWords = OUTPUT,
        may_look_up_partitions: Callable[[], bool] = lambda: True,
    ) -> None:
        self.limits = limits or ProducerLimits()
        self._hook = safe_hook(hook)
        self._clock = clock
        self._may_look_up_partitions = may_look_up_partitions
        self.flush_share = 0.0
        self.library = LibraryProducer(
            settings, factory_or(CONFLUENT_KAFKA.producer, factory), clock, shortest_timeout_s, generate_id=generate_id
        )
        self._ownership = ThreadOwnership("EosProducer", self.library.marks, shared=not self.library.transactional_id)
        self.calls = BoundedCalls(self.library, clock, recovers_from_own_fence=recovers_from_own_fence, words=words)
        self.registration = Registration(
            self.calls, self._ownership, counters or Counters(), self._hook, init_attempt_s
        )

    @property
    def ownership(self) -> ThreadOwnership:
        """Who may call it."""
        return self._ownership

    def limit_by(self, limits: ProducerLimits) -> None:
        """Limit later calls by ``limits``."""
        self.limits = limits

    # -- the transaction ---------------------------------------------------------------------------------------------

    @owned(claims=True, exclusive=True)
    def init_transactions(self, timeout: float = -1) -> None:
        """Register the id, fencing every older instance with it; builds a new handle when this one is finished."""
        self.registration.init_transactions(timeout if timeout >= 0 else self.limits.start_timeout_s)
        self.library.callback_errors.raise_deferred()

    def rebuild(self, meanwhile: Callable[[], None] = lambda: None) -> None:
        """Replace the handle and initialise the new one, which ends the old one's transaction one way or the other.

        ``meanwhile`` is called between two attempts; what it raises interrupts this.
        """
        self.registration.rebuild(self.limits.recovery_timeout_s, meanwhile)

    def rebuild_after_lost_connection(self, meanwhile: Callable[[], None]) -> None:
        """Likewise, if the last transaction was ended by a call that ``keeps_handle``, and has lost a connection."""
        self.registration.rebuild_after_lost_connection(self.limits.recovery_timeout_s, meanwhile)

    @owned(claims=True)
    def begin_transaction(self) -> None:
        """Begin a transaction; sends nothing."""
        calls, library = self.calls, self.library
        calls.serve(0)
        calls.begin_call(TransactionalRequest.BEGIN)
        try:
            library.raw.begin_transaction()
        except EosError:  # of a signal handler: the transaction may have begun
            raise
        except KafkaException as exception:
            calls.raise_failure(TransactionalRequest.BEGIN, exception)
        if library.init.is_fresh and library.log.connections.explains_a_fence:
            library.abandoned_inits.add()
        library.init.end_freshness()
        library.log.begin_transaction()
        library.times_given.clear()
        self.flush_share = 0.0
        library.last_errors.begin_transaction()
        calls.tell(Began(self._clock()))

    @owned()
    def send_offsets_to_transaction(
        self,
        positions: Any,
        group_metadata: Any,
        timeout: float = -1,
        /,
        *,
        is_gated: bool = False,
        by_pattern_alone: Mapping[str, bool] = MappingProxyType({}),
    ) -> None:
        """Add input offsets to the transaction, fenced by the group (KIP-447).

        ``by_pattern_alone``: for each of their topics, whether only a pattern has matched it. Unless the gate has
        judged ``group_metadata``, raises AbortableError where they name no member.
        """
        if not is_gated:
            self._require_member(group_metadata)
        self._refuse_overtaken_offsets()
        self.calls.tell(OffsetsFollow(self.library.log.connections.losses, by_pattern_alone))
        limit_s = timeout if timeout >= 0 else self.limits.commit_timeout_s
        raw = self.library.raw
        self.calls.tell(OffsetsCarryFence())
        self.calls.run(
            TransactionalRequest.SEND_OFFSETS,
            lambda: raw.send_offsets_to_transaction(positions, group_metadata, limit_s),
            limit_s,
            lambda: _of_group(group_metadata),
        )
        self.calls.tell(CallAnswered())

    def _require_member(self, group_metadata: Any) -> None:
        generation = decode(group_metadata)
        # Without an open transaction the client library refuses the call, whatever the metadata are.
        if self.calls.state.is_in_transaction and generation is not None and not generation.is_active_member:
            raise self.calls.must_abort(
                f"the group metadata names no member ({generation}): {WITHOUT_A_FENCE}. Subscribe, and poll "
                "until partitions are assigned, before you read the metadata. If they were assigned already, the group "
                "has evicted this member: abort the transaction and keep polling."
            )

    def _refuse_overtaken_offsets(self) -> None:
        """Refuse more offsets after a lost connection."""
        self.calls.drain_events()
        transaction = self.calls.state.transaction
        before = None if transaction is None else transaction.losses_before_offsets
        if before is not None and self.library.log.connections.overtakes_offsets(before):
            raise self.calls.must_abort(
                f"a connection of transactional.id {self.library.transactional_id!r} was lost since this "
                "transaction's first offsets were sent: a late copy of them could take back those that follow "
                "(KAFKA-17754). Abort, rewind and go on, or send the offsets of a transaction once."
            )

    @owned()
    def commit_transaction(self, timeout: float = -1, *, keeps_handle: bool = False) -> None:
        """Commit. Raises AbortableError, or UnknownOutcomeError when no definite answer came in time.

        A handle that has lost a connection is replaced before this returns, unless the caller does that later.
        """
        self._end(TransactionalRequest.COMMIT, timeout, keeps_handle=keeps_handle)
        self.library.callback_errors.raise_deferred()

    @owned()
    def abort_transaction(self, timeout: float = -1, *, keeps_handle: bool = False) -> None:
        """Abort. Raises RebuildProducerError when the abort was not confirmed in time; handles as for a commit."""
        self._end(TransactionalRequest.ABORT, timeout, keeps_handle=keeps_handle)
        self.library.callback_errors.raise_deferred()

    def _end(self, request: TransactionalRequest, timeout: float, *, keeps_handle: bool) -> None:
        self.calls.require_usable()
        if not self.library.transactional_id:
            raise not_transactional(request)
        limit_s = timeout if timeout >= 0 else self.limits.commit_timeout_s
        if request is TransactionalRequest.COMMIT:
            if (failure := self.calls.state.transaction_failure) is not None:
                raise failure
            # Here and not inside the call, so that delivery callbacks run in the caller's thread. A session has flushed
            # already; an application that commits by hand may not have.
            began_at = self._clock()
            self.flush_outputs(max(FLUSH_SLICE_S, limit_s))
            limit_s = max(FLUSH_SLICE_S, limit_s - (self._clock() - began_at))
        ended = getattr(self.library.raw, request.value)
        self.calls.run(request, lambda: ended(limit_s), limit_s)
        if request is TransactionalRequest.COMMIT:
            self.library.abandoned_inits.record_commit()
        self.calls.tell(Ended(request))
        self.registration.block_after_lost_connection()
        if not keeps_handle:
            self.registration.rebuild_after_lost_connection(self.limits.recovery_timeout_s)

    # -- records -----------------------------------------------------------------------------------------------------

    @owned(claims=True)
    def produce(self, topic: str, *args: Any, **kwargs: Any) -> None:
        """Queue a record. Raises OutputRefusedError, AbortableError, BufferError when the local queue is full.

        With ``may_look_up_partitions``, a partition that librdkafka does not know is looked for in the cluster first.
        """
        self.queue(topic, *args, **kwargs)

    def queue(self, topic: str, *args: Any, **kwargs: Any) -> None:
        """Queue a record as ``produce`` does, for a caller that owns the producer."""
        if self.calls.state.why_unusable is not None:
            raise self.calls.state.why_unusable
        library = self.library
        if not UNCHANGEABLE.issuperset(map(type, args[:_CONTENTS])):
            args = (*map(as_written, args[:_CONTENTS]), *args[_CONTENTS:])
        if kwargs or len(args) > _BEFORE_CALLBACK:
            args, kwargs = guard_call(library.guard, args, kwargs)
            if kwargs.get("timestamp") or (len(args) > _TIMESTAMP and args[_TIMESTAMP]):
                library.times_given.add(topic)
        try:
            library.raw.produce(topic, *args, **kwargs)
        except KafkaException as exception:
            described = describe_output(topic, args, kwargs)
            is_unknown = kafka_error(exception).name() == PARTITION_UNKNOWN
            if not (is_unknown and self._queued_after_asking(topic, args, kwargs, described)):
                self.calls.raise_failure(TransactionalRequest.PRODUCE, exception, described)
        except (TypeError, ValueError, OverflowError) as error:
            if self.calls.state.is_in_transaction and is_fit(topic, args, kwargs):
                raise self.calls.must_abort(
                    f"a signal handler has interrupted produce(), and nothing shows whether the output"
                    f"{describe_output(topic, args, kwargs)} was queued. {_ABORT_AND_CONTINUE}"
                ) from error
            raise

    def _queued_after_asking(self, topic: str, args: tuple[Any, ...], kwargs: dict[str, Any], described: str) -> bool:
        """Queue an output whose partition only the cluster knows, not librdkafka; returns whether it was queued."""
        try:
            partition = named_arguments(*args, **kwargs)["partition"]
            if not self._may_look_up_partitions() or self._lacks_partition(topic, partition):
                return False
        except TransactionStateError:  # inside a callback of the client library, where nothing can be asked
            return False
        try:
            self.library.raw.produce(topic, *args, **kwargs)
        except KafkaException as exception:
            if kafka_error(exception).name() == PARTITION_UNKNOWN:
                why = f"the output{described} was not queued: the client does not know its partition yet"
                raise self.calls.must_abort(f"{why}. {_ABORT_AND_CONTINUE}") from exception
            self.calls.raise_failure(TransactionalRequest.PRODUCE, exception, described)
        return True

    def _lacks_partition(self, topic: str, partition: int) -> bool:
        """Whether the cluster has ``topic`` without ``partition``, by metadata that librdkafka then has, too.

        librdkafka asks only every ``topic.metadata.refresh.interval.ms``, 5 minutes unless it was changed. Raises
        AbortableError when no broker answers, TransactionStateError inside a callback of the client library.
        """
        limit_s = self.limits.commit_timeout_s
        try:
            known = self.list_topics(topic, limit_s).topics.get(topic)
        except KafkaException as silence:
            if isinstance(silence, EosError):
                raise
            raise self.calls.must_abort(
                f"the client does not know partition {partition} of topic {topic!r}, and no broker has said within "
                f"{limit_s:g} s whether there is one: {kafka_error(silence).str().rstrip('.')}. {_ABORT_AND_CONTINUE}"
            ) from silence
        return known is not None and known.error is None and partition not in known.partitions

    def take_refusal_reason(self) -> str:
        """Return to where and why an output of the last transaction was refused, as `take_refusal`; empty for None."""
        refused = self.take_refusal()
        return "" if refused is None else refused.reason

    def take_refusal(self) -> RefusedDelivery | None:
        """Return an output of the last transaction that was refused for good, once; None if none was.

        Also None where a repetition may succeed: the cluster has the partition, or does not answer about it, or only
        this host's clock was wrong.
        """
        refused = self.library.last_errors.take_refused_delivery()
        if refused is None or self.library.clock_is_at_fault:
            return None
        if refused.error.name() != PARTITION_UNKNOWN:
            return refused
        try:
            return refused if self._lacks_partition(refused.topic, refused.partition) else None
        except EosError:
            return None

    @property
    def raw_produce(self) -> Callable[..., None]:
        """The client library's own ``produce``, for the hot loop; what it raises is named by ``produce``."""
        self.calls.require_usable()
        unnamed: Callable[..., None] = self.library.raw.produce
        return unnamed

    def await_room(self, limit_s: float, write: Callable[..., None], *args: Any, **kwargs: Any) -> None:
        """Call ``write`` with its arguments until the local queue has room for the output.

        Raises AbortableError where there was none for ``limit_s``; the transaction lacks that output. Raises
        OutputRefusedError where the empty queue has no room for it.
        """
        deadline, raw = None, self.library.raw
        while True:
            was_empty = len(raw) == 0
            try:
                return write(*args, **kwargs)
            except BufferError as full:
                if is_of_a_handler(full):  # the output may be queued
                    raise self.calls.must_abort(
                        f"a signal handler has interrupted produce(). {_ABORT_AND_CONTINUE}"
                    ) from full
                if was_empty:
                    raise larger_than_queue() from full
                now = self._clock()
                deadline = now + limit_s if deadline is None else deadline
                if now > deadline:
                    raise self._stayed_full(f"the local queue stayed full for {limit_s:g} s") from full
            # What callbacks raise is raised later: here it would pass as a refusal of this output.
            self.calls.serve(_QUEUE_WAIT_S)

    def _stayed_full(self, what: str) -> EosError:
        return self._unacknowledged(what)

    def _unacknowledged(self, what: str) -> EosError:
        self.flush_share = 1.0
        return self.calls.must_abort(f"{what}{self.library.last_errors.clause()}. {_SMALLER}. {_ABORT_AND_CONTINUE}")

    @owned()
    def produce_batch(self, topic: str, messages: list[dict[str, Any]], *args: Any, **kwargs: Any) -> int:
        """Queue many records at once; returns how many were queued."""
        library = self.library
        guarded = guard_messages(library.guard, messages)
        arguments, options = guard_call(library.guard, args, kwargs)
        queued = int(
            self.calls.direct(
                TransactionalRequest.PRODUCE, lambda: library.raw.produce_batch(topic, guarded, *arguments, **options)
            )
        )
        for message, sent in zip(messages, guarded, strict=True):
            if sent is not message and "_error" in sent:
                message["_error"] = sent["_error"]
        return queued

    def flush_outputs(self, timeout_s: float, meanwhile: Callable[[], None] | None = None) -> None:
        """Wait until every record is acknowledged, calling ``meanwhile``; raises AbortableError after ``timeout_s``."""
        began_at = self._clock()
        unacknowledged = self._flush(timeout_s, _WORKING_SLICE_S if meanwhile else FLUSH_SLICE_S, meanwhile)
        self.flush_share += (self._clock() - began_at) / max(FLUSH_SLICE_S, timeout_s)
        if unacknowledged:
            name = self.library.transactional_id
            raise self._unacknowledged(
                f"{unacknowledged} outputs of transactional.id {name!r} were not acknowledged within {timeout_s:g} s"
            )

    @owned(exclusive=True, allow_in_callbacks=True)
    def flush(self, timeout: float = -1) -> int:
        """Wait for outstanding records; returns how many are left."""
        unacknowledged = self._flush(timeout, until_raised=True)
        self.library.callback_errors.raise_deferred()
        return unacknowledged

    @owned()
    def _flush(
        self,
        timeout: float,
        longest_s: float = FLUSH_SLICE_S,
        meanwhile: Callable[[], None] | None = None,
        *,
        until_raised: bool = False,
    ) -> int:
        def check_and_stop() -> bool:
            self._refuse_implicit_acks()
            return until_raised and self.library.guard.error is not None

        return self.calls.flush(timeout, longest_s, check_and_stop, meanwhile)

    def _refuse_implicit_acks(self) -> None:
        self.calls.serve(0)  # the client library's log
        library = self.library
        if library.log.implicit_ack and self.calls.state.is_in_transaction:
            raise self.calls.must_abort(
                f"outputs of transactional.id {library.transactional_id!r} were acknowledged only implicitly, and the "
                f"broker may have refused them (confluent-kafka-go #921): {library.log.implicit_ack}. "
                + _ABORT_AND_CONTINUE
            )

    @owned(exclusive=True, allow_in_callbacks=True)
    def poll(self, timeout: float = -1) -> int:
        """Serve delivery reports; returns how many events were served."""
        served = self.calls.serve(timeout)
        self.library.callback_errors.raise_deferred()
        return served

    # -- the cluster, closing ----------------------------------------------------------------------------------------

    @owned()
    def list_topics(self, topic: str | None = None, timeout: float = -1) -> Any:
        """Return the cluster's metadata."""
        self.calls.require_serving()
        return self.library.call(lambda: self.library.raw.list_topics(topic, timeout))

    @owned()
    def close(self) -> bool:
        """Leave the handle; a producer without an id first waits for outstanding records."""
        library = self.library
        library.guard.begin_close()
        try:
            if library.raw is not None and not library.transactional_id and self.calls.state.why_unusable is None:
                self._flush(-1)
        finally:
            self.calls.tell(HandleFinished(closed_error(library.transactional_id)))
            library.release_id()
        if report := library.guard.take_report():
            self._hook(ClientReported(client="producer", error=report))
        library.guard.raise_deferred()
        return True
