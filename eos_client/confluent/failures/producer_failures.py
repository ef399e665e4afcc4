"""Translates what a producer's calls raise into the error classes of eos_client, each named for what to do next."""

from __future__ import annotations

from dataclasses import dataclass, replace

from confluent_kafka import KafkaError, KafkaException

from eos_client import errors
from eos_client.confluent.failures.kafka_errors import kafka_error, make_kafka_error, with_cause
from eos_client.core.error_codes import OUTPUT_TOO_LARGE, RECORD_REFUSED, REFUSED_FOR_SIZE, WRITING_FORBIDDEN
from eos_client.core.producer_recovery import ProducerFailure, RecoveryAction, TransactionalRequest, recovery_for

ERROR_CLASSES: dict[RecoveryAction, type[errors.EosError]] = {
    RecoveryAction.RETRY: errors.RetriableError,
    RecoveryAction.ABORT_AND_CONTINUE: errors.AbortableError,
    RecoveryAction.REBUILD_PRODUCER: errors.RebuildProducerError,
    RecoveryAction.RESOLVE_UNKNOWN: errors.UnknownOutcomeError,
    RecoveryAction.CORRECT_CALL: errors.TransactionStateError,
    RecoveryAction.CORRECT_OUTPUT: errors.OutputRefusedError,
    RecoveryAction.STOP_FENCED: errors.ProducerFencedError,
    RecoveryAction.STOP_UNFIT: errors.ClusterUnfitError,
    RecoveryAction.STOP_FATAL: errors.FatalClientError,
}
WAYS_OUT = {
    RecoveryAction.RETRY: "Call it again",
    RecoveryAction.ABORT_AND_CONTINUE: "Abort, rewind to the first uncommitted record and go on",
    RecoveryAction.REBUILD_PRODUCER: "Call init_transactions() to build a new handle with the same id",
    RecoveryAction.RESOLVE_UNKNOWN: "Do not abort and do not commit again: call init_transactions(), then compare the "
    "group's committed offsets with those that were sent",
    RecoveryAction.CORRECT_CALL: "Correct the order of the calls, of which init_transactions() is the first",
    RecoveryAction.STOP_FENCED: "Stop this instance, or give each running instance a transactional.id of its own",
    RecoveryAction.STOP_UNFIT: "Correct the cause, then start again",
    RecoveryAction.STOP_FATAL: "End the process and start it again",
}


def action_of(error: errors.EosError) -> RecoveryAction:
    """Return the action that ``error``, of one of ERROR_CLASSES, stands for."""
    return next(action for kind in type(error).__mro__ for action, named in ERROR_CLASSES.items() if named is kind)


def with_error(failure: ProducerFailure, error: KafkaError) -> ProducerFailure:
    """Add to ``failure`` what the recovery table looks at in ``error``."""
    return replace(
        failure,
        code=error.name(),
        fatal=error.fatal(),
        abortable=error.txn_requires_abort(),
        retriable=error.retriable(),
    )


@dataclass(frozen=True, slots=True)
class OutputWords:
    """What a refused output is called, and what helps: for any of them, and for one that is too large."""

    subject: str
    remedy: str
    remedy_if_large: str


OUTPUT = OutputWords(
    "the output",
    "Correct it",
    "Write less, or set message.max.bytes of this client, and max.message.bytes of the topic, higher",
)


def producer_error(
    failure: ProducerFailure, error: KafkaError, transactional_id: str, clause: str = "", words: OutputWords = OUTPUT
) -> errors.EosError:
    """Translate ``error`` by the recovery table. ``clause`` ends the sentence that says what happened."""
    request, rule = failure.request.value, recovery_for(failure)
    if rule.action is RecoveryAction.CORRECT_OUTPUT:
        return _refused_output(error, clause, words)
    what = f"{request} of transactional.id {transactional_id!r} failed with {error.name()}: {error.str().rstrip('.')}"
    happened = f"{what}{clause}.{_why_fenced(failure)}"
    is_refused = rule.action is RecoveryAction.ABORT_AND_CONTINUE and failure.refuses_offsets
    kind = errors.CommitRefusedError if is_refused else ERROR_CLASSES[rule.action]
    named = make_kafka_error(kind, error, f"{happened} {WAYS_OUT[rule.action]}: {rule.reason}.")
    return errors.with_happened(named, f"{happened} {rule.reason[0].upper()}{rule.reason[1:]}.")


