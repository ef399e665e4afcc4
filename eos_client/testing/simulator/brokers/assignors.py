"""The assignors of classic groups: who is assigned which partitions in one round.

Real groups let one member compute this; here the coordinator does. Pinned partitions go where a test's script wants
them, if that member is subscribed to their topic.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from eos_client.testing.simulator.brokers.model import BrokerError, PartitionKey

COOPERATIVE = "cooperative-sticky"
Shares = dict[str, set[PartitionKey]]


@dataclass(frozen=True, slots=True)
class Subscription:
    """A member as the assignor sees it. ``owned``: what it says it holds; ``held_last``: the last round's share."""

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

    ``cooperative-sticky`` keeps a partition from its next owner until the present one has given it up, which takes
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
        _hold_back(shares, owners)
    return {member_id: frozenset(share) for member_id, share in shares.items()}


def check_assignor(assignor: str) -> None:
    """Raise BrokerError INCONSISTENT_GROUP_PROTOCOL for an assignor that nobody knows."""
    if assignor not in _ASSIGNORS and assignor != COOPERATIVE:
        raise BrokerError("INCONSISTENT_GROUP_PROTOCOL", f"no assignor is called {assignor!r}")


def _order(member: Subscription) -> tuple[bool, str]:
    """Put static members first, by their instance id, so that a restarted one keeps its place."""
    return (member.instance_id is None, member.instance_id or member.member_id)


def _partitions(members: Sequence[Subscription], partition_count: Callable[[str], int]) -> list[PartitionKey]:
    topics = sorted(frozenset[str]().union(*(m.topics for m in members)))
    return [PartitionKey(topic, number) for topic in topics for number in range(partition_count(topic))]


def _range(members: Sequence[Subscription], partitions: Sequence[PartitionKey]) -> Shares:
    """Topic by topic, neighbouring partitions together; the first members get one more where it does not divide."""
    shares: Shares = {m.member_id: set() for m in members}
    for topic in sorted({p.topic for p in partitions}):
        readers = [m.member_id for m in members if topic in m.topics]
        left = [p for p in partitions if p.topic == topic]
        for position, reader in enumerate(readers):
            count = -(-len(left) // (len(readers) - position))
            shares[reader].update(left[:count])
            left = left[count:]
    return shares


def _round_robin(members: Sequence[Subscription], partitions: Sequence[PartitionKey]) -> Shares:
    """All topics' partitions in order, dealt to the members in turn; who is not subscribed is passed over."""
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
    """Who holds what by their own word. Where two claim one partition, whom the last round gave it to is believed."""
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
    """Keep what is owned, deal out the rest, then even it out. Pinned partitions are laid aside and do not count."""
    topics = {m.member_id: m.topics for m in members}
    pinned: Shares = {m.member_id: set() for m in members}
    shares: Shares = {m.member_id: set() for m in members}
    homeless = []
    for partition in partitions:
        holder, owner = _pinned_to(partition, members, pins), owners.get(partition)
        if holder is not None:
            pinned[holder].add(partition)
        elif owner is not None and partition.topic in topics[owner]:
            shares[owner].add(partition)
        else:
            homeless.append(partition)
    for partition in homeless:
        readers = [member_id for member_id in shares if partition.topic in topics[member_id]]
        shares[min(readers, key=lambda reader: len(shares[reader]))].add(partition)
    while _move_one(shares, topics):
        pass
    return {member_id: share | pinned[member_id] for member_id, share in shares.items()}


def _move_one(shares: Shares, topics: Mapping[str, frozenset[str]]) -> bool:
    """Move one partition from a member to one with at least two fewer: each move makes the shares more even."""
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


def _hold_back(shares: Shares, owners: Mapping[PartitionKey, str]) -> None:
    """Take from each share what somebody else still holds."""
    for member_id, share in shares.items():
        share.difference_update([p for p in share if owners.get(p, member_id) != member_id])
