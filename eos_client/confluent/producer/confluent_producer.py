"""A transactional producer over confluent_kafka's: same methods, bounded calls, errors named for what to do."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaException, Producer, TopicPartition

from eos_client.clock import MONOTONIC_CLOCK
from eos_client.confluent.call_stack import in_library
from eos_client.confluent.failures import closed_error, must_abort, not_transactional
from eos_client.confluent.group_metadata import decode
from eos_client.confluent.producer.output_arguments import produce_options
from eos_client.confluent.producer.producer_handle import ProducerFactory, ProducerHandle
from eos_client.confluent.thread_ownership import NeverBuilt, owned
from eos_client.core.model import InputPositions, ProducerLimits
from eos_client.core.producer_recovery import TransactionalRequest
from eos_client.errors import EosError, OutputRefusedError
from eos_client.observe import ClientReported, Counters, EventHook, log_event
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
        generate_id: bool = False,
        hook: EventHook = log_event,
        factory: ProducerFactory = Producer,
        clock: Clock = MONOTONIC_CLOCK,
    ) -> None:
        super().__init__(
            settings,
            limits=limits,
            counters=counters,
            shortest_timeout_s=shortest_timeout_s,
            generate_id=generate_id,
            hook=hook,
            factory=factory,
            clock=clock,
        )
        self._losses_before_offsets: int | None = None

    # -- the transaction -----------------------------------------------------------------------------------------

    @owned(claims=True)
    def begin_transaction(self) -> None:
        """Begin a transaction; sends nothing."""
        self._serve(0)
        self._usable()
        self._mark_broken_off(TransactionalRequest.BEGIN)
        try:
            self._raw.begin_transaction()
        except KafkaException as exception:
            self._raise_failure(TransactionalRequest.BEGIN, exception)
        if self._init.is_fresh and self._log.losses:  # its request may have been sent twice, and be served late
            self._inits_left.another()
        self._init.transaction_begins()
        self._log.forget_implied()
        self._losses_before_offsets = None
        self.last_errors.begin_transaction()
        self._began_at = self._clock()
        self._finished = None

    @owned()
    def send_offsets_to_transaction(self, positions: Any, group_metadata: Any, timeout: float = -1, /) -> None:
        """Add input offsets to the transaction, fenced by the group (KIP-447)."""
        # The gate has judged the snapshot; this judges the very bytes that are sent, whoever calls.
        generation = decode(group_metadata)
        # Without an open transaction the client library refuses the call, whatever the metadata are.
        if self._began_at is not None and generation is not None and not generation.is_active_member:
            raise must_abort(
                f"the group metadata names no member ({generation}): brokers accept such a commit without "
                "any fence (KIP-447). Subscribe, poll until partitions are assigned, and read the metadata then."
            )
        self._refuse_overtaken_offsets()
        limit_s = timeout if timeout >= 0 else self.limits.commit_timeout_s
        raw = self._raw
        self._group_fenced = True
        self._bounded(
            TransactionalRequest.SEND_OFFSETS,
            lambda: raw.send_offsets_to_transaction(positions, group_metadata, limit_s),
            limit_s,
        )
        self._finished = None

    def _refuse_overtaken_offsets(self) -> None:
        """Within one transaction nothing but their order tells a late copy of the first offsets from later ones."""
        self.listen()
        if self._losses_before_offsets is None:
            self._losses_before_offsets = self._log.losses
        elif self._losses_before_offsets < self._log.losses:
            raise must_abort(
                f"a connection of transactional.id {self.transactional_id!r} was lost since this transaction's first "
                "offsets were sent: a late copy of them could take back those that follow (KAFKA-17754). Abort, rewind "
                "and go on, or send the offsets of a transaction once."
            )

    def send_offsets(
        self, positions: InputPositions, snapshot: MembershipSnapshot, timeout_s: float, metadata: str = ""
    ) -> None:
        """Add ``positions`` to the transaction under ``snapshot``'s membership, each with ``metadata``."""
        offsets = [
            TopicPartition(p.topic, p.partition, position.next_offset, metadata, position.leader_epoch)
            if position.leader_epoch is not None
            else TopicPartition(p.topic, p.partition, position.next_offset, metadata)
            for p, position in positions.items()
        ]
        self.send_offsets_to_transaction(offsets, snapshot.group_metadata, timeout_s)

    @owned()
    def commit_transaction(self, timeout: float = -1) -> None:
        """Commit. Raises AbortableError, or UnknownOutcomeError when no definite answer came in time.

        Once a call has raised AbortableError in this transaction, that error is raised again and nothing is sent.
        """
        self._usable()
        if self._transaction_failure is not None:
            raise self._transaction_failure
        self._end(TransactionalRequest.COMMIT, timeout)
        self._raise_kept()

    @owned()
    def abort_transaction(self, timeout: float = -1) -> None:
        """Abort. Raises RebuildProducerError when the abort was not confirmed in time."""
        self._end(TransactionalRequest.ABORT, timeout)
        self._raise_kept()

    def _end(self, request: TransactionalRequest, timeout: float) -> None:
        self._usable()
        if not self.transactional_id:
            raise not_transactional(request)
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
            self._inits_left.committed()
        self._began_at = self._transaction_failure = None
        self._finished = None
        if self.may_have_sent_twice:
            self._renew()

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
            self._raise_named(TransactionalRequest.PRODUCE, exception, f" (topic {topic!r})")

    @property
    def outlet(self) -> Callable[..., None]:
        """The client library's own ``produce``, for the hot loop; what it raises is named by ``enqueue``."""
        self._usable()
        unnamed: Callable[..., None] = self._raw.produce
        return unnamed

    def enqueue(self, topic: str, record: OutputRecord) -> None:
        """Queue one output, waiting for room in the local queue.

        Raises OutputRefusedError for what is no output, AbortableError when there is no room in time.
        """
        if not self._queued(topic, record):
            self._queue_with_patience(topic, record)

    def take_refused_delivery(self) -> str:
        """Return to where and why an output of the last transaction was refused for good, once; empty if none was."""
        return self.last_errors.take_refused_delivery()

    def _queued(self, topic: str, record: OutputRecord) -> bool:
        try:
            self.produce(topic, record.value, record.key, **produce_options(topic, record))
        except BufferError:
            return False
        except (TypeError, ValueError, OverflowError) as error:
            if isinstance(error, EosError):
                raise
            raise OutputRefusedError(
                f"the output for topic {topic!r} cannot be written: {type(error).__name__}: {error}. Correct it."
            ) from error
        return True

    def _queue_with_patience(self, topic: str, record: OutputRecord) -> None:
        limit_s = self.limits.commit_timeout_s
        deadline = self._clock() + limit_s
        while not self._queued(topic, record):
            if self._clock() > deadline:
                raise self._remember(
                    must_abort(
                        f"the local queue stayed full for {limit_s:g} s{self.last_errors.clause()}. Abort, "
                        "rewind and go on."
                    )
                )
            self.poll(_QUEUE_WAIT_S)

    @owned()
    def produce_batch(self, topic: str, messages: list[dict[str, Any]], *args: Any, **kwargs: Any) -> int:
        """Queue many records at once; confluent_kafka drops their headers and timestamps.

        Returns how many were queued; a message that was not has a KafkaError as its ``_error``. Raises TypeError for
        what is no list of dicts.
        """
        guarded, options = self._reports.guard_messages(messages), self._reports.guard_options(kwargs)
        arguments = self._reports.guard_arguments(args)
        queued = int(
            self._direct(
                TransactionalRequest.PRODUCE, lambda: self._raw.produce_batch(topic, guarded, *arguments, **options)
            )
        )
        for message, sent in zip(messages, guarded, strict=True):
            if sent is not message and "_error" in sent:
                message["_error"] = sent["_error"]
        return queued

    def flush_outputs(self, timeout_s: float, meanwhile: Callable[[], None] | None = None) -> None:
        """Wait until every record is acknowledged; raises AbortableError when some are not within ``timeout_s``.

        ``meanwhile`` is called while there is nothing to do but wait.
        """
        left = self._flush(timeout_s, _WORKING_SLICE_S if meanwhile else _SLICE_S, meanwhile)
        if left:
            raise self._remember(
                must_abort(
                    f"{left} outputs of transactional.id {self.transactional_id!r} were not acknowledged within "
                    f"{timeout_s:g} s{self.last_errors.clause()}. Abort, rewind and go on."
                )
            )

    @owned(alone=True, but_for_callbacks=True)
    def flush(self, timeout: float = -1) -> int:
        """Wait for outstanding records; returns how many are left. ``timeout`` in seconds, negative for no limit."""
        left = self._flush(timeout, _SLICE_S, until_raised=True)
        self._raise_kept()
        return left

    @owned()
    def _flush(
        self,
        timeout: float,
        longest_s: float,
        meanwhile: Callable[[], None] | None = None,
        *,
        until_raised: bool = False,
    ) -> int:
        # In slices: Python runs signal handlers between calls into the client library, not during one.
        deadline = math.inf if timeout < 0 else self._clock() + timeout
        while True:
            slice_s = min(longest_s, max(0.0, deadline - self._clock()))
            left = int(self._direct(TransactionalRequest.FLUSH, lambda: self._raw.flush(slice_s)))  # noqa: B023
            self._refuse_implied()
            if not left or self._clock() >= deadline or (until_raised and self._guard.error is not None):
                return left
            if meanwhile is not None:
                meanwhile()

    def _refuse_implied(self) -> None:
        self._serve(0)  # the client library's log
        if self._log.implied and self._began_at is not None:
            raise self._remember(
                must_abort(
                    f"outputs of transactional.id {self.transactional_id!r} are taken for written although the broker "
                    f"may have refused them (confluent-kafka-go #921): {self._log.implied}. Abort, rewind and go on."
                )
            )

    @owned(alone=True, but_for_callbacks=True)
    def poll(self, timeout: float = -1) -> int:
        """Serve delivery reports; returns how many events were served."""
        served = self._serve(timeout)
        self._raise_kept()
        return served

    @owned()
    def purge(self, in_queue: bool = True, in_flight: bool = True, blocking: bool = True) -> None:
        """Drop records that are not acknowledged yet."""
        self._serving()
        self._raw.purge(in_queue, in_flight, blocking)

    @owned()
    def list_topics(self, topic: str | None = None, timeout: float = -1) -> Any:
        """Return the cluster's metadata."""
        self._serving()
        given: dict[str, Any] = {"timeout": timeout} if topic is None else {"topic": topic, "timeout": timeout}
        return in_library(self, lambda: self._raw.list_topics(**given))

    @owned()
    def cluster_id(self, timeout: float = -1) -> str:
        """Return the cluster's id."""
        self._serving()
        return str(in_library(self, lambda: self._raw.cluster_id(timeout)))

    @owned()
    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Replace the SASL credentials; a rebuilt handle uses them too."""
        self._serving()
        self._settings.update({"sasl.username": username, "sasl.password": password})
        self._raw.set_sasl_credentials(username, password)

    @owned()
    def close(self) -> bool:
        """Leave the handle; an open transaction is left to ``transaction.timeout.ms`` or the next init.

        A producer without an id first waits for outstanding records without limit, as confluent_kafka's does.
        At the end raises what callbacks of the application have raised. What ``error_cb``, ``stats_cb``,
        ``throttle_cb`` and ``logger`` have raised is reported and not raised, but for KeyboardInterrupt and SystemExit.
        """
        if isinstance(self._ownership, NeverBuilt):
            return True
        self._guard.begin_close()
        try:
            if self._raw is not None and not self.transactional_id and self._finished is None:
                self._flush(-1, _SLICE_S)
        finally:
            self._finish(closed_error(self.transactional_id))
            self._leave_handle_behind()
        if report := self._guard.take_report():
            self._hook(ClientReported(client="producer", error=report))
        self._guard.raise_kept()
        return True

    def __len__(self) -> int:
        return 0 if self._raw is None else len(self._raw)

    def __bool__(self) -> bool:
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
