"""The pace of a loop: how many records the open transaction has, and when its commit is due."""

from __future__ import annotations

from eos_client.loop.transaction_size import TransactionCost, TransactionSize
from eos_client.ports import Clock

_STRIDE_MAX = 512


class TransactionPace:
    """Counts the records of a transaction and the seconds of work on them.

    It is due after ``interval_s`` seconds, or when it has as many ``records`` as ``size`` allows. They are transformed
    in strides of ``stride`` records: the clock is read about ten times per interval.
    """

    def __init__(self, size: TransactionSize, interval_s: float, clock: Clock) -> None:
        self._size = size
        self._interval_s = interval_s
        self._clock = clock
        self._due_at: float | None = None
        self._working_since: float | None = None
        self._stride_began_at = 0.0
        self._longest_s = 0.0
        self.records = 0
        self.stride = 1

    def begin(self) -> None:
        """Begin with the first record."""
        self._working_since = now = self._clock()
        self._due_at = now + self._interval_s

    def hold(self) -> None:
        """Let it be due again one interval from now, because the gate was closed."""
        self._due_at = self._clock() + self._interval_s

    @property
    def has_begun(self) -> bool:
        """Whether its first record has come."""
        return self._due_at is not None

    @property
    def is_due(self) -> bool:
        """Whether its time is over, or it has no room for more records."""
        due_at = self._due_at
        return due_at is not None and (self.records >= self._size.records_max or self._clock() >= due_at)

    @property
    def left_s(self) -> float:
        """Seconds until its time is over; 0 where it is, or where it has not begun."""
        return 0.0 if self._due_at is None else max(0.0, self._due_at - self._clock())

    @property
    def room(self) -> int:
        """How many more records it may have, at least one."""
        return max(1, self._size.records_max - self.records)

    def begin_stride(self, records: int) -> None:
        """Count ``records``, whose transform begins."""
        self._stride_began_at = self._clock()
        self.records += records

    def end_stride(self) -> None:
        """End the stride, whose outputs are written; the next stride is longer, or shorter where this one was slow."""
        took_s = self._clock() - self._stride_began_at
        self._longest_s = max(self._longest_s, took_s)
        is_slow = took_s * 10 > self._interval_s
        self.stride = max(1, self.stride // 2) if is_slow else min(_STRIDE_MAX, self.stride * 2)

    def end(self) -> TransactionCost:
        """Reset; returns what the transaction used."""
        work_s = 0.0 if self._working_since is None else self._clock() - self._working_since
        cost = TransactionCost(self.records, work_s, self._longest_s)
        self._due_at = self._working_since = None
        self.records, self._longest_s = 0, 0.0
        return cost
