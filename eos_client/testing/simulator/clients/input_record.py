"""One input record for a unit test of a transform, without a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from confluent_kafka import TIMESTAMP_CREATE_TIME, Message

from eos_client.testing.simulator.clients.flow import LEADER_EPOCH
from eos_client.testing.simulator.clients.producer_records import TOPIC_NAME

_NO_TIMESTAMP = -1
_RANGES = {"partition": (0, 31), "offset": (0, 63), "timestamp_ms": (_NO_TIMESTAMP, 63)}  # the least, and the bits


def record(
    *,
    topic: str,
    value: bytes | None = None,
    key: bytes | None = None,
    partition: int = 0,
    offset: int = 0,
    headers: Sequence[tuple[str, bytes | None]] | None = None,
    timestamp_ms: int = 0,
) -> Any:
    """Return a ``confluent_kafka.Message`` as a consumer hands it over: the argument of a transform.

    ``timestamp_ms``: milliseconds since the epoch, stamped by the producer; -1: the record has none. Raises TypeError
    or ValueError for what no broker sends and no consumer hands over: a key or a value that is neither bytes nor None,
    headers that are no pairs of a str and bytes or None.
    """
    for name, payload in (("key", key), ("value", value)):
        _check_payload(name, payload)
    for name, number in (("partition", partition), ("offset", offset), ("timestamp_ms", timestamp_ms)):
        _check_number(name, number)
    _check_topic(topic)
    _check_headers(headers)
    return Message(
        topic=topic,
        partition=partition,
        offset=offset,
        key=key,
        value=value,
        headers=list(headers or ()) or None,
        timestamp=(TIMESTAMP_CREATE_TIME, timestamp_ms),
        leader_epoch=LEADER_EPOCH,
    )


def _check_payload(name: str, given: object) -> None:
    if given is not None and not isinstance(given, bytes):
        raise TypeError(
            f"{name}={given!r} of a record is bytes or None: encode it; for what a deserialiser has made of it wrap "
            "the record: DeserializedRecord(record(...), lambda message: (key, value))"
        )


def _check_number(name: str, given: object) -> None:
    if not isinstance(given, int) or isinstance(given, bool):
        raise TypeError(f"{name}={given!r}: give a whole number")
    least, bits = _RANGES[name]
    if not least <= given < 2**bits:
        raise ValueError(f"{name}={given!r}: give {least} or more, below 2**{bits}")


def _check_topic(given: object) -> None:
    if not isinstance(given, str):
        raise TypeError(f"topic={given!r}: the name of a topic is a str")
    if not TOPIC_NAME.fullmatch(given):
        raise ValueError(f"topic={given!r}: no topic can be called that; give 1 to 249 of a-z, A-Z, 0-9, '.', '_', '-'")


def _check_headers(given: object) -> None:
    if given is None or (isinstance(given, (list, tuple)) and all(map(_is_header, given))):
        return
    raise TypeError(
        f"headers={given!r}: give a list of pairs (str, bytes or None), as a consumer hands it over; encode a str value"
    )


def _is_header(given: object) -> bool:
    match given:
        case (str(), bytes() | None):
            return isinstance(given, tuple)
    return False
