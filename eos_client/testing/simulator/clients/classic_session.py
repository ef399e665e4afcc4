"""A member of a classic group: JoinGroup, SyncGroup, Heartbeat, LeaveGroup.

JoinGroup is answered at once. The session then polls the group until all members have joined, takes over the new
generation, and repeats SyncGroup until it returns the assignment.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from enum import Enum

from eos_client.testing.simulator.brokers.group_requests import JoinAnswer, JoinRequest
from eos_client.testing.simulator.brokers.link import ClientLink
from eos_client.testing.simulator.brokers.model import BrokerError, PartitionKey
from eos_client.testing.simulator.brokers.network import Answer
from eos_client.testing.simulator.clients.configuration import ConsumerSettings
from eos_client.testing.simulator.clients.group_session import GroupSession, Topics
from eos_client.testing.simulator.clients.inbox import ErrorEvent, Inbox, Rebalance, RebalanceKind
from eos_client.testing.simulator.clients.kafka_errors import kafka_error

_ROUND_POLL_S = 0.01
_ROUND_POLL_MAX_S = 0.1
_WAITS_FOR_MEMBERS = "PreparingRebalance"
_UNKNOWN_MEMBER = frozenset({"UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION"})
_JOIN_LATER = frozenset({"COORDINATOR_NOT_AVAILABLE", "COORDINATOR_LOAD_IN_PROGRESS", "NOT_COORDINATOR"})


class _State(Enum):
    OUTSIDE = "no member"
    TO_JOIN = "about to join"
    JOINING = "waits for the coordinator"
    ROUND = "waits for the round to complete"
    MEMBER = "member"
    LOSING = "waits until the loss of its partitions was served"


class ClassicSession(GroupSession):
    """See `GroupSession`."""

    def __init__(self, link: ClientLink, settings: ConsumerSettings, inbox: Inbox, hold: Callable[[], None]) -> None:
        super().__init__(link, settings, inbox, hold)
        self._state = _State.OUTSIDE
        self._next_request_s = 0.0
        self._round_polls = 0
        self._heartbeat_s = 0.0
        self._session_ends_s = math.inf
        self._awaits_heartbeat = False
        self._was_assigned = False
        self._to_assign: frozenset[PartitionKey] | None = None
        self._rejoins = False
        self._joined_sizes: frozenset[tuple[str, int]] = frozenset()
        self._missing: frozenset[str] = frozenset()
        self._looked_up: frozenset[str] = frozenset()

    # -- what the application does -------------------------------------------------------------------------------

    def subscribe(self, topics: Topics) -> None:
        """Join the group, or join again with other topics."""
        self._topics = topics
        if self._state is _State.OUTSIDE:
            self._start_joining()
        elif self._queued_rebalance is None:
            if self._settings.is_cooperative:
                self._change_topics(topics())
            else:
                self._rebalance()

    def _change_topics(self, topics: frozenset[str]) -> None:
        """Give up the partitions of removed topics, then join again.

        For a topic that is new to it librdkafka needs metadata first, and then treats the partitions of the removed
        topics as deleted: lost, not revoked.
        """
        removed = frozenset(p for p in self.owned if p.topic not in topics)
        if removed:
            is_new = bool(topics - self._looked_up)
            self._queue_rebalance(RebalanceKind.LOSE if is_new else RebalanceKind.REVOKE, removed)
        elif self._sizes() != self._joined_sizes:
            self._start_joining()

    def on_served(self, rebalance: Rebalance) -> None:
        """Continue the round after the application has served ``rebalance``."""
        self._queued_rebalance = None
        partitions = frozenset(rebalance.partitions)
        is_assign = rebalance.kind is RebalanceKind.ASSIGN
        self.owned = self.owned | partitions if is_assign else self.owned - partitions
        self._was_assigned = is_assign
        to_assign, self._to_assign = self._to_assign, None
        if self._topics is None or self._is_leaving:
            self._continue_leaving()
        elif to_assign is not None and rebalance.kind is RebalanceKind.REVOKE:
            self._rejoins = True
            self._queue_rebalance(RebalanceKind.ASSIGN, to_assign)
        elif not is_assign or self._rejoins:
            self._start_joining()

    def stall(self) -> None:
        """Leave the group; the partitions are lost."""
        self.stalled = True
        if self._state is _State.OUTSIDE:
            return
        request = None if self._settings.instance_id else self._leave_request()
        if request is not None:
            self._link.post(*request, lambda _: None)
        self.member_id = ""
        self._lose()

    # -- background work -----------------------------------------------------------------------------------------

    def _due_s(self) -> float:
        if self._state is _State.ROUND or self._is_to_join:
            return min(self._next_request_s, self._session_ends_s)
        if self._state is _State.MEMBER:
            return min(math.inf if self._awaits_heartbeat else self._heartbeat_s, self._session_ends_s)
        return self._session_ends_s

    def work(self) -> None:
        """Join, look for the round's result, or send a heartbeat."""
        now_s = self._link.clock()
        if now_s >= self._session_ends_s:
            self._session_ends_s = math.inf
            self.member_id = ""
            self._lose()
        elif self._is_to_join and now_s >= self._next_request_s:
            self._join()
        elif self._state is _State.ROUND and now_s >= self._next_request_s:
            self._poll_round()
        elif self._state is _State.MEMBER and not self._awaits_heartbeat and now_s >= self._heartbeat_s:
            self._send_heartbeat()
            if self._topics is not None and self._sizes() != self._joined_sizes:
                self._rebalance()

    def _start_joining(self, delay_s: float = 0.0) -> None:
        """Join; answers to earlier requests are ignored."""
        self._session_number += 1
        self._awaits_heartbeat = self._rejoins = False
        self._to_assign = None
        self._session_ends_s = math.inf
        self._state = _State.OUTSIDE if self._topics is None else _State.TO_JOIN
        self._next_request_s = self._link.clock() + delay_s

    def _rebalance(self) -> None:
        """Take part in a new round; eager members give up everything first."""
        if self._queued_rebalance is not None:
            return
        if self._settings.is_cooperative or not self._was_assigned:
            self._start_joining()
        else:
            self._queue_rebalance(RebalanceKind.REVOKE, self.owned)

    def _lose(self) -> None:
        """Report all partitions as lost and join again."""
        if self._queued_rebalance is not None:
            return
        lost = self.owned
        self._start_joining()
        if lost:
            self._state = _State.LOSING
            self._queue_rebalance(RebalanceKind.LOSE, lost)

    # -- joining -------------------------------------------------------------------------------------------------

    @property
    def _is_to_join(self) -> bool:
        """Whether a JoinGroup is due."""
        return self._state is _State.TO_JOIN and self._topics is not None

    def _join(self) -> None:
        topics, settings = self._topics, self._settings
        if topics is None:
            return
        wanted = topics()
        self._looked_up |= wanted
        request = JoinRequest(
            topics=wanted,
            member_id=self.member_id,
            instance_id=settings.instance_id,
            client=self._link.name,
            assignor=settings.assignor,
            owned=self.owned if settings.is_cooperative else frozenset(),
            session_timeout_s=settings.session_timeout_s,
            rebalance_timeout_s=settings.poll_limit_s,
        )
        self._joined_sizes = self._sizes()
        self._report_missing()
        self._state = _State.JOINING
        self._send("JoinGroup", lambda: self._link.brokers.groups.join(settings.group_id, request), self._on_join)

    def _sizes(self) -> frozenset[tuple[str, int]]:
        """Return the subscribed topics, each with its number of partitions."""
        topics = frozenset() if self._topics is None else self._topics()
        return frozenset((topic, self._link.brokers.partition_count(topic)) for topic in topics)

    def _report_missing(self) -> None:
        missing = frozenset(topic for topic, partitions in self._joined_sizes if not partitions)
        for topic in sorted(missing - self._missing):
            why = f"Subscribed topic not available: {topic}: Broker: Unknown topic or partition"
            self._inbox.put(ErrorEvent(kafka_error("UNKNOWN_TOPIC_OR_PART", why), PartitionKey(topic, -1)))
        self._missing = missing

    def _on_join(self, answer: Answer[str] | None) -> None:
        if answer is None:
            self._start_joining()
        elif answer.refusal is not None:
            self._on_join_refused("JoinGroup", answer.refusal)
        else:
            self.member_id = answer.value or ""
            self._state = _State.ROUND
            self._next_request_s = self._link.clock()
            self._round_polls = 0

    def _poll_round(self) -> None:
        groups, group_id, member_id = self._link.brokers.groups, self._settings.group_id, self.member_id
        self._round_polls += 1
        self._next_request_s = self._link.clock() + min(_ROUND_POLL_MAX_S, _ROUND_POLL_S * self._round_polls)
        group = groups.describe(group_id)
        if group.state == _WAITS_FOR_MEMBERS:
            try:
                answer = groups.joined(group_id, member_id)  # the answer to the SyncGroup before another round began
            except BrokerError as refusal:
                self._on_join_refused("JoinGroup", refusal)
            else:
                if answer is not None:
                    self._take_assignment(answer)
            return
        if member_id in group.members:
            self.generation = group.epoch
        self._state = _State.JOINING
        self._send("SyncGroup", lambda: groups.joined(group_id, member_id), self._on_round)

    def _on_round(self, answer: Answer[JoinAnswer | None] | None) -> None:
        if answer is None:
            self._start_joining()
        elif answer.refusal is not None:
            self._on_join_refused("SyncGroup", answer.refusal)
        elif answer.value is None:
            self._state = _State.ROUND
            self._next_request_s = self._link.clock() + _ROUND_POLL_S
        else:
            self._take_assignment(answer.value)

    def _take_assignment(self, answer: JoinAnswer) -> None:
        self._state = _State.MEMBER
        self.generation, self.member_id = answer.generation, answer.member_id
        self._heartbeat_s = self._link.clock() + self._settings.heartbeat_interval_s
        self._session_ends_s = self._link.clock() + self._settings.session_timeout_s
        if not self._settings.is_cooperative:
            self._queue_rebalance(RebalanceKind.ASSIGN, answer.assigned)
            return
        added, removed = answer.assigned - self.owned, self.owned - answer.assigned
        if removed:
            self._to_assign = added
            self._queue_rebalance(RebalanceKind.REVOKE, removed)
        else:
            self._queue_rebalance(RebalanceKind.ASSIGN, added)

    def _on_join_refused(self, request: str, refusal: BrokerError) -> None:
        code = refusal.code
        if code == "FENCED_INSTANCE_ID":
            self._on_fenced()
            return
        self._reset_identity(code)
        if code in _UNKNOWN_MEMBER and self._settings.is_cooperative:
            self._lose()
            return
        if code not in _UNKNOWN_MEMBER | _JOIN_LATER | {"REBALANCE_IN_PROGRESS"}:
            why = f"{request} failed: {refusal}"
            self._inbox.put(ErrorEvent(kafka_error(code, why)))
        self._start_joining(0.0 if code in _UNKNOWN_MEMBER else self._settings.backoff_s)

    # -- being a member ------------------------------------------------------------------------------------------

    def _send_heartbeat(self) -> None:
        membership, group_id = self.membership, self._settings.group_id
        self._awaits_heartbeat = True
        self._heartbeat_s = self._link.clock() + self._settings.heartbeat_interval_s
        self._send("Heartbeat", lambda: self._link.brokers.groups.heartbeat(group_id, membership), self._on_heartbeat)

    def _on_heartbeat(self, answer: Answer[None] | None) -> None:
        self._awaits_heartbeat = False
        code = None if answer is None or answer.refusal is None else answer.refusal.code
        if answer is not None and code in (None, "REBALANCE_IN_PROGRESS"):
            self._session_ends_s = self._link.clock() + self._settings.session_timeout_s
        if code == "REBALANCE_IN_PROGRESS":
            self._rebalance()
        elif code == "FENCED_INSTANCE_ID":
            self._on_fenced()
        elif code in _UNKNOWN_MEMBER:
            self._reset_identity(code)
            self._lose()

    def on_commit_refused(self, code: str) -> None:
        """Lose all partitions and join again if the coordinator does not know this member or generation."""
        if code == "FENCED_INSTANCE_ID":
            self._on_fenced()
        elif code == "UNKNOWN_MEMBER_ID" or (code == "ILLEGAL_GENERATION" and self._is_steady):
            self._reset_identity(code)
            self._lose()

    @property
    def _is_steady(self) -> bool:
        return self._state is _State.MEMBER and self._queued_rebalance is None

    def _reset_identity(self, code: str | None) -> None:
        if code == "UNKNOWN_MEMBER_ID":
            self.member_id = ""
        elif code == "ILLEGAL_GENERATION":
            self.generation = -1

    def _on_fenced(self) -> None:
        """Fail fatally: a newer client uses the instance id."""
        self._fail("FENCED_INSTANCE_ID", "the group instance id was taken over by a newer client")
        if self.owned and self._queued_rebalance is None:
            self._queue_rebalance(RebalanceKind.LOSE, self.owned)

    def leave(self) -> tuple[str, Callable[[], object]] | None:
        """Leave the group. A static member sends no LeaveGroup: it may come back within its session."""
        request = None if self._settings.instance_id else self._leave_request()
        self._topics = None
        self._start_joining()
        self.member_id = ""
        return request

    def _leave_request(self) -> tuple[str, Callable[[], object]] | None:
        member_id, group_id = self.member_id, self._settings.group_id
        if not member_id:
            return None
        return "LeaveGroup", lambda: self._link.brokers.groups.leave(group_id, member_id, self._settings.instance_id)
