"""The requests of group members and the coordinator's answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from eos_client.testing.simulator.brokers.model import PartitionKey

JOINING_EPOCH = 0
LEAVING_EPOCH = -1
STATIC_LEAVING_EPOCH = -2


@dataclass(frozen=True, slots=True)
class JoinRequest:
    """JoinGroup of a classic member. An empty ``member_id`` requests a new one. Times in seconds."""

    topics: frozenset[str]
    member_id: str = ""
    instance_id: str | None = None
    client: str = ""
    assignor: str = "range"
    owned: frozenset[PartitionKey] = frozenset()
    session_timeout_s: float = 45.0
    rebalance_timeout_s: float = 300.0


@dataclass(frozen=True, slots=True)
class JoinAnswer:
    """The member's generation and assignment after a complete round."""

    member_id: str
    generation: int
    assigned: frozenset[PartitionKey]


@dataclass(frozen=True, slots=True)
class ConsumerHeartbeat:
    """ConsumerGroupHeartbeat (KIP-848). ``topics`` and ``owned`` None: unchanged since the last request."""

    member_id: str
    member_epoch: int
    instance_id: str | None = None
    client: str = ""
    topics: frozenset[str] | None = None
    owned: frozenset[PartitionKey] | None = None
    rebalance_timeout_s: float = 300.0


@dataclass(frozen=True, slots=True)
class ConsumerHeartbeatAnswer:
    """``assigned`` None: unchanged since the last answer."""

    member_id: str
    member_epoch: int
    heartbeat_interval_s: float
    assigned: frozenset[PartitionKey] | None = None


@dataclass(frozen=True, slots=True)
class FetchedOffset:
    """One partition of an OffsetFetch answer; ``offset`` None: nothing was committed. ``code``: NONE or an error."""

    offset: int | None
    metadata: str = ""
    code: str = "NONE"


@dataclass(frozen=True, slots=True)
class MemberDescription:
    """The coordinator's view of one member. ``epoch``: classic generation or KIP-848 member epoch."""

    member_id: str
    client: str
    instance_id: str | None
    epoch: int
    assigned: frozenset[PartitionKey]
    awaiting_revocation: frozenset[PartitionKey] = frozenset()


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """The coordinator's view of a group. ``epoch``: classic generation or KIP-848 group epoch."""

    group_id: str
    protocol: str
    state: str
    epoch: int
    members: Mapping[str, MemberDescription] = field(default_factory=dict)
