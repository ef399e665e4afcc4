"""The group coordinator: members of classic and KIP-848 groups, and the check of offset commits.

A transactional producer's offsets are checked against the consumer group, so one producer serves a process for any
assignment of its consumer (KIP-447). Offsets staged by a transaction hide the committed ones until it ends.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from random import Random

from eos_client.testing.simulator.brokers.classic_group import ClassicGroup
from eos_client.testing.simulator.brokers.consumer_group import ConsumerGroup
from eos_client.testing.simulator.brokers.group_requests import (
    JOINING_EPOCH,
    ConsumerHeartbeat,
    ConsumerHeartbeatAnswer,
    FetchedOffset,
    GroupDescription,
    JoinAnswer,
    JoinRequest,
)
from eos_client.testing.simulator.brokers.model import (
    BrokerError,
    Membership,
    OffsetAndMetadata,
    PartitionKey,
    ProducerIdentity,
)
from eos_client.testing.simulator.brokers.offset_store import OffsetStore
from eos_client.testing.simulator.brokers.settings import BrokerSettings


class GroupCoordinator:
    """The coordinator of all groups. Requests take effect at ``clock()`` in seconds; refusals raise BrokerError."""

    def __init__(
        self,
        clock: Callable[[], float],
        partition_count: Callable[[str], int],
        offsets: OffsetStore,
        settings: BrokerSettings,
        random: Random,
    ) -> None:
        self._clock = clock
        self._partition_count = partition_count
        self._offsets = offsets
        self._settings = settings
        self._random = random
        self._groups: dict[str, ClassicGroup | ConsumerGroup] = {}

    # -- members -------------------------------------------------------------------------------------------------

    def join(self, group_id: str, request: JoinRequest) -> str:
        """JoinGroup: join a classic group's next round; returns the member id. See `ClassicGroup.join`.

        Raises INCONSISTENT_GROUP_PROTOCOL also if the group has KIP-848 members, INVALID_SESSION_TIMEOUT for a session
        time-out outside the brokers' limits.
        """
        shortest_s, longest_s = self._settings.group_min_session_timeout_s, self._settings.group_max_session_timeout_s
        if not shortest_s <= request.session_timeout_s <= longest_s:
            raise BrokerError("INVALID_SESSION_TIMEOUT", f"{request.session_timeout_s:g} s")
        group = self._groups.get(group_id)
        if isinstance(group, ConsumerGroup) and group.describe().members:
            raise BrokerError("INCONSISTENT_GROUP_PROTOCOL", f"group {group_id} has members of the consumer protocol")
        if not isinstance(group, ClassicGroup):
            if request.member_id:
                raise BrokerError("UNKNOWN_MEMBER_ID", f"{request.member_id!r} in group {group_id}")
            group = ClassicGroup(group_id, self._clock, self._partition_count, self._random)
            member_id = group.join(request)
            self._groups[group_id] = group
            return member_id
        return group.join(request)

    def joined(self, group_id: str, member_id: str) -> JoinAnswer | None:
        """Return a classic member's assignment once the round is complete; until then None: repeat the call.

        Raises UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, and REBALANCE_IN_PROGRESS if the member must join again.
        """
        return self._classic(group_id, member_id).joined(member_id)

    def heartbeat(self, group_id: str, membership: Membership) -> None:
        """Keep a classic member's session alive.

        Raises REBALANCE_IN_PROGRESS, ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID.
        """
        self._classic(group_id, membership.member_id).heartbeat(membership)

    def leave(self, group_id: str, member_id: str, instance_id: str | None = None) -> None:
        """LeaveGroup of a classic member. Raises UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID."""
        self._classic(group_id, member_id).leave(member_id, instance_id)

    def consumer_heartbeat(self, group_id: str, request: ConsumerHeartbeat) -> ConsumerHeartbeatAnswer:
        """ConsumerGroupHeartbeat (KIP-848): join, stay or leave. See `ConsumerGroup.heartbeat`.

        Raises GROUP_ID_NOT_FOUND if the group does not exist or has classic members.
        """
        group = self._groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            return group.heartbeat(request, self._clock())
        if request.member_epoch != JOINING_EPOCH or (group is not None and not group.is_empty):
            raise BrokerError("GROUP_ID_NOT_FOUND", "The group id does not exist.")
        group = ConsumerGroup(group_id, self._partition_count, self._settings, self._random)
        answer = group.heartbeat(request, self._clock())
        self._groups[group_id] = group
        return answer

    # -- offsets -------------------------------------------------------------------------------------------------

    @property
    def offsets(self) -> OffsetStore:
        """The store of the offsets; a restart replaces it."""
        return self._offsets

    def commit_offsets(
        self, group_id: str, membership: Membership, offsets: Mapping[PartitionKey, OffsetAndMetadata]
    ) -> dict[PartitionKey, str]:
        """OffsetCommit: returns a code for each partition: NONE for all of them, or for none (P4).

        Raises ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, REBALANCE_IN_PROGRESS, STALE_MEMBER_EPOCH.
        """
        self._validate_commit(group_id, membership, offsets, transactional=False)
        return self._offsets.commit(group_id, offsets)

    def commit_offsets_in_transaction(
        self,
        group_id: str,
        membership: Membership,
        producer: ProducerIdentity,
        offsets: Mapping[PartitionKey, OffsetAndMetadata],
    ) -> None:
        """TxnOffsetCommit: stage offsets until the producer's transaction ends (KIP-447).

        The transaction coordinator checks whether the transaction is open (`verify_offsets`). Anonymous offsets
        (`Membership.is_anonymous`) are accepted unchecked, as by real brokers. Raises ILLEGAL_GENERATION,
        UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, INVALID_PRODUCER_EPOCH, UNKNOWN_TOPIC_OR_PART.
        """
        self._validate_commit(group_id, membership, offsets, transactional=True)
        self._offsets.stage(group_id, producer, offsets)

    def complete_transaction(self, group_id: str, producer: ProducerIdentity, *, committed: bool) -> None:
        """Write a transaction's marker: its offsets in this group are committed or dropped.

        Raises INVALID_PRODUCER_EPOCH for a marker of an earlier epoch than the producer's latest here.
        """
        self._offsets.complete(group_id, producer, committed=committed)

    def fetch_offsets(
        self, group_id: str, partitions: Iterable[PartitionKey] | None = None, *, require_stable: bool = True
    ) -> dict[PartitionKey, FetchedOffset]:
        """OffsetFetch; ``partitions`` None: all committed offsets of the group.

        With ``require_stable`` a partition whose offset an open transaction may move has the code
        UNSTABLE_OFFSET_COMMIT: repeat the call, so that no consumer starts from an offset that may move.
        """
        return self._offsets.fetch(group_id, partitions, require_stable=require_stable)

    # -- for test scripts ----------------------------------------------------------------------------------------

    def force_rebalance(self, group_id: str) -> None:
        """Begin a new round of a classic group; raise a KIP-848 group's epoch with an unchanged target."""
        group = self._group(group_id)
        if isinstance(group, ClassicGroup):
            group.force_rebalance()
        else:
            group.bump()

    def evict(self, group_id: str, member_id: str) -> None:
        """Remove a member as a session time-out does. Raises UNKNOWN_MEMBER_ID, GROUP_ID_NOT_FOUND."""
        self._group(group_id).evict(member_id)

    def pin(self, group_id: str, partitions: Iterable[PartitionKey], member_id: str | None) -> None:
        """Make the assignor assign ``partitions`` to that member; None: unpin. The group rebalances immediately.

        Raises UNKNOWN_MEMBER_ID, GROUP_ID_NOT_FOUND.
        """
        self._group(group_id).pin(partitions, member_id)

    def describe(self, group_id: str) -> GroupDescription:
        """Return the group's present state; an unknown group is in state Dead, as in Kafka."""
        group = self._groups.get(group_id)
        return GroupDescription(group_id, "", "Dead", 0) if group is None else group.describe()

    def restart(self) -> None:
        """Restore the state from the logs. Rounds in progress are lost, and sessions begin anew."""
        self._offsets = self._offsets.reopened()
        replayed = {group_id: self._replayed(group_id, group) for group_id, group in self._groups.items()}
        self._groups = {group_id: group for group_id, group in replayed.items() if group is not None}

    # -- time ----------------------------------------------------------------------------------------------------

    @property
    def due_s(self) -> float:
        """When the next session or rebalance time-out ends; ``math.inf``: never."""
        now_s = self._clock()
        return min((self._due_of(group, now_s) for group in self._groups.values()), default=math.inf)

    def work(self) -> None:
        """Remove the members whose time-out has ended."""
        now_s = self._clock()
        for group in self._groups.values():
            if isinstance(group, ClassicGroup):
                group.expire()
            else:
                group.expire(now_s)

    @staticmethod
    def _due_of(group: ClassicGroup | ConsumerGroup, now_s: float) -> float:
        return group.due_s if isinstance(group, ClassicGroup) else group.due_s(now_s)

    # -- internals -----------------------------------------------------------------------------------------------

    def _group(self, group_id: str) -> ClassicGroup | ConsumerGroup:
        if group_id not in self._groups:
            raise BrokerError("GROUP_ID_NOT_FOUND", f"there is no group {group_id}")
        return self._groups[group_id]

    def _classic(self, group_id: str, member_id: str) -> ClassicGroup:
        group = self._groups.get(group_id)
        if not isinstance(group, ClassicGroup):
            raise BrokerError("UNKNOWN_MEMBER_ID", f"{member_id!r} in group {group_id}")
        return group

    def _validate_commit(
        self, group_id: str, membership: Membership, partitions: Iterable[PartitionKey], *, transactional: bool
    ) -> None:
        group = self._groups.get(group_id)
        if isinstance(group, ClassicGroup):
            group.validate_commit(membership, transactional=transactional)
            if not transactional:
                group.renew(membership.member_id)
        elif group is not None:
            group.validate_commit(membership, partitions, transactional=transactional)
        elif membership.generation >= 0:
            raise BrokerError("ILLEGAL_GENERATION", f"there is no group {group_id}")
        else:
            self._groups[group_id] = ClassicGroup(group_id, self._clock, self._partition_count, self._random)

    def _replayed(self, group_id: str, group: ClassicGroup | ConsumerGroup) -> ClassicGroup | ConsumerGroup | None:
        """Return the group restored from its log; None: its log is empty."""
        if isinstance(group, ConsumerGroup):
            again = ConsumerGroup(group_id, self._partition_count, self._settings, self._random)
            again.replay(group.records(), self._clock())
            return again
        if not group.records() and group_id not in self._offsets.groups():
            return None
        return ClassicGroup(group_id, self._clock, self._partition_count, self._random, group.records(), group.pins)
