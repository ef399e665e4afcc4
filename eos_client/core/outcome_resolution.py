"""Resolves the outcome of an unanswered commit from the group's committed offsets.

Equal offsets prove nothing: this member or another may have committed them before. So each attempt marks its offsets
with a token in their metadata. A transaction is atomic, so the offset of one partition decides for all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from eos_client.core.model import CommittedOffset, InputPartition, InputPositions, Outcome


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
    attempted: InputPositions, committed: Mapping[InputPartition, CommittedOffset], token: AttemptToken
) -> Outcome | None:
    """Return COMMITTED or ABORTED; None if others have committed all of these offsets since, which hides the outcome.

    ``committed``: stable offsets, read after the transaction was ended; ``token``: what its offsets were sent with.
    """
    found = [(committed.get(partition), position.next_offset) for partition, position in attempted.items()]
    if any(each is not None and each.metadata == str(token) for each, _ in found):
        return Outcome.COMMITTED
    if any(each is None or each.offset < sent or token.marks_earlier(each.metadata) for each, sent in found):
        return Outcome.ABORTED
    return None
