"""Turns the arguments of ``produce`` into records, and keeps records of unknown topics."""

from __future__ import annotations

import operator
import re
from typing import Any

from eos_client.testing.simulator.brokers.link import ClientLink
from eos_client.testing.simulator.clients.kafka_errors import kafka_exception
from eos_client.testing.simulator.clients.producer_events import QueuedRecord
from eos_client.testing.simulator.clients.producer_settings import ProducerSettings
from eos_client.testing.simulator.clients.record_sender import RecordSender
from eos_client.testing.simulator.clients.request_repeater import Timers

ANY_PARTITION = -1
_METADATA_INTERVAL_S = 0.1


_C_INT = (-(2**31), 2**31 - 1)
_C_LONG = (-(2**63), 2**63 - 1)
_VALUE_ARGUMENT, _KEY_ARGUMENT = 2, 3
_TOPIC_BYTES_MAX = 512  # librdkafka's own limit; brokers take names of up to 249 characters
TOPIC_NAME = re.compile(r"(?!\.{1,2}$)[a-zA-Z0-9._-]{1,249}")


def as_topic(topic: Any) -> str:
    """Return a topic's name; raises TypeError, ValueError or KafkaException as confluent_kafka does."""
    if not isinstance(topic, str):
        raise TypeError(f"argument 1 must be str, not {'None' if topic is None else type(topic).__name__}")
    name = topic.encode()
    if b"\0" in name:
        raise ValueError("embedded null character")
    if len(name) > _TOPIC_BYTES_MAX:
        why = "Unable to produce message: Local: Invalid argument or configuration"
        raise kafka_exception("_INVALID_ARG", why)
    return topic


def as_partition(partition: Any) -> int:
    """Return a partition's number; raises TypeError or OverflowError as confluent_kafka does."""
    number = operator.index(partition)
    if not _C_LONG[0] <= number <= _C_LONG[1]:
        raise OverflowError("Python int too large to convert to C long")
    if number > _C_INT[1]:
        raise OverflowError("signed integer is greater than maximum")
    if number < _C_INT[0]:
        raise OverflowError("signed integer is less than minimum")
    return number


def as_timestamp(timestamp_ms: Any) -> int:
    """Return a timestamp; raises TypeError or OverflowError as confluent_kafka does."""
    number = operator.index(timestamp_ms)
    if not _C_LONG[0] <= number <= _C_LONG[1]:
        raise OverflowError("int too big to convert")
    return number


def as_value(payload: Any) -> bytes | None:
    """Return a value as it is sent; raises TypeError as confluent_kafka does."""
    return _as_bytes(payload, _VALUE_ARGUMENT)


def as_key(payload: Any) -> bytes | None:
    """Return a key as it is sent; raises TypeError as confluent_kafka does."""
    return _as_bytes(payload, _KEY_ARGUMENT)


def _as_bytes(payload: Any, argument: int) -> bytes | None:
    if payload is None or isinstance(payload, bytes):
        return payload
    if isinstance(payload, str):
        return payload.encode()
    if isinstance(payload, (bytearray, memoryview)):
        raise TypeError(f"argument {argument} must be read-only bytes-like object, not {type(payload).__name__}")
    raise TypeError(f"a bytes-like object is required, not '{type(payload).__name__}'")


def as_headers(headers: Any) -> tuple[tuple[str, bytes | None], ...]:
    """Return headers (a list of pairs or a dict) as they are sent; raises TypeError as confluent_kafka does."""
    if headers is None:
        return ()
    if not isinstance(headers, (dict, list)):
        kind = type(headers).__name__
        raise TypeError(f"expected headers to be dict or list of (key, value) tuples, not {kind}")
    return tuple(map(_header, headers.items() if isinstance(headers, dict) else headers))


