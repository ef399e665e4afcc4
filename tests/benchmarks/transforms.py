"""The trivial transforms, the same functions for every contender that calls one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from confluent_kafka import Message

from eos_client import OutputRecord


def copy_value(record: Message) -> tuple[Any, ...]:
    """The trivial transform: its value."""
    return (record.value(),)


def copy_keyed(record: Message) -> Iterator[OutputRecord]:
    """The record with its key."""
    yield OutputRecord(value=record.value(), key=record.key())
