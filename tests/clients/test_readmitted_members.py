"""A group of both protocols: its coordinator readmits an evicted classic member under its old id, and nobody is told.

KIP-848 brokers take every member id of a JoinGroup to a group that has KIP-848 members, too, even one that they have
evicted (``GroupMetadataManager.classicGroupJoinToConsumerGroup``). librdkafka then reports no loss: it kept its id.
"""

from __future__ import annotations

import math
from typing import Any

import pytest

from eos_client.testing.simulator.brokers.classic_group import ClassicGroup
from eos_client.testing.simulator.brokers.classic_member import ClassicMember
from tests.clients.test_unheard_loss import Pair

STALL_S = 9.0  # beyond the session time-out
WAITS_S = (0.02, 0.05, 0.1)
TURNS = (2, 4, 6, 8, 10)


@pytest.fixture
def readmitting(monkeypatch):
    join = ClassicGroup.join

    def join_any(self: Any, request: Any) -> Any:
        if not request.member_id or request.member_id in self._members:
            return join(self, request)
        self._members[request.member_id] = member = ClassicMember(request.member_id, request, math.inf)
        return self._join_round(member, begins=True)

    monkeypatch.setattr(ClassicGroup, "join", join_any)


@pytest.mark.in_turn(3)
@pytest.mark.usefixtures("readmitting")
@pytest.mark.parametrize("wait_s", WAITS_S)
@pytest.mark.parametrize("turns", TURNS)
def test_records_that_another_owner_has_committed_are_not_written_again(turns, wait_s):
    pair = Pair(wait_s)
    cluster = pair.stage.cluster
    pair.blocks(pair.old, turns=8)
    pair.stage.load(1)
    pair.blocks(pair.old, turns=3)
    cluster.delay("JoinGroup", STALL_S, "old")
    pair.blocks(pair.new, turns=1)
    for _ in range(200):
        pair.blocks(pair.old, turns=1)
        pair.blocks(pair.new, turns=turns)
        if cluster.clock() % 1 < 0.1:
            pair.stage.load(1)
    pair.blocks(pair.old, pair.new, turns=60)
    assert sorted(pair.stage.outputs) == sorted(pair.stage.inputs)
