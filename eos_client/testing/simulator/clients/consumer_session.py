"""A member of a KIP-848 group: heartbeats carry all requests, and one reconciliation runs at a time."""

from __future__ import annotations

import base64
import math
from collections.abc import Callable
from enum import Enum

from eos_client.testing.simulator.brokers.group_requests import (
    JOINING_EPOCH,
    LEAVING_EPOCH,
    STATIC_LEAVING_EPOCH,
    ConsumerHeartbeat,
    ConsumerHeartbeatAnswer,
)
from eos_client.testing.simulator.brokers.link import ClientLink
from eos_client.testing.simulator.brokers.model import BrokerError, PartitionKey
from eos_client.testing.simulator.brokers.network import Answer
from eos_client.testing.simulator.clients.configuration import ConsumerSettings
from eos_client.testing.simulator.clients.group_session import GroupSession, Topics
from eos_client.testing.simulator.clients.inbox import Inbox, Rebalance, RebalanceKind

_FENCED = frozenset({"UNKNOWN_MEMBER_ID", "FENCED_MEMBER_EPOCH"})
_FATAL = frozenset(
    {
        "INVALID_REQUEST",
        "GROUP_MAX_SIZE_REACHED",
        "UNSUPPORTED_ASSIGNOR",
        "UNSUPPORTED_VERSION",
        "UNRELEASED_INSTANCE_ID",
        "GROUP_AUTHORIZATION_FAILED",
        "GROUP_ID_NOT_FOUND",
    }
)


class _State(Enum):
    OUTSIDE = "no member"
    TO_JOIN = "about to join"
    MEMBER = "member"
    FENCED = "loses its partitions once the queued rebalance was served"


