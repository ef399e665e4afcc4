"""The one seam where confluent_kafka's errors become ours.

Each class here is both: ours, named for what the caller must do, and a ``KafkaException`` whose ``args[0]`` is the
``KafkaError``, so that code written for confluent_kafka keeps working.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from confluent_kafka import KafkaError, KafkaException

from eos_client import errors
from eos_client.core.producer_recovery import (
    ProducerFailure,
    RecoveryAction,
    RecoveryRule,
    TransactionalRequest,
    recovery_for,
)


class _FromKafka(KafkaException, errors.EosError):
    """Keeps the KafkaError in ``args[0]`` and says what to do in words."""

    def __init__(self, error: KafkaError, message: str) -> None:
        super().__init__(error)
        self.message = message

    def __str__(self) -> str:
        return self.message


class KafkaAbortableError(_FromKafka, errors.AbortableError):
    """See AbortableError."""


class KafkaCommitRefusedError(_FromKafka, errors.CommitRefusedError):
    """See CommitRefusedError."""


class KafkaRetriableError(_FromKafka, errors.RetriableError):
    """See RetriableError."""


class KafkaRebuildProducerError(_FromKafka, errors.RebuildProducerError):
    """See RebuildProducerError."""


class KafkaUnknownOutcomeError(_FromKafka, errors.UnknownOutcomeError):
    """See UnknownOutcomeError."""


class KafkaProducerFencedError(_FromKafka, errors.ProducerFencedError):
    """See ProducerFencedError."""


class KafkaClusterUnfitError(_FromKafka, errors.ClusterUnfitError):
    """See ClusterUnfitError."""


class KafkaClusterUnavailableError(_FromKafka, errors.ClusterUnavailableError):
    """See ClusterUnavailableError."""


class KafkaFatalClientError(_FromKafka, errors.FatalClientError):
    """See FatalClientError."""


class KafkaTransactionStateError(_FromKafka, errors.TransactionStateError):
    """See TransactionStateError."""


class KafkaOutputRefusedError(_FromKafka, errors.OutputRefusedError):
    """See OutputRefusedError."""


class KafkaConfigurationError(_FromKafka, errors.ConfigurationError):
    """See ConfigurationError."""


_CLASSES: dict[RecoveryAction, type[_FromKafka]] = {
    RecoveryAction.RETRY: KafkaRetriableError,
    RecoveryAction.ABORT_AND_CONTINUE: KafkaAbortableError,
    RecoveryAction.REBUILD_PRODUCER: KafkaRebuildProducerError,
    RecoveryAction.RESOLVE_UNKNOWN: KafkaUnknownOutcomeError,
    RecoveryAction.CORRECT_CALL: KafkaTransactionStateError,
    RecoveryAction.STOP_FENCED: KafkaProducerFencedError,
    RecoveryAction.STOP_UNFIT: KafkaClusterUnfitError,
    RecoveryAction.STOP_FATAL: KafkaFatalClientError,
}

# librdkafka says these of one record at once, in produce(): nothing is wrong with the transaction.
_RECORD_ERRORS = frozenset({"MSG_SIZE_TOO_LARGE", "INVALID_MSG", "_INVALID_ARG", "_UNKNOWN_PARTITION"})
_REFUSED_OFFSETS = frozenset({"ILLEGAL_GENERATION", "UNKNOWN_MEMBER_ID", "STALE_MEMBER_EPOCH", "REBALANCE_IN_PROGRESS"})


def kafka_error(exception: KafkaException) -> KafkaError:
    """Return the KafkaError inside ``exception``; an unknown one when there is none."""
    first = exception.args[0] if exception.args else None
    return first if isinstance(first, KafkaError) else KafkaError(KafkaError.UNKNOWN, str(exception))


def with_error(failure: ProducerFailure, error: KafkaError) -> ProducerFailure:
    """Add to ``failure`` what the recovery table looks at in ``error``."""
    return replace(
        failure,
        code=error.name(),
        fatal=error.fatal(),
        abortable=error.txn_requires_abort(),
        retriable=error.retriable(),
    )


def producer_error(
    failure: ProducerFailure, error: KafkaError, transactional_id: str, clause: str = ""
) -> errors.EosError:
    """Name ``error`` for what the producer's owner must do. ``clause`` ends the sentence that says what happened."""
    request = failure.request.value
    if failure.request is TransactionalRequest.PRODUCE and failure.code in _RECORD_ERRORS and not failure.fatal:
        return KafkaOutputRefusedError(
            error, f"the output cannot be written: {error.str()} ({error.name()}). Correct it."
        )
    rule = recovery_for(failure)
    what = f"{request} of transactional.id {transactional_id!r} failed with {error.name()}: {error.str()}{clause}"
    message = f"{what}. {_way_out(rule)}"
    if rule.action is RecoveryAction.ABORT_AND_CONTINUE and failure.code in _REFUSED_OFFSETS:
        return KafkaCommitRefusedError(error, message)
    return _CLASSES[rule.action](error, message)