def _why_fenced(failure: ProducerFailure) -> str:
    if failure.is_fenced and failure.transaction_open and failure.timed_out:
        return (
            f" The transaction was open for {failure.transaction_age_s:.1f} s, longer than transaction.timeout.ms="
            f"{failure.transaction_timeout_s * 1000:.0f}, after which its coordinator aborts it: end it sooner, or set "
            "that higher."
        )
    if failure.is_fenced and failure.bump_repeated:
        return (
            " The client library had requested the epoch bump more than once: a coordinator that has moved in between "
            "refuses the second request as an older producer's, though no other instance has the id (KIP-360)."
        )
    return ""


def idempotent_error(request: TransactionalRequest, error: KafkaError, where: str = "") -> errors.EosError | None:
    """Translate what a producer without a transactional.id raised; None where there is nothing to add to it."""
    if error.fatal():
        message = f"{request.value} failed with {error.name()}: {error.str()}. Build another producer."
        return make_kafka_error(errors.FatalClientError, error, message)
    if request is TransactionalRequest.PRODUCE and error.name() in WRITING_FORBIDDEN:
        message = f"the output{where} cannot be written: {error.name()}: {error.str()}. Allow this client to write it."
        return make_kafka_error(errors.ClusterUnfitError, error, message)
    if request is TransactionalRequest.PRODUCE:
        return _refused_output(error, where, OUTPUT) if error.name() in RECORD_REFUSED else None
    return None if request is TransactionalRequest.FLUSH else not_transactional(request, error)


def _refused_output(error: KafkaError, where: str, words: OutputWords) -> errors.OutputRefusedError:
    is_large = error.name() == OUTPUT_TOO_LARGE
    way_out = words.remedy_if_large if is_large else words.remedy
    message = f"{words.subject}{where} cannot be written: {error.str()} ({error.name()}). {way_out}."
    return make_kafka_error(errors.OutputRefusedError, error, message)


def is_refused_for_size(error: BaseException) -> bool:
    """Whether ``error`` is the refusal of an output that is too large, or whose batch is."""
    return isinstance(error, KafkaException) and kafka_error(error).name() in REFUSED_FOR_SIZE


def larger_than_queue() -> errors.OutputRefusedError:
    """Return the error for an output that does not fit into the empty local queue."""
    message = (
        "the output is larger than the whole local queue (queue.buffering.max.kbytes). Raise that, or make the output "
        "smaller."
    )
    return make_kafka_error(errors.OutputRefusedError, KafkaError.MSG_SIZE_TOO_LARGE, message)


def undelivered_output(error: KafkaError, message: str) -> errors.OutputRefusedError:
    """Return the error of ``message`` for an output that a broker has refused; the broker's ``error`` is its cause."""
    return with_cause(make_kafka_error(errors.OutputRefusedError, error, message), KafkaException(error))


def overdue_error(failure: ProducerFailure, budget_s: float, transactional_id: str) -> errors.EosError:
    """Return the error for a call that did not return in time."""
    message = f"{failure.request.value} did not return within {budget_s:g} s"
    return producer_error(failure, KafkaError(KafkaError._TIMED_OUT, message), transactional_id)


def must_abort(message: str) -> errors.AbortableError:
    """Return the error for a transaction that cannot be committed for a reason of our own."""
    return make_kafka_error(errors.AbortableError, KafkaError._STATE, message, txn_requires_abort=True)


def not_registered_error(transactional_id: str) -> errors.RebuildProducerError:
    """Return the error of a handle that needs `init_transactions`: that continues with it, or replaces it."""
    message = (
        f"transactional.id {transactional_id!r} is not registered: the last init_transactions() or rebuild did not "
        "succeed, or an asynchronous exception interrupted it. Call init_transactions()."
    )
    return make_kafka_error(errors.RebuildProducerError, KafkaError._CONFLICT, message, retriable=True)


def not_transactional(request: TransactionalRequest, error: KafkaError | None = None) -> errors.TransactionStateError:
    """Return the error for a transactional call of a producer that has no transactional.id yet."""
    message = (
        f"{request.value}() of a producer without a transactional.id. Call init_transactions() first, which gives the "
        "producer one, or set one."
    )
    return make_kafka_error(errors.TransactionStateError, error or KafkaError._NOT_CONFIGURED, message)


def closed_error(transactional_id: str) -> errors.ClientClosedError:
    """Return the error for a call of a producer that was closed."""
    named = f" (transactional.id {transactional_id!r})" if transactional_id else ""
    return errors.ClientClosedError(f"Producer has been closed{named}: build another one.")


def close_begun_error(transactional_id: str) -> errors.ClientClosedError:
    """Return the error for a block of a producer whose ``close()`` has begun: it commits nothing any more."""
    return errors.ClientClosedError(
        f"close() of the producer {transactional_id!r} has begun: it takes no more blocks. If an exception has "
        "interrupted it, call close() again; then build another producer."
    )
