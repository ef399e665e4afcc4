"""The replaceable part of a producer: one librdkafka handle under a transactional.id that outlives it.

Without an id it is an idempotent producer, for any thread; the first ``init_transactions`` gives it an id and a handle.
A handle that failed for good, or whose call is overdue, is left behind; ``init_transactions`` of the next one bumps the
epoch, which fences the old one and ends its transaction (KIP-360).
"""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from typing import Any, NoReturn, SupportsIndex, TypeVar

import tenacity
from confluent_kafka import KafkaError, KafkaException, Producer, libversion

from eos_client.config import idempotent_producer_settings, safe_producer_settings
from eos_client.confluent.call_stack import in_library
from eos_client.confluent.callback_guard import CallbackGuard
from eos_client.confluent.client_log import ClientLog
from eos_client.confluent.diagnosis import LastErrors, why_init_failed
from eos_client.confluent.failures import (
    KafkaRebuildProducerError,
    KafkaUnknownOutcomeError,
    idempotent_error,
    kafka_error,
    not_to_be_copied,
    overdue_error,
    producer_error,
    unflushed_error,
    with_error,
)
from eos_client.confluent.handle_thread import HandleThread, OverdueError
from eos_client.confluent.producer.deferred_errors import DeferredErrors
from eos_client.confluent.producer.delivery_reports import DeliveryReports
from eos_client.confluent.producer.handle_init import HandleInit, InitsLeftBehind, UnansweredInits
from eos_client.confluent.producer.producer_identity import IdentityWatch
from eos_client.confluent.thread_ownership import NeverBuilt, ThreadOwnership, owned
from eos_client.core.error_codes import OVERDUE
from eos_client.core.model import ProducerLimits
from eos_client.core.producer_recovery import ProducerFailure, TransactionalRequest
from eos_client.errors import (
    AbortableError,
    ClientClosedError,
    ClusterUnavailableError,
    ClusterUnfitError,
    EosError,
    FatalClientError,
    ProducerFencedError,
    RebuildProducerError,
    RetriableError,
    UnknownOutcomeError,
)
from eos_client.observe import Counters, EventHook, ProducerRebuilt, safe_hook
from eos_client.ports import Clock

# A call is given its own timeout first; only what outlives that by this much is left behind.
_GRACE_S = 0.5
_INIT_ATTEMPT_MIN_S = 0.01
_REPORT_LIMIT_S, _REPORT_SLICE_S = 0.5, 0.05
_FLUSH_SLICE_S = 0.2

T = TypeVar("T")
_UNANSWERED = UnansweredInits()


class NotInitialisedError(KafkaRebuildProducerError):
    """The handle serves what needs no transaction; the next init_transactions() continues or replaces it."""


