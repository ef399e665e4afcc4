"""Which input records were handed to the application and are not committed yet, by partition.

Only what was really handed over counts: a position of the client library runs ahead of the application, and
``position(assignment())`` forgets the partitions that just left although their outputs are in the transaction.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from eos_client.core.model import GroupGeneration, InputPartition, InputPosition, InputPositions


class PartitionWork(NamedTuple):
    """What is known of one partition: its position, and the one from before it left and came back."""

    position: InputPosition | None
    covered: InputPosition | None
    has_departed: bool


class UncommittedWork:
    """Uncommitted positions; each remembers the generation that was synced when its first record came."""

    def __init__(self) -> None:
        self._positions: dict[InputPartition, InputPosition] = {}
        self._departed: set[InputPartition] = set()
        self._covered: dict[InputPartition, InputPosition] = {}  # what had departed, of partitions that came back
        self._in_hand = False
        self._processed: dict[InputPartition, InputPosition] = {}

    @property
    def positions(self) -> InputPositions:
        """The uncommitted positions, of departed partitions too. Do not keep: it is the live mapping."""
        return self._positions

    @property
    def ours(self) -> InputPositions:
        """The uncommitted positions that nobody else can have taken over since."""
        return {p: position for p, position in self._positions.items() if p not in self._departed}

    @property
    def in_hand(self) -> bool:
        """Whether any of it was handed over and is not known to be processed yet."""
        return self._in_hand and bool(self._positions)

    def processed(self) -> None:
        """Note that everything that was handed over so far has been processed, and its outputs were written."""
        self._in_hand = False
        self._processed = dict(self._positions)

    def handed_over(
        self,
        partition: InputPartition,
        first_offset: int,
        next_offset: int,
        generation: GroupGeneration,
        leader_epoch: int | None = None,
    ) -> None:
        """Note that records ``first_offset`` .. ``next_offset - 1`` went to the application."""
        self._in_hand = True
        known = self._positions.get(partition)
        if known is None or partition in self._departed:
            # What was consumed before it left is its heir's by now: going back there would double it.
            if known is not None:
                self._covered[partition] = known
            self._departed.discard(partition)
            self._processed.pop(partition, None)
            self._positions[partition] = InputPosition(first_offset, next_offset, generation, leader_epoch)
        else:
            first = min(known.first_offset, first_offset)
            self._positions[partition] = replace(
                known, first_offset=first, next_offset=next_offset, leader_epoch=leader_epoch
            )

    def departed(self, partitions: Iterable[InputPartition]) -> None:
        """Note that ``partitions`` left: their positions only tell the gate now what must not be committed."""
        self._departed.update(p for p in partitions if p in self._positions)

    def taken_back(self, partition: InputPartition, offset: int) -> None:
        """Note that the records from ``offset`` on were not processed after all.

        Where nothing else is left of a partition that has come back, what had departed is shown to the gate again: its
        outputs are in the transaction.
        """
        known = self._positions.get(partition)
        if known is None or offset >= known.next_offset:
            return
        if offset > known.first_offset:
            self._positions[partition] = replace(known, next_offset=offset)
        elif partition in self._covered:
            self._positions[partition] = self._covered.pop(partition)
            self._departed.add(partition)
        else:
            del self._positions[partition]

    def sought(self, partition: InputPartition, offset: int) -> None:
        """Note that the application goes on at ``offset``: of what is in hand, it gives back the records from there on.

        What was processed before stays: its outputs are in the open transaction.
        """
        processed = self._processed.get(partition)
        self.taken_back(partition, offset if processed is None else max(offset, processed.next_offset))

    def state_of(self, partition: InputPartition) -> PartitionWork:
        """Return what is known of ``partition``, for `reset`."""
        return PartitionWork(
            self._positions.get(partition), self._covered.get(partition), has_departed=partition in self._departed
        )

    def reset(self, partition: InputPartition, before: PartitionWork) -> None:
        """Set ``partition`` back to what `state_of` returned."""
        for positions, position in ((self._positions, before.position), (self._covered, before.covered)):
            if position is None:
                positions.pop(partition, None)
            else:
                positions[partition] = position
        (self._departed.add if before.has_departed else self._departed.discard)(partition)

    def committed_up_to(self, partition: InputPartition, offset: int) -> None:
        """Note that the records below ``offset`` were committed."""
        known = self._positions.get(partition)
        if known is None or offset <= known.first_offset:
            return
        if offset >= known.next_offset:
            del self._positions[partition]
            self._covered.pop(partition, None)
            self._processed.pop(partition, None)
        else:
            self._positions[partition] = replace(known, first_offset=offset)

    def forget(self, partitions: Iterable[InputPartition]) -> None:
        """Drop ``partitions``: their records are nobody's business here any more."""
        for partition in partitions:
            self._positions.pop(partition, None)
            self._covered.pop(partition, None)
            self._processed.pop(partition, None)
            self._departed.discard(partition)

    def clear(self) -> None:
        """Note that all of it was committed or rewound."""
        self._in_hand = False
        self._positions = {}
        self._covered = {}
        self._processed = {}
        self._departed = set()
