"""A member of a classic group: the coordinator's state of it, in memory and in the log."""

from __future__ import annotations

from dataclasses import dataclass

from eos_client.testing.simulator.brokers.assignors import COOPERATIVE, Subscription
from eos_client.testing.simulator.brokers.group_requests import JoinAnswer, JoinRequest, MemberDescription
from eos_client.testing.simulator.brokers.model import PartitionKey


@dataclass(frozen=True, slots=True)
class ClassicMemberRecord:
    """A member in the coordinator's log. ``former_ids``: a static member's earlier member ids, now fenced."""

    member_id: str
    former_ids: tuple[str, ...]
    request: JoinRequest
    assigned: frozenset[PartitionKey]


@dataclass(frozen=True, slots=True)
class ClassicGroupRecord:
    """The record that the coordinator logs when a round is complete; a restart restores the group from it."""

    generation: int
    leader_id: str | None
    members: tuple[ClassicMemberRecord, ...]


@dataclass(slots=True)
class ClassicMember:
    """A member in the coordinator's memory. ``session_end_s``: when it is removed unless it sends a request."""

    member_id: str
    request: JoinRequest
    session_end_s: float
    former_ids: tuple[str, ...] = ()
    assigned: frozenset[PartitionKey] = frozenset()
    has_joined: bool = False  # the round that is being prepared
    has_synced: bool = True  # has requested the last round's assignment
    is_from_log: bool = False  # its requests from before the coordinator's restart are lost
    answer: JoinAnswer | None = None  # to its SyncGroup, not taken yet

    @property
    def pending(self) -> frozenset[PartitionKey]:
        """The partitions that the last round revoked and that it still owns (cooperative)."""
        return self.request.owned - self.assigned if self.request.assignor == COOPERATIVE else frozenset()

    def store_assignment(self, generation: int, assigned: frozenset[PartitionKey]) -> None:
        """Store its assignment of a complete round and the answer, which is valid even if another round begins."""
        self.assigned = assigned
        self.answer = JoinAnswer(self.member_id, generation, assigned)

    def take_answer(self) -> JoinAnswer | None:
        """Return the stored answer, once; a member that has joined another round ignores it."""
        answer, self.answer = self.answer, None
        return None if self.has_joined else answer

    @property
    def subscription(self) -> Subscription:
        """The member's input to the assignor."""
        request = self.request
        return Subscription(self.member_id, request.topics, request.instance_id, request.owned, self.assigned)

    @property
    def record(self) -> ClassicMemberRecord:
        """The member's record in the coordinator's log."""
        return ClassicMemberRecord(self.member_id, self.former_ids, self.request, self.assigned)

    def describe(self, generation: int) -> MemberDescription:
        """Return the member as DescribeGroups shows it."""
        client, instance_id = self.request.client, self.request.instance_id
        return MemberDescription(self.member_id, client, instance_id, generation, self.assigned, self.pending)
