"""The settings of the clients of a generated application, as its program chooses them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from eos_client import EosConfig
from tests.applications.callbacks import ScriptedCallbacks
from tests.applications.environment import Names
from tests.applications.program import LARGE_LIMIT, SMALL_LIMIT, Program

QUIET = logging.getLogger("applications")
QUIET.disabled = True


class _RaisingLog:
    """The application's ``logger``, as far as a client library asks for one."""

    def __init__(self, called: Callable[[], None]) -> None:
        self._called = called

    def log(self, *_: object) -> None:
        self._called()


class ClientSettings:
    """What the clients of one member are built with."""

    def __init__(self, program: Program, names: Names, index: int, callbacks: ScriptedCallbacks) -> None:
        self._program, self._names, self._index, self._callbacks = program, names, index, callbacks
        self._setting = program.setting
        self._name = f"member-{index}"

    def consumer(self) -> dict[str, Any]:
        s = self._setting
        config: dict[str, Any] = {"client.id": self._name, "auto.offset.reset": s.reset, "group.protocol": s.protocol}
        config["max.poll.interval.ms"] = s.max_poll_ms
        if s.protocol == "classic":
            config |= {"partition.assignment.strategy": s.assignor, "session.timeout.ms": min(10_000, s.max_poll_ms)}
            config["heartbeat.interval.ms"] = 1_000
        if s.static:
            config["group.instance.id"] = self._name
        if s.end_events:
            config["enable.partition.eof"] = True
        config["error_cb"] = self._callbacks.on_error
        if self._program.has_callback("stats_cb"):
            config |= {"statistics.interval.ms": 200, "stats_cb": lambda _: self._callbacks.called("stats_cb")}
        if self._program.has_callback("on_commit"):
            config["on_commit"] = lambda *_: self._callbacks.called("on_commit")
        if self._program.has_event("throttle"):
            config["throttle_cb"] = self._callbacks.on_throttle
        if s.stores:
            config["enable.auto.offset.store"] = False
        return config

    def producer(self) -> dict[str, Any]:
        config: dict[str, Any] = {"client.id": self._name}
        if self._setting.transaction_timeout_ms is not None:
            config["transaction.timeout.ms"] = self._setting.transaction_timeout_ms
        config["message.max.bytes"] = LARGE_LIMIT if self._program.brokers_refuse else SMALL_LIMIT
        config["batch.size"] = config["message.max.bytes"]  # what brokers refuse is one output, never only a batch
        config["logger"] = QUIET
        has_callback, called = self._program.has_callback, self._callbacks.called
        if has_callback("logger"):
            config["logger"] = _RaisingLog(lambda: called("logger"))
        if has_callback("on_delivery"):
            config["on_delivery"] = lambda *_: called("on_delivery")
        if has_callback("producer_stats_cb"):
            config |= {"statistics.interval.ms": 200, "stats_cb": lambda _: called("producer_stats_cb")}
        if self._program.has_event("producer_error_cb"):
            config["error_cb"] = self._callbacks.on_producer_error
        if self._program.has_event("throttle"):
            config["throttle_cb"] = self._callbacks.on_throttle
        return config

    def loop(self, bootstrap: str) -> EosConfig:
        s = self._setting
        choices: dict[str, Any] = {"scope": s.scope, "policy": s.policy, "on_error": s.on_error}
        return EosConfig(
            {"bootstrap.servers": bootstrap},
            group_id=self._names.group,
            transactional_id=self.transactional_id,
            consumer=self.consumer(),
            producer=self.producer(),
            commit_interval_s=s.commit_interval_s,
            max_records=s.max_records,
            batch_size=s.batch_size,
            commit_timeout_s=s.commit_timeout_s,
            hold_limit_s=s.hold_limit_s,
            dead_letter_topic=self._names.letters if s.on_error == "dead_letter" else None,
            transform_attempts_max=s.attempts_max,
            **choices,
        )

    @property
    def transactional_id(self) -> str | None:
        return None if self._setting.generated_id else f"{self._names.group}-{self._index}"

    @property
    def topics(self) -> list[str]:
        is_pattern = self._setting.topic_kind == "pattern"
        return [f"^{self._names.source}" if is_pattern else self._names.source]
