"""Runs a producer's calls with time limits, refuses calls to an unusable handle, and translates its errors.

An asynchronous exception may strike anywhere. So ``blocking_error`` is set *before* a call that must not be repeated,
and is cleared only once the outcome of the call is recorded.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
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
    NotInitialisedError,
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
from eos_client.ports import Clock

# A handle is abandoned only if its call exceeds its own timeout by this much.
_GRACE_S = 0.5
_REPORT_LIMIT_S, _REPORT_SLICE_S = 0.5, 0.05
FLUSH_SLICE_S = 0.2
_FINISHES_THE_HANDLE = (
    errors.RebuildProducerError,
    errors.UnknownOutcomeError,
    errors.ProducerFencedError,
    errors.FatalClientError,
)

T = TypeVar("T")


class BoundedCalls:
    """``blocking_error``: why the handle refuses calls, else None; ``began_at``: when the transaction began.

    ``by_pattern_alone``: for each topic whose offsets are sent, whether only a pattern has matched it.
    """

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
        self.blocking_error: errors.EosError | None = None
        self.began_at: float | None = None
        self._interrupted_error: errors.EosError | None = None
        self._transaction_failure: errors.AbortableError | None = None
        self._group_fenced = False
        self.by_pattern_alone: Mapping[str, bool] = {}
        self._last_failure: ProducerFailure | None = None
        self._commit_may_take_effect = False
        self._losses_before_call = 0

    # -- the transaction ---------------------------------------------------------------------------------------------

    @property
    def transaction_age_s(self) -> float:
        """Seconds since ``begin_transaction``; 0.0 when none is open."""
        return 0.0 if self.began_at is None else self.clock() - self.began_at

    @property
    def has_begun(self) -> bool:
        """Whether a transaction has begun and not ended, by a session or by hand, even if it can only be aborted."""
        return self.began_at is not None

    @property
    def transaction_failure(self) -> errors.AbortableError | errors.RebuildProducerError | None:
        """The error after which the open transaction can only be aborted, kept until the abort.

        If the handle must be rebuilt first, also the reason why no transaction can be begun.
        """
        error = self.blocking_error
        return error if isinstance(error, errors.RebuildProducerError) else self._transaction_failure

    @property
    def has_open_transaction(self) -> bool:
        """Whether a transaction was begun that a commit or an abort could still end."""
        return self.has_begun and self.blocking_error is None

    @property
    def may_have_ended(self) -> bool:
        """Whether the transaction that was begun may have been ended, whatever the last call has raised.

        True after an asynchronous exception while the end was under way, or between the end and the return.
        """
        is_interrupted = self.blocking_error is not None and self.blocking_error is self._interrupted_error
        return is_interrupted or not self.has_begun

    @property
    def commit_took_no_effect(self) -> bool:
        """Whether for certain no commit of the open transaction was sent, or all that were sent were refused."""
        return not (self.may_have_ended or self._commit_may_take_effect)

    def record_begin(self) -> None:
        """Record that a transaction has begun."""
        self.began_at, self.by_pattern_alone, self._commit_may_take_effect = self.clock(), {}, False
        self.blocking_error = None

    def mark_outcome_known(self) -> None:
        """Record that the outcome of the last call is known."""
        self.blocking_error = None

    def record_end(self, request: TransactionalRequest) -> None:
        """Record that ``request`` has ended the transaction."""
        if request is TransactionalRequest.COMMIT:
            self._last_failure = None
            self.library.abandoned_inits.record_commit()
        self.forget_transaction()
        self.blocking_error = None

    def forget_transaction(self) -> None:
        """Record that no transaction is open."""
        self.began_at = self._transaction_failure = None

    def record_fenced_offsets(self) -> None:
        """Record that offsets of the transactions are fenced by a group's membership."""
        self._group_fenced = True

    # -- which calls are possible ------------------------------------------------------------------------------------

    def block_calls(self, error: errors.EosError) -> None:
        """Refuse all calls from now on, because of ``error``."""
        self.blocking_error = error
        self.library.init.end_attempts()

    def block_until_registered(self, transactional_id: str, *, resumable: bool = False) -> None:
        """Refuse transactional calls until an init has succeeded; this handle may continue its own if ``resumable``."""
        self.blocking_error = NotInitialisedError(transactional_id)
        if not resumable:
            self.library.init.end_attempts()

    def require_usable(self) -> None:
        """Raise the error for which the handle refuses calls, if there is one."""
        if self.blocking_error is not None:
            raise self.blocking_error

    def require_serving(self) -> None:
        """Raise the error for which the handle refuses even calls without a transaction."""
        if self.library.raw is None or not isinstance(self.blocking_error, NotInitialisedError):
            self.require_usable()

    def mark_interrupted(self, request: TransactionalRequest) -> None:
        """Set the error that holds if ``request`` is interrupted before its outcome is recorded."""
        action = recovery_for(ProducerFailure(request, INTERRUPTED)).action
        message = (
            f"{request.value}() of transactional.id {self.library.transactional_id!r} was interrupted by an "
            f"asynchronous exception. {WAYS_OUT[action]}."
        )
        error = make_kafka_error(ERROR_CLASSES[action], KafkaError._INTR, message)
        self.blocking_error = self._interrupted_error = error

    # -- making them -------------------------------------------------------------------------------------------------

    def run(
        self, request: TransactionalRequest, call: Callable[[], Any], timeout_s: float, where: Callable[[], str] = str
    ) -> None:
        """Run ``call`` in the handle's thread. The caller clears ``blocking_error`` once its success is recorded.

        What ``where`` returns is appended to the description of the failure in the error message.
        """
        if request is TransactionalRequest.INIT:
            self.require_serving()
        else:
            self.require_usable()
            self.mark_interrupted(request)
            self._commit_may_take_effect |= request is TransactionalRequest.COMMIT
        self._losses_before_call = self.library.log.losses
        try:
            error = self.library.thread.run(call, timeout_s + _GRACE_S)
        except OverdueError as exception:
            name = self.library.transactional_id
            raise self.with_effect(overdue_error(self._failure(request), timeout_s, name)) from exception
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
            left = int(self.direct(TransactionalRequest.FLUSH, lambda: self.library.raw.flush(slice_s)))  # noqa: B023
            if is_over() or not left or self.clock() >= deadline:
                return left
            if meanwhile is not None:
                meanwhile()

    def drain_events(self) -> None:
        """Serve pending events, which would pile up in memory otherwise; the next call raises errors among them."""
        with suppress(errors.EosError):
            self.serve(0)

    # -- failures ----------------------------------------------------------------------------------------------------

    def raise_failure(self, request: TransactionalRequest, error: BaseException, where: str = "") -> NoReturn:
        """Raise the class that the recovery table gives to ``error``, and clear the mark of an interrupted call."""
        named: BaseException | None = None
        if isinstance(error, KafkaException):
            if self.library.transactional_id:
                named = self.record_failure(request, error, where)
            elif named := idempotent_error(request, kafka_error(error), where):
                self.with_effect(named)
        if self.blocking_error is self._interrupted_error:
            self.blocking_error = None
        try:
            if named is None:  # where nothing can be said that confluent_kafka's own exception does not say
                raise error
            raise named from error
        finally:
            del error, named

    def record_failure(self, request: TransactionalRequest, raised: KafkaException, where: str = "") -> errors.EosError:
        """Translate what a transactional producer has ``raised`` by the recovery table, and record its effects."""
        if isinstance(raised, NamedError):
            is_unknown = isinstance(raised.named, errors.UnknownOutcomeError)
            return self._with_effects(request, raised.named, commit_took_no_effect=not is_unknown)
        error = kafka_error(raised)
        failure = self._failure(request, error)
        if failure.follows_undelivered:
            self._await_undelivered()
        code = self.library.last_errors.undelivered_code or self.library.log.failed_code
        failure = replace(failure, undelivered_code=code, clock_is_at_fault=self.library.clock_is_at_fault)
        self._last_failure = failure
        if failure.is_fenced:
            self.library.abandoned_inits.record_fence()
        clause = self._why_failed(failure) + where
        named = producer_error(failure, error, self.library.transactional_id, clause, self._words)
        if request is TransactionalRequest.INIT and failure.fatal:
            self.library.init.mark_answered()
            self.blocking_error = named
        if failure.transaction_is_lost:
            self.block_calls(named)
        return self._with_effects(request, named, commit_took_no_effect=failure.commit_took_no_effect)

    def _with_effects(
        self, request: TransactionalRequest, named: errors.EosError, *, commit_took_no_effect: bool
    ) -> errors.EosError:
        if request is TransactionalRequest.COMMIT and commit_took_no_effect:
            self._commit_may_take_effect = False
        return self.with_effect(named)

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
        library, last = self.library, self._last_failure
        if error is not None and (error.fatal() or error.txn_requires_abort()):
            self._read_log()
        known = ProducerFailure(
            request,
            OVERDUE,
            transaction_age_s=self.transaction_age_s,
            transaction_timeout_s=library.transaction_timeout_s,
            generated_id=library.id_is_generated,
            transaction_open=self.has_begun,
            group_fenced=self._group_fenced,
            topics_may_leave=error is not None and is_of_matched_topics(self.by_pattern_alone, error.str()),
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
        return self.library.log.connections.may_have_sent_twice(self._losses_before_call)

    def _read_log(self) -> None:
        """Serve the client library's log; not by `serve`: until a failure has a name, the handle takes no calls."""
        with suppress(KafkaException, errors.TransactionStateError):
            self.library.call(lambda: self.library.raw.poll(0))

    def must_abort(self, message: str) -> errors.EosError:
        """Return the error for a transaction that cannot be committed for a reason of our own; record its effect."""
        return self.with_effect(must_abort(message))

    def with_effect(self, error: errors.EosError) -> errors.EosError:
        """Return ``error``, and record its effect on later calls."""
        if isinstance(error, _FINISHES_THE_HANDLE):
            self.block_calls(error)
        elif isinstance(error, errors.AbortableError) and self.has_begun:
            self._transaction_failure = self._transaction_failure or error
        elif isinstance(error, errors.ClusterUnfitError):
            self._transaction_failure = None  # the client library itself refuses every later call, with this reason
        return error
