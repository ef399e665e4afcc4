"""What the workers under test compute: something in which each input can be followed to its outputs."""

from __future__ import annotations

from collections.abc import Iterator

from confluent_kafka import Message

from eos_client import OutputRecord

REFUSED_EVERY = 2_000
REFUSED_BYTES = 900_000
"""More than the output topic takes (`SINKS` in rig.py), less than what the client library sends."""
_refused: set[tuple[int | None, int | None]] = set()


def copy(record: Message) -> Iterator[OutputRecord]:
    """One output per input, with its key and value."""
    yield OutputRecord(value=record.value(), key=record.key())


def halves(record: Message) -> Iterator[OutputRecord]:
    """Two outputs per input, in the partitions of its number modulo 4 and behind it; each names the input's place.

    At one offset in 2,000 a worker first writes what the broker refuses, so that its loop aborts and goes back.
    """
    partition, offset = record.partition(), record.offset()
    if partition is None or offset is None:
        raise ValueError("a record that was fetched has a place")
    yield OutputRecord(value=f"{partition}:{offset}:a".encode(), partition=partition)
    if offset % REFUSED_EVERY == REFUSED_EVERY - 1 and (partition, offset) not in _refused:
        _refused.add((partition, offset))
        yield OutputRecord(value=b"." * REFUSED_BYTES, partition=partition)
    yield OutputRecord(value=f"{partition}:{offset}:b".encode(), partition=(partition + 1) % 4)
