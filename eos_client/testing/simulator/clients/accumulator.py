"""Records on their way to the brokers, partition by partition: queued, batched, numbered."""

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
    """A batch on its way. ``lost``: an attempt was not answered, so that it may be in the log already."""

    partition: PartitionKey
    records: tuple[QueuedRecord, ...]
    batch: RecordBatch
    lost: bool = False


@dataclass(eq=False, slots=True)
class PartitionQueue:
    """One partition's records. At most one batch is on its way, so that nothing can overtake it."""

    waiting: deque[QueuedRecord] = field(default_factory=deque)
    waiting_bytes: int = 0
    sent: SentBatch | None = None
    identity: ProducerIdentity | None = None
    next_sequence: int = 0
    next_acknowledged: int = 0
    age_is_watched: bool = False

    def add(self, queued: QueuedRecord) -> None:
        """Append a record."""
        self.waiting.append(queued)
        self.waiting_bytes += queued.size_bytes

    def put_back(self, batch: SentBatch) -> None:
        """Send the records of ``batch`` once more, before all others and under new numbers."""
        self.waiting.extendleft(reversed(batch.records))
        self.waiting_bytes += sum(queued.size_bytes for queued in batch.records)

    def take(self) -> QueuedRecord:
        """Remove the first record."""
        queued = self.waiting.popleft()
        self.waiting_bytes -= queued.size_bytes
        return queued

    def expired(self, is_old: Callable[[QueuedRecord], bool]) -> list[QueuedRecord]:
        """Remove the first waiting records for as long as they are old, and return them."""
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
    def anything_sent(self) -> bool:
        """Whether a batch is on its way."""
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
        """Make a batch of what waits; its numbers go on where ``identity`` left off, or begin at 0."""
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

    def acknowledged(self, batch: SentBatch) -> None:
        """``batch`` is in the log."""
        queue = self.queue(batch.partition)
        queue.sent = None
        if batch.batch.producer_id != NO_PRODUCER_ID:
            queue.next_acknowledged = sequence_after(batch.batch.base_sequence, len(batch.records))

    def failed(self, batch: SentBatch) -> None:
        """``batch`` is given up; its numbers are not used again under this identity."""
        self.queue(batch.partition).sent = None

    def is_head_of_line(self, batch: SentBatch) -> bool:
        """Whether ``batch`` has the very number that the broker must expect: then nothing explains a gap."""
        return batch.batch.base_sequence == self.queue(batch.partition).next_acknowledged

    def drop_waiting(self) -> list[list[QueuedRecord]]:
        """Remove all records that are not on their way, partition by partition; their numbers were not given yet."""
        dropped = []
        for queue in self._all():
            if queue.waiting:
                dropped.append(list(queue.waiting))
                queue.waiting.clear()
                queue.waiting_bytes = 0
        return dropped

    def drop_sent(self) -> list[SentBatch]:
        """Give up all batches that are on their way; whether they are in the log is not known."""
        batches = [queue.sent for queue in self._all() if queue.sent is not None]
        for batch in batches:
            self.failed(batch)
        return batches
