"""The ends at which a loop stops that is to read its input once: ``run(until_end=True)``.

A member waits until its group has committed every partition of the topics up to the end that it saw at its start, also
where another member reads it: so the success of one member is that of the whole job, and the partitions of a member
that is killed are read by those that wait. Records that are written later are not waited for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from eos_client.core.model import InputPartition, Partitions


class InputEnds:
    """The end of each partition as it was first seen; None: there is nothing to read before it."""

    def __init__(self) -> None:
        self._ends: dict[InputPartition, int | None] = {}
        self._last_seen: dict[InputPartition, int] = {}

    @property
    def to_be_committed(self) -> Partitions:
        """The partitions that have something to read before their end."""
        return frozenset(self._ends_of(self._ends))

    def lacking(self, partitions: Partitions) -> Partitions:
        """Return those of ``partitions`` whose end is not known yet; forgets the ends of all others."""
        self._ends = {partition: end for partition, end in self._ends.items() if partition in partitions}
        return partitions - self._ends.keys()

    def record(self, partition: InputPartition, start: int, end: int) -> None:
        """Record the ``end`` of the log of ``partition``, unless it has one; the log begins at ``start`` now."""
        first_end = self._ends.get(partition, end)
        self._ends[partition] = first_end if first_end is not None and start < first_end else None

    def behind(self, offsets: Mapping[InputPartition, int]) -> Partitions:
        """Return the partitions whose end lies behind the one of ``offsets`` that is theirs."""
        return frozenset(p for p, end in self._ends_of(offsets).items() if offsets[p] < end)

    def beyond(self, offsets: Mapping[InputPartition, int]) -> Partitions:
        """Return the partitions whose end lies before the one of ``offsets``; perhaps the log has ended there, too."""
        return frozenset(p for p, end in self._ends_of(offsets).items() if offsets[p] > end)

    def _ends_of(self, partitions: Iterable[InputPartition]) -> dict[InputPartition, int]:
        return {p: end for p in partitions if (end := self._ends.get(p)) is not None}

    def standing_still(self, offsets: Mapping[InputPartition, int]) -> Partitions:
        """Return the partitions that are behind, with the same offset as in the last call."""
        before, self._last_seen = self._last_seen, dict(offsets)
        return frozenset(partition for partition in self.behind(offsets) if before.get(partition) == offsets[partition])
