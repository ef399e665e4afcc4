"""Runs a producer's calls with time limits, refuses calls to an unusable handle, and translates its errors."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any, NoReturn, TypeVar

from confluent_kafka import KafkaError, KafkaException

from eos_client import errors
from eos_client.confluent.failures.kafka_errors import NamedError, kafka_error, make_kafka_error
from eos_client.confluent.failures.producer_failures import (
    ERROR_CLASSES,
    OUTPUT,
    WAYS_OUT,
    OutputWords,
    idempotent_error,
    must_abort,
    overdue_error,
    producer_error,
    with_error,
)
from eos_client.confluent.handle_thread import OverdueError
from eos_client.confluent.producer.library_producer import LibraryProducer
from eos_client.core.error_codes import INTERRUPTED, OVERDUE, READING_FORBIDDEN
from eos_client.core.producer_recovery import ProducerFailure, TransactionalRequest, is_of_matched_topics, recovery_for
from eos_client.core.producer_states import (
    CallAnswered,
    CallBegins,
    CallFailed,
    InitBegins,
    MustAbort,
    ProducerEvent,
    ProducerState,
    next_state,
)
from eos_client.ports import Clock

# A handle is abandoned only if its call exceeds its own timeout by this much.
_GRACE_S = 0.5
_REPORT_LIMIT_S, _REPORT_SLICE_S = 0.5, 0.05
FLUSH_SLICE_S = 0.2

T = TypeVar("T")


class BoundedCalls:
    """``state``: what is true of the handle and its transaction; `tell` is the only way it changes."""

    def __init__(
        self,
        library: LibraryProducer,
        clock: Clock,
        *,
        recovers_from_own_fence: bool,
        words: OutputWords = OUTPUT,
    ) -> None:
        self.library = library
        self.clock = clock
        self.recovers_from_own_fence = recovers_from_own_fence
        self._words = words
        self.state = ProducerState()

    def tell(self, event: ProducerEvent) -> None:
        """Apply ``event`` to the state; again, if a signal handler has told something meanwhile."""
        while True:
            before = self.state
            after = next_state(before, event)
            if self.state is before:
                self.state = after
                return

    @property
    def transaction_age_s(self) -> float:
        """Seconds since ``begin_transaction``; 0.0 when none is open."""
        transaction = self.state.transaction
        return 0.0 if transaction is None else self.clock() - transaction.began_at_s

    # -- which calls are possible ------------------------------------------------------------------------------------

    def require_usable(self) -> None:
        """Raise the error for which the handle refuses calls, if there is one."""
        if self.state.why_unusable is not None:
            raise self.state.why_unusable

    def require_serving(self) -> None:
        """Raise the error for which the handle refuses even calls without a transaction."""
        if self.library.raw is None or self.state.refuses_serving:
            self.require_usable()

    def begin_call(self, request: TransactionalRequest) -> None:
        """Refuse ``request`` if the handle takes no calls; otherwise it counts as interrupted until it is answered."""
        self.require_usable()
        action = recovery_for(ProducerFailure(request, INTERRUPTED)).action
        message = (
            f"{request.value}() of transactional.id {self.library.transactional_id!r} was interrupted by an "
            f"asynchronous exception. {WAYS_OUT[action]}."
        )
        error = make_kafka_error(ERROR_CLASSES[action], KafkaError._INTR, message)
        self.tell(CallBegins(request, error, self.library.log.losses))

    # -- making them -------------------------------------------------------------------------------------------------

    def run(
        self, request: TransactionalRequest, call: Callable[[], Any], timeout_s: float, where: Callable[[], str] = str
    ) -> None:
        """Run ``call`` in the handle's thread. The caller tells its success, and what that has changed.

        What ``where`` returns is appended to the description of the failure in the error message.
        """
        if request is TransactionalRequest.INIT:
            self.require_serving()
            self.tell(InitBegins(self.library.log.losses))
        else:
            self.begin_call(request)
        try:
            error = self.library.thread.run(call, timeout_s + _GRACE_S)
        except OverdueError as exception:
            raise self._overdue(request, timeout_s) from exception
        if error is not None:
            try:
                self.raise_failure(request, error, where())
            finally:
                del error  # or the traceback and this frame would keep each other, and the handle, alive

    def direct(self, request: TransactionalRequest, call: Callable[[], T]) -> T:
        """Make ``call`` in the caller's thread."""
        if request is TransactionalRequest.FLUSH:
            self.require_serving()
        else:
            self.require_usable()
        try:
            return self.library.call(call)
        except KafkaException as exception:
            if isinstance(exception, errors.EosError):
                raise
            self.raise_failure(request, exception)

    def serve(self, timeout_s: float) -> int:
        """Serve the client library's events; returns how many."""
        # A fatal error is raised by the call that serves it.
        return int(self.direct(TransactionalRequest.FLUSH, lambda: self.library.raw.poll(timeout_s)))

    def flush(
        self,
        timeout_s: float,
        longest_s: float = FLUSH_SLICE_S,
        is_over: Callable[[], bool] = lambda: False,
        meanwhile: Callable[[], None] | None = None,
    ) -> int:
        """Wait for outstanding records, for ever if ``timeout_s`` is negative; returns how many are left.

        In slices of at most ``longest_s``: Python runs signal handlers between calls into the client library, not
        during one. After each, ``is_over`` says whether to wait no more, and ``meanwhile`` is called where it goes on.
        """
        deadline = math.inf if timeout_s < 0 else self.clock() + timeout_s
        while True:
            slice_s = min(longest_s, max(0.0, deadline - self.clock()))
            unacknowledged = int(self.direct(TransactionalRequest.FLUSH, lambda: self.library.raw.flush(slice_s)))  # noqa: B023
            if is_over() or not unacknowledged or self.clock() >= deadline:
                return unacknowledged
            if meanwhile is not None:
                meanwhile()

    def drain_events(self) -> None:
        """Serve pending events, which would pile up in memory otherwise; the next call raises errors among them."""
        with suppress(errors.EosError):
            self.serve(0)

    # -- failures ----------------------------------------------------------------------------------------------------

    def raise_failure(self, request: TransactionalRequest, error: BaseException, where: str = "") -> NoReturn:
        """Raise the class that the recovery table gives to ``error``, which answers the call under way."""
        named: BaseException | None = None
        if isinstance(error, KafkaException):
            if self.library.transactional_id:
                named = self.record_failure(request, error, where)
            elif named := idempotent_error(request, kafka_error(error), where):
                self.tell(CallFailed(request, named))
        if named is None:
            self.tell(CallAnswered())
        try:
            if named is None:  # where nothing can be said that confluent_kafka's own exception does not say
                raise error
            raise named from error
        finally:
            del error, named

    def record_failure(self, request: TransactionalRequest, raised: KafkaException, where: str = "") -> errors.EosError:
        """Translate what a transactional producer has ``raised`` by the recovery table, and record its effects."""
        if isinstance(raised, NamedError):
            self.tell(CallFailed(request, raised.named))
            return raised.named
        error = kafka_error(raised)
        failure = self._failure(request, error)
        if failure.follows_undelivered:
            self._await_undelivered()
        code = self.library.last_errors.undelivered_code or self.library.log.failed_code
        failure = replace(failure, undelivered_code=code, clock_is_at_fault=self.library.clock_is_at_fault)
        if failure.is_fenced:
            self.library.abandoned_inits.record_fence()
        clause = self._why_failed(failure) + where
        named = producer_error(failure, error, self.library.transactional_id, clause, self._words)
        self.tell(CallFailed(request, named, failure))
        if request is TransactionalRequest.INIT and failure.finishes_handle:
            self.library.init.mark_answered()
        return named

    def _overdue(self, request: TransactionalRequest, timeout_s: float) -> errors.EosError:
        failure = self._failure(request)
        error = overdue_error(failure, timeout_s, self.library.transactional_id)
        self.tell(CallFailed(request, error, failure))
        return error

    def record_acknowledged_outputs(self) -> None:
        """Record that no output is under way; raises ClusterUnfitError if this host's clock has spoiled one."""
        library = self.library
        if library.clock_is_at_fault:
            refusal = KafkaException(KafkaError(KafkaError.INVALID_TIMESTAMP, library.log.failed))
            raise self.record_failure(TransactionalRequest.FLUSH, refusal)
        if not library.log.failed:
            library.times_given.clear()

    def _await_undelivered(self) -> None:
        """Wait for the report of a failed delivery: librdkafka first refuses outputs, and reports a moment later."""
        deadline, last, log = self.clock() + _REPORT_LIMIT_S, self.library.last_errors, self.library.log
        with suppress(errors.TransactionStateError):  # in a callback, whose call reads the other reports
            while not last.undelivered_code and (last.watches_deliveries or not log.failed) and self.clock() < deadline:
                is_logged = bool(log.failed)
                self.serve(_REPORT_SLICE_S)
                if is_logged:  # without a delivery report: the outputs are still queued, to be retried or purged
                    return

    def _why_failed(self, failure: ProducerFailure) -> str:
        log = self.library.log
        why = log.failed if failure.refused_by_state else ""
        if failure.code in READING_FORBIDDEN or failure.hidden_code in READING_FORBIDDEN:
            why = log.partition_refusal or why
        return self.library.last_errors.delivery_clause() or (f"; {why}" if why else "")

    def _failure(self, request: TransactionalRequest, error: KafkaError | None = None) -> ProducerFailure:
        library, state, last = self.library, self.state, self.state.last_failure
        by_pattern_alone = {} if state.transaction is None else state.transaction.by_pattern_alone
        if error is not None and (error.fatal() or error.txn_requires_abort()):
            self._read_log()
        known = ProducerFailure(
            request,
            OVERDUE,
            transaction_age_s=self.transaction_age_s,
            transaction_timeout_s=library.transaction_timeout_s,
            generated_id=library.id_is_generated,
            transaction_open=state.is_in_transaction,
            offsets_carry_fence=state.offsets_carry_fence,
            topics_may_leave=error is not None and is_of_matched_topics(by_pattern_alone, error.str()),
            init_abandoned=self.recovers_from_own_fence and library.abandoned_inits.may_explain_fence,
            was_registered=library.log.has_registered,
            bump_repeated=self.recovers_from_own_fence and library.log.bump_requests > 1,
            is_repeated=error is not None and last is not None and (request, error.name()) == (last.request, last.code),
            may_have_been_sent_twice=request is TransactionalRequest.COMMIT and self._may_answer_second_copy(error),
        )
        return known if error is None else with_error(known, error)

    def _may_answer_second_copy(self, error: KafkaError | None) -> bool:
        """Whether a connection was lost during the last call, so that the refusal may answer a re-sent copy."""
        if error is None or not error.txn_requires_abort():
            return False
        return self.library.log.connections.may_have_sent_twice(self.state.losses_before_call)

    def _read_log(self) -> None:
        """Serve the client library's log; not by `serve`: until a failure has a name, the handle takes no calls."""
        with suppress(KafkaException, errors.TransactionStateError):
            self.library.call(lambda: self.library.raw.poll(0))

    def must_abort(self, message: str) -> errors.AbortableError:
        """Return the error for a transaction that cannot be committed for a reason of our own; record its effect."""
        error = must_abort(message)
        self.tell(MustAbort(error))
        return error
