"""One partition's log: data and control records, the offsets that readers may see, and refused writes."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from eos_client.testing.simulator.brokers.model import (
    NO_PRODUCER_ID,
    BrokerError,
    Fetched,
    Marker,
    ProducerIdentity,
    RecordBatch,
    StoredRecord,
)
from eos_client.testing.simulator.brokers.producer_state import SEQUENCES, producer_states, sequence_after
from eos_client.testing.simulator.brokers.settings import BrokerSettings

TO_HIGH_WATERMARK = -1


class PartitionLog:
    """The log of a partition's leader. Offsets have no gaps; nothing is compacted.

    ``on_change`` is called when readers may see other records than before.
    """

    def __init__(self, settings: BrokerSettings, on_change: Callable[[], None] = lambda: None) -> None:
        self._on_change = on_change
        self._window = settings.max_in_flight_sequence_number_per_connection
        self._batch_bytes_max = settings.message_max_bytes
        self._before_max_ms = settings.log_message_timestamp_before_max_s * 1000
        self._after_max_ms = settings.log_message_timestamp_after_max_s * 1000
        self._producers = producer_states(settings)
        self._records: list[StoredRecord] = []
        self._log_start_offset = 0
        self._high_watermark = 0
        self._replicating = True
        self._open: dict[int, int] = {}
        self._ended: list[tuple[int, int]] = []
        self._aborted: set[int] = set()

    # -- its state ----------------------------------------------------------------------------------------------

    @property
    def records(self) -> tuple[StoredRecord, ...]:
        """All records from the log's start, control and aborted ones included."""
        return tuple(self._records)

    @property
    def log_start_offset(self) -> int:
        """The first offset that was not deleted."""
        return self._log_start_offset

    @property
    def log_end_offset(self) -> int:
        """The offset of the next record."""
        return self._log_start_offset + len(self._records)

    @property
    def high_watermark(self) -> int:
        """The end of the replicated records, which may be read."""
        return self._high_watermark

    @property
    def last_stable_offset(self) -> int:
        """The first offset of a transaction that is open or whose marker is not replicated; else the high watermark."""
        undecided = [*self._open.values(), *(first for first, _ in self._ended)]
        return min(self._high_watermark, max(self._log_start_offset, min(undecided, default=self._high_watermark)))

    @property
    def producer_count(self) -> int:
        """How many producers have a state here."""
        return len(self._producers)

    @property
    def max_in_flight_sequence_number_per_connection(self) -> int:
        """How many sequences a producer may have in flight."""
        return self._window

    @property
    def replicating(self) -> bool:
        """Whether followers replicate. While they do not, the high watermark stays."""
        return self._replicating

    @replicating.setter
    def replicating(self, replicating: bool) -> None:
        self._replicating = replicating
        self._replicate()

    # -- writing -------------------------------------------------------------------------------------------------

    def append(self, batch: RecordBatch, now_s: float) -> int:
        """Append ``batch`` and return its first offset; for a duplicate, the offset of the batch in the log.

        Raises BrokerError INVALID_RECORD (no records, or an id without a sequence), MSG_SIZE_TOO_LARGE (above
        ``message.max.bytes``), INVALID_TIMESTAMP (KIP-937), INVALID_PRODUCER_EPOCH, OUT_OF_ORDER_SEQUENCE_NUMBER,
        DUPLICATE_SEQUENCE_NUMBER (in the log, at an unknown offset), and INVALID_TXN_STATE (a plain batch within the
        producer's transaction).
        """
        idempotent = batch.producer_id != NO_PRODUCER_ID
        if not batch.records or (idempotent and not 0 <= batch.base_sequence < SEQUENCES):
            raise BrokerError("INVALID_RECORD", f"{len(batch.records)} records from sequence {batch.base_sequence}")
        if batch.size_bytes > self._batch_bytes_max:
            raise BrokerError("MSG_SIZE_TOO_LARGE", f"{batch.size_bytes} bytes, {self._batch_bytes_max} are allowed")
        self._check_times(batch, now_s * 1000)
        if idempotent:
            known_offset = self._producers.check(batch)
            if known_offset is not None:
                return known_offset
            if batch.producer_id in self._open and not batch.transactional:
                raise BrokerError("INVALID_TXN_STATE", f"producer {batch.producer_id} has an open transaction")
        base_offset = self.log_end_offset
        if idempotent:
            self._producers.record_append(batch, base_offset, now_s)
        if batch.transactional:
            self._open.setdefault(batch.producer_id, base_offset)
        self._records.extend(_stored(batch, index, base_offset) for index in range(len(batch.records)))
        self._replicate()
        return base_offset

    def _check_times(self, batch: RecordBatch, now_ms: float) -> None:
        first_ms, last_ms = now_ms - self._before_max_ms, now_ms + self._after_max_ms
        wrong = [index for index, record in enumerate(batch.records) if not first_ms <= record.timestamp_ms <= last_ms]
        if wrong:
            raise BrokerError("INVALID_TIMESTAMP", f"records {wrong} of the batch at {now_ms:.0f} ms", frozenset(wrong))

    def append_marker(self, producer: ProducerIdentity, marker: Marker, now_s: float) -> int:
        """End the transaction of ``producer``, if it has one here; returns the control record's offset.

        A marker with a newer epoch fences older epochs. Raises BrokerError INVALID_PRODUCER_EPOCH.
        """
        self._producers.check_epoch(producer)
        self._producers.record_write(producer, now_s)
        offset = self.log_end_offset
        producer_id = producer.producer_id
        self._records.append(
            StoredRecord(
                offset,
                None,
                timestamp_ms=int(now_s * 1000),
                producer_id=producer_id,
                producer_epoch=producer.producer_epoch,
                transactional=True,
                marker=marker,
            )
        )
        if producer_id in self._open:
            first_offset = self._open.pop(producer_id)
            self._ended.append((first_offset, offset))
            if marker is Marker.ABORT:
                self._aborted.update(
                    r.offset for r in self._between(first_offset, offset) if r.producer_id == producer_id
                )
        self._replicate()
        return offset

    def _replicate(self) -> None:
        if self._replicating:
            self._high_watermark = self.log_end_offset
            self._ended.clear()
        self._on_change()

    # -- reading -------------------------------------------------------------------------------------------------

    def fetch(self, offset: int, records_max: int, *, read_committed: bool) -> Fetched:
        """Return up to ``records_max`` data records from ``offset`` to the high watermark or last stable offset.

        ``read_committed`` leaves out aborted records. Raises BrokerError OFFSET_OUT_OF_RANGE.
        """
        if not self._log_start_offset <= offset <= self.log_end_offset:
            start, end = self._log_start_offset, self.log_end_offset
            raise BrokerError("OFFSET_OUT_OF_RANGE", f"offset {offset} is outside {start} to {end}")
        found: list[StoredRecord] = []
        next_offset = offset
        for record in self._between(offset, self._readable_end(read_committed=read_committed)):
            if record.marker is None and not (read_committed and record.offset in self._aborted):
                if len(found) >= records_max:
                    break
                found.append(record)
            next_offset = record.offset + 1
        return Fetched(tuple(found), next_offset, self._log_start_offset, self._high_watermark, self.last_stable_offset)

    def offset_for_timestamp(self, timestamp_ms: int, *, read_committed: bool = False) -> int | None:
        """Return the offset of the first readable record or marker not before ``timestamp_ms``; None: there is none."""
        readable = self._between(self._log_start_offset, self._readable_end(read_committed=read_committed))
        return next((record.offset for record in readable if record.timestamp_ms >= timestamp_ms), None)

    def _readable_end(self, *, read_committed: bool) -> int:
        return self.last_stable_offset if read_committed else self._high_watermark

    def _between(self, offset: int, end_offset: int) -> Iterator[StoredRecord]:
        start = self._log_start_offset
        return (self._records[at - start] for at in range(max(offset, start), end_offset))

    # -- deletion ------------------------------------------------------------------------------------------------

    def delete_records(self, before_offset: int) -> None:
        """Delete the records before ``before_offset``; `TO_HIGH_WATERMARK` deletes all replicated ones.

        The state of producers stays (KAFKA-8710). Raises BrokerError OFFSET_OUT_OF_RANGE.
        """
        start_offset = self._high_watermark if before_offset == TO_HIGH_WATERMARK else before_offset
        if not 0 <= start_offset <= self._high_watermark:
            raise BrokerError("OFFSET_OUT_OF_RANGE", f"{before_offset}, the high watermark is {self._high_watermark}")
        if start_offset > self._log_start_offset:
            del self._records[: start_offset - self._log_start_offset]
            self._log_start_offset = start_offset
            self._aborted = {offset for offset in self._aborted if offset >= start_offset}
            self._on_change()

    def expire_producers(self, not_since_s: float) -> None:
        """Remove the state of producers without a write after ``not_since_s`` and without an open transaction."""
        self._producers.expire(not_since_s, kept=self._open)


def _stored(batch: RecordBatch, index: int, base_offset: int) -> StoredRecord:
    record = batch.records[index]
    sequence = (
        batch.base_sequence if batch.producer_id == NO_PRODUCER_ID else sequence_after(batch.base_sequence, index)
    )
    return StoredRecord(
        base_offset + index,
        record.value,
        record.key,
        record.headers,
        record.timestamp_ms,
        batch.producer_id,
        batch.producer_epoch,
        sequence,
        batch.transactional,
    )
