"""Maps confluent_kafka's errors to ours; the only place that does.

Each error is both: ours, named for what the caller must do, and a ``KafkaException`` whose ``args[0]`` is the
``KafkaError``, so that code written for confluent_kafka keeps working.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar, cast

from confluent_kafka import KafkaError, KafkaException

from eos_client import errors
from eos_client.config.secret_settings import is_secret
from eos_client.core.error_codes import (
    INSTANCE_ID_TAKEN,
    NOT_AUTHENTICATED,
    OFFSETS_REFUSED,
    READING_FORBIDDEN,
    RECORD_REFUSED,
    REFUSED_BY_GROUP,
    WRITING_FORBIDDEN,
)
from eos_client.core.model import InputPartition, named
from eos_client.core.producer_recovery import ProducerFailure, RecoveryAction, TransactionalRequest, recovery_for

E = TypeVar("E", bound=errors.EosError)


class FromKafka(KafkaException, errors.EosError):
    """Keeps the KafkaError in ``args[0]`` and says what to do in words."""

    def __init__(self, error: KafkaError, message: str) -> None:
        super().__init__(error)
        self.message = message

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> tuple[Any, ...]:
        for kind, both in _CLASSES.items():
            if both is type(self):
                return _copy_of, (kind, self.args), self.__dict__
        return super().__reduce__()


class KafkaInputPositionError(FromKafka, errors.InputPositionError):
    """See InputPositionError."""

    def __init__(
        self, error: KafkaError, message: str, topic: str, partition: int | None = None, offset: int | None = None
    ) -> None:
        super().__init__(error, message)
        self.topic, self.partition, self.offset = topic, partition, offset


class NotInitialisedError(FromKafka, errors.RebuildProducerError):
    """The handle serves what needs no transaction; the next init_transactions() continues or replaces it."""

    def __init__(self, transactional_id: str) -> None:
        message = (
            f"transactional.id {transactional_id!r} is not registered: the last init_transactions() or rebuild did not "
            "succeed, or an asynchronous exception interrupted it. Call init_transactions()."
        )
        conflict = KafkaError(KafkaError._CONFLICT, message, retriable=True)  # noqa: SLF001  # a public local code
        super().__init__(conflict, message)


_CLASSES: dict[type[errors.EosError], type[FromKafka]] = {}


def make_kafka_error(kind: type[E], error: KafkaError | int, message: str, **flags: bool) -> E:
    """Return an error of ``kind`` that is a KafkaException too: of ``error``, or, with ``flags``, of a code of ours."""
    given = KafkaError(error, message, **flags) if isinstance(error, int) else error
    return cast("E", _class_of(kind)(given, message))


def _class_of(kind: type[errors.EosError]) -> type[FromKafka]:
    name = f"Kafka{kind.__name__}"
    return _CLASSES.get(kind) or _CLASSES.setdefault(kind, type(name, (FromKafka, kind), {"__doc__": kind.__doc__}))


def _copy_of(kind: type[errors.EosError], arguments: tuple[Any, ...]) -> errors.EosError:
    return errors.copy_of(cast("type[errors.EosError]", _class_of(kind)), arguments)


ERROR_CLASSES: dict[RecoveryAction, type[errors.EosError]] = {
    RecoveryAction.RETRY: errors.RetriableError,
    RecoveryAction.ABORT_AND_CONTINUE: errors.AbortableError,
    RecoveryAction.REBUILD_PRODUCER: errors.RebuildProducerError,
    RecoveryAction.RESOLVE_UNKNOWN: errors.UnknownOutcomeError,
    RecoveryAction.CORRECT_CALL: errors.TransactionStateError,
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
    RecoveryAction.STOP_UNFIT: "Repair the cluster, the permissions or the name, then start again",
    RecoveryAction.STOP_FATAL: "End the process and start it again",
}

HOW_TO_REACH_BROKERS = "Check the address, the network and the security settings, and that the brokers are up"
HOW_TO_AUTHENTICATE = (
    "Correct the user name, the password or token, or the certificates: starting again changes nothing before"
)

_GROUP_REMEDIES = {
    "GROUP_MAX_SIZE_REACHED": "Run fewer members, or have the broker's group.max.size raised, or, for "
    "group.protocol=consumer, its group.consumer.max.size",
    "INCONSISTENT_GROUP_PROTOCOL": "Members that are in the group use another partition.assignment.strategy or "
    "group.protocol: set the same here, or stop them all first",
    "INVALID_SESSION_TIMEOUT": "Set a session.timeout.ms between the broker's group.min.session.timeout.ms and "
    "group.max.session.timeout.ms",
}
"""What helps a consumer that its group does not admit."""

_TLS_REFUSAL = re.compile(r"certificate verify failed|SSL alert number \d")
"""librdkafka often reports a certificate that either side refuses like any other lost connection (_TRANSPORT)."""


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
    """Name ``error`` for what the producer's owner must do. ``clause`` ends the sentence that says what happened."""
    request = failure.request.value
    is_of_one_record = failure.code in RECORD_REFUSED and not (failure.fatal or failure.abortable)
    if failure.request is TransactionalRequest.PRODUCE and is_of_one_record:
        return _refused_output(error, clause, words)
    rule = recovery_for(failure)
    what = f"{request} of transactional.id {transactional_id!r} failed with {error.name()}: {error.str().rstrip('.')}"
    message = f"{what}{clause}.{_open_for_too_long(failure)} {WAYS_OUT[rule.action]}: {rule.reason}."
    if rule.action is RecoveryAction.ABORT_AND_CONTINUE and failure.code in OFFSETS_REFUSED:
        return make_kafka_error(errors.CommitRefusedError, error, message)
    return make_kafka_error(ERROR_CLASSES[rule.action], error, message)


