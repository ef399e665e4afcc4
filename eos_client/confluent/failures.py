"""Maps confluent_kafka's errors to ours; the only place that does.

Each class here is both: ours, named for what the caller must do, and a ``KafkaException`` whose ``args[0]`` is the
``KafkaError``, so that code written for confluent_kafka keeps working.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from eos_client import errors
from eos_client.core.error_codes import NOT_AUTHENTICATED, OFFSETS_REFUSED, READING_FORBIDDEN, RECORD_REFUSED
from eos_client.core.model import InputPartition, named
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


class KafkaLeaveBlockError(_FromKafka, errors.LeaveBlockError):
    """See LeaveBlockError."""


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


class KafkaInputPositionError(_FromKafka, errors.InputPositionError):
    """See InputPositionError."""

    def __init__(
        self, error: KafkaError, message: str, topic: str, partition: int | None = None, offset: int | None = None
    ) -> None:
        super().__init__(error, message)
        self.topic, self.partition, self.offset = topic, partition, offset


class KafkaClusterUnavailableError(_FromKafka, errors.ClusterUnavailableError):
    """See ClusterUnavailableError."""


class KafkaAuthenticationError(_FromKafka, errors.AuthenticationError):
    """See AuthenticationError."""


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

HOW_TO_REACH_BROKERS = "Check the address, the network and the security settings, and that the brokers are up"
HOW_TO_AUTHENTICATE = (
    "Correct the user name, the password or token, or the certificates: starting again changes nothing before"
)

_GROUP_REMEDIES = {
    "GROUP_MAX_SIZE_REACHED": "Run fewer members, or have the broker's group.max.size raised",
    "INCONSISTENT_GROUP_PROTOCOL": "Members that are in the group use another partition.assignment.strategy or "
    "group.protocol: set the same here, or stop them all first",
    "INVALID_SESSION_TIMEOUT": "Set a session.timeout.ms between the broker's group.min.session.timeout.ms and "
    "group.max.session.timeout.ms",
}
"""What helps a consumer that its group does not admit."""


_TLS_REFUSAL = re.compile(r"certificate verify failed|SSL alert number \d")
"""librdkafka often tells of a certificate that either side refuses as of any other lost connection (_TRANSPORT)."""


def lacks_credentials(error: KafkaError | None) -> bool:
    """Whether a connection was closed because of credentials, so that waiting for the cluster does not help."""
    if error is None:
        return False
    return error.name() in NOT_AUTHENTICATED or _TLS_REFUSAL.search(error.str()) is not None


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
    is_of_one_record = failure.code in RECORD_REFUSED and not (failure.fatal or failure.abortable)
    if failure.request is TransactionalRequest.PRODUCE and is_of_one_record:
        return _refused_output(error)
    rule = recovery_for(failure)
    what = f"{request} of transactional.id {transactional_id!r} failed with {error.name()}: {error.str().rstrip('.')}"
    message = f"{what}{clause}.{_open_for_too_long(failure)} {_way_out(rule)}"
    if rule.action is RecoveryAction.ABORT_AND_CONTINUE and failure.code in OFFSETS_REFUSED:
        return KafkaCommitRefusedError(error, message)
    return _CLASSES[rule.action](error, message)


def _open_for_too_long(failure: ProducerFailure) -> str:
    if not (failure.is_fenced and failure.transaction_open and failure.timed_out):
        return ""
    return (
        f" The transaction was open for {failure.transaction_age_s:.1f} s, longer than transaction.timeout.ms="
        f"{failure.transaction_timeout_s * 1000:.0f}, after which its coordinator aborts it: end it sooner, or set "
        "that higher."
    )


def idempotent_error(request: TransactionalRequest, error: KafkaError) -> errors.EosError | None:
    """Name what a producer without a transactional.id raised; None where there is nothing to add to it."""
    if error.fatal():
        return KafkaFatalClientError(
            error, f"{request.value} failed with {error.name()}: {error.str()}. Build another producer."
        )
    if request is TransactionalRequest.PRODUCE:
        return _refused_output(error) if error.name() in RECORD_REFUSED else None
    return None if request is TransactionalRequest.FLUSH else not_transactional(request, error)


def not_transactional(request: TransactionalRequest, error: KafkaError | None = None) -> KafkaTransactionStateError:
    """Return the error for a transactional call of a producer that has no transactional.id yet."""
    message = (
        f"{request.value}() of a producer without a transactional.id. Call init_transactions() first, which gives the "
        "producer one, or set one."
    )
    return KafkaTransactionStateError(error or KafkaError(KafkaError._NOT_CONFIGURED, message), message)  # noqa: SLF001


def unflushed_error(left: int, limit_s: float) -> KafkaRetriableError:
    """Return the error for records that keep a producer from becoming transactional."""
    message = (
        f"{left} records produced before init_transactions() were not acknowledged within {limit_s:g} s: the "
        "producer has no transactional.id yet. Call init_transactions() again, or purge() the records first."
    )
    return KafkaRetriableError(KafkaError(KafkaError._TIMED_OUT, message, retriable=True), message)  # noqa: SLF001


def closed_error(transactional_id: str) -> errors.ClientClosedError:
    """Return the error for a call of a producer that was closed."""
    named = f" (transactional.id {transactional_id!r})" if transactional_id else ""
    return errors.ClientClosedError(f"Producer has been closed{named}: build another one.")


def not_to_be_copied(client: object) -> TypeError:
    """Return the error for a copy of ``client``, which would end the original's connections when it is let go of."""
    kind = type(client).__name__
    return TypeError(f"cannot copy or pickle {kind!r}: it has connections of its own. Build another one.")


