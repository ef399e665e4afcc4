"""A member of a classic group: what the coordinator remembers of it and what it persists."""

from __future__ import annotations

from dataclasses import dataclass

from eos_client.testing.simulator.brokers.assignors import COOPERATIVE, Subscription
from eos_client.testing.simulator.brokers.group_requests import JoinAnswer, JoinRequest, MemberDescription
from eos_client.testing.simulator.brokers.model import PartitionKey


@dataclass(frozen=True, slots=True)
class ClassicMemberRecord:
    """A member as the coordinator's log keeps it. ``former_ids``: of a static member's earlier lives, now fenced."""

    member_id: str
    former_ids: tuple[str, ...]
    request: JoinRequest
    assigned: frozenset[PartitionKey]


@dataclass(frozen=True, slots=True)
class ClassicGroupRecord:
    """What the coordinator logs when a round is complete: all that a restart leaves of the group."""

    generation: int
    leader_id: str | None
    members: tuple[ClassicMemberRecord, ...]


@dataclass(slots=True)
class ClassicMember:
    """A member as the coordinator keeps it in memory. ``session_end_s``: when it is removed if it stays silent."""

    member_id: str
    request: JoinRequest
    session_end_s: float
    former_ids: tuple[str, ...] = ()
    assigned: frozenset[PartitionKey] = frozenset()
    has_joined: bool = False  # the round that is being prepared
    has_synced: bool = True  # has asked for the last round's assignment
    is_from_log: bool = False  # what it asked of the coordinator before the restart is lost
    answer: JoinAnswer | None = None  # to its SyncGroup, on its way

    @property
    def owed(self) -> frozenset[PartitionKey]:
        """What it still holds though the last round took it away (cooperative)."""
        return self.request.owned - self.assigned if self.request.assignor == COOPERATIVE else frozenset()

    def hand_out(self, generation: int, assigned: frozenset[PartitionKey]) -> None:
        """Give it its share of a complete round; the answer reaches it even if another round begins meanwhile."""
        self.assigned = assigned
        self.answer = JoinAnswer(self.member_id, generation, assigned)

    def take_answer(self) -> JoinAnswer | None:
        """Return the answer that is on its way, once; one that has joined another round heeds it no more."""
        answer, self.answer = self.answer, None
        return None if self.has_joined else answer

    @property
    def subscription(self) -> Subscription:
        """The member as the assignor sees it."""
        said = self.request
        return Subscription(self.member_id, said.topics, said.instance_id, said.owned, self.assigned)

    @property
    def record(self) -> ClassicMemberRecord:
        """The member as the coordinator writes it down."""
        return ClassicMemberRecord(self.member_id, self.former_ids, self.request, self.assigned)

    def describe(self, generation: int) -> MemberDescription:
        """Return the member as an administrator sees it."""
        said = self.request
        return MemberDescription(self.member_id, said.client, said.instance_id, generation, self.assigned, self.owed)