def _open_for_too_long(failure: ProducerFailure) -> str:
    if not (failure.is_fenced and failure.transaction_open and failure.timed_out):
        return ""
    return (
        f" The transaction was open for {failure.transaction_age_s:.1f} s, longer than transaction.timeout.ms="
        f"{failure.transaction_timeout_s * 1000:.0f}, after which its coordinator aborts it: end it sooner, or set "
        "that higher."
    )


def idempotent_error(request: TransactionalRequest, error: KafkaError, where: str = "") -> errors.EosError | None:
    """Name what a producer without a transactional.id raised; None where there is nothing to add to it."""
    if error.fatal():
        message = f"{request.value} failed with {error.name()}: {error.str()}. Build another producer."
        return make_kafka_error(errors.FatalClientError, error, message)
    if request is TransactionalRequest.PRODUCE and error.name() in WRITING_FORBIDDEN:
        message = f"the output{where} cannot be written: {error.name()}: {error.str()}. Allow this client to write it."
        return make_kafka_error(errors.ClusterUnfitError, error, message)
    if request is TransactionalRequest.PRODUCE:
        return _refused_output(error, where, OUTPUT) if error.name() in RECORD_REFUSED else None
    return None if request is TransactionalRequest.FLUSH else not_transactional(request, error)


def not_transactional(request: TransactionalRequest, error: KafkaError | None = None) -> errors.TransactionStateError:
    """Return the error for a transactional call of a producer that has no transactional.id yet."""
    message = (
        f"{request.value}() of a producer without a transactional.id. Call init_transactions() first, which gives the "
        "producer one, or set one."
    )
    return make_kafka_error(errors.TransactionStateError, error or KafkaError._NOT_CONFIGURED, message)  # noqa: SLF001


def closed_error(transactional_id: str) -> errors.ClientClosedError:
    """Return the error for a call of a producer that was closed."""
    named = f" (transactional.id {transactional_id!r})" if transactional_id else ""
    return errors.ClientClosedError(f"Producer has been closed{named}: build another one.")


def not_to_be_copied(client: object) -> TypeError:
    """Return the error for a copy of ``client``, which would end the original's connections when it is freed."""
    kind = type(client).__name__
    return TypeError(f"cannot copy or pickle {kind!r}: it has connections of its own. Build another one.")


def consumer_closed() -> errors.ClientClosedError:
    """Return the error for an output whose transaction would belong to a consumer that was closed."""
    return errors.ClientClosedError(
        "Consumer closed: what is written now could not be committed with its records. Build another consumer, and "
        "write in a block of that one."
    )


