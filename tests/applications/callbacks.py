"""What a generated application does inside its callbacks: raise, be interrupted, wait, seek, commit."""

from __future__ import annotations

from collections import Counter
from typing import Any

from confluent_kafka import KafkaException

from eos_client.errors import EosError
from tests.applications.exceptions import HookOops, Interrupt, Oops

COMMITTED_WAIT_S = 5.0


class ScriptedCallbacks:
    """One member's callbacks. ``counts``: how often each was called."""

    def __init__(self, member: Any) -> None:
        self._member, self._environment = member, member.environment
        self.counts = Counter[str]()

    def on_error(self, error: Any) -> None:
        self._environment.count("error_cb")
        if not self._environment.calm:
            raise Oops(f"error_cb: {error}")

    def on_producer_error(self, error: Any) -> None:
        self._environment.count("error_cb of the producer")
        if not self._environment.calm:
            raise Oops(f"error_cb of the producer: {error}")

    def on_throttle(self, event: Any) -> None:
        self._environment.count("throttle_cb")
        if not self._environment.calm:
            raise Oops(f"throttle_cb: {event}")

    def called(self, where: str, consumer: Any = None, partitions: list[Any] | None = None) -> None:
        self.counts[where] += 1
        if self._environment.calm:
            return
        for callback in self._member.program.callbacks:
            if callback.where == where and callback.turn in (0, self.counts[where]):
                self._environment.count(f"{where} {callback.does}")
                self._does(callback, consumer, partitions or [])

    def _does(self, callback: Any, consumer: Any, partitions: list[Any]) -> None:
        if callback.does == "raise":
            raise (HookOops if callback.where == "hook" else Oops)(f"in {callback.where}")
        if callback.does == "interrupt":
            raise Interrupt(f"a signal in {callback.where}")
        if callback.does == "sleep":
            self._environment.sleep(self._member, callback.number, switch=False)
        elif callback.does == "pause":
            consumer.pause(partitions)
        elif callback.does == "seek" and partitions:
            for each in partitions:
                each.offset = self._environment.first(each.partition)
                self._environment.oracle.sought(self._member.process, (each.partition, each.offset))
            self._assign(consumer, partitions)
        elif callback.does == "go_to_committed" and partitions:
            self._go_to_committed(consumer, partitions)
        elif callback.does == "commit":
            try:
                consumer.commit(asynchronous=False)
            except (KafkaException, EosError) as error:
                self._environment.count(f"commit in {callback.where}: {type(error).__name__}")

    def _go_to_committed(self, consumer: Any, partitions: list[Any]) -> None:
        """Assign the group's offsets, where there are any."""
        try:
            found = consumer.committed(partitions, COMMITTED_WAIT_S)
        except KafkaException:
            self._environment.count("committed() raised")
            return
        for each, known in zip(partitions, found, strict=True):
            if known.error is None and known.offset >= 0:
                each.offset = known.offset
        self._assign(consumer, partitions)

    def _assign(self, consumer: Any, partitions: list[Any]) -> None:
        is_cooperative = (
            self._member.setting.protocol == "consumer" or self._member.setting.assignor == "cooperative-sticky"
        )
        (consumer.incremental_assign if is_cooperative else consumer.assign)(partitions)
