"""Assigns a row to a slot by a function of its key that never changes, in Spark and in Python alike.

Spark's own partition ids differ from run to run, so they must never decide. The version is kept in the ledger.
"""

from __future__ import annotations

import zlib

SLOT_FUNCTION_VERSION = 1
"""1: ``crc32(key, else value, else empty) mod slots``; librdkafka's own partitioner hashes keys with crc32 too."""


def slot_expression(slots: int, *, keyed: bool) -> str:
    """Return the slot of a row in Spark's SQL, over binary columns ``value`` and, where ``keyed``, ``key``."""
    hashed = "coalesce(key, value, X'')" if keyed else "coalesce(value, X'')"
    return f"cast(pmod(crc32({hashed}), {slots}) as int)"


def slot_of(key: bytes | None, value: bytes | None, slots: int) -> int:
    """Return the slot of a row; the twin of ``slot_expression``."""
    hashed = key if key is not None else value if value is not None else b""
    return zlib.crc32(hashed) % slots