def consumer_closed() -> errors.ClientClosedError:
    """Return the error for an output whose transaction would belong to a consumer that was closed."""
    return errors.ClientClosedError(
        "Consumer closed: what is written now could not be committed with its records. Build another consumer, and "
        "write in a block of that one."
    )


def committed_offsets_unknown(
    partitions: frozenset[InputPartition], timeout_s: float, exception: KafkaException
) -> KafkaClusterUnavailableError:
    """Return the error for committed offsets that the group does not tell, so that nothing may be based on them."""
    error = kafka_error(exception)
    return KafkaClusterUnavailableError(
        error,
        f"the committed offsets of {named(partitions)} could not be read within {timeout_s:g} s ({error.name()}: "
        f"{error.str()}). A transaction that the application has begun by itself may still be open: end it, then go "
        "on with the same clients. Nothing was committed by this call.",
    )


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


def leave_block(message: str) -> KafkaLeaveBlockError:
    """Return the error that ends a block; code that knows rebalances knows REBALANCE_IN_PROGRESS."""
    error = KafkaError(KafkaError.REBALANCE_IN_PROGRESS, message, txn_requires_abort=True)
    return KafkaLeaveBlockError(error, message)


_NOT_OF_THIS_PROTOCOL = "group id does not exist"
"""What brokers tell a KIP-848 member of a group of classic ones; librdkafka passes on the text alone (_FATAL)."""


def input_error(error: KafkaError, *, is_fatal: bool, topic: str | None = None, group_id: str = "") -> errors.EosError:
    """Name an error event, of ``topic`` where it is about one, that a consumer of ``group_id`` cannot get over."""
    what = f"{error.name()}: {error.str().rstrip('.')}"
    if is_fatal and _NOT_OF_THIS_PROTOCOL in error.str():
        return KafkaClusterUnfitError(
            error,
            f"group {group_id!r} does not admit this consumer: {what}. Members with group.protocol=classic are in it: "
            "set the same here, or stop them all first, or have the brokers' group.consumer.migration.policy let both "
            "in.",
        )
    if is_fatal:
        return KafkaFatalClientError(error, f"the consumer cannot go on: {what}. End the process.")
    remedy = _GROUP_REMEDIES.get(error.name(), "Repair it, start again")
    if error.name() in READING_FORBIDDEN:
        forbidden = f"topic {topic!r}" if topic and error.name().startswith("TOPIC") else f"group {group_id!r}"
        remedy = f"Allow this client to read {forbidden}, then start again"
    return KafkaClusterUnfitError(error, f"the input cannot be read: {what}. {remedy}.")


def misplaced_call(message: str) -> KafkaTransactionStateError:
    """Return the error for a call at the wrong time."""
    return KafkaTransactionStateError(KafkaError(KafkaError._STATE, message), message)  # noqa: SLF001