def overdue_error(failure: ProducerFailure, budget_s: float, transactional_id: str) -> errors.EosError:
    """Name a call that did not return in time."""
    error = KafkaError(
        KafkaError._TIMED_OUT,  # noqa: SLF001  # confluent_kafka's public spelling of a local code
        f"{failure.request.value} did not return within {budget_s:g} s",
    )
    return producer_error(failure, error, transactional_id)


def commit_refused(message: str) -> KafkaCommitRefusedError:
    """Return the refusal of a commit by our own gate; code that knows rebalances knows ILLEGAL_GENERATION."""
    return KafkaCommitRefusedError(KafkaError(KafkaError.ILLEGAL_GENERATION, message), message)


def must_abort(message: str) -> KafkaAbortableError:
    """Return the error for a transaction that cannot be committed for a reason of our own."""
    error = KafkaError(KafkaError._STATE, message, txn_requires_abort=True)  # noqa: SLF001  # a public local code
    return KafkaAbortableError(error, message)


def misplaced_call(message: str) -> KafkaTransactionStateError:
    """Return the error for a call at the wrong time."""
    return KafkaTransactionStateError(KafkaError(KafkaError._STATE, message), message)  # noqa: SLF001


def _way_out(rule: RecoveryRule) -> str:
    return {
        RecoveryAction.RETRY: "Call it again",
        RecoveryAction.ABORT_AND_CONTINUE: "Abort, rewind to the first uncommitted record and go on",
        RecoveryAction.REBUILD_PRODUCER: "Call init_transactions() to build a new handle with the same id",
        RecoveryAction.RESOLVE_UNKNOWN: "Do not abort and do not commit again: call init_transactions(), then compare "
        "the group's committed offsets with those that were sent",
        RecoveryAction.CORRECT_CALL: "Correct the order of the calls",
        RecoveryAction.STOP_FENCED: "Stop this instance, or give each running instance a transactional.id of its own",
        RecoveryAction.STOP_UNFIT: "Repair the cluster, the permissions or the name, then start again",
        RecoveryAction.STOP_FATAL: "End the process and start it again",
    }[rule.action] + f": {rule.reason}."


@contextmanager
def configuration_errors(client: str) -> Iterator[None]:
    """Turn what a confluent_kafka constructor refuses into ConfigurationError."""
    try:
        yield
    except KafkaException as exception:
        error = kafka_error(exception)
        raise KafkaConfigurationError(
            error, f"the {client} refuses its configuration: {error.str()}. Correct or remove the named property."
        ) from exception


@contextmanager
def consumer_errors(call: str) -> Iterator[None]:
    """Name what a consumer's call raised; only fatal errors and failed commits change their class."""
    try:
        yield
    except KafkaException as exception:
        error = kafka_error(exception)
        if error.fatal():
            raise KafkaFatalClientError(
                error, f"the consumer cannot go on: {call} failed with {error.name()}: {error.str()}. End the process."
            ) from exception
        if error.name() in _REFUSED_OFFSETS:
            raise KafkaCommitRefusedError(
                error,
                f"{call} was refused with {error.name()}: {error.str()}. The records belong to another member or "
                "generation now: drop them, the group delivers them again.",
            ) from exception
        raise
