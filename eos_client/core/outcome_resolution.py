"""What became of a commit that was not answered, told from the group's committed offsets.

A transaction is all or nothing, so one partition that was ours all along tells it for all of them; a partition that
somebody else may have committed since tells only when it stands below what was sent.
"""

from __future__ import annotations

from collections.abc import Mapping

from eos_client.core.model import InputPartition, InputPositions, Outcome


def resolve_outcome(
    attempted: InputPositions, committed: Mapping[InputPartition, int], ours: frozenset[InputPartition]
) -> Outcome | None:
    """Return COMMITTED or ABORTED; None when the log cannot tell.

    ``committed``: stable offsets read after the transaction was ended; ``ours``: partitions owned without a break.
    """
    if any(committed.get(p, -1) < position.next_offset for p, position in attempted.items()):
        return Outcome.ABORTED
    if any(p in ours and committed[p] == position.next_offset for p, position in attempted.items()):
        return Outcome.COMMITTED
    return None
