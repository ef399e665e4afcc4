"""The client's side of the latest-sequence window (P5): any number of batches in flight, in any order.

Pure, without network and clock: it returns the batch to send next, and its methods record the outcome of each.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace

from eos_client.testing.simulator.brokers.model import NewRecord, ProducerIdentity, RecordBatch
from eos_client.testing.simulator.brokers.producer_state import sequence_after, steps_between


@dataclass(frozen=True, slots=True)
class SentBatch:
    """One attempt to write ``batch``. ``first_in_line``: all earlier batches were acknowledged when it was sent."""

    batch: RecordBatch
    attempt: int
    first_in_line: bool


@dataclass(frozen=True, slots=True)
class DeliveredBatch:
    """A batch that is certainly in the log. ``offset`` None: the broker no longer knows its offset."""

    records: tuple[NewRecord, ...]
    offset: int | None


@dataclass(slots=True)
class _InFlight:
    number: int
    batch: RecordBatch
    attempt: int = 0
    awaits_answer: bool = False


class IdempotentSender:
    """Numbers one partition's batches and repeats them until each is in the log, once and in order.

    It sends nothing before `learn_window`, and never has more sequences in flight than the broker's window, counted
    from the oldest unacknowledged batch: so the broker recognises each repetition.
    """

    def __init__(self, producer: ProducerIdentity, *, first_sequence: int = 0) -> None:
        self._producer = producer
        self._next_sequence = first_sequence
        self._window: int | None = None
        self._waiting: deque[tuple[NewRecord, ...]] = deque()
        self._in_flight: dict[int, _InFlight] = {}
        self._numbered_count = 0
        self._repetitions: list[tuple[int, _InFlight]] = []
        self._delivered: list[DeliveredBatch] = []
        self._failure: str | None = None

    @property
    def delivered(self) -> tuple[DeliveredBatch, ...]:
        """The acknowledged batches, in the order of their acknowledgement."""
        return tuple(self._delivered)

    @property
    def sequences_in_flight(self) -> int:
        """How many sequences lie between the oldest unacknowledged batch and the next new one."""
        oldest = next(iter(self._in_flight), self._next_sequence)
        return steps_between(oldest, self._next_sequence)

    @property
    def batches_in_flight(self) -> int:
        """How many batches are numbered and not acknowledged."""
        return len(self._in_flight)

    @property
    def is_idle(self) -> bool:
        """Whether all batches are acknowledged."""
        return not self._waiting and not self._in_flight

    @property
    def failure(self) -> str | None:
        """The error that stopped it, until `renumber`. OUT_OF_ORDER_SEQUENCE_NUMBER: the broker has lost its state."""
        return self._failure

    def learn_window(self, sequences_max: int) -> None:
        """Set the broker's window, ``max.in.flight.sequence.number.per.connection``."""
        self._window = sequences_max

    def add(self, records: Iterable[NewRecord]) -> None:
        """Queue one batch; raises ValueError when it is empty."""
        batch = tuple(records)
        if not batch:
            raise ValueError("a batch needs a record")
        self._waiting.append(batch)

    def take(self) -> SentBatch | None:
        """Return the batch to send next, the oldest repetition first; None: nothing to send, or the window is full.

        Raises ValueError when the next batch alone is larger than the broker's window.
        """
        if self._window is None or self._failure is not None:
            return None
        while self._repetitions:  # some were acknowledged, or got another number, meanwhile
            _, repetition = heapq.heappop(self._repetitions)
            if self._in_flight.get(repetition.batch.base_sequence) is repetition:
                return self._attempt(repetition)
        if not self._waiting:
            return None
        size = len(self._waiting[0])
        if size > self._window:
            raise ValueError(f"a batch of {size} records cannot pass the broker's window of {self._window} sequences")
        if self.sequences_in_flight + size > self._window:
            return None
        return self._attempt(self._number(self._waiting.popleft()))

    def acknowledged(self, sent: SentBatch, offset: int | None) -> None:
        """Record that the broker has acknowledged ``sent``; only the first answer counts."""
        in_flight = self._find(sent)
        if in_flight is not None:
            del self._in_flight[sent.batch.base_sequence]
            self._delivered.append(DeliveredBatch(in_flight.batch.records, offset))

    def refused(self, sent: SentBatch, code: str) -> None:
        """Record that the broker answered ``sent`` with the error ``code``.

        A duplicate is in the log already. Out of order: an earlier batch is missing, so it is repeated; if it was the
        first in line, none is missing, so the broker has lost its state. Other errors are final.
        """
        if code == "DUPLICATE_SEQUENCE_NUMBER":
            self.acknowledged(sent, None)
        elif code == "OUT_OF_ORDER_SEQUENCE_NUMBER" and not sent.first_in_line:
            self.unanswered(sent)
        elif self._find(sent) is not None:
            self._failure = code

    def unanswered(self, sent: SentBatch) -> None:
        """Stop waiting for an answer to ``sent``: it is repeated, unless it was repeated already."""
        in_flight = self._find(sent)
        if in_flight is not None and in_flight.awaits_answer and in_flight.attempt == sent.attempt:
            in_flight.awaits_answer = False
            heapq.heappush(self._repetitions, (in_flight.number, in_flight))

    def renumber(self, producer_epoch: int) -> None:
        """Begin again at sequence 0 with a newer epoch (KIP-360), with all unacknowledged batches.

        The first in line was refused, so none of them was written, unless the broker has lost its state after a write.
        """
        self._producer = replace(self._producer, producer_epoch=producer_epoch)
        unacknowledged = [each.batch.records for each in self._in_flight.values()]
        self._in_flight.clear()
        self._waiting.extendleft(reversed(unacknowledged))
        self._next_sequence = 0
        self._failure = None

    def _number(self, records: tuple[NewRecord, ...]) -> _InFlight:
        producer = self._producer
        batch = RecordBatch(records, producer.producer_id, producer.producer_epoch, self._next_sequence)
        self._next_sequence = sequence_after(self._next_sequence, len(records))
        self._numbered_count += 1
        return self._in_flight.setdefault(batch.base_sequence, _InFlight(self._numbered_count, batch))

    def _attempt(self, each: _InFlight) -> SentBatch:
        each.attempt += 1
        each.awaits_answer = True
        return SentBatch(each.batch, each.attempt, each.batch.base_sequence == next(iter(self._in_flight)))

    def _find(self, sent: SentBatch) -> _InFlight | None:
        """Return the batch of ``sent`` while it is unacknowledged and has kept its number."""
        in_flight = self._in_flight.get(sent.batch.base_sequence)
        return None if in_flight is None or in_flight.batch is not sent.batch else in_flight
