"""Static members of a classic group: restarts without a round, former processes that are fenced."""

from __future__ import annotations

import pytest

from eos_client.testing.simulator.brokers.assignors import COOPERATIVE
from eos_client.testing.simulator.brokers.group_requests import JoinAnswer
from eos_client.testing.simulator.brokers.model import PartitionKey
from tests.simulator.classic_group_bench import (
    ClassicGroupBench,
    again,
    membership,
    orders,
    refusal,
    said,
)


@pytest.fixture
def bench() -> ClassicGroupBench:
    return ClassicGroupBench()


# -- static members ------------------------------------------------------------------------------------------------


@pytest.fixture
def static(bench) -> tuple[JoinAnswer, JoinAnswer]:
    """A static and a dynamic member."""
    a, b = bench.join(said("a", instance_id="host-1"), said("b"))
    return a, b


def test_a_restarted_static_member_gets_its_partitions_back_without_a_round(bench, static):
    a, b = static
    a2_id = bench.group.join(said("a", instance_id="host-1"))
    assert a2_id != a.member_id
    assert bench.group.joined(a2_id) == JoinAnswer(a2_id, a.generation, a.assigned)
    bench.group.heartbeat(membership(b))


def test_the_former_process_of_a_static_member_is_fenced_by_every_request(bench, static):
    """P2: the coordinator checks them: FENCED_INSTANCE_ID."""
    a, _ = static
    bench.group.join(said("a", instance_id="host-1"))
    old = membership(a, "host-1")
    assert refusal(bench.group.heartbeat, old) == "FENCED_INSTANCE_ID"
    assert refusal(bench.group.join, again(a, "a", instance_id="host-1")) == "FENCED_INSTANCE_ID"
    assert refusal(bench.group.joined, a.member_id) == "FENCED_INSTANCE_ID"
    assert refusal(bench.group.leave, a.member_id, "host-1") == "FENCED_INSTANCE_ID"
    for transactional in (False, True):
        assert refusal(bench.group.validate_commit, old, transactional=transactional) == "FENCED_INSTANCE_ID"


def test_a_static_member_that_restarts_during_a_round_takes_part_in_it(bench, static):
    a, b = static
    bench.group.force_rebalance()
    a2_id = bench.group.join(said("a", instance_id="host-1"))
    assert bench.group.joined(a2_id) is None
    bench.group.join(again(b, "b"))
    assert bench.group.joined(a2_id) == JoinAnswer(a2_id, a.generation + 1, a.assigned)


def test_a_static_member_that_restarts_before_the_assignment_is_handed_out_begins_a_new_round(bench, static):
    a, b = static
    bench.join(again(a, "a", instance_id="host-1"), again(b, "b"))
    bench.group.force_rebalance()
    bench.group.join(again(b, "b"))
    bench.group.join(again(a, "a", instance_id="host-1"))
    assert bench.group.describe().state == "CompletingRebalance"
    a_id = bench.group.join(said("a", instance_id="host-1"))
    assert bench.group.describe().state == "PreparingRebalance"
    assert bench.group.joined(a_id) is None


def test_a_static_leader_is_still_the_leader_after_its_restart(bench, static):
    a_id = bench.group.join(said("a", instance_id="host-1"))
    assert bench.group.describe().state == "Stable"
    bench.group.join(said("a", instance_id="host-1", member_id=a_id))
    assert bench.group.describe().state == "PreparingRebalance", "joining again, a leader asks for a new assignment"


def test_every_former_process_of_a_static_member_is_told_that_it_was_replaced(bench, static):
    first = static[0].member_id
    second = bench.group.join(said("a", instance_id="host-1"))
    bench.group.join(said("a", instance_id="host-1"))
    assert refusal(bench.group.joined, first) == "FENCED_INSTANCE_ID"
    assert refusal(bench.group.joined, second) == "FENCED_INSTANCE_ID"


def test_a_static_member_that_does_not_join_stays_until_its_session_ends(bench):
    long = {"session_timeout_s": 100.0, "rebalance_timeout_s": 30.0}
    a, b = bench.join(said("a", instance_id="host-1", **long), said("b", **long))
    bench.group.force_rebalance()
    bench.group.join(again(b, "b", **long))
    bench.pass_time(30.0)
    assert bench.group.joined(b.member_id) == JoinAnswer(b.member_id, b.generation + 1, orders(2, 3))
    assert refusal(bench.group.heartbeat, membership(a, "host-1")) == "ILLEGAL_GENERATION"
    assert bench.group.describe().members[a.member_id].assigned == orders(0, 1)


def test_what_a_static_member_owed_when_it_died_belongs_to_nobody_until_the_next_round(bench):
    """As measured: tests/kafka/test_traps_static_members.py."""
    static = {"assignor": COOPERATIVE, "instance_id": "host-1"}
    (a,) = bench.join(said("a", **static))
    a, b = bench.join(again(a, "a", owned=a.assigned, **static), said("b", assignor=COOPERATIVE))
    a_id = bench.group.join(said("a", **static))
    assert bench.group.joined(a_id) == JoinAnswer(a_id, a.generation, a.assigned)
    assert a.assigned | b.assigned < orders(0, 1, 2, 3)
    begins = said("a", member_id=a_id, owned=a.assigned, **static)
    a, b = bench.join(begins, again(b, "b", assignor=COOPERATIVE))
    assert a.assigned | b.assigned == orders(0, 1, 2, 3)


def test_a_static_member_is_removed_by_its_instance_id_alone(bench, static):
    a, b = static
    bench.group.leave("", "host-1")
    assert list(bench.group.describe().members) == [b.member_id]
    assert refusal(bench.group.heartbeat, membership(a, "host-1")) == "UNKNOWN_MEMBER_ID"


def test_a_pin_follows_a_static_member_into_its_next_life(bench, static):
    a, b = static
    bench.group.pin(orders(3), a.member_id)
    a_id = bench.group.join(said("a", instance_id="host-1"))
    bench.group.join(again(b, "b"))
    answer = bench.group.joined(a_id)
    assert answer is not None
    assert PartitionKey("orders", 3) in answer.assigned


# -- restarts ------------------------------------------------------------------------------------------------------


def test_a_restart_of_the_coordinator_keeps_generation_members_and_assignment(bench, static):
    before = bench.group.describe()
    bench.restart()
    assert bench.group.describe() == before
    bench.group.heartbeat(membership(static[1]))


def test_a_fenced_static_process_stays_fenced_after_a_restart(bench, static):
    a, _ = static
    bench.group.join(said("a", instance_id="host-1"))
    bench.restart()
    assert refusal(bench.group.heartbeat, membership(a, "host-1")) == "FENCED_INSTANCE_ID"
    assert refusal(bench.group.joined, a.member_id) == "FENCED_INSTANCE_ID"
