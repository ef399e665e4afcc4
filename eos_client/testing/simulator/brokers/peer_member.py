"""Another member of the group, which takes part in rebalances and does not consume."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from eos_client.testing.simulator.brokers.group_coordinator import GroupCoordinator
from eos_client.testing.simulator.brokers.group_requests import (
    JOINING_EPOCH,
    LEAVING_EPOCH,
    ConsumerHeartbeat,
    JoinRequest,
)
from eos_client.testing.simulator.brokers.model import NO_GENERATION, BrokerError, Membership, PartitionKey

_STEP_S = 0.01
_IDLE_STEP_S = 0.1
_NO_MEMBER = frozenset({"UNKNOWN_MEMBER_ID", "FENCED_MEMBER_EPOCH"})
_REJOINS = frozenset({"REBALANCE_IN_PROGRESS", "ILLEGAL_GENERATION"}) | _NO_MEMBER


class PeerMember:
    """A member that applies the coordinator's assignments immediately.

    ``assignor`` None means KIP-848. A `Worker`; ``leave`` ends it.
    """

    def __init__(
        self,
        name: str,
        groups: GroupCoordinator,
        clock: Callable[[], float],
        group_id: str,
        topics: Iterable[str],
        assignor: str | None,
    ) -> None:
        self.name = name
        self.owned: frozenset[PartitionKey] = frozenset()
        self.due_s = clock()
        self._groups = groups
        self._clock = clock
        self._group_id = group_id
        self._topics = frozenset(topics)
        self._assignor = assignor
        self._waits_for_round = False
        self._generation = NO_GENERATION
        self._idle_steps = 0
        self.member_id = name if assignor is None else ""
        self._step()

    def work(self) -> None:
        """Send the next request to the coordinator."""
        before = self._state
        self._step()
        self._idle_steps = 0 if self._state != before else self._idle_steps + 1
        self.due_s = self._clock() + min(_IDLE_STEP_S, _STEP_S * (1 + self._idle_steps))

    @property
    def _state(self) -> tuple[object, ...]:
        return self.owned, self._generation, self._waits_for_round

    def leave(self) -> None:
        """Leave the group, unless the coordinator has evicted the member. Its partitions go to the other members."""
        self.due_s = math.inf
        self.owned = frozenset()
        try:
            if self._assignor is None:
                self._groups.consumer_heartbeat(self._group_id, ConsumerHeartbeat(self.member_id, LEAVING_EPOCH))
            else:
                self._groups.leave(self._group_id, self.member_id)
        except BrokerError as error:
            if error.code not in _NO_MEMBER:
                raise

    def _step(self) -> None:
        try:
            if self._assignor is None:
                self._send_heartbeat()
            elif self._waits_for_round:
                self._take_assignment()
            elif self._generation == NO_GENERATION:
                self._join(self._assignor)
            else:
                self._groups.heartbeat(self._group_id, Membership(self._generation, self.member_id))
        except BrokerError as error:
            if error.code not in _REJOINS:
                raise
            self._rejoin(is_unknown=error.code in _NO_MEMBER)

    def _send_heartbeat(self) -> None:
        joining = self._generation == NO_GENERATION
        answer = self._groups.consumer_heartbeat(
            self._group_id,
            ConsumerHeartbeat(
                self.member_id,
                JOINING_EPOCH if joining else self._generation,
                client=self.name,
                topics=self._topics if joining else None,
                owned=self.owned,
            ),
        )
        self._generation = answer.member_epoch
        if answer.assigned is not None:
            self.owned = answer.assigned

    def _join(self, assignor: str) -> None:
        self.member_id = self._groups.join(
            self._group_id,
            JoinRequest(self._topics, member_id=self.member_id, client=self.name, assignor=assignor, owned=self.owned),
        )
        self._waits_for_round = True

    def _take_assignment(self) -> None:
        answer = self._groups.joined(self._group_id, self.member_id)
        if answer is None:
            return
        self._waits_for_round = False
        self._generation, self.owned = answer.generation, answer.assigned

    def _rejoin(self, *, is_unknown: bool) -> None:
        self._generation, self._waits_for_round = NO_GENERATION, False
        if is_unknown:
            self.owned = frozenset()
            self.member_id = self.member_id if self._assignor is None else ""
