"""Tells how far the group's offsets are behind the input, whenever librdkafka's statistics say how far that goes."""

from __future__ import annotations

from eos_client.confluent.consumer.confluent_consumer import ConfluentConsumer
from eos_client.core.model import InputPartition
from eos_client.observe import EventHook, LagMeasured


class InputLag:
    """The lag of a consumer's partitions; reported where it has changed."""

    def __init__(self, consumer: ConfluentConsumer, hook: EventHook) -> None:
        self._consumer = consumer
        self._hook = hook
        self._told: dict[InputPartition, int] = {}

    def tell_if_known(self) -> None:
        """Report the lag if statistics have come since the last call; asks no broker."""
        ends = self._consumer.library.ends.take()
        if ends is not None and (lag := self._consumer.lag(ends)) and lag != self._told:
            self._told = lag
            self._hook(LagMeasured(records=lag))