def refuse_error_event(message: Any) -> Any:
    """Return ``message`` if it is a record; raises what confluent_kafka raises when an offset is taken from another."""
    if not callable(getattr(message, "error", None)):
        raise TypeError(f"expected a Message, not {message!r}")
    if message.error() is not None:
        reason = f"Cannot commit offsets for message error: '{message.error().str()}'"
        raise KafkaException(KafkaError(KafkaError._INVALID_ARG, reason))  # noqa: SLF001  # a public local code
    return message


def _refused_output(error: KafkaError) -> KafkaOutputRefusedError:
    return KafkaOutputRefusedError(error, f"the output cannot be written: {error.str()} ({error.name()}). Correct it.")


def _way_out(rule: RecoveryRule) -> str:
    return {
        RecoveryAction.RETRY: "Call it again",
        RecoveryAction.ABORT_AND_CONTINUE: "Abort, rewind to the first uncommitted record and go on",
        RecoveryAction.REBUILD_PRODUCER: "Call init_transactions() to build a new handle with the same id",
        RecoveryAction.RESOLVE_UNKNOWN: "Do not abort and do not commit again: call init_transactions(), then compare "
        "the group's committed offsets with those that were sent",
        RecoveryAction.CORRECT_CALL: "Correct the order of the calls, of which init_transactions() is the first",
        RecoveryAction.STOP_FENCED: "Stop this instance, or give each running instance a transactional.id of its own",
        RecoveryAction.STOP_UNFIT: "Repair the cluster, the permissions or the name, then start again",
        RecoveryAction.STOP_FATAL: "End the process and start it again",
    }[rule.action] + f": {rule.reason}."


def configuration_refused(exception: KafkaException, client: str) -> KafkaConfigurationError:
    """Name what the constructor of ``client`` raised; it is the cause."""
    error = kafka_error(exception)
    refused = KafkaConfigurationError(
        error, f"the {client} refuses its configuration: {error.str()}. Correct or remove the named property."
    )
    refused.__cause__ = exception
    return refused


def is_fatal(error: KafkaError) -> bool:
    """Whether the client is of no use any more. A consumer's event and its refused calls say so without the flag."""
    return bool(error.fatal()) or error.code() == KafkaError._FATAL  # noqa: SLF001  # a public local code


def consumer_errors(call: str) -> Naming:
    """Name what a consumer's call raised; only fatal errors and failed commits change their class."""
    return Naming(lambda exception: _consumer_error(call, kafka_error(exception)))


def _consumer_error(call: str, error: KafkaError) -> errors.EosError | None:
    failed = f"{call} failed with {error.name()}: {error.str()}"
    if is_fatal(error):
        return KafkaFatalClientError(error, f"the consumer cannot go on: {failed}. End the process.")
    if error.name() in OFFSETS_REFUSED:
        return KafkaCommitRefusedError(
            error,
            f"{call} was refused with {error.name()}: {error.str()}. The records belong to another member or "
            "generation now: drop them, the group delivers them again.",
        )
    return None


def last_commit_errors() -> Naming:
    """Turn whatever keeps a commit inside the revoke callback from succeeding into CommitRefusedError."""
    return Naming(_last_commit_error)


def _last_commit_error(exception: KafkaException) -> errors.EosError | None:
    if isinstance(exception, errors.EosError):
        return None
    error = kafka_error(exception)
    return KafkaCommitRefusedError(
        error,
        f"the last commit before the partitions left failed with {error.name()}: {error.str()}. The group may "
        "deliver the records since the commit before it again.",
    )


class Naming:
    """Raises what ``name`` makes of a KafkaException that leaves the block, which becomes its cause.

    No generator: an asynchronous exception may strike before one is entered, and leave it to be closed later.
    """

    def __init__(self, name: Callable[[KafkaException], errors.EosError | None]) -> None:
        self._name = name

    def __enter__(self) -> None:
        return

    def __exit__(self, _kind: object, exception: BaseException | None, _trace: object) -> None:
        error = self._name(exception) if isinstance(exception, KafkaException) else None
        if error is not None:
            raise error from exception
