"""Judges transaction.timeout.ms by the brokers' limit for it, above which they refuse ``init_transactions``."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

DEFAULT_LIMIT_MS = 900_000
"""Kafka's own ``transaction.max.timeout.ms``, which is assumed where that of the brokers cannot be read."""
WAY_OUT = (
    "set transaction.timeout.ms lower, and with it the limits that it has to cover, or raise the brokers' "
    "transaction.max.timeout.ms"
)


class Allowance(Enum):
    """Whether the brokers allow a transaction timeout. UNKNOWN: only if their limit, which is hidden, was raised."""

    ALLOWED = "allowed"
    UNKNOWN = "allowed only if the limit, which cannot be read, was raised above Kafka's default"
    REFUSED = "above the limit, so init_transactions is refused"


def brokers_limit_ms(settings: Mapping[str, str]) -> int | None:
    """Return the limit among a broker's ``settings``; None if it cannot be read (DescribeConfigs)."""
    value = settings.get("transaction.max.timeout.ms", "")
    return int(value) if value.isdecimal() else None


def judge_timeout(asked_ms: int, limit_ms: int | None) -> Allowance:
    """Judge a timeout of ``asked_ms`` by the brokers' limit; None: it cannot be read."""
    if asked_ms <= (DEFAULT_LIMIT_MS if limit_ms is None else limit_ms):
        return Allowance.ALLOWED
    return Allowance.UNKNOWN if limit_ms is None else Allowance.REFUSED
