"""The records of a producer by partition: queued, batched and numbered, until they are acknowledged."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from eos_client.testing.simulator.brokers.model import (
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    PartitionKey,
    ProducerIdentity,
    RecordBatch,
)
from eos_client.testing.simulator.brokers.producer_state import sequence_after
from eos_client.testing.simulator.clients.producer_events import QueuedRecord


@dataclass(eq=False, slots=True)
class SentBatch:
    """A batch in flight. ``lost``: an attempt was not answered, so the batch may be in the log already."""

    partition: PartitionKey
    records: tuple[QueuedRecord, ...]
    batch: RecordBatch
    lost: bool = False


@dataclass(eq=False, slots=True)
class PartitionQueue:
    """One partition's records. At most one batch is in flight, so that none overtakes another."""

    waiting: deque[QueuedRecord] = field(default_factory=deque)
    waiting_bytes: int = 0
    sent: SentBatch | None = None
    identity: ProducerIdentity | None = None
    next_sequence: int = 0
    next_acknowledged: int = 0
    has_expiry_timer: bool = False

    def add(self, queued: QueuedRecord) -> None:
        """Append a record."""
        self.waiting.append(queued)
        self.waiting_bytes += queued.size_bytes

    def put_back(self, batch: SentBatch) -> None:
        """Queue the records of ``batch`` again, before all others; they get new sequence numbers."""
        self.waiting.extendleft(reversed(batch.records))
        self.waiting_bytes += sum(queued.size_bytes for queued in batch.records)

    def take(self) -> QueuedRecord:
        """Remove the first record."""
        queued = self.waiting.popleft()
        self.waiting_bytes -= queued.size_bytes
        return queued

    def expired(self, is_old: Callable[[QueuedRecord], bool]) -> list[QueuedRecord]:
        """Remove and return the waiting records from the first one up to one that is not old."""
        old = []
        while self.waiting and is_old(self.waiting[0]):
            old.append(self.take())
        return old


class Accumulator:
    """All partitions' queues. A batch has at most ``batch_records_max`` records and about ``batch_bytes_max`` bytes."""

    def __init__(self, *, linger_s: float, batch_records_max: int, batch_bytes_max: int, transactional: bool) -> None:
        self._linger_s = linger_s
        self._records_max = batch_records_max
        self._bytes_max = batch_bytes_max
        self._transactional = transactional
        self._queues: dict[PartitionKey, PartitionQueue] = {}

    def _all(self) -> Iterator[PartitionQueue]:
        return iter(self._queues.values())

    @property
    def partitions(self) -> tuple[PartitionKey, ...]:
        """Every partition that was written to, in the order of the first record."""
        return tuple(self._queues)

    @property
    def has_batch_in_flight(self) -> bool:
        """Whether a batch is in flight."""
        return any(queue.sent is not None for queue in self._all())

    def queue(self, partition: PartitionKey) -> PartitionQueue:
        """Return the queue of ``partition``."""
        return self._queues.setdefault(partition, PartitionQueue())

    def lingers_until(self, partition: PartitionKey) -> float:
        """Return when the first waiting record has waited long enough for others (``linger.ms``)."""
        return self.queue(partition).waiting[0].queued_at_s + self._linger_s

    def is_ready(self, partition: PartitionKey, now_s: float, *, flushing: bool) -> bool:
        """Whether a batch of ``partition`` can be sent now."""
        queue = self.queue(partition)
        if not queue.waiting or queue.sent is not None:
            return False
        full = len(queue.waiting) >= self._records_max or queue.waiting_bytes >= self._bytes_max
        return flushing or full or self.lingers_until(partition) <= now_s

    def take_batch(self, partition: PartitionKey, identity: ProducerIdentity) -> SentBatch:
        """Make a batch of waiting records; its sequence continues that of ``identity``, or begins at 0."""
        queue = self.queue(partition)
        records = [queue.take()]
        size_bytes = records[0].size_bytes
        while queue.waiting and len(records) < self._records_max:
            size_bytes += queue.waiting[0].size_bytes
            if size_bytes > self._bytes_max:
                break
            records.append(queue.take())
        queue.sent = SentBatch(partition, tuple(records), self._numbered(queue, records, identity))
        return queue.sent

    def _numbered(self, queue: PartitionQueue, records: list[QueuedRecord], identity: ProducerIdentity) -> RecordBatch:
        new_records = tuple(queued.record for queued in records)
        if identity.producer_id == NO_PRODUCER_ID:
            return RecordBatch(new_records, base_sequence=NO_SEQUENCE)
        if queue.identity != identity:
            queue.identity, queue.next_sequence, queue.next_acknowledged = identity, 0, 0
        base = queue.next_sequence
        queue.next_sequence = sequence_after(base, len(records))
        return RecordBatch(
            new_records, identity.producer_id, identity.producer_epoch, base, transactional=self._transactional
        )

    def record_acknowledged(self, batch: SentBatch) -> None:
        """Record that ``batch`` was acknowledged."""
        queue = self.queue(batch.partition)
        queue.sent = None
        if batch.batch.producer_id != NO_PRODUCER_ID:
            queue.next_acknowledged = sequence_after(batch.batch.base_sequence, len(batch.records))

    def record_failed(self, batch: SentBatch) -> None:
        """Record that ``batch`` has failed; its sequence numbers are not used again under this identity."""
        self.queue(batch.partition).sent = None

    def is_head_of_line(self, batch: SentBatch) -> bool:
        """Whether ``batch`` begins at the sequence that the broker expects: then no missing batch explains a gap."""
        return batch.batch.base_sequence == self.queue(batch.partition).next_acknowledged

    def drop_waiting(self) -> list[list[QueuedRecord]]:
        """Remove and return all waiting records by partition; they have no sequence numbers yet."""
        dropped = []
        for queue in self._all():
            if queue.waiting:
                dropped.append(list(queue.waiting))
                queue.waiting.clear()
                queue.waiting_bytes = 0
        return dropped

    def drop_sent(self) -> list[SentBatch]:
        """Remove and return all batches in flight; whether they are in the log is unknown."""
        batches = [queue.sent for queue in self._all() if queue.sent is not None]
        for batch in batches:
            self.record_failed(batch)
        return batches
