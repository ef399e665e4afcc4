"""Judges transaction.timeout.ms by the brokers' limit for it, above which they refuse ``init_transactions``."""

from __future__ import annotations

LIMIT_KEY = "transaction.max.timeout.ms"
DEFAULT_LIMIT_MS = 900_000
"""Kafka's own limit, which is assumed where that of the brokers cannot be read."""
WAY_OUT = "lower transaction.timeout.ms and the limits that it covers, or raise the brokers' transaction.max.timeout.ms"


def is_timeout_allowed(asked_ms: int, limit_ms: int | None) -> bool | None:
    """Whether the brokers allow ``asked_ms``. None: their limit is unknown, and ``asked_ms`` exceeds the default."""
    is_allowed = asked_ms <= (limit_ms or DEFAULT_LIMIT_MS)
    return None if limit_ms is None and not is_allowed else is_allowed
