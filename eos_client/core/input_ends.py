"""The ends at which a loop stops that is to read its input once: ``run(until_end=True)``.

Each member speaks for the partitions that the group has given it. The end of each is taken once, when it is assigned,
so records that are written later are not waited for, and a partition that leaves is its next owner's to read.
"""

from __future__ import annotations

from collections.abc import Mapping

from eos_client.core.model import GroupGeneration, InputPartition, Partitions

NO_PARTITION_LIMIT_S = 30.0
"""How long, in seconds, a member waits for a partition in one generation: others may be revoking theirs."""


class InputEnds:
    """The ends of the partitions that are ours (None: there is nothing before it), and since when we have none."""

    def __init__(self) -> None:
        self._ends: dict[InputPartition, int | None] = {}
        self._without_since: tuple[GroupGeneration, float] | None = None

    def lacking(self, assigned: Partitions) -> Partitions:
        """Return those of ``assigned`` whose end is not known yet; forgets the ends of partitions that have left."""
        self._ends = {partition: end for partition, end in self._ends.items() if partition in assigned}
        return assigned - self._ends.keys()

    def record(self, partition: InputPartition, start: int, end: int) -> None:
        """Record the ``end`` of the log of ``partition``, unless it has one; the log begins at ``start`` now."""
        first_end = self._ends.get(partition, end)
        self._ends[partition] = first_end if first_end is not None and start < first_end else None

    def behind(self, offsets: Mapping[InputPartition, int]) -> Partitions:
        """Return the partitions whose end lies behind the one of ``offsets`` that is theirs."""
        ends = {partition: self._ends.get(partition) for partition in offsets}
        return frozenset(partition for partition, end in ends.items() if end is not None and offsets[partition] < end)

    def are_awaited_in_vain(self, generation: GroupGeneration | None, now_s: float) -> bool:
        """Whether we have been without a partition for NO_PARTITION_LIMIT_S in this ``generation``.

        None: we have partitions, or the group has not said yet.
        """
        if generation is None:
            self._without_since = None
            return False
        if self._without_since is None or not self._without_since[0].same_membership(generation):
            self._without_since = generation, now_s
        return now_s - self._without_since[1] >= NO_PARTITION_LIMIT_S
