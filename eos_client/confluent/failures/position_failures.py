"""Names why a partition cannot be read on from where it has to be."""

from __future__ import annotations

from typing import Any

from confluent_kafka import KafkaError

from eos_client import errors
from eos_client.confluent.failures.kafka_errors import FromKafka
from eos_client.core.hand_over import (
    ForbiddenReset,
    LogTooShort,
    MissingStart,
    Refusal,
    ReplacedTopic,
    StartForgotten,
    TruncatedLog,
)
from eos_client.core.leader_epochs import Misplacement
from eos_client.core.model import InputPartition

_NO_RESET = KafkaError._AUTO_OFFSET_RESET
_LOG_TRUNCATION = KafkaError(KafkaError._LOG_TRUNCATION).str()
_RESET_FIRST = "End the process, reset the group's offset of this partition, then start again."


class InputPositionError(FromKafka, errors.InputPositionError):
    """See `eos_client.errors.InputPositionError`, whose name it has in tracebacks and logs."""

    def __init__(
        self, error: KafkaError, message: str, topic: str, partition: int | None = None, offset: int | None = None
    ) -> None:
        super().__init__(error, message)
        self.topic, self.partition, self.offset = topic, partition, offset


def refusal_error(refusal: Refusal) -> errors.EosError:
    """Return the error of a call that hands over nothing because of ``refusal``."""
    match refusal:
        case ReplacedTopic(topic):
            return _topic_replaced(topic)
        case MissingStart(partition):
            return _no_offset(partition)
        case TruncatedLog(partition, misplacement):
            return log_truncated(partition, misplacement)
        case StartForgotten(partition, committed):
            return _start_forgotten(partition, committed)
        case ForbiddenReset(partition, error):
            return forbidden_reset(partition, error)
        case LogTooShort(partition, expected, found):
            return beyond_the_end(partition, expected, found)


def forbidden_reset(partition: InputPartition, message: Any) -> InputPositionError:
    """Return the error for the event ``message``: the library may not go on, under ``auto.offset.reset=error``."""
    error = message.error()
    if _LOG_TRUNCATION in error.str():
        return _refused_for_truncation(error, partition, f"{partition} cannot be read on: {error.str()}.", None)
    if says_no_offset(message):
        return _no_offset(partition, error)
    return InputPositionError(
        error,
        f"{partition} cannot be read on at offset {message.offset()} ({error.str()}), and auto.offset.reset=error "
        f"allows no other. {_RESET_FIRST}",
        partition.topic,
        partition.partition,
        message.offset(),
    )


def says_no_offset(message: Any) -> bool:
    """Whether the event ``message`` says that there is no offset to go on at."""
    return _LOG_TRUNCATION not in message.error().str() and (message.offset() is None or message.offset() < 0)


def _no_offset(partition: InputPartition, error: KafkaError | None = None) -> InputPositionError:
    """Return the error for a partition that has no committed offset and may not choose another start."""
    return InputPositionError(
        error or KafkaError(_NO_RESET, "no committed offset"),
        f"{partition} has no committed offset, and auto.offset.reset=error allows no other start. Commit an offset for "
        "the group, or set auto.offset.reset to earliest or latest, then start again.",
        partition.topic,
        partition.partition,
    )


def _start_forgotten(partition: InputPartition, committed: int | None) -> errors.FatalClientError:
    """Return the error for a partition of which the library says wrongly that the group has no offset.

    ``committed``: the group's offset; None while that is pending. librdkafka (2.16) forgets the look-up of a pending
    offset when a cooperative member joins again, and refuses to seek the partition after it has reported that.
    """
    found = "does not say yet where it starts" if committed is None else f"has committed offset {committed}"
    return errors.FatalClientError(
        f"{partition} cannot be read by this consumer any more: the client library has found no offset to start at, "
        f"but the group {found}. Start the process again; nothing is lost."
    )


def beyond_the_end(partition: InputPartition, expected: int, found: int) -> InputPositionError:
    """Return the error for a partition whose position the log does not reach."""
    message = (
        f"{partition} was to be read on at offset {expected}, which lies beyond the end of its log: the log was "
        "truncated, the topic was deleted and created again, or the application has chosen that offset. Which of its "
        f"records were processed cannot be known; the client library offered offset {found}. {_RESET_FIRST}"
    )
    return InputPositionError(KafkaError(KafkaError.OFFSET_OUT_OF_RANGE, message), message, *partition, expected)


def log_truncated(partition: InputPartition, misplacement: Misplacement) -> InputPositionError:
    """Return the error for a partition whose log lost records that were read, and has gone on with others."""
    expected, expected_epoch, found, found_epoch = misplacement
    message = (
        f"{partition} was to be read on at offset {expected} ({_epoch_text(expected_epoch)} before it), but its log "
        f"now goes on from offset {found} ({_epoch_text(found_epoch)})."
    )
    error = KafkaError(KafkaError.OFFSET_OUT_OF_RANGE, message)
    return _refused_for_truncation(error, partition, message, expected)


def _epoch_text(epoch: int | None) -> str:
    return "leader epoch unknown" if epoch is None else f"leader epoch {epoch}"


def _refused_for_truncation(
    error: KafkaError, partition: InputPartition, what: str, offset: int | None
) -> InputPositionError:
    return InputPositionError(
        error,
        f"{what} The log was truncated, as by an unclean leader election: records that were read are gone from it, and "
        "others are at their offsets, of which none was handed over. End the process. If the group's committed offset "
        "of this partition lies beyond where the log was truncated, set it to where the new records are to be read "
        "from. Then start again.",
        *partition,
        offset,
    )


def _topic_replaced(topic: str) -> InputPositionError:
    """Return the error for an input topic that was deleted and created again."""
    message = (
        f"the input topic {topic!r} was deleted and created again: offsets of the old one say nothing about the new "
        "one. Nothing of the new one was handed over. End the process, set the group's offsets of this topic to where "
        "the new one is to be read from, or delete them, and only then start again. Look at them even if Kafka has "
        "deleted them with the topic: a revocation may have committed those of the old one before this was noticed, "
        "and a start there skips records. Without offsets, auto.offset.reset=latest skips what is in the new one."
    )
    error = KafkaError(KafkaError.UNKNOWN_TOPIC_ID, message)
    return InputPositionError(error, message, topic)
