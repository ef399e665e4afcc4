"""A classic consumer group: rounds of joining, eager and cooperative, with dynamic and static members.

A round begins when a member joins, leaves, times out or rejoins with other data; all members must join it. Then the
generation is incremented, and the leader's first SyncGroup computes the assignment. Until then, only transactional
commits are accepted at the new generation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from random import Random
from uuid import UUID

from eos_client.testing.simulator.brokers.assignors import assign, check_assignor
from eos_client.testing.simulator.brokers.classic_member import ClassicGroupRecord, ClassicMember
from eos_client.testing.simulator.brokers.group_requests import GroupDescription, JoinAnswer, JoinRequest
from eos_client.testing.simulator.brokers.model import BrokerError, Membership, PartitionKey


class ClassicState(Enum):
    """The states of a group; the values are Kafka's names."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"


class ClassicGroup:
    """One group. ``clock`` in seconds. ``records``: the log from before a restart; ``pins``: see `pin`."""

    def __init__(
        self,
        group_id: str,
        clock: Callable[[], float],
        partition_count: Callable[[str], int],
        random: Random,
        records: Iterable[ClassicGroupRecord] = (),
        pins: Mapping[PartitionKey, str] | None = None,
    ) -> None:
        self.group_id = group_id
        self.generation = 0
        self.state = ClassicState.EMPTY
        self._clock = clock
        self._partition_count = partition_count
        self._random = random
        self._members: dict[str, ClassicMember] = {}
        self._leader_id: str | None = None
        self._deadline_s = math.inf  # of joining, then of the SyncGroup requests
        self._pins = dict(pins or {})
        self._log: tuple[ClassicGroupRecord, ...] = ()
        self._replay(tuple(records))

    # -- requests of members -------------------------------------------------------------------------------------

    def join(self, request: JoinRequest) -> str:
        """Take part in the next round and return the member id.

        Raises BrokerError: INCONSISTENT_GROUP_PROTOCOL for an assignor unlike the others', UNKNOWN_MEMBER_ID,
        FENCED_INSTANCE_ID. A known member with unchanged data, and a restarted static member, begin no round (KIP-345):
        they get the present assignment. So the partitions that the restarted one had yet to give up (cooperative) are
        assigned to no member until the next round, as on a real broker.
        """
        check_assignor(request.assignor)
        if not request.member_id:
            return self._join_without_id(request)
        member = self._member(request.member_id, request.instance_id)
        self._check_same_assignor(request, member)
        begins = self._begins_round(member, request)
        member.request = request
        return self._join_round(member, begins=begins)

    def joined(self, member_id: str) -> JoinAnswer | None:
        """Return the complete round's assignment; None while the round is not complete: repeat the call.

        Raises BrokerError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, and REBALANCE_IN_PROGRESS when another round has
        begun since, or the coordinator has restarted: join again.
        """
        if any(member_id in m.former_ids for m in self._members.values()):
            raise BrokerError("FENCED_INSTANCE_ID", f"{member_id} was replaced by another member with its instance id")
        member = self._member(member_id)
        if self.state is ClassicState.PREPARING:
            answer = member.take_answer()
            if member.has_joined or answer is not None:
                return answer
            raise BrokerError("REBALANCE_IN_PROGRESS", f"group {self.group_id} began another round")
        if member.is_from_log:
            raise BrokerError("REBALANCE_IN_PROGRESS", f"the coordinator of group {self.group_id} has restarted")
        member.has_synced = True
        self._renew(member)
        if self.state is ClassicState.COMPLETING:
            if member_id != self._leader_id:
                return None
            self._assign_round()
        return member.take_answer() or JoinAnswer(member_id, self.generation, member.assigned)

    def heartbeat(self, membership: Membership) -> None:
        """Keep the session alive.

        Raises BrokerError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION, and REBALANCE_IN_PROGRESS while
        a round waits for members to join.
        """
        member = self._current(membership)
        self._renew(member)
        if self.state is ClassicState.PREPARING:
            raise BrokerError("REBALANCE_IN_PROGRESS", f"group {self.group_id} waits for its members to join")

    def leave(self, member_id: str, instance_id: str | None = None) -> None:
        """Remove a member; for a static one the instance id is enough. Raises as `heartbeat` does."""
        static = self._static(instance_id)
        self._remove(static if static is not None and not member_id else self._member(member_id, instance_id))

    def validate_commit(self, membership: Membership, *, transactional: bool) -> None:
        """Refuse a commit that does not come from a member of the present generation.

        An anonymous commit is accepted if the group has no members, and always in a transaction (a gap of KIP-447).
        The member's partitions are not checked. Raises BrokerError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID,
        ILLEGAL_GENERATION; for plain commits REBALANCE_IN_PROGRESS between a round and its assignment.
        """
        if membership.generation < 0 and self.state is ClassicState.EMPTY:
            return
        if not membership.is_anonymous:
            self._current(membership)
        elif not transactional and self.state is not ClassicState.EMPTY:
            raise BrokerError(
                "UNKNOWN_MEMBER_ID", f"group {self.group_id} has members, and the commit has no member id"
            )
        if not transactional and self.state is ClassicState.COMPLETING:
            raise BrokerError("REBALANCE_IN_PROGRESS", f"group {self.group_id} waits for its assignment")

    def renew(self, member_id: str) -> None:
        """Extend a member's session, as its plain commits do; ignores unknown members."""
        if member_id in self._members:
            self._renew(self._members[member_id])

    # -- for test scripts ----------------------------------------------------------------------------------------

    def force_rebalance(self) -> None:
        """Begin a new round, if there are members and no round is being prepared."""
        if self._members and self.state is not ClassicState.PREPARING:
            self._begin_round()

    def evict(self, member_id: str) -> None:
        """Remove a member as a session time-out does; raises BrokerError UNKNOWN_MEMBER_ID."""
        self._remove(self._member(member_id))

    def pin(self, partitions: Iterable[PartitionKey], member_id: str | None) -> None:
        """Make the assignor assign ``partitions`` to that member from now on, and begin a round; None: unpin.

        Raises BrokerError UNKNOWN_MEMBER_ID.
        """
        if member_id is not None:
            self._member(member_id)
        for partition in partitions:
            if member_id is None:
                self._pins.pop(partition, None)
            else:
                self._pins[partition] = member_id
        self.force_rebalance()

    @property
    def is_empty(self) -> bool:
        """Whether it has no members."""
        return not self._members

    @property
    def pins(self) -> dict[PartitionKey, str]:
        """The pinned partitions, each with its member."""
        return dict(self._pins)

    def describe(self) -> GroupDescription:
        """Return the group's present state; a member's partitions are those of the last complete round."""
        members = {m.member_id: m.describe(self.generation) for m in self._members.values()}
        return GroupDescription(self.group_id, "classic", self.state.value, self.generation, members)

    # -- time and restarts ---------------------------------------------------------------------------------------

    @property
    def due_s(self) -> float:
        """When the next session or rebalance time-out ends; ``math.inf`` without members."""
        return min((self._deadline_s, *(m.session_end_s for m in self._members.values() if self._can_expire(m))))

    def expire(self) -> None:
        """Remove members whose session has ended, or that did not join or sync within the rebalance time-out.

        A static member that did not join stays until its session ends (KIP-345).
        """
        now_s = self._clock()
        for member in [m for m in self._members.values() if self._can_expire(m) and m.session_end_s <= now_s]:
            self._remove(member)
        if now_s < self._deadline_s:
            return
        if self.state is ClassicState.PREPARING:
            self._end_join_phase()
        else:
            self._deadline_s = math.inf
            for member in [m for m in self._members.values() if not m.has_synced]:
                self._remove(member)

    def records(self) -> tuple[ClassicGroupRecord, ...]:
        """Return the compacted log of the group; it is empty before the first complete round."""
        return self._log

    def _replay(self, records: tuple[ClassicGroupRecord, ...]) -> None:
        """Restore the group from its log: a round in progress is lost, and sessions begin anew."""
        for record in records[-1:]:
            self._log = (record,)
            self.generation, self._leader_id = record.generation, record.leader_id
            for logged in record.members:
                member = ClassicMember(logged.member_id, logged.request, 0.0, logged.former_ids, logged.assigned)
                member.is_from_log = True
                self._members[logged.member_id] = member
                self._renew(member)
            self.state = ClassicState.STABLE if self._members else ClassicState.EMPTY

    # -- rounds --------------------------------------------------------------------------------------------------

    def _join_without_id(self, request: JoinRequest) -> str:
        before = self._static(request.instance_id)
        self._check_same_assignor(request, before)
        member_id = f"{request.client or 'member'}-{UUID(int=self._random.getrandbits(128), version=4)}"
        if before is None:
            self._members[member_id] = member = ClassicMember(member_id, request, math.inf)
            return self._join_round(member, begins=True)
        assignor = before.request.assignor
        member = self._replace(before, member_id, request)
        if self.state is ClassicState.STABLE:
            self._write()
        begins = self.state is ClassicState.COMPLETING or assignor != request.assignor
        return self._join_round(member, begins=begins)

    def _replace(self, before: ClassicMember, member_id: str, request: JoinRequest) -> ClassicMember:
        former_ids = (*before.former_ids, before.member_id)
        member = ClassicMember(member_id, request, math.inf, former_ids, before.assigned)
        self._members = {
            m.member_id: m for m in (member if kept is before else kept for kept in self._members.values())
        }
        self._pins = {p: member_id if pinned == before.member_id else pinned for p, pinned in self._pins.items()}
        if self._leader_id == before.member_id:
            self._leader_id = member_id
        return member

    def _begins_round(self, member: ClassicMember, request: JoinRequest) -> bool:
        """Whether rejoining begins a round: for the leader always, as topics may have changed."""
        before = (member.request.topics, member.request.assignor, member.request.owned)
        is_leader = self.state is ClassicState.STABLE and member.member_id == self._leader_id
        return is_leader or before != (request.topics, request.assignor, request.owned)

    def _join_round(self, member: ClassicMember, *, begins: bool) -> str:
        member.is_from_log = False
        self._renew(member)
        if begins and self.state is not ClassicState.PREPARING:
            self._begin_round()
        if self.state is ClassicState.PREPARING:
            member.has_joined = True
            self._complete_if_all_have_joined()
        return member.member_id

    def _begin_round(self) -> None:
        self.state = ClassicState.PREPARING
        self._wait_at_most_one_rebalance_timeout()
        for member in self._members.values():
            member.has_joined = False

    def _wait_at_most_one_rebalance_timeout(self) -> None:
        longest_s = max((m.request.rebalance_timeout_s for m in self._members.values()), default=0.0)
        self._deadline_s = self._clock() + longest_s

    def _complete_if_all_have_joined(self) -> None:
        if all(m.has_joined for m in self._members.values()):
            self._complete_round()

    def _end_join_phase(self) -> None:
        for member in list(self._members.values()):
            if not member.has_joined and member.request.instance_id is None:
                del self._members[member.member_id]
        if not self._members or any(m.has_joined for m in self._members.values()):
            self._complete_round()
        else:
            self._wait_at_most_one_rebalance_timeout()

    def _complete_round(self) -> None:
        self.generation += 1
        if not self._members:
            self.state, self._leader_id, self._deadline_s = ClassicState.EMPTY, None, math.inf
            self._write()
            return
        ready = [m.member_id for m in self._members.values() if m.has_joined]
        if self._leader_id not in ready:
            self._leader_id = ready[0]
        self.state = ClassicState.COMPLETING
        self._wait_at_most_one_rebalance_timeout()
        for member in self._members.values():
            member.has_synced, member.answer = False, None
            self._renew(member)

    def _assign_round(self) -> None:
        assignor = next(iter(self._members.values())).request.assignor
        subscriptions = [m.subscription for m in self._members.values()]
        shares = assign(assignor, subscriptions, self._partition_count, self._pins)
        for member in self._members.values():
            member.store_assignment(self.generation, shares[member.member_id])
        self.state = ClassicState.STABLE
        self._write()

    def _write(self) -> None:
        members = tuple(m.record for m in self._members.values())
        self._log = (ClassicGroupRecord(self.generation, self._leader_id, members),)

    # -- members -------------------------------------------------------------------------------------------------

    def _check_same_assignor(self, request: JoinRequest, member: ClassicMember | None) -> None:
        others = {m.request.assignor for m in self._members.values() if m is not member}
        if others - {request.assignor}:
            raise BrokerError("INCONSISTENT_GROUP_PROTOCOL", f"{request.assignor} beside {', '.join(sorted(others))}")

    def _static(self, instance_id: str | None) -> ClassicMember | None:
        if instance_id is None:
            return None
        return next((m for m in self._members.values() if m.request.instance_id == instance_id), None)

    def _member(self, member_id: str, instance_id: str | None = None) -> ClassicMember:
        static = self._static(instance_id)
        if static is not None and static.member_id != member_id:
            raise BrokerError("FENCED_INSTANCE_ID", f"{instance_id} is {static.member_id} now, not {member_id}")
        member = self._members.get(member_id)
        if member is None:
            raise BrokerError("UNKNOWN_MEMBER_ID", f"{member_id!r} in group {self.group_id}")
        return member

    def _current(self, membership: Membership) -> ClassicMember:
        member = self._member(membership.member_id, membership.instance_id)
        if membership.generation != self.generation:
            raise BrokerError("ILLEGAL_GENERATION", f"{membership.generation}, the group is at {self.generation}")
        return member

    def _can_expire(self, member: ClassicMember) -> bool:
        """Whether the member's session can end: not while it waits for the others to join."""
        return not (self.state is ClassicState.PREPARING and member.has_joined)

    def _renew(self, member: ClassicMember) -> None:
        member.session_end_s = self._clock() + member.request.session_timeout_s

    def _remove(self, member: ClassicMember) -> None:
        del self._members[member.member_id]
        if self.state is not ClassicState.PREPARING:
            self._begin_round()
        self._complete_if_all_have_joined()
