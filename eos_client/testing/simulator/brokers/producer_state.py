"""A partition's state of idempotent producers: epochs, latest sequences, and the offsets of their batches.

Two windows have one interface: Kafka's last five batches, or the latest sequence only, with which duplicates are
recognised by arithmetic. All numbers are packed in arrays, since a broker may have millions of producers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from array import array
from bisect import bisect_left
from collections.abc import Container, Sequence

from eos_client.testing.simulator.brokers.model import NO_SEQUENCE, BrokerError, ProducerIdentity, RecordBatch
from eos_client.testing.simulator.brokers.settings import BrokerSettings, ProducerStateKind

SEQUENCES = 2**31
_FIVE = 5


def sequence_after(sequence: int, steps: int = 1) -> int:
    """Return the sequence ``steps`` later; 0 follows 2^31 - 1."""
    return (sequence + steps) % SEQUENCES


def steps_between(first: int, second: int) -> int:
    """Return how many steps forward sequence ``second`` is from ``first``."""
    return (second - first) % SEQUENCES


class PackedColumn:
    """The latest ``width`` integers of each row, in an array of the type ``kind``."""

    def __init__(self, kind: str, *, width: int = 1, empty: int = 0) -> None:
        self.numbers: array[int] = array(kind)
        self._blank: array[int] = array(kind, [empty] * width)
        self._width = width

    def insert(self, row: int) -> None:
        """Insert an empty ``row``."""
        self.numbers[row * self._width : row * self._width] = self._blank

    def clear(self, row: int) -> None:
        """Empty ``row``."""
        self.numbers[row * self._width : (row + 1) * self._width] = self._blank

    def push(self, row: int, number: int) -> None:
        """Append ``number`` to ``row`` and remove its oldest one."""
        start, end = row * self._width, (row + 1) * self._width
        self.numbers[start : end - 1] = self.numbers[start + 1 : end]
        self.numbers[end - 1] = number

    def latest(self, row: int) -> int:
        """Return the number that was pushed to ``row`` last."""
        return self.numbers[(row + 1) * self._width - 1]

    def all(self, row: int) -> Sequence[int]:
        """Return the numbers of ``row``, the oldest first."""
        return self.numbers[row * self._width : (row + 1) * self._width]

    def keep(self, rows: Sequence[int]) -> None:
        """Remove all rows but ``rows``."""
        remaining: array[int] = array(self.numbers.typecode)
        for row in rows:
            remaining.extend(self.all(row))
        self.numbers = remaining


class ProducerStates(ABC):
    """A partition's producers, one row each, sorted by id.

    Coordinators count producer ids upwards, so a row is mostly added at the end. ``width``: how many batches a row
    keeps. ``begins_at_0``: whether the first sequence of an unknown producer must be 0.
    """

    def __init__(self, width: int, *, begins_at_0: bool) -> None:
        self._begins_at_0 = begins_at_0
        self._ids = PackedColumn("q")
        self._epochs = PackedColumn("h")
        self._used_ms = PackedColumn("q")
        self._last_sequences = PackedColumn("i", width=width, empty=NO_SEQUENCE)
        self._last_offsets = PackedColumn("q", width=width)

    def __len__(self) -> int:
        return len(self._ids.numbers)

    def check(self, batch: RecordBatch) -> int | None:
        """Return None if ``batch`` may be appended, or its offset if it is in the log already.

        Raises BrokerError INVALID_PRODUCER_EPOCH (a newer producer has written), OUT_OF_ORDER_SEQUENCE_NUMBER, and
        DUPLICATE_SEQUENCE_NUMBER (it is in the log already, at an unknown offset).
        """
        row = self._row(batch.producer_id)
        if row is None:
            if self._begins_at_0 and batch.base_sequence != 0:
                raise _out_of_order(batch, "an unknown producer begins at 0")
            return None
        self.check_epoch(ProducerIdentity(batch.producer_id, batch.producer_epoch))
        if batch.producer_epoch > self._epochs.latest(row):
            if batch.base_sequence != 0:
                raise _out_of_order(batch, "a new epoch begins at 0")
            return None
        last_sequence = self._last_sequences.latest(row)
        if batch.base_sequence == sequence_after(last_sequence):
            return None
        offset = self._offset_of(row, batch)
        if offset is None:
            raise _out_of_order(batch, f"{last_sequence} was the last")
        return offset

    def check_epoch(self, producer: ProducerIdentity) -> None:
        """Raise BrokerError INVALID_PRODUCER_EPOCH if a newer epoch of the same producer has written."""
        row = self._row(producer.producer_id)
        if row is not None and producer.producer_epoch < self._epochs.latest(row):
            raise BrokerError("INVALID_PRODUCER_EPOCH", f"{producer}, epoch {self._epochs.latest(row)} has written")

    def record_append(self, batch: RecordBatch, base_offset: int, now_s: float) -> None:
        """Store ``batch``, which was appended at ``base_offset``."""
        row = self.record_write(ProducerIdentity(batch.producer_id, batch.producer_epoch), now_s)
        self._store_batch(row, batch, base_offset)

    def record_write(self, producer: ProducerIdentity, now_s: float) -> int:
        """Store the epoch and the time of a write; returns the producer's row. A new epoch has no sequences."""
        row = bisect_left(self._ids.numbers, producer.producer_id)
        if row == len(self) or self._ids.latest(row) != producer.producer_id:
            for column in self._columns():
                column.insert(row)
            self._ids.push(row, producer.producer_id)
        elif producer.producer_epoch > self._epochs.latest(row):
            for column in self._columns_of_batches():
                column.clear(row)
        self._epochs.push(row, producer.producer_epoch)
        self._used_ms.push(row, int(now_s * 1000))
        return row

    def expire(self, not_since_s: float, kept: Container[int]) -> None:
        """Remove producers that have not written since ``not_since_s``, except those in ``kept``."""
        not_since_ms = int(not_since_s * 1000)
        if min(self._used_ms.numbers, default=not_since_ms + 1) > not_since_ms:
            return
        rows = [
            row
            for row, used_ms in enumerate(self._used_ms.numbers)
            if used_ms > not_since_ms or self._ids.latest(row) in kept
        ]
        for column in self._columns():
            column.keep(rows)

    def _row(self, producer_id: int) -> int | None:
        row = bisect_left(self._ids.numbers, producer_id)
        return row if row < len(self) and self._ids.latest(row) == producer_id else None

    def _columns_of_batches(self) -> tuple[PackedColumn, ...]:
        return self._last_sequences, self._last_offsets

    def _columns(self) -> tuple[PackedColumn, ...]:
        return self._ids, self._epochs, self._used_ms, *self._columns_of_batches()

    def _store_batch(self, row: int, batch: RecordBatch, base_offset: int) -> None:
        self._last_sequences.push(row, _last_sequence(batch))
        self._last_offsets.push(row, base_offset + len(batch.records) - 1)

    @abstractmethod
    def _offset_of(self, row: int, batch: RecordBatch) -> int | None:
        """Return the offset of ``batch``, None if it is not in the log; raises BrokerError if its offset is unknown."""


