"""One input record for a unit test of a transform, without a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from confluent_kafka import TIMESTAMP_CREATE_TIME, Message

from eos_client.testing.simulator.clients.flow import LEADER_EPOCH


def record(
    *,
    topic: str,
    value: bytes | None = None,
    key: bytes | None = None,
    partition: int = 0,
    offset: int = 0,
    headers: Sequence[tuple[str, bytes | None]] = (),
    timestamp_ms: int = 0,
) -> Any:
    """Return a ``confluent_kafka.Message`` as a consumer hands it over: the argument of a transform.

    ``timestamp_ms``: milliseconds since the epoch, stamped by the producer. Raises TypeError for a key or a value that
    is neither bytes nor None, because no broker sends one.
    """
    for name, given in (("key", key), ("value", value)):
        if given is not None and not isinstance(given, bytes):
            raise TypeError(
                f"{name}={given!r} of a record is bytes or None: encode it; for what a deserialiser has made of it "
                "wrap the record in a DeserializedRecord"
            )
    return Message(
        topic=topic,
        partition=partition,
        offset=offset,
        key=key,
        value=value,
        headers=list(headers) or None,
        timestamp=(TIMESTAMP_CREATE_TIME, timestamp_ms),
        leader_epoch=LEADER_EPOCH,
    )
