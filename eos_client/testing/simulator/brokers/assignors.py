"""The assignors of classic groups: which member is assigned which partitions in one round.

In real groups one member computes this; here the coordinator does. A partition that a test's script has pinned to a
member is assigned to it while the member is subscribed to the topic.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from eos_client.testing.simulator.brokers.model import BrokerError, PartitionKey

COOPERATIVE = "cooperative-sticky"
Shares = dict[str, set[PartitionKey]]


@dataclass(frozen=True, slots=True)
class Subscription:
    """A member's input to the assignor. ``owned``: as it reported; ``held_last``: its assignment in the last round."""

    member_id: str
    topics: frozenset[str]
    instance_id: str | None = None
    owned: frozenset[PartitionKey] = frozenset()
    held_last: frozenset[PartitionKey] = frozenset()


def assign(
    assignor: str,
    members: Sequence[Subscription],
    partition_count: Callable[[str], int],
    pins: Mapping[PartitionKey, str],
) -> dict[str, frozenset[PartitionKey]]:
    """Return each member's partitions for this round; raises BrokerError INCONSISTENT_GROUP_PROTOCOL.

    ``cooperative-sticky`` assigns a partition to its next owner only after the present one has given it up, which takes
    a second round (KIP-429). ``range`` and ``roundrobin`` are eager: their members have given up everything before.
    """
    check_assignor(assignor)
    ordered = sorted(members, key=_order)
    partitions = _partitions(ordered, partition_count)
    if assignor != COOPERATIVE:
        shares = _ASSIGNORS[assignor](ordered, partitions)
        _move_pinned(shares, ordered, partitions, pins)
    else:
        owners = _owners(ordered)
        shares = _sticky(ordered, partitions, owners, pins)
        _remove_owned_by_others(shares, owners)
    return {member_id: frozenset(share) for member_id, share in shares.items()}


def check_assignor(assignor: str) -> None:
    """Raise BrokerError INCONSISTENT_GROUP_PROTOCOL for an unknown assignor."""
    if assignor not in _ASSIGNORS and assignor != COOPERATIVE:
        raise BrokerError("INCONSISTENT_GROUP_PROTOCOL", f"no assignor is called {assignor!r}")


def _order(member: Subscription) -> tuple[bool, str]:
    """Sort static members first, by instance id, so that a restarted member keeps its position."""
    return (member.instance_id is None, member.instance_id or member.member_id)


def _partitions(members: Sequence[Subscription], partition_count: Callable[[str], int]) -> list[PartitionKey]:
    topics = sorted(frozenset[str]().union(*(m.topics for m in members)))
    return [PartitionKey(topic, number) for topic in topics for number in range(partition_count(topic))]


def _range(members: Sequence[Subscription], partitions: Sequence[PartitionKey]) -> Shares:
    """Assign ranges of each topic's partitions; if they do not divide evenly, the first members get one more."""
    shares: Shares = {m.member_id: set() for m in members}
    for topic in sorted({p.topic for p in partitions}):
        readers = [m.member_id for m in members if topic in m.topics]
        remaining = [p for p in partitions if p.topic == topic]
        for position, reader in enumerate(readers):
            count = -(-len(remaining) // (len(readers) - position))
            shares[reader].update(remaining[:count])
            remaining = remaining[count:]
    return shares


def _round_robin(members: Sequence[Subscription], partitions: Sequence[PartitionKey]) -> Shares:
    """Assign all partitions in order to the members in turn, skipping members without the topic."""
    shares: Shares = {m.member_id: set() for m in members}
    turn = 0
    for partition in partitions:
        while partition.topic not in members[turn % len(members)].topics:
            turn += 1
        shares[members[turn % len(members)].member_id].add(partition)
        turn += 1
    return shares


_ASSIGNORS: dict[str, Callable[[Sequence[Subscription], Sequence[PartitionKey]], Shares]] = {
    "range": _range,
    "roundrobin": _round_robin,
}


def _move_pinned(
    shares: Shares,
    members: Sequence[Subscription],
    partitions: Sequence[PartitionKey],
    pins: Mapping[PartitionKey, str],
) -> None:
    for partition in partitions:
        holder = _pinned_to(partition, members, pins)
        if holder is not None:
            for share in shares.values():
                share.discard(partition)
            shares[holder].add(partition)


def _pinned_to(
    partition: PartitionKey, members: Sequence[Subscription], pins: Mapping[PartitionKey, str]
) -> str | None:
    wanted = pins.get(partition)
    return next((m.member_id for m in members if m.member_id == wanted and partition.topic in m.topics), None)


def _owners(members: Sequence[Subscription]) -> dict[PartitionKey, str]:
    """Return each owned partition's owner; if two members claim it, the one that got it in the last round."""
    owners: dict[PartitionKey, str] = {}
    for backed_by_last_round in (True, False):
        for member in members:
            for partition in sorted(member.owned):
                if (partition in member.held_last) is backed_by_last_round:
                    owners.setdefault(partition, member.member_id)
    return owners


def _sticky(
    members: Sequence[Subscription],
    partitions: Sequence[PartitionKey],
    owners: Mapping[PartitionKey, str],
    pins: Mapping[PartitionKey, str],
) -> Shares:
    """Keep owned partitions, assign the others, then balance. Pinned partitions do not count."""
    topics = {m.member_id: m.topics for m in members}
    pinned: Shares = {m.member_id: set() for m in members}
    shares: Shares = {m.member_id: set() for m in members}
    unassigned = []
    for partition in partitions:
        holder, owner = _pinned_to(partition, members, pins), owners.get(partition)
        if holder is not None:
            pinned[holder].add(partition)
        elif owner is not None and partition.topic in topics[owner]:
            shares[owner].add(partition)
        else:
            unassigned.append(partition)
    for partition in unassigned:
        readers = [member_id for member_id in shares if partition.topic in topics[member_id]]
        shares[min(readers, key=lambda reader: len(shares[reader]))].add(partition)
    while _move_one(shares, topics):
        pass
    return {member_id: share | pinned[member_id] for member_id, share in shares.items()}


def _move_one(shares: Shares, topics: Mapping[str, frozenset[str]]) -> bool:
    """Move one partition from a member to one with at least two fewer; returns False if there is none to move."""
    by_size = sorted(shares, key=lambda member_id: len(shares[member_id]))
    for giver in reversed(by_size):
        for taker in by_size:
            if len(shares[giver]) - len(shares[taker]) < 2:  # noqa: PLR2004  # one fewer is as even as it gets
                break
            movable = [p for p in shares[giver] if p.topic in topics[taker]]
            if movable:
                moved = max(movable)
                shares[giver].remove(moved)
                shares[taker].add(moved)
                return True
    return False


def _remove_owned_by_others(shares: Shares, owners: Mapping[PartitionKey, str]) -> None:
    """Remove from each share the partitions that another member still owns."""
    for member_id, share in shares.items():
        share.difference_update([p for p in share if owners.get(p, member_id) != member_id])