class FiveBatches(ProducerStates):
    """Kafka's window: a repeated batch is recognised among the last five and answered with its offset.

    An unknown producer may begin at any sequence, as Kafka allows clients before KIP-890: its state may have
    expired. An older batch that is repeated is refused with OUT_OF_ORDER_SEQUENCE_NUMBER, although it was written.
    """

    def __init__(self) -> None:
        super().__init__(_FIVE, begins_at_0=False)
        self._counts = PackedColumn("i", width=_FIVE)

    def _columns_of_batches(self) -> tuple[PackedColumn, ...]:
        return *super()._columns_of_batches(), self._counts

    def _store_batch(self, row: int, batch: RecordBatch, base_offset: int) -> None:
        super()._store_batch(row, batch, base_offset)
        self._counts.push(row, len(batch.records))

    def _offset_of(self, row: int, batch: RecordBatch) -> int | None:
        last_sequences, counts = self._last_sequences.all(row), self._counts.all(row)
        for place, last_offset in enumerate(self._last_offsets.all(row)):
            if (last_sequences[place], counts[place]) == (_last_sequence(batch), len(batch.records)):
                return last_offset - counts[place] + 1
        return None


class LatestSequence(ProducerStates):
    """The latest batch's sequence and offset only; ``window`` sequences up to that one are certainly written.

    So any number of batches may be in flight, as long as they span at most ``window`` sequences. Since they may come
    in any order, an unknown producer must begin at 0, or a later batch could hide an earlier one for ever. A repeated
    latest batch is recognised by its last sequence: a producer never changes its batches. The client's part is
    eos_client.testing.simulator.brokers.idempotent_sender.
    """

    def __init__(self, window: int) -> None:
        super().__init__(1, begins_at_0=True)
        self._window = window

    def _offset_of(self, row: int, batch: RecordBatch) -> int | None:
        last_sequence = self._last_sequences.latest(row)
        if last_sequence == NO_SEQUENCE:
            return None
        if last_sequence == _last_sequence(batch):
            return self._last_offsets.latest(row) - len(batch.records) + 1
        # Both ends: a batch that reaches beyond the last sequence is not written, wherever it begins.
        behind = (steps_between(end, last_sequence) for end in (batch.base_sequence, _last_sequence(batch)))
        if max(behind) < self._window:
            raise BrokerError("DUPLICATE_SEQUENCE_NUMBER", f"{batch.base_sequence}, {last_sequence} was the last")
        return None


def producer_states(settings: BrokerSettings) -> ProducerStates:
    """Return the empty state of a partition, with the window of ``settings``."""
    if settings.producer_state is ProducerStateKind.FIVE_BATCHES:
        return FiveBatches()
    return LatestSequence(settings.max_in_flight_sequence_number_per_connection)


def _last_sequence(batch: RecordBatch) -> int:
    return sequence_after(batch.base_sequence, len(batch.records) - 1)


def _out_of_order(batch: RecordBatch, why: str) -> BrokerError:
    return BrokerError("OUT_OF_ORDER_SEQUENCE_NUMBER", f"producer {batch.producer_id}: {batch.base_sequence}, {why}")
