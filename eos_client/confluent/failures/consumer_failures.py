"""Names what a consumer's calls and error events fail with, and what its group refuses."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from eos_client import errors
from eos_client.confluent.failures.kafka_errors import (
    ErrorTranslation,
    is_fatal,
    kafka_error,
    make_kafka_error,
    with_cause,
)
from eos_client.core.error_codes import (
    ARGUMENT_REFUSED,
    ASSIGNOR_REFUSED,
    FATAL_UNNAMED,
    GROUP_FULL,
    GROUP_NOT_ADMITTED,
    GROUP_PROTOCOL_DIFFERS,
    GROUP_UNKNOWN,
    INSTANCE_FENCED,
    INSTANCE_ID_TAKEN,
    OFFSETS_REFUSED,
    PATTERN_REFUSED,
    READING_FORBIDDEN,
    REFUSED_BY_GROUP,
    SESSION_TIMEOUT_REFUSED,
    TOPIC_FORBIDDEN,
)
from eos_client.core.error_events import ErrorEvent, EventMeaning, meaning_of

_GROUP_REMEDIES = {
    ASSIGNOR_REFUSED: "Leave group.remote.assignor out, or set one of the brokers' group.consumer.assignors",
    GROUP_FULL: "Run fewer members, or have the broker's group.max.size raised, or, for "
    "group.protocol=consumer, its group.consumer.max.size",
    GROUP_PROTOCOL_DIFFERS: "Members that are in the group use another partition.assignment.strategy or "
    "group.protocol: set the same here, or stop them all first",
    GROUP_UNKNOWN: "Either the group was deleted while this consumer was away: start again. Or members with "
    "group.protocol=classic are in it: set the same here, or stop them all first (a static one, or one that was "
    "killed, stays in it until its session.timeout.ms is over), or have the brokers' group.consumer.migration.policy "
    "let both in",
    SESSION_TIMEOUT_REFUSED: "Set a session.timeout.ms between the broker's group.min.session.timeout.ms and "
    "group.max.session.timeout.ms",
    PATTERN_REFUSED: "With group.protocol=consumer the brokers match patterns with RE2, which has no back-references "
    "(\\1), no look-ahead and no look-behind: write {patterns} without them, or set group.protocol=classic",
}
"""What helps a consumer that its group does not admit; ``patterns`` are those that it subscribes to."""

_RIVAL = " Another running consumer has its group.instance.id: give each an id of its own."
_UNRELEASED = (
    " The group.instance.id is taken: by a former process that ended without close(), until its session is over (the "
    "brokers' group.consumer.session.timeout.ms; then start again, or leave group.instance.id out), or by another "
    "running consumer, which needs an id of its own."
)
_GROUP_CODE_BY_TEXT = {
    KafkaError(getattr(KafkaError, code)).str().removeprefix("Broker: "): code
    for code in sorted(REFUSED_BY_GROUP | INSTANCE_ID_TAKEN | {GROUP_UNKNOWN})
}


def event_code(error: KafkaError) -> str:
    """Return the name of an error event's code; for a refusal of the group that librdkafka calls _FATAL, the broker's.

    A KIP-848 member is given up where a heartbeat is refused (librdkafka 2.16), and the event has the broker's answer
    in its text alone.
    """
    if error.name() != FATAL_UNNAMED:
        return error.name()
    return next((code for text, code in _GROUP_CODE_BY_TEXT.items() if text in error.str()), error.name())


def input_error(
    error: KafkaError, *, topic: str | None = None, group_id: str = "", patterns: Iterable[str] = (), call: str = ""
) -> errors.EosError:
    """Name an error event, of ``topic`` if that is known, or what ``call`` raised, that a consumer ends with.

    ``patterns``: those of the subscription, if they are known.
    """
    code = event_code(error)
    what = f"{call}{code}: {error.str().rstrip('.')}"
    if meaning_of(ErrorEvent(code, fatal=is_fatal(error))) is EventMeaning.STOP_FATAL:
        holder = "" if code not in INSTANCE_ID_TAKEN else _RIVAL if code == INSTANCE_FENCED else _UNRELEASED
        message = f"the consumer cannot go on: {what}. End the process.{holder}"
        return make_kafka_error(errors.FatalClientError, error, message)
    failed = "the consumer cannot go on:" if call else "the input cannot be read:"
    if code in READING_FORBIDDEN:
        return reading_refused(f"{failed} {call}".rstrip(), error, [topic] if topic else [], group_id)
    if code in GROUP_NOT_ADMITTED or code == GROUP_UNKNOWN:
        failed = f"group {group_id!r} does not admit this consumer:"
    refused = " and ".join(map(repr, patterns)) or "the patterns"
    remedy = _GROUP_REMEDIES.get(code, "Repair it, start again").format(patterns=refused)
    return make_kafka_error(errors.ClusterUnfitError, error, f"{failed} {what}. {remedy}.")


def reading_refused(what: str, error: KafkaError, topics: Iterable[str], group_id: str) -> errors.ClusterUnfitError:
    """Return the error for READING_FORBIDDEN of one of ``topics`` or of the group; ``what`` begins its sentence.

    ``topics`` are empty where nothing says which is meant, as of a heartbeat that is refused.
    """
    code = event_code(error)
    forbidden = f"group {group_id!r}"
    if code == TOPIC_FORBIDDEN:
        names = ", ".join(map(repr, sorted(set(topics))))
        forbidden = f"topic {names}" if names else "every topic that it subscribes to"
    message = f"{what} {code}: {error.str().rstrip('.')}. Allow this client to read {forbidden}, then start again."
    return make_kafka_error(errors.ClusterUnfitError, error, message)


def consumer_errors(
    call: str, group_id: str = "", topics: Iterable[str] | None = None, given_up: KafkaError | None = None
) -> ErrorTranslation:
    """Translate what a consumer's call raised.

    Only fatal errors, failed commits and, with ``topics``, missing permissions on the group or them get another class.
    ``given_up``: the event of the fatal error, if it has come: a call may say that there is one and not which.
    """

    def translate(exception: BaseException) -> errors.EosError | None:
        if not isinstance(exception, KafkaException):
            return None
        error = kafka_error(exception)
        if topics is not None and error.name() in READING_FORBIDDEN:
            return with_cause(reading_refused(f"{call} was refused with", error, topics, group_id), exception)
        if is_fatal(error):
            error = error if given_up is None else given_up
            return with_cause(input_error(error, group_id=group_id, call=f"{call} failed with "), exception)
        if error.name() in OFFSETS_REFUSED:
            message = (
                f"{call} was refused with {error.name()}: {error.str()}. The records belong to another member or "
                "generation now: drop them, the group delivers them again."
            )
            return with_cause(make_kafka_error(errors.CommitRefusedError, error, message), exception)
        return None

    return ErrorTranslation(translate)


def last_commit_errors() -> ErrorTranslation:
    """Turn whatever keeps a commit inside the revoke callback from succeeding into CommitRefusedError."""

    def translate(exception: BaseException) -> errors.EosError | None:
        if isinstance(exception, errors.EosError) or not isinstance(exception, KafkaException):
            return None
        error = kafka_error(exception)
        message = (
            f"the last commit before the partitions left failed with {error.name()}: {error.str()}. The group may "
            "deliver the records since the commit before it again."
        )
        return with_cause(make_kafka_error(errors.CommitRefusedError, error, message), exception)

    return ErrorTranslation(translate)


def subscription_refused(exception: KafkaException, topics: Sequence[str]) -> errors.ConfigurationError | None:
    """Name what ``subscribe`` raised for names or patterns that librdkafka does not take; None for anything else."""
    error = kafka_error(exception)
    if error.name() != ARGUMENT_REFUSED:
        return None
    message = (
        f"topics={list(topics)!r} cannot be subscribed: {error.str()}. Each must be the name of a topic, or, with ^ in "
        "front, a regular expression (of librdkafka's, or of RE2 where group.protocol=consumer)."
    )
    return make_kafka_error(errors.ConfigurationError, error, message)


def refuse_error_event(message: Any) -> Any:
    """Return ``message`` if it is a record; raises what confluent_kafka raises when an offset is taken from another."""
    if not callable(getattr(message, "error", None)):
        raise TypeError(f"expected a Message, not {message!r}")
    if message.error() is not None:
        reason = f"Cannot commit offsets for message error: '{message.error().str()}'"
        raise KafkaException(KafkaError(KafkaError._INVALID_ARG, reason))
    return message


def commit_refused(message: str) -> errors.CommitRefusedError:
    """Return the refusal of a commit by our own gate, with a code that existing rebalance code handles."""
    return make_kafka_error(errors.CommitRefusedError, KafkaError.ILLEGAL_GENERATION, message)


def leave_block(message: str) -> errors.LeaveBlockError:
    """Return the error that ends a block, with a code that existing rebalance code handles."""
    return make_kafka_error(errors.LeaveBlockError, KafkaError.REBALANCE_IN_PROGRESS, message, txn_requires_abort=True)


def read_after_close() -> errors.ClientClosedError:
    """Return the error for a read of a consumer that was closed."""
    return errors.ClientClosedError("Consumer closed: build another one, which goes on at the committed offsets.")


def write_after_close() -> errors.ClientClosedError:
    """Return the error for an output whose transaction would belong to a consumer that was closed."""
    return errors.ClientClosedError(
        "Consumer closed: what is written now could not be committed with its records. Build another consumer, and "
        "write in a block of that one."
    )
