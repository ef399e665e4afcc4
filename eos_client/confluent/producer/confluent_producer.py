"""A transactional producer over confluent_kafka's: bounded calls, errors named for what to do, a replaceable handle.

It knows nothing of consumers or the gate. Applications hold an ``EosProducer``, which has confluent_kafka's methods;
transaction sessions and the loop hold this producer, as a ``TransactionalProducer``.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol

from confluent_kafka import KafkaException, Producer, TopicPartition

from eos_client.confluent.failures import closed_error, must_abort, not_transactional
from eos_client.confluent.group_metadata import decode
from eos_client.confluent.producer.bounded_calls import BoundedCalls
from eos_client.confluent.producer.library_producer import LibraryProducer, ProducerFactory
from eos_client.confluent.producer.outputs import Outputs, Produces
from eos_client.confluent.producer.registration import Registration
from eos_client.confluent.thread_ownership import ThreadOwnership, owned
from eos_client.core.model import InputPositions, ProducerLimits
from eos_client.core.producer_recovery import TransactionalRequest
from eos_client.errors import AbortableError, RebuildProducerError
from eos_client.observe import ClientReported, Counters, EventHook, safe_hook
from eos_client.ports import Clock, MembershipSnapshot, TransactionalMethods

_END_MIN_S = 0.2


class ProducerMethods(TransactionalMethods, Produces, Protocol):
    """What the application holds."""


class ConfluentProducer:
    """Begins and ends transactions, and joins the parts of a producer. Fulfils ``TransactionalProducer``.

    Built without a handle: ``library.start()`` comes next. ``face``: what the application holds, and may have put
    methods of its own around, so that they are called for its blocks, too.
    """

    def __init__(  # noqa: PLR0913  # what differs between the producers of a face and of a slot is named
        self,
        settings: Mapping[str, Any],
        *,
        limits: ProducerLimits,
        counters: Counters,
        hook: EventHook,
        clock: Clock,
        shortest_timeout_s: float = 0.0,
        generate_id: bool = False,
        factory: ProducerFactory = Producer,
        face: ProducerMethods | None = None,
        init_attempt_s: float = 1.0,
        takes_id_back: bool = True,
    ) -> None:
        self._hook = hook = safe_hook(hook)
        self._clock = clock
        self._losses_before_offsets: int | None = None
        self.library = LibraryProducer(settings, factory, clock, shortest_timeout_s, generate_id=generate_id)
        self.ownership = self._ownership = ThreadOwnership("EosProducer", shared=not self.transactional_id)
        self.calls = BoundedCalls(self.library, limits, clock, takes_id_back=takes_id_back)
        self.registration = Registration(self.calls, self.ownership, counters, hook, clock, init_attempt_s)
        self.outputs = Outputs(self.calls, self.ownership, clock, face)
        self.methods: TransactionalMethods = self if face is None else face

    # -- what is known -----------------------------------------------------------------------------------------------

    @property
    def limits(self) -> ProducerLimits:
        """How long transactional work may take."""
        return self.calls.limits

    @property
    def transactional_id(self) -> str:
        """The producer's stable name across restarts and rebuilds; empty until it has one."""
        return self.library.transactional_id

    @property
    def transaction_timeout_s(self) -> float:
        """Seconds after which the coordinator aborts an open transaction; 0.0 until the producer has an id."""
        return self.library.transaction_timeout_s

    @property
    def identity(self) -> str | None:
        """The handle's ``id/epoch``, where it is known."""
        return self.library.identity

    @property
    def gives_up(self) -> bool:
        """Whether waiting for the cluster has come to its end."""
        return self.registration.gives_up

    @property
    def transaction_age_s(self) -> float:
        """Seconds since ``begin_transaction``; 0.0 when none is open."""
        return self.calls.transaction_age_s

    @property
    def transaction_failure(self) -> AbortableError | RebuildProducerError | None:
        """Why the open transaction can only be aborted, or the handle only be rebuilt, where a call has said so."""
        return self.calls.transaction_failure

    @property
    def has_open_transaction(self) -> bool:
        """Whether a transaction was begun that a commit or an abort could still end."""
        return self.calls.has_open_transaction

    @property
    def may_have_ended(self) -> bool:
        """Whether the transaction that was begun may have been ended, whatever the last call has raised."""
        return self.calls.may_have_ended

    # -- the handle --------------------------------------------------------------------------------------------------

    def init_transactions(self, timeout: float = -1) -> None:
        """Register the id; see ``Registration``."""
        self.registration.init_transactions(timeout)

    def rebuild(self) -> None:
        """Replace the handle and initialise the new one; see ``Registration``."""
        self.registration.rebuild()

    def callback_errors_deferred(self, *, beyond: bool = False) -> AbstractContextManager[None]:
        """Raise what the application's callbacks raise within only at the end; ``beyond``: in a later call."""
        return self.library.deferred.until_the_end(beyond=beyond)

    def listen(self) -> None:
        """Take in what the client library has to say while nothing is sent; raises nothing."""
        self.calls.listen()

    # -- the transaction ---------------------------------------------------------------------------------------------

    @owned(claims=True)
    def begin_transaction(self) -> None:
        """Begin a transaction; sends nothing."""
        calls, library = self.calls, self.library
        calls.serve(0)
        calls.require_usable()
        calls.mark_broken_off(TransactionalRequest.BEGIN)
        try:
            library.raw.begin_transaction()
        except KafkaException as exception:
            calls.raise_failure(TransactionalRequest.BEGIN, exception)
        if library.init.is_fresh and library.log.losses:  # its request may have been sent twice, and be served late
            library.inits_left.another()
        library.init.transaction_begins()
        library.log.forget_implied()
        self._losses_before_offsets = None
        library.last_errors.begin_transaction()
        calls.begun()

    @owned()
    def send_offsets_to_transaction(self, positions: Any, group_metadata: Any, timeout: float = -1, /) -> None:
        """Add input offsets to the transaction, fenced by the group (KIP-447)."""
        # The gate has judged the snapshot; this judges the very bytes that are sent, whoever calls.
        generation = decode(group_metadata)
        # Without an open transaction the client library refuses the call, whatever the metadata are.
        if self.calls.began_at is not None and generation is not None and not generation.is_active_member:
            raise must_abort(
                f"the group metadata names no member ({generation}): brokers accept such a commit without "
                "any fence (KIP-447). Subscribe, poll until partitions are assigned, and read the metadata then."
            )
        self._refuse_overtaken_offsets()
        limit_s = timeout if timeout >= 0 else self.limits.commit_timeout_s
        raw = self.library.raw
        self.calls.offsets_are_fenced()
        self.calls.run(
            TransactionalRequest.SEND_OFFSETS,
            lambda: raw.send_offsets_to_transaction(positions, group_metadata, limit_s),
            limit_s,
        )
        self.calls.booked()

    def _refuse_overtaken_offsets(self) -> None:
        """Within one transaction nothing but their order tells a late copy of the first offsets from later ones."""
        self.calls.listen()
        losses = self.library.log.losses
        if self._losses_before_offsets is None:
            self._losses_before_offsets = losses
        elif self._losses_before_offsets < losses:
            raise must_abort(
                f"a connection of transactional.id {self.library.transactional_id!r} was lost since this "
                "transaction's first offsets were sent: a late copy of them could take back those that follow "
                "(KAFKA-17754). Abort, rewind and go on, or send the offsets of a transaction once."
            )

    @owned()
    def commit_transaction(self, timeout: float = -1) -> None:
        """Commit. Raises AbortableError, or UnknownOutcomeError when no definite answer came in time."""
        self.calls.require_transaction_intact()
        self._end(TransactionalRequest.COMMIT, timeout)
        self.library.deferred.raise_kept()

    @owned()
    def abort_transaction(self, timeout: float = -1) -> None:
        """Abort. Raises RebuildProducerError when the abort was not confirmed in time."""
        self._end(TransactionalRequest.ABORT, timeout)
        self.library.deferred.raise_kept()

    def _end(self, request: TransactionalRequest, timeout: float) -> None:
        self.calls.require_usable()
        if not self.library.transactional_id:
            raise not_transactional(request)
        limit_s = timeout if timeout >= 0 else self.limits.commit_timeout_s
        if request is TransactionalRequest.COMMIT:
            # Here and not inside the call, so that delivery callbacks run in the caller's thread.
            began_at = self._clock()
            self.outputs.flush_outputs(max(_END_MIN_S, limit_s))
            limit_s = max(_END_MIN_S, limit_s - (self._clock() - began_at))
        ended = getattr(self.library.raw, request.value)
        self.calls.run(request, lambda: ended(limit_s), limit_s)
        self.calls.ended(request)
        if self.registration.may_have_sent_twice:
            self.registration.renew()

    def offsets_to_send(
        self, positions: InputPositions, snapshot: MembershipSnapshot, metadata: str
    ) -> tuple[list[TopicPartition], Any]:
        """Return what adds ``positions`` to the transaction under ``snapshot``'s membership, each with ``metadata``."""
        offsets = [
            TopicPartition(p.topic, p.partition, position.next_offset, metadata, position.leader_epoch)
            if position.leader_epoch is not None
            else TopicPartition(p.topic, p.partition, position.next_offset, metadata)
            for p, position in positions.items()
        ]
        return offsets, snapshot.group_metadata

    # -- the cluster, closing ----------------------------------------------------------------------------------------

    @owned()
    def list_topics(self, topic: str | None = None, timeout: float = -1) -> Any:
        """Return the cluster's metadata."""
        self.calls.require_serving()
        given: dict[str, Any] = {"timeout": timeout} if topic is None else {"topic": topic, "timeout": timeout}
        return self.library.call(lambda: self.library.raw.list_topics(**given))

    @owned()
    def close(self) -> bool:
        """Leave the handle; a producer without an id first waits for outstanding records."""
        library = self.library
        library.guard.begin_close()
        try:
            if library.raw is not None and not library.transactional_id and self.calls.finished is None:
                self.outputs.flush_for_good()
        finally:
            self.calls.finish(closed_error(library.transactional_id))
            library.leave_behind()
        if report := library.guard.take_report():
            self._hook(ClientReported(client="producer", error=report))
        library.guard.raise_kept()
        return True