class ConsumerSession(GroupSession):
    """See `GroupSession`. The client chooses its member id, which never changes."""

    def __init__(self, link: ClientLink, settings: ConsumerSettings, inbox: Inbox, hold: Callable[[], None]) -> None:
        super().__init__(link, settings, inbox, hold)
        self.member_id = base64.b64encode(link.random.randbytes(16), b"-_").decode().rstrip("=")
        self._state = _State.OUTSIDE
        self._heartbeat_s = 0.0
        self._awaits_heartbeat = False
        self._sent_topics: frozenset[str] | None = None
        self._target: frozenset[PartitionKey] | None = None
        self._next_target: frozenset[PartitionKey] | None = None
        self._leaves_first = False

    # -- what the application does -------------------------------------------------------------------------------

    def subscribe(self, topics: Topics) -> None:
        """Join the group, or send it the changed subscription."""
        self._topics = topics
        if self._state is _State.OUTSIDE:
            self._begin()
        else:
            self._heartbeat_s = self._link.clock()

    def on_served(self, rebalance: Rebalance) -> None:
        """Continue the reconciliation; once it is complete, the next heartbeat acknowledges it at once."""
        self._queued_rebalance = None
        partitions = frozenset(rebalance.partitions)
        is_assign = rebalance.kind is RebalanceKind.ASSIGN
        self.owned = self.owned | partitions if is_assign else self.owned - partitions
        if self._topics is None or self._is_leaving:
            self._continue_leaving()
        elif rebalance.kind is RebalanceKind.LOSE:
            self._join_again()
        elif self._state is _State.FENCED:
            self._lose()
        elif not is_assign and self._target is not None:
            self._queue_rebalance(RebalanceKind.ASSIGN, self._target - self.owned)
        else:
            self._heartbeat_s = self._link.clock()

    def on_poll(self) -> None:
        """Continue after a stall, with the heartbeats."""
        if self.stalled:
            self._heartbeat_s = self._link.clock()
        super().on_poll()

    def stall(self) -> None:
        """Stop the heartbeats; the partitions are lost, and the leave is sent once the callback has run."""
        self.stalled = True
        if self._state is _State.MEMBER:
            self._leaves_first = True
            self._fence()

    # -- background work -----------------------------------------------------------------------------------------

    def _due_s(self) -> float:
        sends = self._state in (_State.TO_JOIN, _State.MEMBER) and not self._awaits_heartbeat and self.is_subscribed
        return self._heartbeat_s if sends else math.inf

    def work(self) -> None:
        """Send the heartbeat that is due."""
        topics = self._topics
        if topics is None or self._awaits_heartbeat or self._link.clock() < self._heartbeat_s:
            return
        joins, subscribed = self._state is _State.TO_JOIN, topics()
        is_acknowledging = self._queued_rebalance is None and self._target is not None
        is_full = self._sent_topics is None  # also after a lost answer: the broker may be one epoch ahead
        request = ConsumerHeartbeat(
            self.member_id,
            JOINING_EPOCH if joins else self.generation,
            instance_id=self._settings.instance_id,
            client=self._link.name,
            topics=subscribed if joins or subscribed != self._sent_topics else None,
            owned=self.owned if is_full or is_acknowledging else None,
            rebalance_timeout_s=self._settings.poll_limit_s,
        )
        self._sent_topics = subscribed
        self._awaits_heartbeat = True
        self._heartbeat_s = self._link.clock() + self._link.brokers.settings.group_consumer_heartbeat_interval_s
        groups, group_id = self._link.brokers.groups, self._settings.group_id
        self._send(
            "ConsumerGroupHeartbeat",
            lambda: groups.consumer_heartbeat(group_id, request),
            lambda answer: self._answered(answer, acknowledged=is_acknowledging),
        )

    def _answered(self, answer: Answer[ConsumerHeartbeatAnswer] | None, *, acknowledged: bool) -> None:
        self._awaits_heartbeat = False
        if self._state is _State.FENCED:
            return
        if answer is None:
            self._sent_topics = None
            self._heartbeat_s = self._link.clock()
        elif answer.refusal is not None:
            self._refused(answer.refusal)
        elif answer.value is not None:
            self._apply_answer(answer.value, acknowledged=acknowledged)

    def _apply_answer(self, answer: ConsumerHeartbeatAnswer, *, acknowledged: bool) -> None:
        self._state = _State.MEMBER
        self.generation = answer.member_epoch
        self._heartbeat_s = self._link.clock() + answer.heartbeat_interval_s
        if self._topics is not None and self._topics() != self._sent_topics:
            self._heartbeat_s = self._link.clock()
        if answer.assigned is not None:
            self._next_target = answer.assigned
        if self._queued_rebalance is not None:
            return
        if acknowledged:
            self._target = None
        elif self._target is not None:
            self._heartbeat_s = self._link.clock()  # complete meanwhile: acknowledge it
        if self._target is None and self._next_target is not None:
            target, self._next_target = self._next_target, None
            self._reconcile(target)

    def _reconcile(self, target: frozenset[PartitionKey]) -> None:
        if target == self.owned:
            return
        self._target = target
        if self.owned - target:
            self._queue_rebalance(RebalanceKind.REVOKE, self.owned - target)
        else:
            self._queue_rebalance(RebalanceKind.ASSIGN, target - self.owned)

    def _refused(self, refusal: BrokerError) -> None:
        if refusal.code in _FENCED:
            next_heartbeat_s = self._heartbeat_s if self._state is _State.TO_JOIN else self._link.clock()
            self._fence()
            self._heartbeat_s = (
                next_heartbeat_s  # refused at joining: wait, because the broker still has an older member of this id
            )
        elif refusal.code in _FATAL:
            self._fail(refusal.code, refusal.why or refusal.code)
            if self.owned and self._queued_rebalance is None:
                self._queue_rebalance(RebalanceKind.LOSE, self.owned)
        else:
            self._sent_topics = None
            self._heartbeat_s = self._link.clock() + self._settings.backoff_s

    def on_commit_refused(self, code: str) -> None:
        """Send a heartbeat at once, whose answer has the present membership."""
        if code in ("UNKNOWN_MEMBER_ID", "STALE_MEMBER_EPOCH"):
            self._heartbeat_s = self._link.clock()

    # -- leaving and coming back ---------------------------------------------------------------------------------

    def _fence(self) -> None:
        """Lose all partitions, after a queued rebalance was served."""
        self._state = _State.FENCED
        if self._queued_rebalance is None:
            self._lose()

    def _lose(self) -> None:
        if self.owned:
            self._queue_rebalance(RebalanceKind.LOSE, self.owned)
        else:
            self._join_again()

    def _join_again(self) -> None:
        if self._leaves_first:
            self._link.post(*self._leave_request(), lambda _: None)
        self._begin()
        self.generation = 0

    def _begin(self) -> None:
        self._session_number += 1
        self._awaits_heartbeat = self._leaves_first = False
        self._sent_topics = self._target = self._next_target = None
        self._state = _State.OUTSIDE if self._topics is None else _State.TO_JOIN
        self._heartbeat_s = self._link.clock()

    def leave(self) -> tuple[str, Callable[[], object]] | None:
        """Leave the group. A static member leaves with epoch -2: it may come back within its session."""
        request = self._leave_request() if self._state in (_State.MEMBER, _State.FENCED) else None
        self._topics = None
        self._begin()
        self.generation = 0
        return request

    def _leave_request(self) -> tuple[str, Callable[[], object]]:
        settings, groups = self._settings, self._link.brokers.groups
        epoch = LEAVING_EPOCH if settings.instance_id is None else STATIC_LEAVING_EPOCH
        request = ConsumerHeartbeat(self.member_id, epoch, instance_id=settings.instance_id, client=self._link.name)
        return "ConsumerGroupHeartbeat", lambda: groups.consumer_heartbeat(settings.group_id, request)
