"""A KIP-848 consumer group in its coordinator: members, epochs, and the check of commits.

The state that survives a restart of the coordinator is in frozen records, one for the group and one for each member;
the rest (the time of each member's last request) is lost, as in Kafka.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from random import Random
from uuid import UUID

from eos_client.testing.simulator.brokers.commit_validation import ACCEPTED, verdicts
from eos_client.testing.simulator.brokers.group_requests import (
    JOINING_EPOCH,
    LEAVING_EPOCH,
    STATIC_LEAVING_EPOCH,
    ConsumerHeartbeat,
    ConsumerHeartbeatAnswer,
    GroupDescription,
    MemberDescription,
)
from eos_client.testing.simulator.brokers.model import BrokerError, Membership, PartitionKey
from eos_client.testing.simulator.brokers.settings import BrokerSettings, CommitCheck
from eos_client.testing.simulator.brokers.target_assignment import MemberRecord, assign, next_step


@dataclass(frozen=True, slots=True)
class GroupRecord:
    """The group's epoch, the target assignment with its epoch and inputs, and a script's pins."""

    epoch: int = 0
    target_epoch: int = 0
    target: Mapping[str, frozenset[PartitionKey]] = field(default_factory=dict)
    partition_counts: Mapping[str, int] = field(default_factory=dict)
    pins: Mapping[PartitionKey, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FormerMemberRecord:
    """A member that left at ``epoch``. It may join again under its id, and its old commits must still be refused."""

    member_id: str
    epoch: int


ConsumerGroupRecord = GroupRecord | MemberRecord | FormerMemberRecord


class ConsumerGroup:
    """One group. ``partition_count`` returns how many partitions a topic has, 0 for an unknown one."""

    def __init__(
        self, group_id: str, partition_count: Callable[[str], int], settings: BrokerSettings, random: Random
    ) -> None:
        self.group_id = group_id
        self._partition_count = partition_count
        self._settings = settings
        self._random = random
        self._group = GroupRecord()
        self._members: dict[str, MemberRecord] = {}
        self._former: dict[str, FormerMemberRecord] = {}
        self._session_ends_s: dict[str, float] = {}
        self._revocation_ends_s: dict[str, float] = {}

    # -- members -------------------------------------------------------------------------------------------------

    def heartbeat(self, request: ConsumerHeartbeat, now_s: float) -> ConsumerHeartbeatAnswer:
        """Serve ConsumerGroupHeartbeat: join (epoch 0), stay, or leave (-1; a static member temporarily: -2).

        Raises BrokerError UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH, FENCED_INSTANCE_ID, UNRELEASED_INSTANCE_ID,
        INVALID_REQUEST (joining without topics).
        """
        if request.member_epoch in (LEAVING_EPOCH, STATIC_LEAVING_EPOCH):
            return self._leave(request, now_s)
        joins = request.member_epoch == JOINING_EPOCH
        if joins and request.owned is None:
            request = replace(request, owned=frozenset())
        before = self._joining(request) if joins else self._present(request)
        self._subscribe(before, request)
        member = next_step(
            self._members[before.member_id],
            self._group.target[before.member_id],
            self._group.target_epoch,
            request.owned,
            lambda partition: self._is_free(partition, before.member_id),
        )
        self._members[member.member_id] = member
        self._restart_timers(member, before, now_s)
        full = request.topics is not None or request.owned is not None
        changed = member.assigned.keys() != before.assigned.keys()
        return ConsumerHeartbeatAnswer(
            member.member_id,
            member.epoch,
            self._settings.group_consumer_heartbeat_interval_s,
            frozenset(member.assigned) if full or changed else None,
        )

    def evict(self, member_id: str) -> None:
        """Remove a member as a session time-out does; raises BrokerError UNKNOWN_MEMBER_ID."""
        member = self._member(member_id)
        epoch = member.previous_epoch if member.epoch == STATIC_LEAVING_EPOCH else member.epoch
        self._former[member_id] = FormerMemberRecord(member_id, epoch)
        self._remove(member_id)
        self._compute_target()

    # -- commits -------------------------------------------------------------------------------------------------

    def verdicts(
        self, membership: Membership, partitions: Iterable[PartitionKey], *, transactional: bool
    ) -> dict[CommitCheck, str]:
        """Return each of the four checks' answer to this commit: ``NONE`` or the error's name.

        As in Kafka, an administrator's commit (negative epoch) to an empty group passes, and so does an anonymous
        transactional one to any group.
        """
        if (membership.generation < 0 and not self._members) or (transactional and membership.is_anonymous):
            return dict.fromkeys(CommitCheck, ACCEPTED)
        member = self._members.get(membership.member_id)
        epochs = None if member is None else member.commit_epochs
        return verdicts(epochs, membership.generation, partitions, transactional=transactional)

    def validate_commit(
        self, membership: Membership, partitions: Iterable[PartitionKey], *, transactional: bool
    ) -> None:
        """Refuse the whole commit if this member may not commit one of its partitions at this epoch.

        Raises BrokerError UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH, or in a transaction ILLEGAL_GENERATION.
        """
        named = tuple(partitions)
        check = self._settings.commit_validation
        code = self.verdicts(membership, named, transactional=transactional)[check]
        if code != ACCEPTED:
            topics = ", ".join(f"{p.topic} [{p.partition}]" for p in named)
            raise BrokerError(
                code, f"{topics} by {membership.member_id!r} at {membership.generation}, check {check.value}"
            )

    # -- for test scripts ----------------------------------------------------------------------------------------

    def bump(self) -> None:
        """Raise the group's epoch: members get the new epoch, and no partition moves."""
        self._compute_target()

    def pin(self, partitions: Iterable[PartitionKey], member_id: str | None) -> None:
        """Make the assignor assign ``partitions`` to that member; None: unpin.

        Raises BrokerError UNKNOWN_MEMBER_ID.
        """
        named = tuple(partitions)
        pins = {p: m for p, m in self._group.pins.items() if p not in named}
        if member_id is not None:
            pins |= dict.fromkeys(named, self._member(member_id).member_id)
        self._group = replace(self._group, pins=pins)
        self._compute_target()

    def describe(self) -> GroupDescription:
        """Return the coordinator's view of the group; state Empty, Reconciling or Stable."""
        members = {
            m.member_id: MemberDescription(
                m.member_id, m.client, m.instance_id, m.epoch, frozenset(m.assigned), frozenset(m.pending)
            )
            for m in self._members.values()
        }
        is_reconciled = all(self._is_reconciled(m) for m in self._members.values())
        state = "Empty" if not members else "Stable" if is_reconciled else "Reconciling"
        return GroupDescription(self.group_id, "consumer", state, self._group.epoch, members)

    # -- time and restart ----------------------------------------------------------------------------------------

    def due_s(self, now_s: float) -> float:
        """Return when the next session or rebalance time-out ends, not before ``now_s``; ``math.inf``: never."""
        ends = [*self._session_ends_s.values(), *self._revocation_ends_s.values()]
        return max(now_s, min(ends, default=math.inf))

    def expire(self, now_s: float) -> None:
        """Evict members whose session has ended, or that did not give up partitions within the rebalance time-out."""
        for member_id in tuple(self._members):
            ends_s = min(self._session_ends_s[member_id], self._revocation_ends_s.get(member_id, math.inf))
            if ends_s <= now_s:
                self.evict(member_id)

    def records(self) -> tuple[ConsumerGroupRecord, ...]:
        """Return the coordinator's log of the group: the latest record of each key."""
        return (self._group, *self._former.values(), *self._members.values())

    def replay(self, records: Iterable[ConsumerGroupRecord], now_s: float) -> None:
        """Restore the group from ``records``; every member's session begins anew."""
        for record in records:
            if isinstance(record, GroupRecord):
                self._group = record
            elif isinstance(record, FormerMemberRecord):
                self._former[record.member_id] = record
            else:
                self._members[record.member_id] = record
                self._restart_timers(record, None, now_s)

    # -- internals -----------------------------------------------------------------------------------------------

    def _member(self, member_id: str) -> MemberRecord:
        member = self._members.get(member_id)
        if member is None:
            raise BrokerError("UNKNOWN_MEMBER_ID", f"{member_id!r} is no member of {self.group_id!r}")
        return member

    def _static(self, instance_id: str | None) -> MemberRecord | None:
        return next(
            (m for m in self._members.values() if instance_id is not None and m.instance_id == instance_id), None
        )

    def _joining(self, request: ConsumerHeartbeat) -> MemberRecord:
        if request.topics is None:
            raise BrokerError("INVALID_REQUEST", "a member joins without topics")
        member_id = request.member_id or str(UUID(int=self._random.getrandbits(128), version=4))
        static = self._static(request.instance_id)
        if static is not None:
            return self._take_over(static, member_id)
        present = self._members.get(member_id)
        if present is not None:
            _check_epoch(present, request)
            return present
        former = self._former.pop(member_id, FormerMemberRecord(member_id, 0)).epoch
        member = MemberRecord(member_id, request.instance_id, revocation_epoch=former, former_epoch=former)
        self._members[member_id] = member
        return member

    def _take_over(self, static: MemberRecord, member_id: str) -> MemberRecord:
        """Replace a static member by its new process, if the old one has left temporarily."""
        if static.epoch != STATIC_LEAVING_EPOCH:
            raise BrokerError("UNRELEASED_INSTANCE_ID", f"{static.instance_id!r} is in use by {static.member_id!r}")
        target = {member_id if m == static.member_id else m: owned for m, owned in self._group.target.items()}
        pins = {p: member_id if m == static.member_id else m for p, m in self._group.pins.items()}
        self._group = replace(self._group, target=target, pins=pins)
        self._remove(static.member_id)
        member = replace(static, member_id=member_id, epoch=JOINING_EPOCH)
        self._members[member_id] = member
        return member

    def _present(self, request: ConsumerHeartbeat) -> MemberRecord:
        self._check_instance(request)
        member = self._member(request.member_id)
        _check_epoch(member, request)
        return member

    def _check_instance(self, request: ConsumerHeartbeat) -> None:
        static = self._static(request.instance_id)
        if request.instance_id is None or (static is not None and static.member_id == request.member_id):
            return
        if static is None:
            raise BrokerError("UNKNOWN_MEMBER_ID", f"no member has the instance id {request.instance_id!r}")
        raise BrokerError("FENCED_INSTANCE_ID", f"{request.instance_id!r} now belongs to {static.member_id!r}")

    def _leave(self, request: ConsumerHeartbeat, now_s: float) -> ConsumerHeartbeatAnswer:
        self._check_instance(request)
        member = self._member(request.member_id)
        if request.member_epoch == LEAVING_EPOCH or member.instance_id is None:
            self.evict(member.member_id)
        elif member.epoch != STATIC_LEAVING_EPOCH:
            away = replace(
                member.revoked(member.pending), epoch=STATIC_LEAVING_EPOCH, previous_epoch=member.epoch, pending={}
            )
            self._members[member.member_id] = away
            self._restart_timers(away, None, now_s)
        interval_s = self._settings.group_consumer_heartbeat_interval_s
        return ConsumerHeartbeatAnswer(member.member_id, request.member_epoch, interval_s)

    def _subscribe(self, member: MemberRecord, request: ConsumerHeartbeat) -> None:
        """Store a member's subscription; a new member, subscription or partition raises the group's epoch."""
        topics = member.topics if request.topics is None else request.topics
        self._members[member.member_id] = replace(
            member,
            topics=topics,
            client=request.client or member.client,
            rebalance_timeout_s=request.rebalance_timeout_s,
        )
        is_new = member.member_id not in self._group.target
        if is_new or topics != member.topics or self._partition_counts() != self._group.partition_counts:
            self._compute_target()

    def _partition_counts(self) -> dict[str, int]:
        topics = sorted({topic for m in self._members.values() for topic in m.topics})
        return {topic: self._partition_count(topic) for topic in topics}

    def _compute_target(self) -> None:
        """Raise the group's epoch and recompute the target."""
        counts = self._partition_counts()
        target = assign(
            [PartitionKey(topic, number) for topic, count in counts.items() for number in range(count)],
            {m.member_id: m.topics for m in self._members.values()},
            self._group.target,
            self._group.pins,
        )
        epoch = self._group.epoch + 1
        self._group = replace(self._group, epoch=epoch, target_epoch=epoch, target=target, partition_counts=counts)

    def _is_free(self, partition: PartitionKey, member_id: str) -> bool:
        return not any(
            partition in m.assigned or partition in m.pending
            for m in self._members.values()
            if m.member_id != member_id
        )

    def _is_reconciled(self, member: MemberRecord) -> bool:
        at_target = member.epoch in (self._group.target_epoch, STATIC_LEAVING_EPOCH)
        return at_target and member.assigned.keys() == self._group.target.get(member.member_id, frozenset())

    def _restart_timers(self, member: MemberRecord, before: MemberRecord | None, now_s: float) -> None:
        """Restart the session timer, and the timer of the revocation if it begins."""
        self._session_ends_s[member.member_id] = now_s + self._settings.group_consumer_session_timeout_s
        if not member.pending:
            self._revocation_ends_s.pop(member.member_id, None)
        elif before is None or before.pending != member.pending:
            self._revocation_ends_s[member.member_id] = now_s + member.rebalance_timeout_s

    def _remove(self, member_id: str) -> None:
        for kept in (self._members, self._session_ends_s, self._revocation_ends_s):
            kept.pop(member_id, None)


def _check_epoch(member: MemberRecord, request: ConsumerHeartbeat) -> None:
    """Fence a member whose epoch is neither the present one nor, after a lost answer, the previous one."""
    if request.member_epoch == member.epoch:
        return
    owned = None if request.owned is None else request.owned <= member.assigned.keys()
    if request.member_epoch != member.previous_epoch or request.member_epoch > member.epoch or not owned:
        raise BrokerError(
            "FENCED_MEMBER_EPOCH", f"{member.member_id!r} is at {member.epoch}, not {request.member_epoch}"
        )
