"""The default client library of a loop: confluent_kafka, in real time."""

from __future__ import annotations

from typing import Any

from confluent_kafka import Consumer, Producer

from eos_client.clock import MONOTONIC_CLOCK
from eos_client.ports import ClientLibrary, Clock


class ConfluentKafka:
    """confluent_kafka's own clients. Fulfils ``ClientLibrary``."""

    clock: Clock = MONOTONIC_CLOCK

    def consumer(self, config: dict[str, Any], /) -> Any:
        """Return a ``Consumer``."""
        return Consumer(config)

    def producer(self, config: dict[str, Any], /) -> Any:
        """Return a ``Producer``."""
        return Producer(config)


CONFLUENT_KAFKA: ClientLibrary = ConfluentKafka()
