"""A classic group under test with its clock, and what its clients say."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from eos_client.testing.simulator.brokers.classic_group import ClassicGroup, ClassicState
from eos_client.testing.simulator.brokers.clock import SimulatedClock
from eos_client.testing.simulator.brokers.group_requests import JoinAnswer, JoinRequest
from eos_client.testing.simulator.brokers.model import BrokerError, Membership, PartitionKey

TOPICS = frozenset({"orders"})


def orders(*numbers: int) -> frozenset[PartitionKey]:
    return frozenset(PartitionKey("orders", number) for number in numbers)


def said(client: str, **changes) -> JoinRequest:
    """What a client says when it joins."""
    return JoinRequest(**{"topics": TOPICS, "client": client, "session_timeout_s": 10.0, **changes})


class ClassicGroupBench:
    """One group of a topic with four partitions, and its clock."""

    def __init__(self) -> None:
        self.clock = SimulatedClock()
        self.group = self.coordinator_started()

    def coordinator_started(self, records=()) -> ClassicGroup:
        return ClassicGroup("billing", self.clock, lambda topic: 4 if topic == "orders" else 0, Random(7), records)

    def restart(self) -> None:
        self.group = self.coordinator_started(self.group.records())

    def join(self, *requests: JoinRequest) -> list[JoinAnswer]:
        """All of ``requests`` join one round; answers in their order."""
        member_ids = [self.group.join(request) for request in requests]
        for request, member_id in zip(requests, member_ids, strict=True):
            if self.group.state is ClassicState.PREPARING:  # those who joined before the round was complete join again
                self.group.join(said(request.client, **{**fields(request), "member_id": member_id}))
        leader_first = [self.group.joined(member_id) for member_id in member_ids]
        answers = [a or self.group.joined(m) for a, m in zip(leader_first, member_ids, strict=True)]
        assert None not in answers, "the round is complete"
        return [answer for answer in answers if answer is not None]

    def pass_time(self, seconds: float) -> None:
        """Let time pass; the group works whenever it has to."""
        end_s = self.clock.now_s + seconds
        while self.group.due_s <= end_s:
            self.clock.set_to(self.group.due_s)
            self.group.expire()
        self.clock.set_to(end_s)


def fields(request: JoinRequest) -> dict[str, Any]:
    return {name: getattr(request, name) for name in JoinRequest.__slots__ if name not in {"client", "member_id"}}


def again(answer: JoinAnswer, client: str, **changes) -> JoinRequest:
    """A member joins the next round."""
    return said(client, **{"member_id": answer.member_id, **changes})


def membership(answer: JoinAnswer, instance_id=None) -> Membership:
    return Membership(answer.generation, answer.member_id, instance_id)


def refusal(call, *args, **kwargs) -> str:
    with pytest.raises(BrokerError) as refused:
        call(*args, **kwargs)
    return refused.value.code
