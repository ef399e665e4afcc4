"""From the arguments of ``produce`` to records, and records whose topic is not known yet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from eos_client.testing.simulated_clients.kafka_errors import kafka_exception
from eos_client.testing.simulated_clients.producer_events import QueuedRecord
from eos_client.testing.simulated_clients.producer_settings import ProducerSettings
from eos_client.testing.simulated_clients.record_sender import RecordSender
from eos_client.testing.simulated_clients.request_repeater import Timers
from eos_client.testing.simulation.link import ClientLink

ANY_PARTITION = -1
_LOOKS_AGAIN_AFTER_S = 0.1


def as_bytes(payload: Any) -> bytes | None:
    """Return a key or a value as it is sent; raises TypeError as the binding does."""
    if payload is None or isinstance(payload, bytes):
        return payload
    if isinstance(payload, str):
        return payload.encode()
    if isinstance(payload, (bytearray, memoryview)):
        return bytes(payload)
    raise TypeError(f"a bytes-like object is required, not '{type(payload).__name__}'")


def as_headers(headers: Any) -> tuple[tuple[str, bytes | None], ...]:
    """Return headers, given as a list of pairs or as a mapping, as they are sent; raises TypeError."""
    if headers is None:
        return ()
    pairs: Iterable[tuple[Any, Any]] = headers.items() if isinstance(headers, Mapping) else headers
    return tuple((_header_key(key), _header_value(value)) for key, value in pairs)


def _header_key(key: Any) -> str:
    if not isinstance(key, str):
        raise TypeError(f"expected header key to be a unicode string, not {type(key).__name__}")
    return key


def _header_value(value: Any) -> bytes | None:
    if value is not None and not isinstance(value, (bytes, str)):
        raise TypeError(f"expected header value to be None, binary, or unicode string, not {type(value).__name__}")
    return as_bytes(value)


class RecordPlacing:
    """Chooses partitions. A record for an unknown topic waits for ``topic.metadata.propagation.max.ms``."""

    def __init__(self, link: ClientLink, settings: ProducerSettings, timers: Timers, sender: RecordSender) -> None:
        self._link = link
        self._settings = settings
        self._timers = timers
        self._sender = sender
        self._homeless: list[QueuedRecord] = []
        self._missing: set[str] = set()

    def check_size(self, size_bytes: int) -> None:
        """Raise KafkaException MSG_SIZE_TOO_LARGE for a record that will never be taken."""
        if size_bytes > self._settings.message_bytes_max:
            raise kafka_exception("MSG_SIZE_TOO_LARGE", "Unable to produce message: Broker: Message size too large")

    def check_place(self, topic: str, partition: int) -> None:
        """Raise KafkaException _UNKNOWN_PARTITION, or _UNKNOWN_TOPIC for a topic that was waited for in vain."""
        partitions = self._link.brokers.partition_count(topic)
        if not partitions and topic in self._missing:
            raise kafka_exception("_UNKNOWN_TOPIC", "Unable to produce message: Local: Unknown topic")
        if partitions and partition >= partitions:
            raise kafka_exception("_UNKNOWN_PARTITION", "Unable to produce message: Local: Unknown partition")

    def place(self, queued: QueuedRecord) -> None:
        """Hand ``queued`` to its partition, now or as soon as its topic is known."""
        if not self._placed(queued):
            if not self._homeless:
                self._timers.after(_LOOKS_AGAIN_AFTER_S, self._look_again)
            self._homeless.append(queued)

    def _placed(self, queued: QueuedRecord) -> bool:
        partitions = self._link.brokers.partition_count(queued.topic)
        if not partitions:
            return False
        if queued.partition == ANY_PARTITION:
            queued.partition = self._settings.partitioner(queued.record.key, partitions, self._link.random)
        if queued.partition < partitions:
            self._sender.add(queued)
        else:
            self._sender.report_failed([queued], "_UNKNOWN_PARTITION", "Local: Unknown partition")
        return True

    def _look_again(self) -> None:
        waiting, self._homeless = self._homeless, []
        now_s = self._link.clock.now_s
        missing = {queued.topic for queued in waiting if queued.queued_at_s + self._settings.topic_wait_s <= now_s}
        for queued in waiting:
            if self._placed(queued):
                continue
            if queued.topic in missing:
                self._missing.add(queued.topic)
                self._sender.report_failed([queued], "UNKNOWN_TOPIC_OR_PART", "Broker: Unknown topic or partition")
            elif queued.queued_at_s + self._settings.message_timeout_s <= now_s:
                self._sender.report_failed([queued], "_MSG_TIMED_OUT", "Local: Message timed out")
            else:
                self.place(queued)

    def purge(self) -> None:
        """Give up the records that wait for their topic."""
        dropped, self._homeless = self._homeless, []
        self._sender.report_failed(dropped, "_PURGE_QUEUE", "Local: Purged in queue")