def _destroy(raw: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # that it could not end its transaction is why it is left
        raw.purge()  # close() waits for outstanding records without any limit
        raw.close()


def _sent_twice(transactional_id: str, *, log_understood: bool) -> RebuildProducerError:
    happened = (
        f"a connection of transactional.id {transactional_id!r} was lost since its handle was built"
        if log_understood
        else f"librdkafka {libversion()[0]} does not tell in a known form which connections transactional.id "
        f"{transactional_id!r} loses, so each of its transactions ends with its handle"
    )
    return RebuildProducerError(
        f"{happened}: the client library may have sent a request twice, and the first copy could still end the next "
        "transaction (KAFKA-17754). Call init_transactions() to build a new handle with the same id."
    )


def _not_initialised(transactional_id: str) -> NotInitialisedError:
    message = (
        f"transactional.id {transactional_id!r} is not registered: the last init_transactions() or rebuild did not "
        "succeed, or an exception from outside broke it off. Call init_transactions()."
    )
    conflict = KafkaError(KafkaError._CONFLICT, message, retriable=True)  # noqa: SLF001  # a public local code
    return NotInitialisedError(conflict, message)


def _why_broken_off(request: TransactionalRequest, transactional_id: str) -> EosError:
    """Return why no call is possible after one that an exception from outside broke off: nobody knows its outcome."""
    is_commit = request is TransactionalRequest.COMMIT
    what = f"{request.value}() of transactional.id {transactional_id!r} was broken off by an exception from outside"
    way_out = (
        "Do not abort and do not commit again: call init_transactions(), then compare the group's committed offsets "
        "with those that were sent."
        if is_commit
        else "Call init_transactions() to build a new handle with the same id."
    )
    message = f"{what}. {way_out}"
    error = KafkaError(KafkaError._INTR, message)  # noqa: SLF001  # a public local code
    return KafkaUnknownOutcomeError(error, message) if is_commit else KafkaRebuildProducerError(error, message)


ProducerFactory = Callable[[dict[str, Any]], Any]


class ProducerHandle:
    """Builds, initialises, bounds and replaces the handle, and names its failures.

    An exception from outside may strike anywhere. So ``_finished`` says why the handle takes no calls *before* a call
    that must not be repeated is made, and is cleared only when what has become of the call is known and booked.
    """

    init_attempt_s = 1.0
    """How long one attempt of ``init_transactions`` takes at most before it is repeated."""

    takes_id_back = True
    """Whether a fence that an init of ours may explain is recovered from; else every fence is another's."""

    _raw: Any = None
    _leaving: Any = None
    _thread: Any = None
    _finished: EosError | None = None
    _broken_off: EosError | None = None
    _ownership: ThreadOwnership | NeverBuilt = NeverBuilt("Producer has been closed")

    def __init__(
        self,
        settings: Mapping[str, Any],
        *,
        limits: ProducerLimits | None,
        counters: Counters | None,
        shortest_timeout_s: float,
        generate_id: bool,
        hook: EventHook,
        factory: ProducerFactory,
        clock: Clock,
    ) -> None:
        self.limits = limits or ProducerLimits()
        self.counters = counters or Counters()
        self.give_up_at = math.inf
        self._shortest_timeout_s = shortest_timeout_s
        self._settings = idempotent_producer_settings(settings)
        self._generated_id = self._settings.get("transactional.id") is None
        if generate_id or not self._generated_id:
            self._settings = safe_producer_settings(self._settings, shortest_timeout_s)
        self.last_errors = LastErrors(self._settings.get("error_cb"))
        self._hook = safe_hook(hook)
        self._factory = factory
        self._clock = clock
        self._ownership = ThreadOwnership("EosProducer", shared=not self.transactional_id)
        self._began_at: float | None = None
        self._transaction_failure: AbortableError | None = None
        self._group_fenced = False
        self._failed_before: tuple[TransactionalRequest, str] | None = None
        self._losses_before_call = 0
        self._guard = CallbackGuard()
        self._deferred = DeferredErrors(self._raise_of_guard)
        self._init = HandleInit()
        self._inits_left = InitsLeftBehind(clock)
        self._start_handle()

    def _start_handle(self) -> None:
        # One for each handle: what one that was left behind still says is nobody's business.
        self._guard = CallbackGuard(self._guard.error)
        self._reports = DeliveryReports(self._guard)
        self._identity = IdentityWatch(self._settings)
        self._log = ClientLog(self._settings)
        # Without an id nothing hangs on the library's log and errors, and poll() returns for no event of ours.
        settings = self._watched(dict(self._settings)) if self.transactional_id else dict(self._settings)
        settings = self._identity.added_to(self._reports.guard_options(settings))
        with self._guard.building("producer"):
            raw = self._factory(self._guard.added_to(settings))
        self._thread = HandleThread(f"eos-producer-{self.transactional_id}", self._clock)
        self._raw = raw
        self._init = HandleInit()  # last: whatever is broken off before is done again

    def _watched(self, settings: dict[str, Any]) -> dict[str, Any]:
        settings["error_cb"] = self.last_errors
        only_errors = str(settings.get("delivery.report.only.error", "")).lower() in {"true", "t", "1"}
        if only_errors or settings.get("on_delivery") is not None:
            settings["on_delivery"] = self.last_errors.watching_deliveries(settings.get("on_delivery"))
        return self._log.added_to(settings)

    @property
    def transactional_id(self) -> str:
        """The producer's stable name across restarts and rebuilds; empty until it has one."""
        return str(self._settings.get("transactional.id") or "")

    @property
    def transaction_timeout_s(self) -> float:
        """Seconds after which the coordinator aborts an open transaction; 0.0 until the producer has an id."""
        return int(self._settings["transaction.timeout.ms"]) / 1000 if self.transactional_id else 0.0

    @property
    def settings(self) -> Mapping[str, Any]:
        """The librdkafka settings in force, the defaults of this package included."""
        return self._settings

    @property
    def identity(self) -> str | None:
        """The handle's ``id/epoch`` as its statistics tell it (``statistics.interval.ms``); None where they do not."""
        return self._identity.known

    @property
    def transaction_age_s(self) -> float:
        """Seconds since ``begin_transaction``; 0.0 when none is open."""
        return 0.0 if self._began_at is None else self._clock() - self._began_at

    @property
    def transaction_failure(self) -> AbortableError | RebuildProducerError | None:
        """Why the open transaction can only be aborted, where a call has said so already; it stays until it is.

        Also why none can be begun, where the handle must be rebuilt first.
        """
        finished = self._finished
        if isinstance(finished, RebuildProducerError) and not isinstance(finished, UnknownOutcomeError):
            return finished
        return self._transaction_failure

    @property
    def has_open_transaction(self) -> bool:
        """Whether a transaction was begun that a commit or an abort could still end."""
        return self._began_at is not None and self._finished is None

    @property
    def may_have_ended(self) -> bool:
        """Whether the transaction that was begun may have been ended, whatever the last call has raised.

        So it is where an exception from outside came while the end was under way, or between that and the return.
        """
        is_broken_off = self._finished is not None and self._finished is self._broken_off
        return is_broken_off or self._began_at is None

    # -- life of a handle ---------------------------------------------------------------------------------------

    @owned(claims=True, alone=True)
    def init_transactions(self, timeout: float = -1) -> None:
        """Register the id, fencing every older instance with it; builds a new handle when this one is finished.

        A producer without an id gets a generated one, and belongs to the calling thread from now on; records that it
        has produced before are flushed first.
        Waits ``timeout`` seconds, or ``start_timeout_s`` when negative. Raises ClusterUnavailableError when no broker
        answers, ClusterUnfitError with the real reason when one does, ProducerFencedError, FatalClientError, and
        RetriableError when the earlier records are not acknowledged in time. What delivery callbacks raise meanwhile is
        raised at the end; repeating the call before the first transaction does nothing.
        """
        self._refuse_when_over()
        limit_s = timeout if timeout >= 0 else self.limits.start_timeout_s
        began_at = self._clock()
        if not self.transactional_id:
            self._become_transactional(limit_s)
        elif self._finished is not None and not self._init.is_resumable:
            self._replace_handle()
        self._initialise(max(0.0, limit_s - (self._clock() - began_at)))
        self._raise_kept()

    def _refuse_when_over(self) -> None:
        if isinstance(self._finished, (ClientClosedError, ProducerFencedError)):
            raise self._finished

    def _become_transactional(self, limit_s: float) -> None:
        if self._finished is None and (left := self._flush_idempotent(limit_s)):
            raise unflushed_error(left, limit_s)
        settings = safe_producer_settings(self._settings, self._shortest_timeout_s)
        self._finish(_not_initialised(settings["transactional.id"]))
        self._settings = settings
        self._ownership.end_sharing()
        self._replace_handle()

    def _flush_idempotent(self, limit_s: float) -> int:
        deadline = self._clock() + limit_s
        while True:
            # In slices: Python runs signal handlers between calls into the client library, not during one.
            slice_s = min(_FLUSH_SLICE_S, max(0.0, deadline - self._clock()))
            left = int(in_library(self, lambda: self._raw.flush(slice_s)))  # noqa: B023
            if not left or self._clock() >= deadline:
                return left

    def _initialise(self, limit_s: float) -> None:
        if self._init.is_resumable and self._finished is None:
            self._finished = _not_initialised(self.transactional_id)
        if self._thread.is_real:  # in a simulated cluster, instances stand for processes
            _UNANSWERED.begins(self)
        try:
            self._initialise_within(limit_s)
        except (RetriableError, RebuildProducerError) as error:
            if self.gives_up:
                raise ClusterUnavailableError(f"{error} Given up because the process is to stop.") from error
            simulated = not isinstance(self._raw, Producer)
            raise why_init_failed(self._settings, self.last_errors, limit_s, error, simulated=simulated) from error
        _UNANSWERED.succeeded(self)
        self._inits_left.followed()
        self._init.answered()
        self._finished = None

    @property
    def claim(self) -> object:
        """The id, with the cluster that is asked for it."""
        return self._factory, self._settings.get("bootstrap.servers"), self.transactional_id

    @owned()
    def give_way(self) -> None:
        """End the handle if its init is unanswered, for a younger producer asks for the same id.

        The next ``init_transactions`` of this one takes the id back.
        """
        if self._init.is_unanswered and not self._guard.is_running():
            self._finish(_not_initialised(self.transactional_id))
            self._leave_handle_behind()

    def _initialise_within(self, limit_s: float) -> None:
        deadline = self._clock() + limit_s
        retrying = tenacity.Retrying(
            sleep=self._clock.sleep,
            retry=tenacity.retry_if_exception_type((RetriableError, RebuildProducerError)),
            stop=lambda _: self.gives_up or self._clock() >= deadline,
            wait=tenacity.wait_exponential(multiplier=0.001, max=1.0),
            before_sleep=lambda _: None if self._init.is_resumable else self._replace_handle(),
            reraise=True,
        )
        retrying(self._init_once, deadline)

    def _init_once(self, deadline: float) -> None:
        attempt_s = min(self.init_attempt_s, max(_INIT_ATTEMPT_MIN_S, deadline - self._clock()))
        raw, init = self._raw, self._init
        init.is_unanswered = init.is_resumable
        try:
            self._bounded(TransactionalRequest.INIT, lambda: init.attempt(raw, attempt_s), attempt_s)
        except RetriableError:
            self._serve(0)  # the client library's log may say why
            raise

    def rebuild(self) -> None:
        """Replace the handle and initialise the new one, which ends the old one's transaction one way or the other.

        Tried for ``recovery_timeout_s``, or until ``give_up_at``; raises what ``init_transactions`` raises. A rebuild
        that failed or was broken off is continued.
        """
        self._refuse_when_over()
        began_at, reason = self._clock(), str(self._finished or "asked for")
        age_s, old = self.transaction_age_s, self.identity
        if not self._init.is_resumable:
            self._replace_handle()
        self._initialise(self.limits.recovery_timeout_s)
        self.counters.producer_rebuilds += 1
        self._hook(
            ProducerRebuilt(
                transactional_id=self.transactional_id,
                reason=reason,
                duration_s=self._clock() - began_at,
                transaction_age_s=age_s,
                old_producer=old,
            )
        )

    @property
    def may_have_sent_twice(self) -> bool:
        """Whether this handle has lost a connection: a copy of a request may still arrive, late.

        A loss between transactions counts as well, so that no handle goes on until a loss is not told any more.
        """
        self.listen()
        return self._log.losses > 0 or not self._log.understood or self._finished is not None

    def listen(self) -> None:
        """Take in what the client library has to say, or it piles up in memory; the next call raises what failed."""
        with suppress(EosError):
            self._serve(0)

    def _serve(self, timeout_s: float) -> int:
        # Fatal errors come out of whatever serves them.
        return int(self._direct(TransactionalRequest.FLUSH, lambda: self._raw.poll(timeout_s)))

    def _renew(self) -> None:
        """Fence whatever is still under way; what has been confirmed stays so, whatever becomes of this."""
        if self._finished is None:
            self._finish(_sent_twice(self.transactional_id, log_understood=self._log.understood))
            with suppress(EosError):
                self.rebuild()

    def callback_errors_deferred(self, *, beyond: bool = False) -> AbstractContextManager[None]:
        """Raise what callbacks raise within only at the end; where the block itself raises, in a later call.

        ``beyond``: always in a later call.
        """
        return self._deferred.until_the_end(beyond=beyond)

    def _raise_of_guard(self) -> None:
        self._guard.raise_kept()

    def _raise_kept(self) -> None:
        """Raise what a callback has raised, once what was asked for is done and booked."""
        self._deferred.raise_kept()

    @property
    def gives_up(self) -> bool:
        """Whether waiting for the cluster has come to its end."""
        return self._clock() >= self.give_up_at

    def _replace_handle(self) -> None:
        """Replace the handle, which takes no calls until its init has succeeded; what was broken off is done again."""
        self._finish(_not_initialised(self.transactional_id))
        self._leave_handle_behind()
        self._start_handle()
        self._began_at = self._transaction_failure = None

    def _leave_handle_behind(self) -> None:
        # Destroying a handle joins librdkafka's threads, which may take as long as the call that is stuck. Not left to
        # the garbage collector either: a live zombie would keep its connections.
        raw = self._leaving if self._raw is None else self._raw
        if raw is None:
            return
        if self._init.is_unanswered:
            self._inits_left.another()
            self._init.is_unanswered = False
        self._reports.leave()
        self._guard.retire()
        # Whatever strikes from here on, nothing is asked of a handle that may be destroyed, and it is destroyed.
        self._leaving, self._raw = raw, None
        self._thread.abandon(lambda: _destroy(raw), lambda: raw.poll(0))
        self._leaving = None

    def __reduce_ex__(self, _protocol: SupportsIndex) -> NoReturn:
        raise not_to_be_copied(self)

    def __del__(self) -> None:
        """End the handle of a producer that was dropped without close(); not in the thread that collects garbage."""
        # In simulated time that would be a matter of chance, and at the end of the process there is no other thread.
        if self._raw is not None and self._thread.is_real and not sys.is_finalizing():
            self._leave_handle_behind()
        elif self._thread is not None:
            self._thread.end()

    # -- failures ------------------------------------------------------------------------------------------------

    def _finish(self, error: EosError) -> None:
        self._finished = error
        self._init.is_resumable = False

    def _usable(self) -> None:
        if self._finished is not None:
            raise self._finished

    def _serving(self) -> None:
        """Raise why the handle does not even serve what needs no transaction."""
        if self._raw is None or not isinstance(self._finished, NotInitialisedError):
            self._usable()

    def _mark_broken_off(self, request: TransactionalRequest) -> None:
        """Say what has become of ``request`` should an exception from outside keep us from booking that."""
        self._finished = self._broken_off = _why_broken_off(request, self.transactional_id)

    def _bounded(self, request: TransactionalRequest, call: Callable[[], Any], timeout_s: float) -> None:
        """Run ``call`` in the handle's thread. The caller clears ``_finished`` when its success is booked."""
        if request is TransactionalRequest.INIT:
            self._serving()
        else:
            self._usable()
            self._mark_broken_off(request)
        self._losses_before_call = self._log.losses
        try:
            error = self._thread.run(call, timeout_s + _GRACE_S).take_error()
        except OverdueError as exception:
            raise self._remember(overdue_error(self._failure(request), timeout_s, self.transactional_id)) from exception
        if error is not None:
            try:
                self._raise_failure(request, error)
            finally:
                del error  # or the traceback and this frame would keep each other, and the handle, alive

    def _raise_failure(self, request: TransactionalRequest, error: BaseException) -> NoReturn:
        marked = self._finished
        named = self._name(request, error) if isinstance(error, KafkaException) else error
        if self._finished is marked and request is not TransactionalRequest.INIT:
            self._finished = None
        try:
            if named is error:
                raise error
            raise named from error
        finally:
            del error, named

    def _direct(self, request: TransactionalRequest, call: Callable[[], T]) -> T:
        """Make ``call`` in the caller's thread."""
        if request is TransactionalRequest.FLUSH:
            self._serving()
        else:
            self._usable()
        try:
            return in_library(self, call)
        except KafkaException as exception:
            if isinstance(exception, EosError):
                raise
            self._raise_named(request, exception)

    def _raise_named(self, request: TransactionalRequest, exception: KafkaException, where: str = "") -> NoReturn:
        named = self._name(request, exception, where)
        if named is exception:
            raise exception
        raise named from exception

    def _name(self, request: TransactionalRequest, exception: KafkaException, where: str = "") -> Exception:
        if self.transactional_id:
            return self._failed(request, exception, where)
        # Where nothing can be said that confluent_kafka's own exception does not say, it is that.
        named = idempotent_error(request, kafka_error(exception))
        return exception if named is None else self._remember(named)

    def _failed(self, request: TransactionalRequest, exception: KafkaException, where: str = "") -> EosError:
        error = kafka_error(exception)
        failure = self._failure(request, error)
        if request is TransactionalRequest.PRODUCE and failure.code == "_STATE" and failure.transaction_open:
            self._await_undelivered()
        self._failed_before = (request, failure.code)
        if failure.is_fenced:
            self._inits_left.fenced()
        named = producer_error(failure, error, self.transactional_id, self._why_failed(failure) + where)
        if request is TransactionalRequest.INIT and failure.fatal:
            self._init.answered()
            self._finished = named
        return self._remember(named)

    def _await_undelivered(self) -> None:
        """After a failed delivery librdkafka first takes no more outputs, and reports what failed a moment later."""
        deadline = self._clock() + _REPORT_LIMIT_S
        while self.last_errors.awaits_undelivered and self._clock() < deadline:
            heard = bool(self._log.failed)
            self._serve(_REPORT_SLICE_S)
            if heard:  # and no report beside it: the outputs are held back, to be sent again or purged
                return

    def _why_failed(self, failure: ProducerFailure) -> str:
        clause = self.last_errors.delivery_clause()
        if not clause and failure.code == "_STATE" and self._log.failed:
            return f"; {self._log.failed}"
        return clause

    def _failure(self, request: TransactionalRequest, error: KafkaError | None = None) -> ProducerFailure:
        known = ProducerFailure(
            request,
            OVERDUE,
            transaction_age_s=self.transaction_age_s,
            transaction_timeout_s=self.transaction_timeout_s,
            generated_id=self._generated_id,
            transaction_open=self._began_at is not None,
            group_fenced=self._group_fenced,
            init_left_behind=self.takes_id_back and self._inits_left.explain_a_fence,
            again=error is not None and (request, error.name()) == self._failed_before,
            may_have_been_sent_twice=request is TransactionalRequest.COMMIT and self._may_be_a_second_copys(error),
        )
        return known if error is None else with_error(known, error)

    def _may_be_a_second_copys(self, error: KafkaError | None) -> bool:
        """Whether a connection was lost before the call that began last was refused: librdkafka repeats it then."""
        if error is None or not error.txn_requires_abort():
            return False
        with suppress(KafkaException):  # not by `_serve`: until this failure has a name, the handle takes no calls
            in_library(self, lambda: self._raw.poll(0))
        return self._log.losses > self._losses_before_call or not self._log.understood

    def _remember(self, error: EosError) -> EosError:
        if isinstance(error, (RebuildProducerError, ProducerFencedError, FatalClientError)):
            self._finish(error)
        elif isinstance(error, AbortableError) and self._began_at is not None:
            self._transaction_failure = self._transaction_failure or error
        elif isinstance(error, ClusterUnfitError):
            self._transaction_failure = None  # the client library itself refuses every later call, with this reason
        return error
