"""What a store must offer that keeps an application's outbox: numbered rows that a relay publishes in order."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple, Protocol

from eos_client.core.outbox_numbers import BucketState

Span = tuple[int, int]
"""Numbers of one bucket: the first one, and the one after the last."""


class OutboxRow(NamedTuple):
    """A numbered row. ``headers``: JSON, as the application has written it; ``timestamp_ms``: of its insertion."""

    row_id: int
    bucket: int
    seq: int
    topic: str | None
    key: bytes | None
    value: bytes | None
    headers: str | None
    timestamp_ms: int


class RowHeader:
    """The names of the headers with which a relay hands a row on to its transform, and to dead letters."""

    ROW_ID = "eos.outbox.id"
    TOPIC = "eos.outbox.topic"
    HEADERS = "eos.outbox.headers"


class OutboxStore(Protocol):
    """The outbox of one application. Any of these may raise the errors of ``position_store``."""

    def states(self, buckets: Collection[int]) -> Mapping[int, BucketState]:
        """Return the states of ``buckets``; one that the outbox does not have is empty."""
        ...

    def number(self) -> int:
        """Give numbers to visible rows that have none; returns how many got one, 0 where none was left."""
        ...

    def number_and_read(self) -> Sequence[OutboxRow]:
        """Do what ``number`` does, and return the rows: those of each bucket in the order of their numbers."""
        ...

    def read(self, spans: Mapping[int, Span]) -> Sequence[OutboxRow]:
        """Return the rows of each bucket in its span of numbers that exist already, in the order of their numbers."""
        ...

    def clear(self, published: Mapping[int, int]) -> Mapping[int, int]:
        """Clear rows away that are published: by bucket, those below a number; returns below which they now are.

        A call clears a limited number of rows, and may be repeated.
        """
        ...
