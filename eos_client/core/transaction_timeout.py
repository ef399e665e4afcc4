"""The meaning of transaction.timeout.ms: the brokers' limit for it, and when a transaction has reached it."""

from __future__ import annotations

BROKERS_LIMIT = "transaction.max.timeout.ms"
"""The brokers' setting above which they refuse ``init_transactions``."""
DEFAULT_LIMIT_MS = 900_000
"""Kafka's own limit, which is assumed where that of the brokers cannot be read."""
TIMEOUT_WAY_OUT = f"lower transaction.timeout.ms and the limits that it covers, or raise the brokers' {BROKERS_LIMIT}"


def is_timeout_allowed(asked_ms: int, limit_ms: int | None) -> bool | None:
    """Whether the brokers allow ``asked_ms``. None: their limit is unknown, and ``asked_ms`` exceeds the default."""
    is_allowed = asked_ms <= (limit_ms or DEFAULT_LIMIT_MS)
    return None if limit_ms is None and not is_allowed else is_allowed


def has_timed_out(age_s: float, timeout_s: float) -> bool:
    """Whether a coordinator may have aborted a transaction that began ``age_s`` seconds ago.

    It aborts those that are older than their time-out (``TransactionStateManager.timedOutTransactions``), and learns of
    a transaction later than its producer.
    """
    return age_s > timeout_s
