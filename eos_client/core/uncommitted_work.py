"""The input records, by partition, that the application was given and that are not committed yet.

librdkafka's ``position()`` is no substitute: it runs ahead of the application, and it forgets partitions that were just
revoked although their outputs are in the open transaction.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from eos_client.core.model import InputPartition, InputPosition, InputPositions


class PartitionWork(NamedTuple):
    """The position of one partition, and the one from before it was revoked and assigned again (``earlier``)."""

    position: InputPosition | None
    earlier: InputPosition | None
    has_departed: bool


class UncommittedWork:
    """Uncommitted positions; each has the generation that was synced when its first record was consumed."""

    def __init__(self) -> None:
        self._positions: dict[InputPartition, InputPosition] = {}
        self._departed: set[InputPartition] = set()
        self._earlier: dict[InputPartition, InputPosition] = {}  # from before a partition left and came back
        self._in_hand = False
        self._processed: dict[InputPartition, InputPosition] = {}

    @property
    def positions(self) -> InputPositions:
        """The uncommitted positions, with those of departed partitions. This is the live mapping: do not keep it."""
        return self._positions

    @property
    def owned(self) -> InputPositions:
        """The uncommitted positions without those of departed partitions, which may have a new owner."""
        return {p: position for p, position in self._positions.items() if p not in self._departed}

    @property
    def in_hand(self) -> bool:
        """Whether records were handed over that are not known to be processed yet."""
        return self._in_hand and bool(self._positions)

    def mark_processed(self) -> None:
        """Record that everything handed over so far was processed, and its outputs were written."""
        self._in_hand = False
        self._processed = dict(self._positions)

    def hand_over(self, partition: InputPartition, position: InputPosition) -> None:
        """Record that the application was given the records of ``position``."""
        self._in_hand = True
        known = self._positions.get(partition)
        if known is None or partition in self._departed:
            # The new owner may have processed what was consumed before the partition left: never rewind to there.
            if known is not None:
                self._earlier[partition] = known
            self._departed.discard(partition)
            self._processed.pop(partition, None)
            self._positions[partition] = position
        else:
            self._positions[partition] = known.followed_by(position)

    def mark_departed(self, partitions: Iterable[InputPartition]) -> None:
        """Record that ``partitions`` left. Their positions stay, so that the gate refuses to commit them."""
        self._departed.update(p for p in partitions if p in self._positions)

    def take_back(self, partition: InputPartition, offset: int) -> None:
        """Record that the records from ``offset`` on were not processed after all.

        Where nothing remains of a partition that was assigned again, its position from before is restored for the gate,
        because the outputs of that work are in the open transaction.
        """
        known = self._positions.get(partition)
        if known is None or offset >= known.next_offset:
            return
        if offset > known.first_offset:
            self._positions[partition] = known.between(known.first_offset, offset)
        elif partition in self._earlier:
            self._positions[partition] = self._earlier.pop(partition)
            self._departed.add(partition)
        else:
            del self._positions[partition]

    def record_seek(self, partition: InputPartition, offset: int) -> None:
        """Record that the application continues at ``offset``: records in hand from there on count as not consumed.

        Records that were processed before stay, because their outputs are in the open transaction.
        """
        processed = self._processed.get(partition)
        self.take_back(partition, offset if processed is None else max(offset, processed.next_offset))

    def state_of(self, partition: InputPartition) -> PartitionWork:
        """Return the state of ``partition``, for `reset`."""
        return PartitionWork(
            self._positions.get(partition), self._earlier.get(partition), has_departed=partition in self._departed
        )

    def reset(self, partition: InputPartition, before: PartitionWork) -> None:
        """Restore what `state_of` returned for ``partition``."""
        for positions, position in ((self._positions, before.position), (self._earlier, before.earlier)):
            if position is None:
                positions.pop(partition, None)
            else:
                positions[partition] = position
        (self._departed.add if before.has_departed else self._departed.discard)(partition)

    def mark_committed_up_to(self, partition: InputPartition, offset: int) -> None:
        """Record that the records below ``offset`` were committed."""
        known = self._positions.get(partition)
        if known is None or offset <= known.first_offset:
            return
        if offset >= known.next_offset:
            self.forget([partition])
        else:
            self._positions[partition] = known.between(offset, known.next_offset)

    def forget(self, partitions: Iterable[InputPartition]) -> None:
        """Drop everything that is known of ``partitions``."""
        for partition in partitions:
            self._positions.pop(partition, None)
            self._earlier.pop(partition, None)
            self._processed.pop(partition, None)
            self._departed.discard(partition)

    def clear(self) -> None:
        """Record that all work was committed or rewound."""
        self._in_hand = False
        self._positions = {}
        self._earlier = {}
        self._processed = {}
        self._departed = set()
