"""Which input records were handed to the application and are not committed yet, by partition.

Only what was really handed over counts: a position of the client library runs ahead of the application, and
``position(assignment())`` forgets the partitions that just left although their outputs are in the transaction.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from eos_client.core.model import GroupGeneration, InputPartition, InputPosition, InputPositions


class UncommittedWork:
    """Uncommitted positions; each remembers the generation that was proven when its first record came."""

    def __init__(self) -> None:
        self._positions: dict[InputPartition, InputPosition] = {}
        self._departed: set[InputPartition] = set()
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
        """Note that the records from ``offset`` on were not processed after all."""
        known = self._positions.get(partition)
        if known is None or offset >= known.next_offset:
            return
        if offset <= known.first_offset:
            del self._positions[partition]
        else:
            self._positions[partition] = replace(known, next_offset=offset)

    def sought(self, partition: InputPartition, offset: int) -> None:
        """Note that the application goes on at ``offset``: of what is in hand, it gives back the records from there on.

        What was processed before stays: its outputs are in the open transaction.
        """
        processed = self._processed.get(partition)
        self.taken_back(partition, offset if processed is None else max(offset, processed.next_offset))

    def state_of(self, partition: InputPartition) -> tuple[InputPosition | None, bool]:
        """Return the position of ``partition``, if there is one, and whether it has left since."""
        return self._positions.get(partition), partition in self._departed

    def reset(self, partition: InputPartition, position: InputPosition | None, *, departed: bool) -> None:
        """Set ``partition`` back to what `state_of` returned."""
        if position is None:
            self._positions.pop(partition, None)
        else:
            self._positions[partition] = position
        (self._departed.add if departed else self._departed.discard)(partition)

    def committed_up_to(self, partition: InputPartition, offset: int) -> None:
        """Note that the records below ``offset`` were committed."""
        known = self._positions.get(partition)
        if known is None or offset <= known.first_offset:
            return
        if offset >= known.next_offset:
            del self._positions[partition]
            self._processed.pop(partition, None)
        else:
            self._positions[partition] = replace(known, first_offset=offset)

    def forget(self, partitions: Iterable[InputPartition]) -> None:
        """Drop ``partitions``: their records are nobody's business here any more."""
        for partition in partitions:
            self._positions.pop(partition, None)
            self._processed.pop(partition, None)
            self._departed.discard(partition)

    def clear(self) -> None:
        """Note that all of it was committed or rewound."""
        self._in_hand = False
        self._positions = {}
        self._processed = {}
        self._departed = set()
