"""How many records the next transaction may hold; fewer after one that took too long or had a refused output."""

from __future__ import annotations

_NARROWS_BY = 10
_ONE_BY_ONE_MAX = 10


class TransactionSize:
    """Shrinks to isolate a record whose output is refused, and grows again with each commit.

    A broker refuses a whole batch and does not always say which record is wrong. Smaller transactions let the other
    records through, until the deliveries of each record are awaited before the next is written (``one_by_one``).
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

    def timed_out(self) -> bool:
        """Shrink to one record after a transaction was open for too long; returns whether that is fewer than before.

        With one record no transform runs while a transaction is open, because the first output begins it.
        """
        was, self.records_max = self.records_max, 1
        return was > 1

    def committed(self) -> None:
        """Allow more again."""
        self.records_max = min(self._max, self.records_max * 2)
        self.one_by_one = self.one_by_one and self.records_max <= _ONE_BY_ONE_MAX
