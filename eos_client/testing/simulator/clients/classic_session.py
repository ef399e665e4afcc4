"""A member of a classic group: JoinGroup, SyncGroup, Heartbeat, LeaveGroup.

JoinGroup is answered at once and the wait for the others is spent here, looking at the group; then the generation is
the new one, and SyncGroup is repeated until it brings the assignment.
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
from eos_client.testing.simulator.clients.inbox import Inbox, Rebalance, RebalanceKind, Trouble
from eos_client.testing.simulator.clients.kafka_errors import kafka_error

_ASK_AGAIN_S = 0.01
_ASK_AGAIN_MAX_S = 0.1
_WAITS_FOR_MEMBERS = "PreparingRebalance"
_FORGOTTEN = frozenset({"UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION"})
_JOIN_LATER = frozenset({"COORDINATOR_NOT_AVAILABLE", "COORDINATOR_LOAD_IN_PROGRESS", "NOT_COORDINATOR"})


class _State(Enum):
    OUTSIDE = "no member"
    TO_JOIN = "about to join"
    JOINING = "waits for the coordinator"
    ROUND = "waits for the other members"
    MEMBER = "member"
    LOSING = "waits for the application to hear that everything is lost"


class ClassicSession(GroupSession):
    """See `GroupSession`."""

    def __init__(self, link: ClientLink, settings: ConsumerSettings, inbox: Inbox, hold: Callable[[], None]) -> None:
        super().__init__(link, settings, inbox, hold)
        self._state = _State.OUTSIDE
        self._again_s = 0.0
        self._asked = 0
        self._beat_s = 0.0
        self._session_ends_s = math.inf
        self._is_beating = False
        self._was_assigned = False
        self._to_assign: frozenset[PartitionKey] | None = None
        self._rejoins = False
        self._known: frozenset[tuple[str, int]] = frozenset()
        self._missing: frozenset[str] = frozenset()
        self._looked_up: frozenset[str] = frozenset()

    # -- what the application does -------------------------------------------------------------------------------

    def subscribe(self, topics: Topics) -> None:
        """Join the group, or join again with other topics."""
        self._topics = topics
        if self._state is _State.OUTSIDE:
            self._begin()
        elif self._told is None:
            if self._settings.is_cooperative:
                self._change_topics(topics())
            else:
                self._rebalance()

    def _change_topics(self, topics: frozenset[str]) -> None:
        """Give up what is not wanted any more, then join again.

        librdkafka has to look up a topic that is new to it first, and then takes the partitions of those that left
        the subscription for deleted ones: lost, not revoked.
        """
        gone = frozenset(p for p in self.owned if p.topic not in topics)
        if gone:
            is_new = bool(topics - self._looked_up)
            self._tell(RebalanceKind.LOSE if is_new else RebalanceKind.REVOKE, gone)
        elif self._sizes() != self._known:
            self._begin()

    def served(self, rebalance: Rebalance) -> None:
        """Take the next step of the round."""
        self._told = None
        partitions = frozenset(rebalance.partitions)
        is_assign = rebalance.kind is RebalanceKind.ASSIGN
        self.owned = self.owned | partitions if is_assign else self.owned - partitions
        self._was_assigned = is_assign
        to_assign, self._to_assign = self._to_assign, None
        if self._topics is None or self._is_leaving:
            self._go_on_leaving()
        elif to_assign is not None and rebalance.kind is RebalanceKind.REVOKE:
            self._rejoins = True
            self._tell(RebalanceKind.ASSIGN, to_assign)
        elif not is_assign or self._rejoins:
            self._begin()

    def stall(self) -> None:
        """Leave, so that others can go on; the partitions are lost."""
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
            return min(self._again_s, self._session_ends_s)
        if self._state is _State.MEMBER:
            return min(math.inf if self._is_beating else self._beat_s, self._session_ends_s)
        return self._session_ends_s

    def work(self) -> None:
        """Join, ask for the round's result, or send a heartbeat."""
        now_s = self._link.clock()
        if now_s >= self._session_ends_s:
            self._session_ends_s = math.inf
            self.member_id = ""
            self._lose()
        elif self._is_to_join and now_s >= self._again_s:
            self._join()
        elif self._state is _State.ROUND and now_s >= self._again_s:
            self._ask_for_round()
        elif self._state is _State.MEMBER and not self._is_beating and now_s >= self._beat_s:
            self._beat()
            if self._topics is not None and self._sizes() != self._known:
                self._rebalance()

    def _begin(self, delay_s: float = 0.0) -> None:
        """Join, whatever was on its way before."""
        self._number += 1
        self._is_beating = self._rejoins = False
        self._to_assign = None
        self._session_ends_s = math.inf
        self._state = _State.OUTSIDE if self._topics is None else _State.TO_JOIN
        self._again_s = self._link.clock() + delay_s

    def _rebalance(self) -> None:
        """Take part in a new round; eager members give up everything first."""
        if self._told is not None:
            return
        if self._settings.is_cooperative or not self._was_assigned:
            self._begin()
        else:
            self._tell(RebalanceKind.REVOKE, self.owned)

    def _lose(self) -> None:
        """Everything is lost, and the group is joined again."""
        if self._told is not None:
            return
        lost = self.owned
        self._begin()
        if lost:
            self._state = _State.LOSING
            self._tell(RebalanceKind.LOSE, lost)

    # -- joining -------------------------------------------------------------------------------------------------

    @property
    def _is_to_join(self) -> bool:
        """Whether it joins as soon as it may: not while it leaves and the application has not given up everything."""
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
        self._known = self._sizes()
        self._report_missing()
        self._state = _State.JOINING
        self._send("JoinGroup", lambda: self._link.brokers.groups.join(settings.group_id, request), self._on_join)

    def _sizes(self) -> frozenset[tuple[str, int]]:
        """Return the subscribed topics, each with its number of partitions."""
        topics = frozenset() if self._topics is None else self._topics()
        return frozenset((topic, self._link.brokers.partition_count(topic)) for topic in topics)

    def _report_missing(self) -> None:
        missing = frozenset(topic for topic, partitions in self._known if not partitions)
        for topic in sorted(missing - self._missing):
            why = f"Subscribed topic not available: {topic}: Broker: Unknown topic or partition"
            self._inbox.put(Trouble(kafka_error("UNKNOWN_TOPIC_OR_PART", why), PartitionKey(topic, -1)))
        self._missing = missing

    def _on_join(self, answer: Answer[str] | None) -> None:
        if answer is None:
            self._begin()
        elif answer.refusal is not None:
            self._join_refused("JoinGroup", answer.refusal)
        else:
            self.member_id = answer.value or ""
            self._state = _State.ROUND
            self._again_s = self._link.clock()
            self._asked = 0

    def _ask_for_round(self) -> None:
        groups, group_id, member_id = self._link.brokers.groups, self._settings.group_id, self.member_id
        self._asked += 1
        self._again_s = self._link.clock() + min(_ASK_AGAIN_MAX_S, _ASK_AGAIN_S * self._asked)
        group = groups.describe(group_id)
        if group.state == _WAITS_FOR_MEMBERS:
            try:
                answer = groups.joined(group_id, member_id)  # of the SyncGroup before, if another round has begun since
            except BrokerError as refusal:
                self._join_refused("JoinGroup", refusal)
            else:
                if answer is not None:
                    self._take(answer)
            return
        if member_id in group.members:
            self.generation = group.epoch
        self._state = _State.JOINING
        self._send("SyncGroup", lambda: groups.joined(group_id, member_id), self._on_round)

    def _on_round(self, answer: Answer[JoinAnswer | None] | None) -> None:
        if answer is None:
            self._begin()
        elif answer.refusal is not None:
            self._join_refused("SyncGroup", answer.refusal)
        elif answer.value is None:
            self._state = _State.ROUND
            self._again_s = self._link.clock() + _ASK_AGAIN_S
        else:
            self._take(answer.value)

    def _take(self, answer: JoinAnswer) -> None:
        self._state = _State.MEMBER
        self.generation, self.member_id = answer.generation, answer.member_id
        self._beat_s = self._link.clock() + self._settings.heartbeat_interval_s
        self._session_ends_s = self._link.clock() + self._settings.session_timeout_s
        if not self._settings.is_cooperative:
            self._tell(RebalanceKind.ASSIGN, answer.assigned)
            return
        added, gone = answer.assigned - self.owned, self.owned - answer.assigned
        if gone:
            self._to_assign = added
            self._tell(RebalanceKind.REVOKE, gone)
        else:
            self._tell(RebalanceKind.ASSIGN, added)

    def _join_refused(self, request: str, refusal: BrokerError) -> None:
        code = refusal.code
        if code == "FENCED_INSTANCE_ID":
            self._fenced()
            return
        self._forget(code)
        if code in _FORGOTTEN and self._settings.is_cooperative:
            self._lose()
            return
        if code not in _FORGOTTEN | _JOIN_LATER | {"REBALANCE_IN_PROGRESS"}:
            why = f"{request} failed: {refusal}"
            self._inbox.put(Trouble(kafka_error(code, why)))
        self._begin(0.0 if code in _FORGOTTEN else self._settings.backoff_s)

    # -- being a member ------------------------------------------------------------------------------------------

    def _beat(self) -> None:
        membership, group_id = self.membership, self._settings.group_id
        self._is_beating = True
        self._beat_s = self._link.clock() + self._settings.heartbeat_interval_s
        self._send("Heartbeat", lambda: self._link.brokers.groups.heartbeat(group_id, membership), self._on_beat)

    def _on_beat(self, answer: Answer[None] | None) -> None:
        self._is_beating = False
        code = None if answer is None or answer.refusal is None else answer.refusal.code
        if answer is not None and code in (None, "REBALANCE_IN_PROGRESS"):
            self._session_ends_s = self._link.clock() + self._settings.session_timeout_s
        if code == "REBALANCE_IN_PROGRESS":
            self._rebalance()
        elif code == "FENCED_INSTANCE_ID":
            self._fenced()
        elif code in _FORGOTTEN:
            self._forget(code)
            self._lose()

    def commit_refused(self, code: str) -> None:
        """Unknown or outdated members lose everything and join again."""
        if code == "FENCED_INSTANCE_ID":
            self._fenced()
        elif code == "UNKNOWN_MEMBER_ID" or (code == "ILLEGAL_GENERATION" and self._told is None and self._is_steady):
            self._forget(code)
            self._lose()

    @property
    def _is_steady(self) -> bool:
        return self._state is _State.MEMBER

    def _forget(self, code: str | None) -> None:
        if code == "UNKNOWN_MEMBER_ID":
            self.member_id = ""
        elif code == "ILLEGAL_GENERATION":
            self.generation = -1

    def _fenced(self) -> None:
        """Give up for good: a newer client has taken over the instance id."""
        self._fail("FENCED_INSTANCE_ID", "the group instance id was taken over by a newer client")
        if self.owned and self._told is None:
            self._tell(RebalanceKind.LOSE, self.owned)

    def leave(self) -> tuple[str, Callable[[], object]] | None:
        """Be no member any more. Static members do not say so: they come back."""
        request = None if self._settings.instance_id else self._leave_request()
        self._topics = None
        self._begin()
        self.member_id = ""
        return request

    def _leave_request(self) -> tuple[str, Callable[[], object]] | None:
        member_id, group_id = self.member_id, self._settings.group_id
        if not member_id:
            return None
        return "LeaveGroup", lambda: self._link.brokers.groups.leave(group_id, member_id, self._settings.instance_id)
