"""The target assignment of a KIP-848 group, and a member's next step towards it.

The assignor is sticky and even. The step is the reconciliation of KIP-848: a member first gives up partitions and stays
at its epoch meanwhile; then it moves to the target's epoch and gets the partitions that no other member owns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from eos_client.testing.simulator.brokers.commit_validation import CommitEpochs
from eos_client.testing.simulator.brokers.model import PartitionKey


@dataclass(frozen=True, slots=True)
class MemberRecord:
    """The coordinator's record of a member: its subscription and its current assignment.

    ``assigned`` and ``pending`` (to be revoked, not given up yet) hold each partition's assignment epoch.
    ``revocation_epoch``, ``revocation_epochs``, ``former_epoch``: see `CommitEpochs`. Times in seconds.
    """

    member_id: str
    instance_id: str | None = None
    client: str = ""
    topics: frozenset[str] = frozenset()
    rebalance_timeout_s: float = 300.0
    epoch: int = 0
    previous_epoch: int = 0
    assigned: Mapping[PartitionKey, int] = field(default_factory=dict)
    pending: Mapping[PartitionKey, int] = field(default_factory=dict)
    revocation_epoch: int = 0
    revocation_epochs: Mapping[PartitionKey, int] = field(default_factory=dict)
    former_epoch: int = 0

    @property
    def commit_epochs(self) -> CommitEpochs:
        """The epochs by which commits of this member are checked."""
        return CommitEpochs(
            self.epoch,
            {**self.assigned, **self.pending},
            self.revocation_epoch,
            self.revocation_epochs,
            self.former_epoch,
        )

    def revoked(self, partitions: Iterable[PartitionKey]) -> MemberRecord:
        """Return the member after it has given up ``partitions`` at its present epoch; none: unchanged.

        A static member that has left temporarily, or just returned, has no valid epoch: its last one is used.
        """
        epoch = max(self.epoch, self.previous_epoch)
        given_up = dict.fromkeys(partitions, epoch)
        if not given_up:
            return self
        return replace(self, revocation_epoch=epoch, revocation_epochs={**self.revocation_epochs, **given_up})


def next_step(
    member: MemberRecord,
    target: frozenset[PartitionKey],
    target_epoch: int,
    owned: frozenset[PartitionKey] | None,
    is_free: Callable[[PartitionKey], bool],
) -> MemberRecord:
    """Return ``member`` one step nearer to ``target``, given the partitions that it reported as ``owned``.

    ``owned`` None: unchanged. ``is_free`` returns whether no other member owns a partition. A member that must give up
    partitions stays at its epoch until ``owned`` no longer lists them. A target that has changed meanwhile may revoke
    more: then the epoch rises by one only, as in Kafka.
    """
    if _still_owns(owned, member.pending):
        return member
    epoch = member.epoch + 1 if member.pending else member.epoch
    remaining = {p: since for p, since in member.assigned.items() if p in target}
    leaving = {p: since for p, since in member.assigned.items() if p not in target}
    if _still_owns(owned, leaving):
        waiting = replace(member.revoked(member.pending), assigned=remaining, pending=leaving)
        return _at(waiting, epoch)
    taken = {p: target_epoch for p in sorted(target) if p not in remaining and is_free(p)}
    reached = replace(member.revoked([*member.pending, *leaving]), assigned={**remaining, **taken}, pending={})
    return _at(reached, target_epoch)


def _still_owns(owned: frozenset[PartitionKey] | None, partitions: Mapping[PartitionKey, int]) -> bool:
    return bool(partitions) and (owned is None or not owned.isdisjoint(partitions))


def _at(member: MemberRecord, epoch: int) -> MemberRecord:
    return member if epoch == member.epoch else replace(member, epoch=epoch, previous_epoch=member.epoch)


def assign(
    partitions: Iterable[PartitionKey],
    subscriptions: Mapping[str, frozenset[str]],
    previous: Mapping[str, frozenset[PartitionKey]],
    pins: Mapping[PartitionKey, str],
) -> dict[str, frozenset[PartitionKey]]:
    """Return each member's target: as even as subscriptions allow, with as few moves as possible.

    ``subscriptions`` in the order of joining, which breaks ties. A pinned partition is assigned to its member while
    that one subscribes to its topic.
    """
    target: dict[str, list[PartitionKey]] = {member_id: [] for member_id in subscriptions}
    fixed = {p: m for p, m in pins.items() if m in subscriptions and p.topic in subscriptions[m]}
    before = {p: m for m, owned in previous.items() for p in owned}
    unassigned = []
    for partition in sorted(partitions):
        owner = fixed.get(partition) or before.get(partition, "")
        if partition.topic in subscriptions.get(owner, ()):
            target[owner].append(partition)
        else:
            unassigned.append(partition)
    for partition in unassigned:
        subscribers = [m for m, topics in subscriptions.items() if partition.topic in topics]
        if subscribers:
            target[min(subscribers, key=lambda m: len(target[m]))].append(partition)
    while _even_out(target, subscriptions, fixed):
        pass
    return {member_id: frozenset(owned) for member_id, owned in target.items()}


def _even_out(
    target: dict[str, list[PartitionKey]],
    subscriptions: Mapping[str, frozenset[str]],
    fixed: Mapping[PartitionKey, str],
) -> bool:
    """Move one partition from a member with many to one with at least two fewer; False: there is none to move."""
    for giver in sorted(target, key=lambda m: -len(target[m])):
        for taker in sorted(target, key=lambda m: len(target[m])):
            if len(target[giver]) - len(target[taker]) <= 1:
                break
            movable = [p for p in target[giver] if p not in fixed and p.topic in subscriptions[taker]]
            if movable:
                target[giver].remove(max(movable))
                target[taker].append(max(movable))
                return True
    return False
