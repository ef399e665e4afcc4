"""The queue that ``poll`` and ``flush`` serve: delivery reports, log lines and errors, in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from confluent_kafka import TIMESTAMP_CREATE_TIME, KafkaError, KafkaException, Message

from eos_client.testing.simulator.brokers.model import NewRecord

DeliveryCallback = Callable[[Any, Any], Any]


_OVERHEAD_MAX_BYTES = 36
"""The largest size of the lengths, attributes, offset and time of one record."""


def _header_bytes(header: tuple[str, bytes | None]) -> int:
    name, value = header[0].encode(), header[1] or b""
    return len(name) + _length_bytes(len(name)) + len(value) + _length_bytes(len(value))


def _length_bytes(length: int) -> int:
    """How many bytes a length takes as a varint: seven bits in each, and one bit for its sign."""
    return (length.bit_length() + 7) // 7


@dataclass(eq=False, slots=True)
class QueuedRecord:
    """A record that was given to ``produce``. Times in seconds; ``partition`` -1: not chosen yet."""

    topic: str
    partition: int
    record: NewRecord
    queued_at_s: float
    on_delivery: DeliveryCallback | None = None

    @property
    def size_bytes(self) -> int:
        """Its size within a batch."""
        return len(self.record.value or b"") + len(self.record.key or b"")

    @property
    def wire_bytes_max(self) -> int:
        """Its size against ``message.max.bytes``: with its headers and the largest overhead of the protocol."""
        return self.size_bytes + _OVERHEAD_MAX_BYTES + sum(map(_header_bytes, self.record.headers))

    def message(self, error: KafkaError | None, offset: int | None, now_s: float) -> Any:
        """Return the message of its delivery report, which has no headers."""
        known: dict[str, Any] = {} if offset is None else {"offset": offset}
        if error is None:
            known["timestamp"] = (TIMESTAMP_CREATE_TIME, self.record.timestamp_ms)
        else:
            known["error"] = error
        return Message(
            topic=self.topic,
            partition=self.partition,
            key=self.record.key,
            value=self.record.value,
            latency=now_s - self.queued_at_s,
            **known,
        )


@dataclass(frozen=True, slots=True)
class _Event:
    act: Callable[[], object]
    begins: bool = True
    is_record: bool = False


class ProducerEvents:
    """The queue. ``only_errors``: successes are not reported.

    ``outstanding`` counts the produced records whose delivery report was not served yet.
    """

    def __init__(self, clock: Callable[[], float], *, only_errors: bool) -> None:
        self.outstanding = 0
        self._clock = clock
        self._only_errors = only_errors
        self._waiting: deque[_Event] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def report(self, records: Iterable[QueuedRecord], error: KafkaError | None, base_offset: int | None = None) -> None:
        """Report one batch: delivered, from ``base_offset`` on if that is known, or failed with ``error``."""
        for number, queued in enumerate(records):
            offset = None if base_offset is None else base_offset + number
            report = self._report_of(queued, error, offset)
            self._waiting.append(_Event(report, begins=number == 0, is_record=True))

    def _report_of(self, queued: QueuedRecord, error: KafkaError | None, offset: int | None) -> Callable[[], object]:
        callback = queued.on_delivery
        if callback is None or (error is None and self._only_errors):
            return lambda: None
        message = queued.message(error, offset, self._clock())
        return lambda: callback(error, message)

    def call(self, act: Callable[[], object]) -> None:
        """Call ``act`` when the application polls next."""
        self._waiting.append(_Event(act))

    def fatal(self, error: KafkaError) -> None:
        """Raise ``error`` when the application polls next, as confluent_kafka does instead of calling ``error_cb``."""

        def raise_it() -> None:
            raise KafkaException(error)

        self.call(raise_it)

    def serve(self) -> int:
        """Serve the queue and return the number of events. If a callback raises, the rest stays queued."""
        events = 0
        for _ in range(len(self._waiting)):
            if not self._waiting:  # a callback polled
                break
            event = self._waiting.popleft()
            events += event.begins
            self.outstanding -= event.is_record
            event.act()
        return events
