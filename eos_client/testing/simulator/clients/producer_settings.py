"""A producer's settings, by librdkafka's names and with its defaults."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from confluent_kafka import Producer

from eos_client.testing.simulator.clients.partitioner import PARTITIONERS, Partitioner
from eos_client.testing.simulator.clients.producer_events import DeliveryCallback

_YES = frozenset({"true", "t", "1"})
_NOT_CHECKED = ("bootstrap.servers", "metadata.broker.list", "debug", "test.mock.num.brokers", "logger", "client.id")
_UNLIMITED = 1 << 40


def _nothing(*_: object) -> None:
    """Stand in for a callback: only its setting's name is checked."""


@dataclass(frozen=True, slots=True)
class ProducerSettings:
    """The settings that have an effect."""

    client_id: str
    transactional_id: str | None
    idempotent: bool
    acknowledged: bool
    transaction_timeout_s: float
    linger_s: float
    batch_records_max: int
    batch_bytes_max: int
    queue_records_max: int
    message_bytes_max: int
    message_timeout_s: float
    request_timeout_s: float
    backoff_s: float
    topic_wait_s: float
    statistics_interval_s: float
    partitioner: Partitioner
    only_errors: bool
    on_delivery: DeliveryCallback | None
    stats_cb: Callable[[str], Any] | None
    error_cb: Callable[[Any], Any] | None
    throttle_cb: Callable[[Any], Any] | None
    logger: Any
    debug_contexts: frozenset[str]


def producer_settings(config: Mapping[str, Any]) -> ProducerSettings:
    """Read ``config``; raises the real client's errors for what it refuses."""
    _check(config)
    given = _Given(config)
    transactional_id = str(config["transactional.id"]) if config.get("transactional.id") else None
    transaction_timeout_ms = given.number("transaction.timeout.ms", default=60_000)
    # librdkafka lowers the default so that no record outlives its transaction.
    message_default_ms = 300_000 if transactional_id is None else min(300_000, transaction_timeout_ms)
    message_timeout_ms = given.number("message.timeout.ms", "delivery.timeout.ms", default=message_default_ms)
    # librdkafka also lets at least one request time out before the transaction does.
    answer_default_ms = 60_000 if transactional_id is None else max(transaction_timeout_ms - 100, 900)
    return ProducerSettings(
        client_id=str(config.get("client.id", "rdkafka")),
        transactional_id=transactional_id,
        idempotent=transactional_id is not None or given.flag("enable.idempotence"),
        acknowledged=str(config.get("acks", config.get("request.required.acks", "all"))) != "0",
        transaction_timeout_s=transaction_timeout_ms / 1000,
        linger_s=given.number("linger.ms", "queue.buffering.max.ms", default=5) / 1000,
        batch_records_max=int(given.number("batch.num.messages", default=10_000)),
        batch_bytes_max=int(given.number("batch.size", default=1_000_000)),
        queue_records_max=int(given.number("queue.buffering.max.messages", default=100_000)) or _UNLIMITED,
        message_bytes_max=int(given.number("message.max.bytes", default=1_000_000)),
        message_timeout_s=(message_timeout_ms or _UNLIMITED) / 1000,
        request_timeout_s=given.number("socket.timeout.ms", default=answer_default_ms) / 1000,
        backoff_s=given.number("retry.backoff.ms", default=100) / 1000,
        topic_wait_s=given.number("topic.metadata.propagation.max.ms", default=30_000) / 1000,
        statistics_interval_s=given.number("statistics.interval.ms", default=0) / 1000,
        partitioner=PARTITIONERS[str(config.get("partitioner", "consistent_random"))],
        only_errors=given.flag("delivery.report.only.error"),
        on_delivery=config.get("on_delivery"),
        stats_cb=config.get("stats_cb"),
        error_cb=config.get("error_cb"),
        throttle_cb=config.get("throttle_cb"),
        logger=config.get("logger"),
        debug_contexts=frozenset(str(config.get("debug", "")).split(",")),
    )


class _Given:
    def __init__(self, config: Mapping[str, Any]) -> None:
        self._config = config

    def number(self, *names: str, default: float) -> float:
        return next((float(self._config[n]) for n in names if n in self._config), default)

    def flag(self, name: str) -> bool:
        return str(self._config.get(name, False)).strip().lower() in _YES


def _check(config: Mapping[str, Any]) -> None:
    plain = {n: _nothing if callable(v) else v for n, v in config.items() if n not in _NOT_CHECKED}
    if plain.get("transactional.id"):
        plain["transactional.id"] = "any"
    _accepted_by_librdkafka(
        tuple(sorted((n, v if isinstance(v, bool) or v is _nothing else str(v)) for n, v in plain.items()))
    )


@lru_cache(maxsize=256)
def _accepted_by_librdkafka(items: tuple[tuple[str, Any], ...]) -> None:
    # A real handle without a broker's address connects nowhere, and checks all settings, their limits and conflicts.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # it has no transaction to abort
        Producer({**dict(items), "log_level": 0}).close()
