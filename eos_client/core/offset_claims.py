"""Positions that a database keeps in the transactions of the application's rows: who may move them, and from where.

Theory of operation. Each input partition of a group has one row: the next offset, and the *fence*, a number that rises
with every claim. An owner claims the row when the group assigns the partition to it, and goes on at the row's offset.
It moves the offset in the same database transaction as its own rows, and only if the row still shows the fence that it
has claimed and the offset that it began at. So whoever wakes up after another has claimed the row commits nothing: the
database's row is the one order in which all owners stand, whatever each of them believes of the group.

The generation of the group keeps those out who are known to be late: a row that was claimed under a newer generation is
not claimed again under an older one. That spares the new owner an abort; what makes the result exact is the fence.

A COMMIT without an answer may still take effect. The row is read once no transaction holds it any more, and the
attempt's token in it shows whether that one has committed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from eos_client.core.model import GroupGeneration, InputPartition

NO_OFFSET = -1
"""The next offset of a row whose partition has none yet: ``auto.offset.reset`` chooses where it starts."""


@dataclass(frozen=True, slots=True)
class Position:
    """What the row of one partition shows.

    ``attempt``: the token of the attempt that has moved it last (`AttemptToken`). ``owner``: who has claimed it, for
    people who read the table.
    """

    next_offset: int
    fence: int = 0
    generation: int = 0
    owner: str = ""
    leader_epoch: int | None = None
    attempt: str = ""


@dataclass(frozen=True, slots=True)
class Move:
    """A change of one row: valid where the row still shows ``claimed``'s fence and offset."""

    claimed: Position
    next_offset: int
    leader_epoch: int | None
    attempt: str

    @property
    def result(self) -> Position:
        """What the row shows after the move."""
        return replace(self.claimed, next_offset=self.next_offset, leader_epoch=self.leader_epoch, attempt=self.attempt)


class ClaimRefusedError(Exception):
    """The row was claimed under a newer generation than the one that claims."""


def claim(found: Position, generation: GroupGeneration, owner: str) -> Position:
    """Return what the row shows once it is claimed by ``owner``, a member of ``generation``.

    Raises ClaimRefusedError for a late one: another member has claimed the row under a newer generation.
    """
    if generation.generation_id < found.generation:
        raise ClaimRefusedError(
            f"claimed under generation {found.generation} of the group by {found.owner or 'another member'}, and this "
            f"member knows only generation {generation.generation_id}"
        )
    return replace(found, fence=found.fence + 1, generation=generation.generation_id, owner=owner)


def why_not_moved(moves: Mapping[InputPartition, Move], found: Mapping[InputPartition, Position]) -> str:
    """Return why a transaction may not commit ``moves``, where the rows show ``found``; empty where they match."""
    for partition, move in sorted(moves.items()):
        row = found.get(partition)
        if row is None:
            return f"the row of {partition} is gone"
        if row.fence != move.claimed.fence:
            return f"{partition} was claimed again, by {row.owner or 'another member'} (fence {row.fence})"
        if row.next_offset != move.claimed.next_offset:
            return f"the row of {partition} shows offset {row.next_offset}, and not {move.claimed.next_offset}"
    return ""
