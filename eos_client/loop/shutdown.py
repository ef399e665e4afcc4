"""The end of a loop: why it is to stop, how long that may take, and what must be processed again before."""

from __future__ import annotations

from eos_client.core.model import Partitions
from eos_client.ports import Clock


class Shutdown:
    """Why a loop stops (``reason``; None while it runs), and the ``limit_s`` seconds that it has to stop.

    They begin with the first use of ``ends_at`` or ``left_s``. Records of an aborted transaction are processed again
    within them: otherwise a transform that stops its loop just before a record whose output is refused would never get
    past that record, however often the loop is restarted.
    """

    def __init__(self, limit_s: float, clock: Clock) -> None:
        self._limit_s = limit_s
        self._clock = clock
        self._ends_at: float | None = None
        self.records_to_repeat = 0
        self._partitions_to_repeat: Partitions = frozenset()
        self.reason: str | None = None

    def request(self, reason: str) -> None:
        """Let the loop stop for ``reason``, unless it is to stop for another one."""
        self.reason = self.reason or reason

    def end_by(self, error: BaseException) -> None:
        """Let ``error`` be the reason, which ends the loop whatever was asked for before; its caller reports the text.

        KeyboardInterrupt, SystemExit and a cancellation only ask for an end, too: an earlier request stays the reason.
        """
        is_request = not isinstance(error, Exception)
        self.reason = (is_request and self.reason) or type(error).__name__

    @property
    def ends_at(self) -> float:
        """When the loop must have ended, by the clock."""
        if self._ends_at is None:
            self._ends_at = self._clock() + self._limit_s
        return self._ends_at

    @property
    def left_s(self) -> float:
        """Seconds until then; negative when they are over."""
        return self.ends_at - self._clock()

    def expect_redelivery(self, records: int, partitions: Partitions) -> None:
        """Expect ``records`` of ``partitions`` again, after an abort that has brought progress."""
        self.records_to_repeat = max(self.records_to_repeat, records)
        self._partitions_to_repeat = partitions

    def committed(self, records: int) -> None:
        """Expect ``records`` fewer, which were committed."""
        self.records_to_repeat = max(0, self.records_to_repeat - records)

    def must_repeat(self, records: int, assigned: Partitions) -> bool:
        """Whether more than the open transaction's ``records`` are expected again, are still ours, and have time.

        If one of the partitions has left, its new owner repeats an unknown part of them, and the others can wait.
        """
        are_ours = bool(self._partitions_to_repeat) and self._partitions_to_repeat <= assigned
        return are_ours and records < self.records_to_repeat and self._clock() < self.ends_at
