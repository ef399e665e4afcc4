"""A consumer's settings, by librdkafka's names and with its defaults."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, OFFSET_INVALID, Consumer

_YES = frozenset({"true", "t", "1"})
_RESETS = {
    **dict.fromkeys(("smallest", "earliest", "beginning"), OFFSET_BEGINNING),
    **dict.fromkeys(("largest", "latest", "end"), OFFSET_END),
    "error": OFFSET_INVALID,
}
_NOT_CHECKED = ("bootstrap.servers", "metadata.broker.list", "debug", "test.mock.num.brokers", "logger")


@dataclass(frozen=True, slots=True)
class ConsumerSettings:
    """The settings that have an effect. ``reset``: OFFSET_BEGINNING, OFFSET_END, or OFFSET_INVALID for an error."""

    group_id: str
    client_id: str
    instance_id: str | None
    is_member_epoch: bool
    assignor: str
    session_timeout_s: float
    heartbeat_interval_s: float
    poll_limit_s: float
    auto_commit: bool
    auto_commit_interval_s: float
    auto_store: bool
    reset: int
    read_committed: bool
    partition_eof: bool
    queued_records_max: int
    request_timeout_s: float
    backoff_s: float
    on_commit: Callable[[Any, list[Any]], Any] | None
    error_cb: Callable[[Any], Any] | None
    stats_cb: Callable[[str], Any] | None
    throttle_cb: Callable[[Any], Any] | None
    statistics_interval_s: float

    @property
    def is_cooperative(self) -> bool:
        """Whether assignments change incrementally."""
        return self.is_member_epoch or self.assignor == "cooperative-sticky"


def consumer_settings(config: Mapping[str, Any]) -> ConsumerSettings:
    """Read ``config``; raises the real client's errors for what it refuses."""
    _check(config)
    seconds = _Seconds(config)
    return ConsumerSettings(
        group_id=str(config["group.id"]),
        client_id=str(config.get("client.id", "rdkafka")),
        instance_id=str(config["group.instance.id"]) if config.get("group.instance.id") else None,
        is_member_epoch=str(config.get("group.protocol", "classic")).lower() == "consumer",
        assignor=str(config.get("partition.assignment.strategy", "range")).split(",")[0].strip(),
        session_timeout_s=seconds("session.timeout.ms", 45_000),
        heartbeat_interval_s=seconds("heartbeat.interval.ms", 3_000),
        poll_limit_s=seconds("max.poll.interval.ms", 300_000),
        auto_commit=_flag(config, "enable.auto.commit", "auto.commit.enable"),
        auto_commit_interval_s=seconds("auto.commit.interval.ms", 5_000),
        auto_store=_flag(config, "enable.auto.offset.store"),
        reset=_RESETS[str(config.get("auto.offset.reset", "largest")).lower()],
        read_committed=str(config.get("isolation.level", "read_committed")) == "read_committed",
        partition_eof=_flag(config, "enable.partition.eof", default=False),
        queued_records_max=int(config.get("queued.min.messages", 100_000)),
        request_timeout_s=seconds("socket.timeout.ms", 60_000),
        backoff_s=seconds("retry.backoff.ms", 100),
        on_commit=config.get("on_commit"),
        error_cb=config.get("error_cb"),
        stats_cb=config.get("stats_cb"),
        throttle_cb=config.get("throttle_cb"),
        statistics_interval_s=seconds("statistics.interval.ms", 0),
    )


class _Seconds:
    def __init__(self, config: Mapping[str, Any]) -> None:
        self._config = config

    def __call__(self, name: str, default_ms: int) -> float:
        return int(self._config.get(name, default_ms)) / 1000


def _flag(config: Mapping[str, Any], *names: str, default: bool = True) -> bool:
    given = [str(config[n]).strip().lower() for n in names if n in config]
    return given[0] in _YES if given else default


def _check(config: Mapping[str, Any]) -> None:
    if config.get("group.id") == "":  # the real client ends the process there
        raise ValueError("Failed to create consumer: group.id must be set")
    plain = {n: v for n, v in config.items() if n not in _NOT_CHECKED and not callable(v)}
    _accepted_by_librdkafka(tuple(sorted((n, str(v)) for n, v in plain.items())))


@lru_cache(maxsize=256)
def _accepted_by_librdkafka(items: tuple[tuple[str, str], ...]) -> None:
    # A real handle without a broker's address connects nowhere, and checks all settings, their limits and conflicts.
    Consumer({**dict(items), "log_level": 0}).close()