def committed_offsets_unknown(
    partitions: frozenset[InputPartition], timeout_s: float, exception: KafkaException, group_id: str
) -> errors.ClusterUnavailableError | errors.ClusterUnfitError:
    """Return the error for committed offsets that cannot be read, so that nothing may be based on them."""
    error = kafka_error(exception)
    if error.name() in READING_FORBIDDEN:
        what = f"the committed offsets of {named(partitions)} could not be read: {error.name()}: {error.str()}"
        topics = sorted({partition.topic for partition in partitions})
        remedy = _how_to_allow_reading(error.name(), topics, group_id)
        return make_kafka_error(errors.ClusterUnfitError, error, f"{what}. {remedy}.")
    return make_kafka_error(
        errors.ClusterUnavailableError,
        error,
        f"the committed offsets of {named(partitions)} could not be read within {timeout_s:g} s ({error.name()}: "
        f"{error.str()}). A transaction that the application has begun by itself may still be open: end it, then go "
        "on with the same clients. Nothing was committed by this call.",
    )


def overdue_error(failure: ProducerFailure, budget_s: float, transactional_id: str) -> errors.EosError:
    """Name a call that did not return in time."""
    message = f"{failure.request.value} did not return within {budget_s:g} s"
    error = KafkaError(KafkaError._TIMED_OUT, message)  # noqa: SLF001  # a public local code
    return producer_error(failure, error, transactional_id)


def commit_refused(message: str) -> errors.CommitRefusedError:
    """Return the refusal of a commit by our own gate; code that knows rebalances knows ILLEGAL_GENERATION."""
    return make_kafka_error(errors.CommitRefusedError, KafkaError.ILLEGAL_GENERATION, message)


def must_abort(message: str) -> errors.AbortableError:
    """Return the error for a transaction that cannot be committed for a reason of our own."""
    return make_kafka_error(errors.AbortableError, KafkaError._STATE, message, txn_requires_abort=True)  # noqa: SLF001


def leave_block(message: str) -> errors.LeaveBlockError:
    """Return the error that ends a block; code that knows rebalances knows REBALANCE_IN_PROGRESS."""
    return make_kafka_error(errors.LeaveBlockError, KafkaError.REBALANCE_IN_PROGRESS, message, txn_requires_abort=True)


_NOT_OF_THIS_PROTOCOL = "group id does not exist"
"""How brokers refuse a KIP-848 member in a group of classic ones; librdkafka passes on the text alone (_FATAL)."""

_RIVAL = "Another running consumer has its group.instance.id: give each an id of its own. "
_SAID_OF_GROUPS = {
    KafkaError(getattr(KafkaError, code)).str(): code for code in sorted(REFUSED_BY_GROUP | INSTANCE_ID_TAKEN)
}


def event_code(error: KafkaError) -> str:
    """Return the name of an error event's code; for a refusal of the group that librdkafka calls _FATAL, the broker's.

    A KIP-848 member is given up where a heartbeat is refused (librdkafka 2.16), and the event has the broker's answer
    in its text alone.
    """
    if error.code() != KafkaError._FATAL:  # noqa: SLF001  # a public local code
        return error.name()
    return next((code for text, code in _SAID_OF_GROUPS.items() if text in error.str()), error.name())


def input_error(error: KafkaError, *, is_fatal: bool, topic: str | None = None, group_id: str = "") -> errors.EosError:
    """Name an error event, of ``topic`` where it is about one, that a consumer of ``group_id`` cannot get over."""
    code = event_code(error)
    what = f"{code}: {error.str().rstrip('.')}"
    if is_fatal and _NOT_OF_THIS_PROTOCOL in error.str():
        return make_kafka_error(
            errors.ClusterUnfitError,
            error,
            f"group {group_id!r} does not admit this consumer: {what}. Members with group.protocol=classic are in it: "
            "set the same here, or stop them all first (a static one, or one that was killed, stays in it until its "
            "session.timeout.ms is over), or have the brokers' group.consumer.migration.policy let both in.",
        )
    if is_fatal:
        rival = _RIVAL if code in INSTANCE_ID_TAKEN else ""
        return make_kafka_error(
            errors.FatalClientError, error, f"the consumer cannot go on: {what}. {rival}End the process."
        )
    remedy = _GROUP_REMEDIES.get(code, "Repair it, start again")
    if code in READING_FORBIDDEN:
        remedy = _how_to_allow_reading(code, [topic] if topic else [], group_id)
    return make_kafka_error(errors.ClusterUnfitError, error, f"the input cannot be read: {what}. {remedy}.")


