"""Slows down repeated aborts of the same work, and ends the loop when none of it can be committed."""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from eos_client.core.model import InputPartition

_BACKOFF_LIMIT_S = 1.0


class RepeatedAborts:
    """Counts the aborts since the last progress, and the seconds of work that they undid.

    Idle time does not count, because a standby instance may be hours older than its only abort; neither do aborts of
    work whose partitions have gone to another member.
    """

    def __init__(self) -> None:
        self.count = 0
        self.spent_s = 0.0
        self.evictions = 0
        self._partitions: AbstractSet[InputPartition] = frozenset()

    def progress(self) -> None:
        """Reset: something was committed, or the reason why it was not is known now."""
        self.evictions = 0
        self._reset()

    def _reset(self) -> None:
        self.count, self.spent_s, self._partitions = 0, 0.0, frozenset()

    def evicted(self) -> None:
        """Count an eviction because a single record took longer than ``max.poll.interval.ms``; it will again."""
        self.evictions += 1

    def aborted(
        self, partitions: AbstractSet[InputPartition], assigned: AbstractSet[InputPartition], spent_s: float
    ) -> None:
        """Count the abort of a transaction with records of ``partitions`` after ``spent_s`` seconds of work."""
        if self._partitions.isdisjoint(assigned):
            self._reset()
        self.count += 1
        self.spent_s += spent_s
        self._partitions = self._partitions | partitions

    @property
    def pause_s(self) -> float:
        """Seconds to wait before the next attempt."""
        return 0.0 if self.count <= 1 else min(_BACKOFF_LIMIT_S, 0.02 * 2 ** min(self.count, 6))
