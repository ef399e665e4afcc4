"""Which commits of a KIP-848 member are accepted: the four checks (KAFKA-19779, KIP-1251).

All are pure functions of the coordinator's state of a member. A commit at the member's present epoch passes each of
them, whatever its partitions are: at an equal epoch brokers do not check ownership.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from eos_client.testing.simulator.brokers.model import PartitionKey
from eos_client.testing.simulator.brokers.settings import CommitCheck

ACCEPTED = "NONE"


@dataclass(frozen=True, slots=True)
class CommitEpochs:
    """The coordinator's state of one member by which its commits are checked.

    ``assignment_epochs``: the epoch at which each partition was assigned that it owns or has not given up yet.
    ``revocation_epochs``: the largest epoch at which each partition was revoked from it; ``revocation_epoch`` is an
    upper bound of them. ``former_epoch``: the last epoch of this member id before it left the group and came back.
    """

    member_epoch: int
    assignment_epochs: Mapping[PartitionKey, int] = field(default_factory=dict)
    revocation_epoch: int = 0
    revocation_epochs: Mapping[PartitionKey, int] = field(default_factory=dict)
    former_epoch: int = 0

    def revoked_at(self, partition: PartitionKey) -> int:
        """Return the largest epoch at which ``partition`` was revoked from the member; 0: never."""
        return max(self.former_epoch, self.revocation_epochs.get(partition, 0))


def refusal_code(*, transactional: bool) -> str:
    """Return the code for a refused epoch: TxnOffsetCommit up to v5 has no STALE_MEMBER_EPOCH (KIP-1319)."""
    return "ILLEGAL_GENERATION" if transactional else "STALE_MEMBER_EPOCH"


def accepts(check: CommitCheck, epochs: CommitEpochs, sent_epoch: int, partitions: Iterable[PartitionKey]) -> bool:
    """Return whether ``check`` accepts a commit of ``partitions`` with ``sent_epoch``."""
    if sent_epoch == epochs.member_epoch:
        return True
    if sent_epoch > epochs.member_epoch or check is CommitCheck.EXACT:
        return False
    if check is CommitCheck.REVOCATION_EPOCH_MEMBER:
        return sent_epoch > epochs.revocation_epoch
    if check is CommitCheck.REVOCATION_EPOCH_PARTITION:
        return sent_epoch > 0 and all(sent_epoch > epochs.revoked_at(p) for p in partitions)
    return all(p in epochs.assignment_epochs and sent_epoch >= epochs.assignment_epochs[p] for p in partitions)


def verdicts(
    epochs: CommitEpochs | None, sent_epoch: int, partitions: Iterable[PartitionKey], *, transactional: bool
) -> dict[CommitCheck, str]:
    """Return each check's answer to one commit: ``NONE`` or an error. ``epochs`` None: there is no such member."""
    if epochs is None:
        return dict.fromkeys(CommitCheck, "UNKNOWN_MEMBER_ID")
    named, refused = tuple(partitions), refusal_code(transactional=transactional)
    return {check: ACCEPTED if accepts(check, epochs, sent_epoch, named) else refused for check in CommitCheck}