def given_up(error: KafkaError, group_id: str) -> errors.EosError:
    """Name the fatal ``error`` with which librdkafka has given up a consumer of ``group_id``."""
    return input_error(error, is_fatal=event_code(error) not in REFUSED_BY_GROUP, group_id=group_id)


def _how_to_allow_reading(code: str, topics: Sequence[str], group_id: str) -> str:
    """Return the way out of READING_FORBIDDEN; a heartbeat's refusal does not say which of the topics is meant."""
    forbidden = f"group {group_id!r}"
    if code.startswith("TOPIC"):
        forbidden = f"topic {', '.join(map(repr, topics))}" if topics else "every topic that it subscribes to"
    return f"Allow this client to read {forbidden}, then start again"


_NO_RESET = KafkaError._AUTO_OFFSET_RESET  # noqa: SLF001  # confluent_kafka's public spelling of a local code
_RESET_FIRST = "End the process, reset the group's offset of this partition, then start again."


def forbidden_reset(partition: InputPartition, message: Any) -> KafkaInputPositionError | None:
    """Return the error if ``message`` says that the library may not go on, under ``auto.offset.reset=error``."""
    error = message.error()
    if error is None or error.code() != _NO_RESET:
        return None
    if message.offset() is None or message.offset() < 0:
        return no_offset(partition, error)
    return KafkaInputPositionError(
        error,
        f"{partition} cannot be read on at offset {message.offset()} ({error.str()}), and auto.offset.reset=error "
        f"allows no other. {_RESET_FIRST}",
        partition.topic,
        partition.partition,
        message.offset(),
    )


def no_offset(partition: InputPartition, error: KafkaError | None = None) -> KafkaInputPositionError:
    """Return the error for a partition that has no committed offset and may not choose another start."""
    return KafkaInputPositionError(
        error or KafkaError(_NO_RESET, "no committed offset"),
        f"{partition} has no committed offset, and auto.offset.reset=error allows no other start. Commit an offset for "
        "the group, or set auto.offset.reset to earliest or latest, then start again.",
        partition.topic,
        partition.partition,
    )


def behind_the_end(partition: InputPartition, expected: int, found: int) -> KafkaInputPositionError:
    """Return the error for a partition whose position the log does not reach."""
    message = (
        f"{partition} was to be read on at offset {expected}, which lies beyond the end of its log: the log was "
        "truncated, or the topic was deleted and created again. Which of its records were processed cannot be known; "
        f"the client library offered offset {found}. {_RESET_FIRST}"
    )
    return KafkaInputPositionError(KafkaError(KafkaError.OFFSET_OUT_OF_RANGE, message), message, *partition, expected)


def topic_replaced(topic: str) -> KafkaInputPositionError:
    """Return the error for a named topic that is another than the one that was read so far."""
    message = (
        f"the input topic {topic!r} was deleted and created again: offsets of the old one say nothing about the new "
        "one. Nothing of the new one was handed over. End the process, set the group's offsets of this topic to where "
        "the new one is to be read from, or delete them (Kafka may have), then start again: without offsets, "
        "auto.offset.reset=latest passes over what the new one holds by then."
    )
    error = KafkaError(KafkaError.UNKNOWN_TOPIC_ID, message)
    return KafkaInputPositionError(error, message, topic)


def misplaced_call(message: str) -> errors.TransactionStateError:
    """Return the error for a call at the wrong time."""
    return make_kafka_error(errors.TransactionStateError, KafkaError._STATE, message)  # noqa: SLF001


def refuse_error_event(message: Any) -> Any:
    """Return ``message`` if it is a record; raises what confluent_kafka raises when an offset is taken from another."""
    if not callable(getattr(message, "error", None)):
        raise TypeError(f"expected a Message, not {message!r}")
    if message.error() is not None:
        reason = f"Cannot commit offsets for message error: '{message.error().str()}'"
        raise KafkaException(KafkaError(KafkaError._INVALID_ARG, reason))  # noqa: SLF001  # a public local code
    return message


def _refused_output(error: KafkaError, where: str, words: OutputWords) -> errors.OutputRefusedError:
    is_large = error.code() == KafkaError.MSG_SIZE_TOO_LARGE  # librdkafka's own limit, by a broker's name
    way_out = words.remedy_if_large if is_large else words.remedy
    message = f"{words.subject}{where} cannot be written: {error.str()} ({error.name()}). {way_out}."
    return make_kafka_error(errors.OutputRefusedError, error, message)


