"""Tells, every few seconds, how far the group's offsets are behind the input; asks no broker for it."""

from __future__ import annotations

from eos_client.confluent.consumer.confluent_consumer import ConfluentConsumer
from eos_client.core.model import InputPartition
from eos_client.observe import EventHook, LagMeasured
from eos_client.ports import Clock

_INTERVAL_S = 5.0


class InputLag:
    """The lag of a consumer's partitions, by what the client library has last heard of their ends."""

    def __init__(self, consumer: ConfluentConsumer, hook: EventHook, clock: Clock) -> None:
        self._consumer = consumer
        self._hook = hook
        self._clock = clock
        self._due_at = clock() + _INTERVAL_S
        self._told: dict[InputPartition, int] = {}

    def tell_if_due(self) -> None:
        """Report the lag, at most once each interval, and where it has changed."""
        if (now := self._clock()) < self._due_at:
            return
        self._due_at = now + _INTERVAL_S
        if (lag := self._consumer.lag()) and lag != self._told:
            self._told = lag
            self._hook(LagMeasured(records=lag))
