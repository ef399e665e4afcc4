"""A transactional producer over confluent_kafka's: same methods, bounded calls, a handle that can be replaced.

The transactional.id outlives the handle. A handle that failed for good, or whose call is overdue, is left behind;
``init_transactions`` of the next one bumps the epoch, which fences the old one and ends its transaction (KIP-360).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import tenacity
from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition

from eos_client.config import safe_producer_settings
from eos_client.confluent.diagnosis import LastErrors, why_init_failed
from eos_client.confluent.failures import (
    configuration_errors,
    kafka_error,
    overdue_error,
    producer_error,
    with_error,
)
from eos_client.confluent.group_metadata import decode
from eos_client.confluent.handle_thread import HandleThread, OverdueError
from eos_client.confluent.thread_ownership import ThreadOwnership, owned
from eos_client.core.model import InputPositions, ProducerLimits
from eos_client.core.producer_recovery import OVERDUE, ProducerFailure, TransactionalRequest
from eos_client.errors import (
    AbortableError,
    ClusterUnavailableError,
    EosError,
    ProducerFencedError,
    RebuildProducerError,
    RetriableError,
)
from eos_client.observe import Counters, EventHook, ProducerRebuilt, log_event
from eos_client.ports import MembershipSnapshot, OutputRecord

# A call is given its own timeout first; only what outlives that by this much is left behind.
_GRACE_S = 0.5
_INIT_ATTEMPT_S = 5.0
_SLICE_S = 0.2
_QUEUE_WAIT_S = 0.05


def _destroy(raw: Any) -> None:
    raw.purge()  # close() waits for outstanding records without any limit
    raw.close()


ProducerFactory = Callable[[dict[str, Any]], Any]


class ConfluentProducer:
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
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.limits = limits or ProducerLimits()
        self.counters = counters or Counters()
        self._generated_id = "transactional.id" not in settings
        self._settings = safe_producer_settings(settings, shortest_timeout_s)
        self._errors = LastErrors(self._settings.get("error_cb"))
        self._settings["error_cb"] = self._errors
        self._hook = hook
        self._factory = factory
        self._clock = clock
        self._ownership = ThreadOwnership("EosProducer")
        self._finished: EosError | None = None
        self._began_at: float | None = None
        self._raw, self._thread = self._new_handle()

    def _new_handle(self) -> tuple[Any, HandleThread]:
        with configuration_errors("producer"):
            raw = self._factory(dict(self._settings))
        return raw, HandleThread(f"eos-producer-{self.transactional_id}")

    @property
    def transactional_id(self) -> str:
        """The producer's stable name across restarts and rebuilds."""
        return str(self._settings["transactional.id"])

    @property
    def transaction_timeout_s(self) -> float:
        """Seconds after which the coordinator aborts an open transaction."""
        return int(self._settings["transaction.timeout.ms"]) / 1000

    @property
    def transaction_age_s(self) -> float:
        """Seconds since ``begin_transaction``; 0.0 when none is open."""
        return 0.0 if self._began_at is None else self._clock() - self._began_at

    # -- the transaction -----------------------------------------------------------------------------------------

    @owned(claims=True)
    def init_transactions(self, timeout: float = -1) -> None:
        """Register the id, fencing every older instance with it; builds a new handle when this one is finished.

        Waits ``timeout`` seconds, or ``start_timeout_s`` when negative. Raises ClusterUnavailableError when no broker
        answers, ClusterUnfitError with the real reason when one does, ProducerFencedError, FatalClientError.
        """
        if self._finished is not None:
            self._replace_handle()
        self._init(timeout if timeout >= 0 else self.limits.start_timeout_s)

    def _init(self, limit_s: float) -> None:
        deadline = self._clock() + limit_s
        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(RetriableError),
            stop=tenacity.stop_after_delay(limit_s),
            wait=tenacity.wait_exponential(multiplier=0.02, max=1.0),
            reraise=True,
        )
        try:
            retrying(self._init_once, deadline)
        except (RetriableError, RebuildProducerError) as error:
            raise why_init_failed(self._settings, self._errors, limit_s, error) from error

    def _init_once(self, deadline: float) -> None:
        attempt_s = min(_INIT_ATTEMPT_S, max(0.1, deadline - self._clock()))
        raw = self._raw
        self._bounded(TransactionalRequest.INIT, lambda: raw.init_transactions(attempt_s), attempt_s)

    @owned(claims=True)
    def begin_transaction(self) -> None:
        """Begin a transaction; local, sends nothing."""
        with self._named(TransactionalRequest.BEGIN):
            self._raw.begin_transaction()
        self._began_at = self._clock()

    @owned()
    def send_offsets_to_transaction(self, positions: Any, group_metadata: Any, timeout: float = -1, /) -> None:
        """Add input offsets to the transaction, fenced by the group (KIP-447)."""
        generation = decode(group_metadata)
        if generation is not None and not generation.is_fenced:
            raise AbortableError(
                f"the group metadata names no member ({generation}): brokers accept such a commit "
                "without any fence (KIP-447). Subscribe, poll until partitions are assigned, and read the metadata then."
            )
        limit_s = timeout if timeout >= 0 else self.limits.commit_timeout_s
        raw = self._raw
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
        ended = getattr(self._raw, request.value)
        self._bounded(request, lambda: ended(limit_s), limit_s)
        self._began_at = None

    def rebuild(self) -> None:
        """Replace the handle and initialise the new one, which ends the old one's transaction one way or the other.

        Tried for ``recovery_timeout_s``; raises what ``init_transactions`` raises.
        """
        began_at, reason = self._clock(), str(self._finished or "asked for")
        self._replace_handle()
        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type((ClusterUnavailableError, RebuildProducerError)),
            stop=tenacity.stop_after_delay(self.limits.recovery_timeout_s),
            wait=tenacity.wait_exponential(multiplier=0.1, max=2.0),
            before_sleep=lambda _: self._replace_handle() if self._finished else None,
            reraise=True,
        )
        retrying(self._init, self.limits.start_timeout_s)
        self.counters.producer_rebuilds += 1
        self._hook(
            ProducerRebuilt(transactional_id=self.transactional_id, reason=reason, duration_s=self._clock() - began_at)
        )

    def _replace_handle(self) -> None:
        self._leave_handle_behind()
        self._raw, self._thread = self._new_handle()
        self._finished = None
        self._began_at = None

    def _leave_handle_behind(self) -> None:
        # Destroying a handle joins librdkafka's threads, which may take as long as the call that is stuck. Not left to
        # the garbage collector either: a live zombie would keep its connections.
        raw, self._raw = self._raw, None
        self._thread.abandon(lambda: _destroy(raw))

    # -- records -------------------------------------------------------------------------------------------------

    @owned(claims=True)
    def produce(self, topic: str, *args: Any, **kwargs: Any) -> None:
        """Queue a record. Raises OutputRefusedError, AbortableError, BufferError when the local queue is full."""
        if self._finished is not None:
            raise self._finished
        try:
            self._raw.produce(topic, *args, **kwargs)
        except KafkaException as exception:
            raise self._failed(TransactionalRequest.PRODUCE, exception) from exception

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
                raise AbortableError(
                    f"the local queue stayed full for {limit_s:g} s{self._errors.clause()}. Abort, rewind and go on."
                )
            self.poll(_QUEUE_WAIT_S)

    @owned()
    def produce_batch(self, topic: str, messages: list[dict[str, Any]], *args: Any, **kwargs: Any) -> int:
        """Queue many records at once; confluent_kafka drops their headers and timestamps."""
        with self._named(TransactionalRequest.PRODUCE):
            return int(self._raw.produce_batch(topic, messages, *args, **kwargs))

    def flush_outputs(self, timeout_s: float) -> None:
        """Wait until every record is acknowledged; raises AbortableError when some are not within ``timeout_s``."""
        left = self.flush(timeout_s)
        if left:
            raise AbortableError(
                f"{left} outputs of transactional.id {self.transactional_id!r} were not acknowledged within "
                f"{timeout_s:g} s{self._errors.clause()}. Abort, rewind and go on."
            )

    @owned()
    def flush(self, timeout: float = -1) -> int:
        """Wait for outstanding records; returns how many are left. ``timeout`` in seconds, negative for no limit."""
        with self._named(TransactionalRequest.FLUSH):
            return self._flush_in_slices(timeout)

    def _flush_in_slices(self, timeout: float) -> int:
        # Python runs signal handlers between calls into the client library, not during one.
        deadline = None if timeout < 0 else self._clock() + timeout
        while True:
            slice_s = _SLICE_S if deadline is None else min(_SLICE_S, max(0.0, deadline - self._clock()))
            left = int(self._raw.flush(slice_s))
            if not left or (deadline is not None and self._clock() >= deadline):
                return left

    @owned()
    def poll(self, timeout: float = -1) -> int:
        """Serve delivery reports; returns how many events were served."""
        self._usable()
        return int(self._raw.poll(timeout))

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
        self._finished = RebuildProducerError(f"the producer {self.transactional_id!r} is closed")
        return True

    def __len__(self) -> int:
        return 0 if self._raw is None else len(self._raw)

    def __bool__(self) -> bool:
        return True

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- failures ------------------------------------------------------------------------------------------------

    def _usable(self) -> None:
        if self._finished is not None:
            raise self._finished

    def _bounded(self, request: TransactionalRequest, call: Callable[[], Any], timeout_s: float) -> None:
        try:
            with self._named(request):
                self._thread.call(call, timeout_s + _GRACE_S)
        except OverdueError as exception:
            raise self._remember(overdue_error(self._failure(request), timeout_s, self.transactional_id)) from exception

    @contextmanager
    def _named(self, request: TransactionalRequest) -> Iterator[None]:
        self._usable()
        try:
            yield
        except KafkaException as exception:
            raise self._failed(request, exception) from exception

    def _failed(self, request: TransactionalRequest, exception: KafkaException) -> EosError:
        error = kafka_error(exception)
        return self._remember(producer_error(self._failure(request, error), error, self.transactional_id))

    def _failure(self, request: TransactionalRequest, error: KafkaError | None = None) -> ProducerFailure:
        known = ProducerFailure(
            request,
            OVERDUE,
            transaction_age_s=self.transaction_age_s,
            transaction_timeout_s=self.transaction_timeout_s,
            generated_id=self._generated_id,
        )
        return known if error is None else with_error(known, error)

    def _remember(self, error: EosError) -> EosError:
        if isinstance(error, (RebuildProducerError, ProducerFencedError)):
            self._finished = error
        return error
