"""The leader epochs of the records that were read, which show that a log was truncated (KIP-320).

Each leader of a partition writes under an epoch of its own, and epochs only rise along a log. When a replica that lacks
records becomes the leader (an unclean election), the log is cut off there and goes on under a newer epoch. A client
that only compares offsets then skips records that it has not seen.
"""

from __future__ import annotations

import bisect
from operator import itemgetter
from typing import NamedTuple

_CHANGES_MAX = 100
_OFFSET = itemgetter(0)

EpochChanges = tuple[tuple[int, int | None], ...]
"""The offsets of one partition at which the leader epoch of what is read changes, in order; the oldest are dropped."""


class Misplacement(NamedTuple):
    """A record at ``found``, before the ``expected`` offset of its partition, and the leader epochs of both.

    ``expected_epoch`` is that of the last record before ``expected``. None: not known, as in logs of message formats
    before version 2.
    """

    expected: int
    expected_epoch: int | None
    found: int
    found_epoch: int | None

    def shows_truncation(self, *, were_read: bool) -> bool:
        """Whether the log was truncated and has grown again; ``were_read``: whether records of it were handed over.

        In one log no record has a newer epoch than those behind it. Where an epoch is not known, a log that was read
        before counts as truncated, because going on at ``expected`` could skip records; a log that has just been
        assigned was started too early.
        """
        if self.expected_epoch is None or self.found_epoch is None:
            return were_read
        return self.found_epoch > self.expected_epoch


def epoch_at(changes: EpochChanges, offset: int) -> int | None:
    """Return the epoch of the record at ``offset``, else of the last one read before it; None: not known."""
    index = bisect.bisect_right(changes, offset, key=_OFFSET)
    return changes[index - 1][1] if index else None


def changes_up_to(changes: EpochChanges, offset: int) -> EpochChanges:
    """Return ``changes`` without those after ``offset``, where a log is read again that may have been truncated."""
    return changes[: bisect.bisect_right(changes, offset, key=_OFFSET)]


def with_epoch_at(changes: EpochChanges, offset: int, epoch: int | None) -> EpochChanges:
    """Return ``changes`` with the epoch of the record at ``offset``, or of the one before it, if reading begins there.

    Both let a broker say whether the log still has what lies before ``offset``.
    """
    if epoch_at(changes, offset) == epoch:
        return changes
    index = bisect.bisect_left(changes, offset, key=_OFFSET)
    known = index < len(changes) and changes[index][0] == offset
    return (*changes[:index], (offset, epoch), *changes[index + known :])[-_CHANGES_MAX:]
