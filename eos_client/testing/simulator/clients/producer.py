"""A producer of the simulated brokers, with the methods, errors and delivery reports of confluent_kafka's."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaException

from eos_client.testing.simulator.brokers.link import ClientLink
from eos_client.testing.simulator.brokers.model import NewRecord, OffsetAndMetadata, PartitionKey
from eos_client.testing.simulator.clients.group_metadata import decode
from eos_client.testing.simulator.clients.kafka_errors import kafka_error, kafka_exception
from eos_client.testing.simulator.clients.producer_background import ProducerBackground
from eos_client.testing.simulator.clients.producer_events import DeliveryCallback, QueuedRecord
from eos_client.testing.simulator.clients.producer_records import (
    ANY_PARTITION,
    as_headers,
    as_key,
    as_partition,
    as_timestamp,
    as_topic,
    as_value,
)
from eos_client.testing.simulator.clients.producer_settings import producer_settings
from eos_client.testing.simulator.clients.transaction_state import Phase

if TYPE_CHECKING:
    from typing_extensions import Self

_MOMENT_S = 0.001
_LONGEST_WAIT_S = 3_600.0
"""The longest simulated wait of a call without a time-out."""

_OPEN = frozenset({Phase.IN_TRANSACTION, Phase.ABORTABLE_ERROR, Phase.BEGIN_ABORT, Phase.ABORTING})


class SimulatedProducer:
    """A plain, idempotent or transactional producer, by ``config``; sends through ``link``.

    Raises what confluent_kafka's Producer raises: KafkaException, BufferError for a full queue, RuntimeError once it
    is closed; also RuntimeError while it is frozen. ``purge`` takes effect at the next call; a ``close`` right after it
    drops the queued and in-flight records without delivery reports.
    """

    def __init__(self, config: Mapping[str, Any], link: ClientLink) -> None:
        self._settings = producer_settings(config)
        self._link = link
        self._background = ProducerBackground(self._settings, link)
        self._state = self._background.state
        self._events = self._background.events
        self._sender = self._background.sender
        self._purge: tuple[bool, bool] | None = None
        self._closed = False
        names = {self._settings.client_id, self._settings.transactional_id} - {None}
        link.attach(self._background, sorted(map(str, names)))

    @property
    def transactional_id(self) -> str | None:
        """The producer's ``transactional.id``, which confluent_kafka's producer does not return."""
        return self._settings.transactional_id

    # -- transactions --------------------------------------------------------------------------------------------

    def init_transactions(self, timeout: float = -1.0, /) -> None:
        """See confluent_kafka. Resumable after a time-out, in ``timeout`` seconds."""
        limit_s = timeout if timeout >= 0 else 2 * self._settings.transaction_timeout_s
        with self._calling("init_transactions"):
            deadline_s = self._deadline(limit_s)
            self._background.transaction.initialise()
            try:
                self._await_result(deadline_s)
            except KafkaException as exception:
                raise self._init_error(exception) from None
            self._state.move(Phase.READY)

    def _init_error(self, exception: KafkaException) -> KafkaException:
        code = self._background.transaction.init_refusal
        if code and exception.args[0].name() == "_TIMED_OUT":
            return kafka_exception(code, f"Failed to initialize Producer ID: {code}", retriable=True)
        return exception

    def begin_transaction(self) -> None:
        """See confluent_kafka. Sends nothing."""
        with self._calling("begin_transaction"):
            self._state.require(Phase.READY)
            self._state.begin()
            self._background.transaction.begin()

    def send_offsets_to_transaction(self, positions: list[Any], group_metadata: Any, timeout: float = -1.0, /) -> None:
        """See confluent_kafka. Not resumable; a time-out leaves the transaction usable or not, as its error says."""
        self._check_usable()
        if not isinstance(group_metadata, bytes):
            raise TypeError(f"expected bytes, {type(group_metadata).__name__} found")
        try:
            group_id, membership = decode(group_metadata)
        except ValueError as error:
            raise kafka_exception("_BAD_MSG", str(error)) from error
        offsets = {
            PartitionKey(p.topic, p.partition): OffsetAndMetadata(p.offset, p.metadata or "")
            for p in positions
            if p.offset >= 0
        }
        with self._calling("send_offsets_to_transaction"):
            if offsets:
                longest_s = self._settings.transaction_timeout_s
                deadline_s = self._deadline(min(timeout, longest_s) if timeout >= 0 else longest_s)
                self._background.transaction.send_offsets(group_id, membership, offsets)
                self._link.wait(deadline_s, lambda: self._state.has_result)
                if not self._state.has_result:
                    self._background.transaction.offsets_timed_out()
                self._state.take_result()

    def commit_transaction(self, timeout: float = -1.0, /) -> None:
        """See confluent_kafka. Resumable after a time-out, in ``timeout`` seconds."""
        with self._calling("commit_transaction"):
            deadline_s = self._deadline(timeout)
            self._state.require(Phase.IN_TRANSACTION, Phase.BEGIN_COMMIT, Phase.COMMITTING, Phase.COMMIT_NOT_ACKED)
            if self._state.phase is Phase.IN_TRANSACTION:
                self._state.move(Phase.BEGIN_COMMIT)
            self._drain(deadline_s)
            self._background.transaction.commit()
            self._await_result(deadline_s)
            self._state.complete()

    def abort_transaction(self, timeout: float = -1.0, /) -> None:
        """See confluent_kafka. Resumable after a time-out, in ``timeout`` seconds."""
        with self._calling("abort_transaction"):
            deadline_s = self._deadline(timeout)
            self._state.require(*_OPEN, Phase.ABORT_NOT_ACKED)
            if self._state.phase in {Phase.IN_TRANSACTION, Phase.ABORTABLE_ERROR}:
                self._state.move(Phase.BEGIN_ABORT)
                self._background.transaction.stop_joining()
            self._background.purge()
            self._drain(deadline_s)
            self._background.transaction.abort()
            self._await_result(deadline_s)
            self._state.complete()

    @contextmanager
    def _calling(self, name: str) -> Iterator[None]:
        self._check_usable()
        self._state.begin_call(name)
        crashes = self._background.crashes
        try:
            yield
        except KafkaException as exception:
            if exception.args[0].retriable() and name != "send_offsets_to_transaction":
                self._state.pause_call()
            else:
                self._state.end_call()
            if crashes:
                raise crashes.pop() from None
            raise
        except BaseException:
            self._state.pause_call()  # the call was interrupted
            raise
        self._state.end_call()
        if crashes:
            raise crashes.pop()

    def _await_result(self, deadline_s: float) -> None:
        self._link.wait(deadline_s, lambda: self._state.has_result)
        if not self._state.has_result:
            why = "Timed out waiting for operation to finish, retry call to resume"
            raise kafka_exception("_TIMED_OUT", why, retriable=True)
        self._state.take_result()

    def _drain(self, deadline_s: float) -> None:
        """Wait for all outstanding records; a callback that raises ends the wait."""
        remaining = self._flush(deadline_s, self._background.serve_safely)
        if remaining:
            why = f"Failed to flush all outstanding messages within the API timeout: {remaining} message(s) remaining"
            raise kafka_exception("_TIMED_OUT", why, retriable=True)

    # -- records -------------------------------------------------------------------------------------------------

    def produce(
        self,
        topic: str,
        value: str | bytes | None = None,
        key: str | bytes | None = None,
        partition: int = ANY_PARTITION,
        callback: DeliveryCallback | None = None,
        on_delivery: DeliveryCallback | None = None,
        timestamp: int = 0,
        headers: Any = None,
    ) -> None:
        """See confluent_kafka. ``timestamp`` in milliseconds since the epoch; 0: the time of the client's host."""
        topic, partition = as_topic(topic), as_partition(partition)
        stamp_ms = as_timestamp(timestamp) or self._link.stamp_ms
        record = NewRecord(as_value(value), as_key(key), as_headers(headers), stamp_ms)
        self._check_usable()
        self._enqueue(topic, partition, record, _first_of(callback, on_delivery, self._settings.on_delivery))

    def _enqueue(self, topic: str, partition: int, record: NewRecord, on_delivery: DeliveryCallback | None) -> None:
        queued = QueuedRecord(topic, partition, record, self._link.clock.now_s, on_delivery)
        if self._state.is_fatal:
            raise kafka_exception("_FATAL", "Unable to produce message: Local: Fatal error")
        if not self._state.may_enqueue:
            raise kafka_exception("_STATE", "Unable to produce message: Local: Erroneous state")
        self._background.placing.check_size(queued.wire_bytes_max)
        if self._events.outstanding >= self._settings.queue_records_max:
            raise BufferError("Local: Queue full")
        self._background.placing.check_destination(topic, partition)
        self._events.outstanding += 1
        self._background.placing.place(queued)

    def produce_batch(
        self,
        topic: str,
        messages: list[dict[str, Any]],
        partition: int = ANY_PARTITION,
        callback: DeliveryCallback | None = None,
        on_delivery: DeliveryCallback | None = None,
    ) -> int:
        """See confluent_kafka: a message's headers and partition are dropped, its timestamp refused.

        The error of a message is set as its ``_error``.
        """
        if not isinstance(messages, list):
            raise TypeError("messages must be a list")
        self._check_usable()
        accepted = 0
        for message in messages:
            if message.get("timestamp") is not None:
                raise NotImplementedError("Message timestamps are not currently supported in batch mode")
            content = as_value(message.get("value")), as_key(message.get("key"))
            record = NewRecord(*content, timestamp_ms=self._link.stamp_ms)
            reported_to = _first_of(message.get("callback"), callback, on_delivery, self._settings.on_delivery)
            try:
                self._enqueue(topic, partition, record, reported_to)
            except BufferError:
                message["_error"] = kafka_error("_QUEUE_FULL", "Message failed: Local: Queue full")
            except KafkaException as exception:
                message["_error"] = kafka_error(exception.args[0].name(), "Message failed")
            else:
                accepted += 1
        return accepted

    def poll(self, timeout: float = -1.0) -> int:
        """See confluent_kafka. With nothing to serve, ``poll(0)`` takes a millisecond: time passes in a loop."""
        self._check_usable()
        served = self._events.serve()
        if not served:
            self._link.wait(self._deadline(max(timeout, _MOMENT_S) if timeout >= 0 else -1), lambda: bool(self._events))
            served = self._events.serve()
        return served

    def flush(self, timeout: float = -1.0) -> int:
        """See confluent_kafka: returns how many records are still outstanding after ``timeout`` seconds."""
        self._check_usable()
        return self._flush(self._deadline(timeout), self._events.serve)

    def _flush(self, deadline_s: float, serve: Any) -> int:
        self._sender.flush()
        try:
            serve()
            while self._events.outstanding and not self._background.crashes and self._link.clock.now_s < deadline_s:
                self._link.wait(deadline_s, lambda: bool(self._events))
                serve()
        finally:
            self._sender.flushing = False
        return self._events.outstanding

    def purge(self, in_queue: bool = True, in_flight: bool = True, blocking: bool = True) -> None:  # noqa: ARG002
        """See confluent_kafka. Takes effect at the next call, so that any thread may call it at any time."""
        if self._closed:
            raise RuntimeError("Producer has been closed")
        self._purge = (in_queue, in_flight)

    def __len__(self) -> int:
        return 0 if self._closed else self._events.outstanding

    def __bool__(self) -> bool:
        return True

    # -- the handle ----------------------------------------------------------------------------------------------

    def list_topics(self, topic: str | None = None, timeout: float = -1.0) -> Any:
        """See confluent_kafka: one broker leads all partitions; an unknown ``topic`` has an error."""
        self._check_usable("Handle")
        return self._background.metadata(topic, self._deadline(timeout))

    def cluster_id(self, timeout: float = -1.0) -> str:
        """See confluent_kafka."""
        return str(self.list_topics(timeout=timeout).cluster_id)

    def set_sasl_credentials(self, username: str, password: str) -> None:  # noqa: ARG002
        """See confluent_kafka. Simulated brokers need no credentials."""
        self._check_usable("Handle")

    def close(self) -> bool:
        """See confluent_kafka: abort an open transaction, flush, close. Sends nothing after `purge`."""
        if self._closed:
            return True
        if self._purge is None:
            self._check_usable()
            try:
                self._abort_before_close()
                self._flush(self._deadline(-1), self._events.serve)
            finally:
                self._link.detach()
                self._closed = True
        self._link.silence()
        self._closed = True
        return True

    def _abort_before_close(self) -> None:
        if self._settings.transactional_id is None or self._state.phase is Phase.READY:
            return
        try:
            self.abort_transaction()
        except KafkaException as exception:
            error = exception.args[0]
            if error.name() != "_STATE" and not error.fatal():
                warnings.warn(
                    f"Producer abort_transaction failed during close: {error.str()}", RuntimeWarning, stacklevel=3
                )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _check_usable(self, what: str = "Producer") -> None:
        if self._closed:
            raise RuntimeError(f"{what} has been closed")
        self._link.require_running()
        if self._purge is not None:
            (in_queue, in_flight), self._purge = self._purge, None
            self._background.purge(in_queue=in_queue, in_flight=in_flight)

    def _deadline(self, timeout_s: float) -> float:
        return self._link.clock.now_s + (timeout_s if timeout_s >= 0 else _LONGEST_WAIT_S)


def _first_of(*callbacks: DeliveryCallback | None) -> DeliveryCallback | None:
    return next((callback for callback in callbacks if callback is not None), None)
