"""Numbers for the rows of an outbox: they are the offsets at which a relay publishes the rows.

Theory of operation. An application inserts rows into an outbox table in transactions of its own. A relay gives each row
a *bucket* and a *sequence number* in it, and publishes a bucket in the order of its numbers. A bucket is to the relay
what a partition is to a loop: the group assigns each to one relay, and the number after the last published row is the
group's committed offset, which moves in the Kafka transaction of the messages.

The rows cannot be published in the order of their ids. An id is drawn when a row is inserted, and the row becomes
visible when its transaction commits: a reader that remembers the last id passes over the rows of a transaction that
commits later. Such readers wait for a horizon, in PostgreSQL the oldest open transaction (xmin), and so one transaction
that is left open stops them.

Nothing is remembered by id here. A number is given only to rows that are visible, that is committed, and a row that has
none yet is found by that alone, whenever it becomes visible. So a transaction that commits late loses nothing, and
delays nothing: its rows get later numbers. No relay can pass over a number either, because the transaction that gives
numbers holds the counters of the buckets until it ends: where a number is visible, all earlier ones of its bucket are.

Rows of one key share a bucket. Within one pass, rows are numbered by id; so rows of one key keep the order of their
ids, unless a later id was visible when the earlier one was not, because two transactions wrote the same key at the same
time. An application that locks what it changes, as it does when it updates the row of an order, has no such
transactions.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple


class NumberedRow(NamedTuple):
    """The number that a row gets."""

    row_id: int
    bucket: int
    seq: int


@dataclass(frozen=True, slots=True)
class BucketState:
    """``next_seq``: the number of its next row. ``published``: below it every row is published and cleared away.

    ``published`` follows behind the group's committed offset, and never leads.
    """

    next_seq: int = 0
    published: int = 0


def bucket_of(key: bytes | None, row_id: int, bucket_count: int) -> int:
    """Return the bucket of a row; rows without a key are spread, because they have no order."""
    return (row_id if key is None else zlib.crc32(key)) % bucket_count


def number(
    rows: Iterable[tuple[int, bytes | None]], next_seqs: Mapping[int, int], bucket_count: int
) -> tuple[list[NumberedRow], dict[int, int]]:
    """Give numbers to ``rows``, ids with keys in the order of ids; return them, and each bucket's next number."""
    following = dict(next_seqs)
    numbered: list[NumberedRow] = []
    for row_id, key in rows:
        bucket = bucket_of(key, row_id, bucket_count)
        numbered.append(NumberedRow(row_id, bucket, following[bucket]))
        following[bucket] += 1
    return numbered, following


def why_not_relayed(committed: int | None, state: BucketState) -> str:
    """Return why a bucket may not be published from the group's ``committed`` offset on; empty where it may.

    ``state`` was read before ``committed`` as far as its ``published`` goes, and after it as far as ``next_seq`` goes.
    """
    if committed is None and state.published:
        return (
            f"the group has no committed offset, and the rows below {state.published} were published under one: the "
            "offset has expired or was deleted, or the group is another one"
        )
    if committed is not None and committed < state.published:
        return (
            f"the group's committed offset {committed} was set back: the rows below {state.published} are published "
            "already"
        )
    if committed is not None and committed > state.next_seq:
        return (
            f"the group's committed offset {committed} lies beyond the next number of the table, {state.next_seq}: the "
            "database was set back to an earlier state, or the group belongs to another outbox"
        )
    return ""