_PROPERTY = re.compile(r'property "([^"]+)"')


def configuration_refused(
    exception: KafkaException, client: str, settings: Mapping[str, Any]
) -> errors.ConfigurationError:
    """Name what the constructor of ``client`` raised for ``settings``; it is the cause."""
    told = kafka_error(exception).str()
    found = _PROPERTY.search(told)
    key = found[1] if found else ""
    # librdkafka reports a number that is out of its range as another one.
    given = f", given as {settings[key]!r}" if key in settings and not is_secret(key) else ""
    message = f"the {client} refuses its configuration: {told}. Correct or remove the named property{given}."
    return _caused_by(exception, errors.ConfigurationError, message)


def subscription_refused(exception: KafkaException, topics: Sequence[str]) -> errors.ConfigurationError | None:
    """Name what ``subscribe`` raised for names or patterns that librdkafka does not take; None for anything else."""
    error = kafka_error(exception)
    if error.code() != KafkaError._INVALID_ARG:  # noqa: SLF001  # a public local code
        return None
    message = (
        f"topics={list(topics)!r} cannot be subscribed: {error.str()}. Each must be the name of a topic, or, with ^ in "
        "front, a regular expression (of librdkafka's, or of RE2 where group.protocol=consumer)."
    )
    return make_kafka_error(errors.ConfigurationError, error, message)


def _caused_by(exception: KafkaException, kind: type[E], message: str) -> E:
    error = make_kafka_error(kind, kafka_error(exception), message)
    error.__cause__ = exception
    return error


def is_fatal(error: KafkaError) -> bool:
    """Whether the client failed for good. A consumer's event and its refused calls have the code without the flag."""
    return bool(error.fatal()) or error.code() == KafkaError._FATAL  # noqa: SLF001  # a public local code


def consumer_errors(call: str, group_id: str = "", topics: Iterable[str] = ()) -> ErrorTranslation:
    """Name what a consumer's call raised.

    Only fatal errors, failed commits and, with ``group_id``, missing permissions on it or ``topics`` get another class.
    """

    def name(exception: BaseException) -> errors.EosError | None:
        if not isinstance(exception, KafkaException):
            return None
        error = kafka_error(exception)
        told = f"with {error.name()}: {error.str()}"
        if group_id and error.name() in READING_FORBIDDEN:
            remedy = _how_to_allow_reading(error.name(), sorted(set(topics)), group_id)
            return _caused_by(exception, errors.ClusterUnfitError, f"{call} was refused {told}. {remedy}.")
        if is_fatal(error):
            message = f"the consumer cannot go on: {call} failed {told}. End the process."
            return _caused_by(exception, errors.FatalClientError, message)
        if error.name() in OFFSETS_REFUSED:
            message = (
                f"{call} was refused {told}. The records belong to another member or generation now: drop them, the "
                "group delivers them again."
            )
            return _caused_by(exception, errors.CommitRefusedError, message)
        return None

    return ErrorTranslation(name)


def last_commit_errors() -> ErrorTranslation:
    """Turn whatever keeps a commit inside the revoke callback from succeeding into CommitRefusedError."""

    def name(exception: BaseException) -> errors.EosError | None:
        if isinstance(exception, errors.EosError) or not isinstance(exception, KafkaException):
            return None
        error = kafka_error(exception)
        message = (
            f"the last commit before the partitions left failed with {error.name()}: {error.str()}. The group may "
            "deliver the records since the commit before it again."
        )
        return _caused_by(exception, errors.CommitRefusedError, message)

    return ErrorTranslation(name)


class ErrorTranslation:
    """Raises what ``name`` makes of an exception that leaves the block; None leaves it as it is.

    No generator: an asynchronous exception may strike before one is entered, and leave it to be closed later.
    """

    def __init__(self, name: Callable[[BaseException], BaseException | None]) -> None:
        self._name = name

    def __enter__(self) -> None:
        return

    def __exit__(self, _kind: object, exception: BaseException | None, _trace: object) -> None:
        error = None if exception is None else self._name(exception)
        if error is not None:
            raise error
