"""Sizes the next transaction after the last one: how many records it may hold, and when it may begin."""

from __future__ import annotations

from typing import NamedTuple

from eos_client.core.model import Partitions
from eos_client.errors import ClusterUnavailableError, FatalClientError

_NARROWS_BY = 10
_WAITED_ENOUGH = 0.25
_ONE_BY_ONE_MAX = 10
_BACKOFF_LIMIT_S = 1.0
_EVICTIONS_MAX = 3


class TransactionCost(NamedTuple):
    """What a transaction has used: records, seconds of work on all of them and on the longest stride."""

    records: int
    work_s: float
    longest_s: float


class TransactionSize:
    """How many records the next transaction may hold: fewer after a time-out or a refused output, more after commits.

    A broker refuses a whole batch and may not say which record is wrong (``docs/decisions/outputs.md``). Smaller
    transactions let the others through, until each record's deliveries are awaited before the next (``one_by_one``).
    """

    def __init__(self, records_max: int) -> None:
        self._max = records_max
        self.records_max = records_max
        self.one_by_one = False

    def narrow(self, records: int) -> bool:
        """Shrink after an output of ``records`` was refused; returns whether that can isolate the record."""
        if self.one_by_one:
            return False
        self.records_max = max(1, min(self.records_max, records) // _NARROWS_BY)
        self.one_by_one = self.records_max <= _ONE_BY_ONE_MAX
        return True

    def shrink_to_one(self) -> bool:
        """Shrink to one record after a transaction took too long; returns whether that is fewer than before.

        With one record no transform runs while a transaction is open, because the first output begins it.
        """
        was, self.records_max = self.records_max, 1
        return was > 1

    def aborted(self, records: int, *, was_refused: bool, was_too_slow: bool, flush_share: float) -> bool:
        """Shrink after the abort of a transaction with ``records`` where fewer may help; returns whether they will.

        ``was_refused``: an output was. ``was_too_slow``: the transaction or one of its records. ``flush_share``: the
        part of their time limit that the acknowledgements took; where that was all of it, there may have been too many
        outputs, or the cluster may be away.
        """
        if was_refused:
            return self.narrow(records)
        if was_too_slow:
            return self.shrink_to_one()
        if flush_share >= 1.0:
            self.shrink_to_one()
        return False

    def committed(self, flush_share: float = 0.0) -> None:
        """Allow more again: twice as many, but hardly more once acknowledgements take a quarter of their time limit.

        ``flush_share``: the part of it that they took. A client quota lets a transaction wait for the one before, too.
        """
        grown = int(self.records_max * _WAITED_ENOUGH / max(flush_share, _WAITED_ENOUGH / 2))
        self.records_max = min(self._max, max(self.records_max + 1, grown))
        self.one_by_one = self.one_by_one and self.records_max <= _ONE_BY_ONE_MAX


class RepeatedAborts:
    """Counts the aborts since the last progress, and the seconds of work that they undid, to slow down or end the loop.

    Idle time does not count, because a standby instance may be hours older than its only abort; neither do aborts of
    work whose partitions have gone to another member. ``evictions``: aborts because one record took longer
    than ``poll_limit_s`` (``max.poll.interval.ms``), after which the group evicts the member; it will again.
    """

    def __init__(self, recovery_timeout_s: float, poll_limit_s: float) -> None:
        self._recovery_timeout_s = recovery_timeout_s
        self._poll_limit_s = poll_limit_s
        self.progress()

    def progress(self) -> None:
        """Reset: something was committed, or the reason why it was not is known now."""
        self.evictions = 0
        self._reset()

    def _reset(self) -> None:
        self.count, self.spent_s = 0, 0.0
        self._partitions: Partitions = frozenset()

    def is_eviction(self, cost: TransactionCost) -> bool:
        """Whether one record took so long that the group has evicted the member."""
        return cost.longest_s >= self._poll_limit_s

    def aborted(self, partitions: Partitions, assigned: Partitions, cost: TransactionCost, reason: str) -> None:
        """Count the abort, for ``reason``, of a transaction with records of ``partitions``; ``assigned``: those of now.

        Raises FatalClientError for one eviction too many, and ClusterUnavailableError when more than
        ``recovery_timeout_s`` seconds of work have led to no commit.
        """
        was_evicted = self.is_eviction(cost)
        if self._partitions.isdisjoint(assigned | partitions):
            self._reset()
        self.count += 1
        self._partitions = self._partitions | partitions
        self.evictions += was_evicted
        if not was_evicted:
            self.spent_s += cost.work_s
        elif self.evictions >= _EVICTIONS_MAX:
            raise FatalClientError(
                f"{self.evictions} transactions in a row were aborted because one record took {cost.longest_s:.1f} s, "
                f"longer than max.poll.interval.ms={self._poll_limit_s * 1000:.0f}, after which the group gives the "
                "partitions to others. Set it above the time of the slowest record, retries included. Nothing of these "
                "transactions is visible; end the process."
            )
        if self.spent_s > self._recovery_timeout_s:
            raise ClusterUnavailableError(
                f"{self.count} transactions in a row were aborted: {self.spent_s:.0f} s of work without a commit "
                f"(recovery_timeout_s={self._recovery_timeout_s:g}). Nothing of these transactions is visible; "
                f"repair the cause and start the process again. Reason of the last abort: {reason}"
            )

    def record_pause(self, seconds: float) -> None:
        """Count a wait before the next attempt as work that has led to no commit."""
        self.spent_s += seconds

    @property
    def pause_s(self) -> float:
        """Seconds to wait before the next attempt."""
        return 0.0 if self.count <= 1 else min(_BACKOFF_LIMIT_S, 0.02 * 2 ** min(self.count, 6))
