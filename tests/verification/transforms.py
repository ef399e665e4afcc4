"""What the workers under test compute: the record itself, so that its unique id can be followed to the output."""

from __future__ import annotations

from collections.abc import Iterator

from confluent_kafka import Message

from eos_client import OutputRecord


def copy(record: Message) -> Iterator[OutputRecord]:
    """One output per input, with its key and value."""
    yield OutputRecord(value=record.value(), key=record.key())
