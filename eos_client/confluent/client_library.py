"""confluent_kafka as the default client library, in real time; its classes; how a producer of it is destroyed."""

from __future__ import annotations

import warnings
from contextlib import suppress
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer

from eos_client.clock import MONOTONIC_CLOCK
from eos_client.ports import ClientLibrary, Clock

__all__ = ["CONFLUENT_KAFKA", "ConfluentKafka", "Consumer", "Producer", "destroy_producer"]


class ConfluentKafka:
    """confluent_kafka's own clients. Fulfils ``ClientLibrary``."""

    clock: Clock = MONOTONIC_CLOCK

    def consumer(self, config: dict[str, Any], /) -> Any:
        """Return a ``Consumer``."""
        return Consumer(config)

    def producer(self, config: dict[str, Any], /) -> Any:
        """Return a ``Producer``."""
        return Producer(config)


def destroy_producer(raw: Any) -> None:
    """Drop what ``raw`` has queued, end its threads, and leave a transaction that it cannot abort to the broker."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # that it could not end its transaction is why it is left
        raw.purge()  # close() waits for outstanding records without any limit
        with suppress(KafkaException):  # of a fatal error, which is raised by every call; the client is closed
            raw.close()


CONFLUENT_KAFKA: ClientLibrary = ConfluentKafka()
