"""librdkafka's error class for each refusal of a producer's request: one table for each request."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum


class Treatment(Enum):
    """What librdkafka does with the request, and with the transaction that it belongs to."""

    RETRY = "send it again"
    ABORT = "the transaction must be aborted"
    ABORT_AND_BUMP = "the transaction must be aborted, and the epoch bumped after it (KIP-360)"
    FATAL = "the producer has failed fatally"


_COORDINATOR_MOVING = ("COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR")
_FENCED = ("INVALID_PRODUCER_EPOCH", "PRODUCER_FENCED")
_FORBIDDEN = ("TRANSACTIONAL_ID_AUTHORIZATION_FAILED", "CLUSTER_AUTHORIZATION_FAILED")
_UNKNOWN_PRODUCER = ("UNKNOWN_PRODUCER_ID", "INVALID_PRODUCER_ID_MAPPING")
_DEFAULT = ""


def _table(
    default: Treatment,
    *,
    retry: tuple[str, ...] = (),
    bump: tuple[str, ...] = (),
    fatal: tuple[str, ...] = (),
) -> Mapping[str, Treatment]:
    return {
        _DEFAULT: default,
        **dict.fromkeys(retry, Treatment.RETRY),
        **dict.fromkeys(bump, Treatment.ABORT_AND_BUMP),
        **dict.fromkeys(fatal, Treatment.FATAL),
    }


TREATMENTS: Mapping[str, Mapping[str, Treatment]] = {
    "InitProducerId": _table(Treatment.RETRY, fatal=(*_FENCED, *_FORBIDDEN, "INVALID_TRANSACTION_TIMEOUT")),
    "AddPartitionsToTxn": _table(
        Treatment.ABORT,
        retry=(*_COORDINATOR_MOVING, "CONCURRENT_TRANSACTIONS", "UNKNOWN_TOPIC_OR_PART"),
        bump=_UNKNOWN_PRODUCER,
        fatal=(*_FENCED, *_FORBIDDEN, "INVALID_TXN_STATE"),
    ),
    # PRODUCER_FENCED is not fatal here: brokers translate it for the request versions that librdkafka uses.
    "AddOffsetsToTxn": _table(
        Treatment.ABORT,
        retry=(*_COORDINATOR_MOVING, "CONCURRENT_TRANSACTIONS", "UNKNOWN_TOPIC_OR_PART", "REQUEST_TIMED_OUT"),
        fatal=(*_FORBIDDEN, "INVALID_PRODUCER_EPOCH", "INVALID_TXN_STATE", "UNSUPPORTED_FOR_MESSAGE_FORMAT"),
    ),
    "TxnOffsetCommit": _table(
        Treatment.ABORT,
        retry=(*_COORDINATOR_MOVING, "CONCURRENT_TRANSACTIONS", "UNKNOWN_TOPIC_OR_PART", "REQUEST_TIMED_OUT"),
        fatal=(
            *_FORBIDDEN,
            "INVALID_PRODUCER_ID_MAPPING",
            "INVALID_PRODUCER_EPOCH",
            "INVALID_TXN_STATE",
            "UNSUPPORTED_FOR_MESSAGE_FORMAT",
        ),
    ),
    "EndTxn": _table(
        Treatment.ABORT,
        retry=(*_COORDINATOR_MOVING, "CONCURRENT_TRANSACTIONS"),
        bump=_UNKNOWN_PRODUCER,
        fatal=(*_FENCED, *_FORBIDDEN, "INVALID_TXN_STATE"),
    ),
    # OUT_OF_ORDER_SEQUENCE_NUMBER depends on the batch: see `RecordSender`.
    "Produce": _table(
        Treatment.ABORT,
        retry=(
            *_COORDINATOR_MOVING,
            "REQUEST_TIMED_OUT",
            "UNKNOWN_TOPIC_OR_PART",
            "NOT_LEADER_FOR_PARTITION",
            "LEADER_NOT_AVAILABLE",
            "KAFKA_STORAGE_ERROR",
            "NOT_ENOUGH_REPLICAS",
            "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
        ),
        bump=("UNKNOWN_PRODUCER_ID",),
        fatal=("INVALID_PRODUCER_EPOCH",),
    ),
}


def treatment_of(request: str, code: str) -> Treatment:
    """Return what librdkafka does when ``request`` is refused with ``code``."""
    table = TREATMENTS[request]
    return table.get(code, table[_DEFAULT])


def reported_code(code: str) -> str:
    """Return the code that the application gets for ``code``: one for both errors of a fenced producer."""
    return "_FENCED" if code in _FENCED else code