def _header(pair: Any) -> tuple[str, bytes | None]:
    if not isinstance(pair, tuple) or len(pair) != len(("name", "value")):
        raise TypeError("Headers are expected to be a list of (key, value) tuples")
    name, value = pair
    if value is not None and not isinstance(value, (bytes, str)):
        raise TypeError(f"expected header value to be None, binary, or unicode string, not {type(value).__name__}")
    # confluent_kafka ends the process at a name with a lone surrogate; here it is an error.
    return _cut(str(name)).decode(), _cut(value) if isinstance(value, str) else value


def _cut(text: str) -> bytes:
    return text.encode().partition(b"\0")[0]


class RecordPlacing:
    """Chooses partitions. Records of an unknown topic wait ``topic.metadata.propagation.max.ms`` from the first on."""

    def __init__(self, link: ClientLink, settings: ProducerSettings, timers: Timers, sender: RecordSender) -> None:
        self._link = link
        self._settings = settings
        self._timers = timers
        self._sender = sender
        self._awaiting_topic: list[QueuedRecord] = []
        self._unknown_since_s: dict[str, float] = {}
        self._missing: set[str] = set()

    def check_size(self, size_bytes: int) -> None:
        """Raise KafkaException MSG_SIZE_TOO_LARGE for a record above ``message.max.bytes``."""
        if size_bytes > self._settings.message_bytes_max:
            raise kafka_exception("MSG_SIZE_TOO_LARGE", "Unable to produce message: Broker: Message size too large")

    def check_destination(self, topic: str, partition: int) -> None:
        """Raise KafkaException _UNKNOWN_PARTITION, or _UNKNOWN_TOPIC once the wait for the topic has timed out."""
        partitions = self._link.brokers.partition_count(topic)
        if not partitions and topic in self._missing:
            raise kafka_exception("_UNKNOWN_TOPIC", "Unable to produce message: Local: Unknown topic")
        if partitions and partition != ANY_PARTITION and not 0 <= partition < partitions:
            raise kafka_exception("_UNKNOWN_PARTITION", "Unable to produce message: Local: Unknown partition")

    def place(self, queued: QueuedRecord) -> None:
        """Queue ``queued`` in its partition, now or once its topic is known."""
        if not self._try_place(queued):
            self._unknown_since_s.setdefault(queued.topic, self._link.clock.now_s)
            if not self._awaiting_topic:
                self._timers.after(_METADATA_INTERVAL_S, self._retry_waiting)
            self._awaiting_topic.append(queued)

    def _try_place(self, queued: QueuedRecord) -> bool:
        partitions = self._link.brokers.partition_count(queued.topic)
        if not partitions:
            return False
        if queued.partition == ANY_PARTITION:
            queued.partition = self._settings.partitioner(queued.record.key, partitions, self._link.random)
        if 0 <= queued.partition < partitions:
            self._sender.add(queued)
        else:
            self._sender.report_failed([queued], "_UNKNOWN_PARTITION", "Local: Unknown partition")
        return True

    def _retry_waiting(self) -> None:
        waiting, self._awaiting_topic = self._awaiting_topic, []
        now_s = self._link.clock.now_s
        overdue_s = now_s - self._settings.topic_wait_s
        missing = {topic for topic, since_s in self._unknown_since_s.items() if since_s <= overdue_s}
        for queued in waiting:
            if self._try_place(queued):
                continue
            if not TOPIC_NAME.fullmatch(queued.topic):
                self._missing.add(queued.topic)
                self._sender.report_failed([queued], "TOPIC_EXCEPTION", "Broker: Invalid topic")
            elif queued.topic in missing:
                self._missing.add(queued.topic)
                self._sender.report_failed([queued], "UNKNOWN_TOPIC_OR_PART", "Broker: Unknown topic or partition")
            elif queued.queued_at_s + self._settings.message_timeout_s <= now_s:
                self._sender.report_failed([queued], "_MSG_TIMED_OUT", "Local: Message timed out")
            else:
                self.place(queued)

    def purge(self) -> None:
        """Report the records that wait for their topic as purged."""
        dropped, self._awaiting_topic = self._awaiting_topic, []
        self._sender.report_failed(dropped, "_PURGE_QUEUE", "Local: Purged in queue")
