"""Resolves the outcome of an unanswered commit from the group's committed offsets.

Equal offsets prove nothing: this member or another may have committed them before. So each attempt marks its offsets
with a token in their metadata. A transaction is atomic, so the offset of one partition decides for all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from eos_client.core.model import CommittedOffset, InputPartition, InputPositions, Outcome
from eos_client.core.partition_row import NO_OFFSET

NO_LOG = -1
"""In place of the end of a log: the partition was deleted."""


@dataclass(frozen=True, slots=True)
class AttemptToken:
    """Marks the offsets of one attempt to commit. ``session``: a unique name; ``number``: counts the attempts."""

    session: str
    number: int = 0

    def next(self) -> AttemptToken:
        """Return the token of the session's next attempt."""
        return AttemptToken(self.session, self.number + 1)

    def marks_earlier(self, metadata: str) -> bool:
        """Whether ``metadata`` is of an earlier attempt, whose offsets this attempt would have replaced."""
        return metadata.startswith(self._prefix) and metadata != str(self)

    @property
    def _prefix(self) -> str:
        return f"eos-{self.session}-"

    def __str__(self) -> str:
        return f"{self._prefix}{self.number:x}"


def resolve_outcome(
    attempted: InputPositions,
    group_offsets_before: Mapping[InputPartition, int],
    committed: Mapping[InputPartition, CommittedOffset],
    token: AttemptToken,
    log_ends: Mapping[InputPartition, int],
) -> Outcome | None:
    """Return COMMITTED or ABORTED; None if others have changed all of these offsets since, which hides the outcome.

    ``group_offsets_before``: those before the attempt, as far as they are known. ``committed``: stable offsets, read
    after the transaction was ended; ``token``: what its offsets were sent with. ``log_ends``: of those partitions that
    `needs_log_end` names, read after that. Deleting a topic deletes the group's offsets of it, too, so without an
    offset a partition shows something only if its log still reaches to where the attempt would have put the group.
    """
    found = {partition: committed.get(partition) for partition in attempted}
    if any(entry is not None and entry.metadata == str(token) for entry in found.values()):
        return Outcome.COMMITTED
    if any(entry is not None and token.marks_earlier(entry.metadata) for entry in found.values()):
        return Outcome.ABORTED
    conclusive = {
        p: entry for p, entry in found.items() if entry or log_ends.get(p, NO_LOG) >= attempted[p].next_offset
    }
    if any(
        _is_unchanged(entry, group_offsets_before.get(p), attempted[p].next_offset) for p, entry in conclusive.items()
    ):
        return Outcome.ABORTED
    return None


def needs_log_end(
    partition: InputPartition,
    group_offsets_before: Mapping[InputPartition, int],
    committed: Mapping[InputPartition, CommittedOffset],
) -> bool:
    """Whether only the end of its log says why the group has no offset of ``partition``."""
    return partition not in committed and group_offsets_before.get(partition, NO_OFFSET) == NO_OFFSET


def _is_unchanged(entry: CommittedOffset | None, before: int | None, sent: int) -> bool:
    """Whether ``entry`` is the one from ``before`` the attempt; where that is not known, any one behind ``sent``."""
    offset = NO_OFFSET if entry is None else entry.offset
    return offset < sent if before is None else offset == before
