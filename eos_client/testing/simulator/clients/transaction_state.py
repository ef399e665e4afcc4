"""librdkafka's transaction state machine: which call is allowed in which state, and how it ends.

A call that timed out continues in the background. No other call is allowed until it was repeated and has ended.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum

from confluent_kafka import KafkaError, KafkaException

from eos_client.testing.simulator.clients.kafka_errors import kafka_error, kafka_exception


class Phase(Enum):
    """The states of librdkafka's transactions, by its names."""

    INIT = "Init"
    WAIT_PID = "WaitPID"
    READY_NOT_ACKED = "ReadyNotAcked"
    READY = "Ready"
    IN_TRANSACTION = "InTransaction"
    BEGIN_COMMIT = "BeginCommit"
    COMMITTING = "CommittingTransaction"
    COMMIT_NOT_ACKED = "CommitNotAcked"
    BEGIN_ABORT = "BeginAbort"
    ABORTING = "AbortingTransaction"
    ABORT_NOT_ACKED = "AbortedNotAcked"
    ABORTABLE_ERROR = "AbortableError"
    FATAL_ERROR = "FatalError"


_PREDECESSORS: Mapping[Phase, frozenset[Phase]] = {
    Phase.WAIT_PID: frozenset({Phase.INIT, Phase.WAIT_PID}),
    Phase.READY_NOT_ACKED: frozenset({Phase.WAIT_PID}),
    Phase.READY: frozenset({Phase.READY_NOT_ACKED, Phase.COMMIT_NOT_ACKED, Phase.ABORT_NOT_ACKED}),
    Phase.IN_TRANSACTION: frozenset({Phase.READY}),
    Phase.BEGIN_COMMIT: frozenset({Phase.IN_TRANSACTION}),
    Phase.COMMITTING: frozenset({Phase.BEGIN_COMMIT}),
    Phase.COMMIT_NOT_ACKED: frozenset({Phase.BEGIN_COMMIT, Phase.COMMITTING}),
    Phase.BEGIN_ABORT: frozenset({Phase.IN_TRANSACTION, Phase.ABORTING, Phase.ABORTABLE_ERROR}),
    Phase.ABORTING: frozenset({Phase.BEGIN_ABORT}),
    Phase.ABORT_NOT_ACKED: frozenset({Phase.BEGIN_ABORT, Phase.ABORTING}),
    Phase.ABORTABLE_ERROR: frozenset({Phase.IN_TRANSACTION, Phase.BEGIN_COMMIT, Phase.COMMITTING}),
    Phase.FATAL_ERROR: frozenset(Phase),
}
_ENDING_ALREADY = frozenset({Phase.BEGIN_ABORT, Phase.ABORTING})


class TransactionState:
    """The state of one producer handle. ``requires_bump``: its next abort must get a new epoch (KIP-360).

    ``coordinator_requests`` counts the requests of the transaction that may have reached the coordinator: without any,
    no EndTxn is sent. ``undelivered`` counts the records of the transaction that failed. ``is_in_call``: the
    application is inside a transactional call.
    """

    def __init__(self, transactional_id: str | None, log: Callable[[str, str], None]) -> None:
        self.phase = Phase.INIT
        self.requires_bump = False
        self.coordinator_requests = 0
        self.undelivered = 0
        self.is_in_call = False
        self._transactional = transactional_id is not None
        self._log = log
        self._error: KafkaError | None = None
        self._call = ""
        self._results: list[KafkaError | None] = []

    # -- phases --------------------------------------------------------------------------------------------------

    @property
    def is_fatal(self) -> bool:
        """Whether the handle has failed fatally."""
        return self.phase is Phase.FATAL_ERROR

    @property
    def may_enqueue(self) -> bool:
        """Whether ``produce`` accepts records."""
        return not self._transactional or self.phase is Phase.IN_TRANSACTION

    @property
    def may_send(self) -> bool:
        """Whether new batches may be sent; batches in flight are always completed."""
        if self._transactional:
            return self.phase in {Phase.IN_TRANSACTION, Phase.BEGIN_COMMIT}
        return not self.is_fatal

    def move(self, phase: Phase) -> None:
        """Enter ``phase``; an impossible transition is a bug of the simulator."""
        if self.phase not in _PREDECESSORS[phase]:
            raise RuntimeError(f"there is no transition from {self.phase.value} to {phase.value}")
        self.phase = phase

    def begin(self) -> None:
        """Begin a transaction."""
        self.move(Phase.IN_TRANSACTION)
        self._error = None
        self.undelivered = 0

    def complete(self) -> None:
        """End the transaction, whose end was returned to the application."""
        self.move(Phase.READY)
        self.requires_bump = False
        self.coordinator_requests = 0

    def require(self, *phases: Phase) -> None:
        """Raise KafkaException unless the producer is in one of ``phases``: the error that explains it, or _STATE."""
        if self.phase in phases:
            return
        if self._error is not None and self.phase in {Phase.FATAL_ERROR, Phase.ABORTABLE_ERROR}:
            raise KafkaException(self._error)
        raise kafka_exception("_STATE", f"Operation not valid in state {self.phase.value}")

    # -- failures ------------------------------------------------------------------------------------------------

    def fail(self, code: str, why: str, *, bump: bool = False) -> bool:
        """Allow only an abort of the transaction. Returns False if it has failed before: the first error counts."""
        if self.is_fatal:
            return False
        self.requires_bump = self.requires_bump or bump
        if self._error is not None:
            return False
        self._error = kafka_error(code, why, abortable=True)
        addition = ", requires epoch bump" if bump else ""
        self._log("TXNERR", f"Current transaction failed in state {self.phase.value}: {why} ({code}{addition})")
        if self.phase not in _ENDING_ALREADY:
            self.move(Phase.ABORTABLE_ERROR)
        return True

    def fail_fatally(self, code: str, why: str) -> KafkaError | None:
        """Fail fatally. Returns the error, or None if the producer has failed fatally before."""
        if self.is_fatal:
            return None
        self._error = error = kafka_error(code, why, fatal=True)
        self.phase = Phase.FATAL_ERROR
        self._log("FATAL", f"Fatal error: {error.str()} ({error.name()})")
        self.set_result(error)
        return error

    # -- calls of the application --------------------------------------------------------------------------------

    def begin_call(self, name: str) -> None:
        """Begin the application's transactional call ``name``, or resume it. Raises _NOT_CONFIGURED, _CONFLICT."""
        if not self._transactional:
            why = "The Transactional API requires transactional.id to be configured"
            raise kafka_exception("_NOT_CONFIGURED", why)
        if self._call not in {"", name}:
            why = f"Conflicting {self._call} API call is already in progress"
            raise kafka_exception("_CONFLICT", why, retriable=True)
        self._call = name
        self.is_in_call = True

    def pause_call(self) -> None:
        """Leave the call unfinished: only the same call is allowed next."""
        self.is_in_call = False

    def end_call(self) -> None:
        """End the call: any call is allowed next."""
        self._call = ""
        self.is_in_call = False
        self._results.clear()

    @property
    def has_result(self) -> bool:
        """Whether the background work of the call has ended."""
        return bool(self._results)

    def set_result(self, error: KafkaError | None = None) -> None:
        """End the background work of the present call; the first result counts."""
        if self._call and not self._results:
            self._results.append(error)

    def take_result(self) -> None:
        """Raise the result, if it is an error."""
        error = self._results.pop()
        if error is not None:
            raise KafkaException(error)
