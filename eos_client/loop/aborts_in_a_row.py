"""Slows down repeated aborts of the same work, and ends the loop when none of it can be committed."""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from eos_client.core.model import InputPartition

_BACKOFF_LIMIT_S = 1.0


class AbortsInARow:
    """Counts the aborts since the last progress, and the time that was spent on the work that they undid.

    Time without work does not count, and neither do aborts of work that belongs to another member by now: a standby
    instance may be hours older than its only abort.
    """

    def __init__(self) -> None:
        self.count = 0
        self.spent_s = 0.0
        self.evictions = 0
        self._partitions: AbstractSet[InputPartition] = frozenset()

    def progress(self) -> None:
        """Start anew: something was committed, or it is known now why it was not."""
        self.evictions = 0
        self._start_anew()

    def _start_anew(self) -> None:
        self.count, self.spent_s, self._partitions = 0, 0.0, frozenset()

    def evicted(self) -> None:
        """Note that one record alone took longer than the group waits for a poll: it will again, whoever has it."""
        self.evictions += 1

    def aborted(
        self, partitions: AbstractSet[InputPartition], assigned: AbstractSet[InputPartition], spent_s: float
    ) -> None:
        """Note that a transaction with records of ``partitions`` was aborted after ``spent_s`` seconds of work."""
        if self._partitions.isdisjoint(assigned):
            self._start_anew()
        self.count += 1
        self.spent_s += spent_s
        self._partitions = self._partitions | partitions

    @property
    def pause_s(self) -> float:
        """Seconds to wait before the next attempt."""
        return 0.0 if self.count <= 1 else min(_BACKOFF_LIMIT_S, 0.02 * 2 ** min(self.count, 6))
