"""A transactional producer over confluent_kafka's: same methods, bounded calls, errors named for what to do."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaException, Producer, TopicPartition

from eos_client.clock import MONOTONIC_CLOCK
from eos_client.confluent.failures import must_abort
from eos_client.confluent.group_metadata import decode
from eos_client.confluent.producer_handle import ProducerFactory, ProducerHandle
from eos_client.confluent.thread_ownership import owned
from eos_client.core.model import InputPositions, ProducerLimits
from eos_client.core.producer_recovery import TransactionalRequest
from eos_client.errors import ClientClosedError
from eos_client.observe import Counters, EventHook, log_event
from eos_client.ports import Clock, MembershipSnapshot, OutputRecord

if TYPE_CHECKING:
    from typing_extensions import Self

_SLICE_S = 0.2
_WORKING_SLICE_S = 0.02
_QUEUE_WAIT_S = 0.05
_BEFORE_CALLBACK = 3  # of the unnamed arguments of produce(), after the topic: value, key and partition


class ConfluentProducer(ProducerHandle):
    """The adapter: everything a producer does, without knowing of consumers or the gate."""

    def __init__(
        self,
        settings: Mapping[str, Any],
        *,
        limits: ProducerLimits | None = None,
        counters: Counters | None = None,
        shortest_timeout_s: float = 0.0,
        hook: EventHook = log_event,
        factory: ProducerFactory = Producer,
        clock: Clock = MONOTONIC_CLOCK,
    ) -> None:
        super().__init__(
            settings,
            limits=limits,
            counters=counters,
            shortest_timeout_s=shortest_timeout_s,
            hook=hook,
            factory=factory,
            clock=clock,
        )

    # -- the transaction -----------------------------------------------------------------------------------------

    @owned(claims=True)
    def begin_transaction(self) -> None:
        """Begin a transaction; sends nothing."""
        self._serve(0)
        with self._named(TransactionalRequest.BEGIN):
            self._raw.begin_transaction()
        self._log.forget()
        self._began_at = self._clock()

    @owned()
    def send_offsets_to_transaction(self, positions: Any, group_metadata: Any, timeout: float = -1, /) -> None:
        """Add input offsets to the transaction, fenced by the group (KIP-447)."""
        generation = decode(group_metadata)
        if generation is not None and not generation.is_fenced:
            raise must_abort(
                f"the group metadata names no member ({generation}): brokers accept such a commit without "
                "any fence (KIP-447). Subscribe, poll until partitions are assigned, and read the metadata then."
            )
        limit_s = timeout if timeout >= 0 else self.limits.commit_timeout_s
        raw = self._raw
        self._group_fenced = True
        self._bounded(
            TransactionalRequest.SEND_OFFSETS,
            lambda: raw.send_offsets_to_transaction(positions, group_metadata, limit_s),
            limit_s,
        )

    def send_offsets(self, positions: InputPositions, snapshot: MembershipSnapshot, timeout_s: float) -> None:
        """Add ``positions`` to the transaction under ``snapshot``'s membership."""
        offsets = [
            TopicPartition(p.topic, p.partition, position.next_offset, leader_epoch=position.leader_epoch)
            if position.leader_epoch is not None
            else TopicPartition(p.topic, p.partition, position.next_offset)
            for p, position in positions.items()
        ]
        self.send_offsets_to_transaction(offsets, snapshot.group_metadata, timeout_s)

    @owned()
    def commit_transaction(self, timeout: float = -1) -> None:
        """Commit. Raises AbortableError, or UnknownOutcomeError when no definite answer came in time."""
        self._end(TransactionalRequest.COMMIT, timeout)

    @owned()
    def abort_transaction(self, timeout: float = -1) -> None:
        """Abort. Raises RebuildProducerError when the abort was not confirmed in time."""
        self._end(TransactionalRequest.ABORT, timeout)

    def _end(self, request: TransactionalRequest, timeout: float) -> None:
        limit_s = timeout if timeout >= 0 else self.limits.commit_timeout_s
        if request is TransactionalRequest.COMMIT:
            # Here and not inside the call, so that delivery callbacks run in the caller's thread.
            began_at = self._clock()
            self.flush_outputs(max(_SLICE_S, limit_s))
            limit_s = max(_SLICE_S, limit_s - (self._clock() - began_at))
        ended = getattr(self._raw, request.value)
        self._bounded(request, lambda: ended(limit_s), limit_s)
        if request is TransactionalRequest.COMMIT:
            self._failed_before = None
        if self.may_have_sent_twice:
            self._renew()
        self._began_at = None

    # -- records -------------------------------------------------------------------------------------------------

    @owned(claims=True)
    def produce(self, topic: str, *args: Any, **kwargs: Any) -> None:
        """Queue a record. Raises OutputRefusedError, AbortableError, BufferError when the local queue is full."""
        if self._finished is not None:
            raise self._finished
        if kwargs or len(args) > _BEFORE_CALLBACK:
            args, kwargs = self._reports.guard_arguments(args), self._reports.guard_options(kwargs)
        try:
            self._raw.produce(topic, *args, **kwargs)
        except KafkaException as exception:
            raise self._failed(TransactionalRequest.PRODUCE, exception, f" (topic {topic!r})") from exception

    @property
    def outlet(self) -> Callable[..., None]:
        """The client library's own ``produce``, for the hot loop; what it raises is named by ``enqueue``."""
        self._usable()
        unnamed: Callable[..., None] = self._raw.produce
        return unnamed

    def enqueue(self, topic: str, record: OutputRecord) -> None:
        """Queue one output, waiting for room in the local queue; raises AbortableError when none comes in time."""
        options: dict[str, Any] = {}
        if record.partition is not None:
            options["partition"] = record.partition
        if record.headers is not None:
            options["headers"] = record.headers
        if record.timestamp_ms is not None:
            options["timestamp"] = record.timestamp_ms
        if not self._queued(topic, record, options):
            self._queue_with_patience(topic, record, options)

    def _queued(self, topic: str, record: OutputRecord, options: dict[str, Any]) -> bool:
        try:
            self.produce(topic, record.value, record.key, **options)
        except BufferError:
            return False
        return True

    def _queue_with_patience(self, topic: str, record: OutputRecord, options: dict[str, Any]) -> None:
        limit_s = self.limits.commit_timeout_s
        deadline = self._clock() + limit_s
        while not self._queued(topic, record, options):
            if self._clock() > deadline:
                raise must_abort(
                    f"the local queue stayed full for {limit_s:g} s{self._errors.clause()}. Abort, rewind and go on."
                )
            self.poll(_QUEUE_WAIT_S)

    @owned()
    def produce_batch(self, topic: str, messages: list[dict[str, Any]], *args: Any, **kwargs: Any) -> int:
        """Queue many records at once; confluent_kafka drops their headers and timestamps."""
        guarded, options = self._reports.guard_messages(messages), self._reports.guard_options(kwargs)
        with self._named(TransactionalRequest.PRODUCE):
            queued = int(self._raw.produce_batch(topic, guarded, *self._reports.guard_arguments(args), **options))
        for message, sent in zip(messages, guarded, strict=True):
            if "_error" in sent:
                message["_error"] = sent["_error"]
        return queued

    def flush_outputs(self, timeout_s: float, meanwhile: Callable[[], None] | None = None) -> None:
        """Wait until every record is acknowledged; raises AbortableError when some are not within ``timeout_s``.

        ``meanwhile`` is called while there is nothing to do but wait.
        """
        left = self._flush(timeout_s, _WORKING_SLICE_S if meanwhile else _SLICE_S, meanwhile)
        if left:
            raise must_abort(
                f"{left} outputs of transactional.id {self.transactional_id!r} were not acknowledged within "
                f"{timeout_s:g} s{self._errors.clause()}. Abort, rewind and go on."
            )

    @owned()
    def flush(self, timeout: float = -1) -> int:
        """Wait for outstanding records; returns how many are left. ``timeout`` in seconds, negative for no limit."""
        return self._flush(timeout, _SLICE_S)

    @owned()
    def _flush(self, timeout: float, longest_s: float, meanwhile: Callable[[], None] | None = None) -> int:
        # In slices: Python runs signal handlers between calls into the client library, not during one.
        deadline = math.inf if timeout < 0 else self._clock() + timeout
        while True:
            with self._named(TransactionalRequest.FLUSH):
                left = int(self._raw.flush(min(longest_s, max(0.0, deadline - self._clock()))))
            self._refuse_implied()
            if not left or self._clock() >= deadline:
                return left
            if meanwhile is not None:
                meanwhile()

    def _refuse_implied(self) -> None:
        self._serve(0)  # the client library's log
        if self._log.implied and self._began_at is not None:
            raise must_abort(
                f"outputs of transactional.id {self.transactional_id!r} are taken for written although the broker may "
                f"have refused them (confluent-kafka-go #921): {self._log.implied}. Abort, rewind and go on."
            )

    @owned()
    def poll(self, timeout: float = -1) -> int:
        """Serve delivery reports; returns how many events were served."""
        return self._serve(timeout)

    @owned()
    def purge(self, in_queue: bool = True, in_flight: bool = True, blocking: bool = True) -> None:
        """Drop records that are not acknowledged yet."""
        self._usable()
        self._raw.purge(in_queue, in_flight, blocking)

    @owned()
    def list_topics(self, topic: str | None = None, timeout: float = -1) -> Any:
        """Return the cluster's metadata."""
        self._usable()
        return self._raw.list_topics(topic, timeout) if topic is not None else self._raw.list_topics(timeout=timeout)

    @owned()
    def cluster_id(self, timeout: float = -1) -> str:
        """Return the cluster's id."""
        self._usable()
        return str(self._raw.cluster_id(timeout))

    @owned()
    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Replace the SASL credentials; a rebuilt handle uses them too."""
        self._usable()
        self._settings.update({"sasl.username": username, "sasl.password": password})
        self._raw.set_sasl_credentials(username, password)

    @owned()
    def close(self) -> bool:
        """Leave the handle; an open transaction is left to ``transaction.timeout.ms`` or the next init."""
        if self._raw is not None:
            self._leave_handle_behind()
        self._finished = ClientClosedError(f"the producer {self.transactional_id!r} is closed: build another one")
        return True

    def __len__(self) -> int:
        return 0 if self._raw is None else len(self._raw)

    def __bool__(self) -> bool:
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
