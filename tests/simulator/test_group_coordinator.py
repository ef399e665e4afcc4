"""The group coordinator: members of both protocols, scripts, sessions, and what a restart leaves."""

from __future__ import annotations

import math
from typing import Any

import pytest

from eos_client.testing.simulator.brokers.assignors import COOPERATIVE
from eos_client.testing.simulator.brokers.group_requests import (
    LEAVING_EPOCH,
    FetchedOffset,
    JoinAnswer,
    JoinRequest,
)
from eos_client.testing.simulator.brokers.model import (
    Membership,
    PartitionKey,
)
from eos_client.testing.simulator.brokers.settings import BrokerSettings, CommitCheck
from tests.simulator.group_bench import (
    GROUP,
    STABLE,
    TOPICS,
    GroupBench,
    at,
    membership,
    orders,
    refusal,
    stage,
)
from tests.support.protocols import BY_COORDINATOR


@pytest.fixture
def bench() -> GroupBench:
    return GroupBench()


# -- both protocols ------------------------------------------------------------------------------------------------


def test_a_consumer_group_learns_what_it_owns_by_heartbeats_and_is_fenced_by_epoch(bench):
    a = bench.heartbeat("a")
    assert a.assigned == orders(0, 1, 2, 3)
    stage(bench, Membership(a.member_epoch, "a"), at(5, 0))
    assert refusal(bench.heartbeat, "a", a.member_epoch + 5, topics=None) == "FENCED_MEMBER_EPOCH"


@pytest.mark.parametrize("check", [CommitCheck.EXACT, CommitCheck.ASSIGNMENT_EPOCH])
def test_a_silent_bump_makes_only_the_exact_check_refuse_the_epoch_before(check):
    bench = GroupBench(BrokerSettings(commit_validation=check))
    a = bench.heartbeat("a")
    bench.groups.force_rebalance(GROUP)
    bumped = bench.heartbeat("a", a.member_epoch, topics=None)
    assert bumped.member_epoch > a.member_epoch
    sent = Membership(a.member_epoch, "a")
    if check is CommitCheck.EXACT:
        assert refusal(bench.groups.commit_offsets, GROUP, sent, at(5, 0)) == "STALE_MEMBER_EPOCH"
        assert refusal(stage, bench, sent, at(5, 0)) == "ILLEGAL_GENERATION"
    else:
        bench.groups.commit_offsets(GROUP, sent, at(5, 0))


def test_members_of_one_protocol_are_kept_out_of_a_group_of_the_other(bench):
    a = bench.join("a")
    assert refusal(bench.heartbeat, "b") == "GROUP_ID_NOT_FOUND"
    bench.groups.leave(GROUP, a.member_id)
    b = bench.heartbeat("b")
    assert b.assigned == orders(0, 1, 2, 3), "an empty group may change its protocol"
    assert refusal(bench.groups.join, GROUP, JoinRequest(TOPICS)) == "INCONSISTENT_GROUP_PROTOCOL"
    assert refusal(bench.groups.heartbeat, GROUP, membership(a)) == "UNKNOWN_MEMBER_ID"
    bench.heartbeat("b", LEAVING_EPOCH, topics=None)
    assert bench.join("c").assigned == orders(0, 1, 2, 3)


def test_committed_offsets_outlive_a_change_of_protocol(bench):
    a = bench.join("a")
    bench.groups.commit_offsets(GROUP, membership(a), at(5, 0))
    bench.groups.leave(GROUP, a.member_id)
    bench.heartbeat("b")
    assert bench.committed(0) == FetchedOffset(5)


def test_an_anonymous_commit_founds_a_group_without_members_and_a_restart_keeps_it(bench):
    nobody, somebody = Membership(-1, ""), Membership(3, "somebody")
    assert refusal(bench.groups.commit_offsets, GROUP, somebody, at(5, 0)) == "ILLEGAL_GENERATION"
    assert bench.groups.commit_offsets(GROUP, nobody, at(5, 0)) == dict.fromkeys(at(5, 0), STABLE)
    assert bench.groups.describe(GROUP).state == "Empty"
    assert refusal(bench.groups.commit_offsets, GROUP, somebody, at(5, 0)) == "UNKNOWN_MEMBER_ID"
    bench.groups.restart()
    assert refusal(bench.groups.commit_offsets, GROUP, somebody, at(5, 0)) == "UNKNOWN_MEMBER_ID"


def test_a_heartbeat_to_a_group_nobody_founded_is_refused(bench):
    assert refusal(bench.heartbeat, "a", 3) == "GROUP_ID_NOT_FOUND"
    assert refusal(bench.groups.heartbeat, GROUP, Membership(1, "a")) == "UNKNOWN_MEMBER_ID"
    assert refusal(bench.groups.join, GROUP, JoinRequest(TOPICS, member_id="a")) == "UNKNOWN_MEMBER_ID"


def test_a_refused_first_member_founds_no_group(bench):
    assert refusal(bench.groups.join, GROUP, JoinRequest(TOPICS, assignor="fair")) == "INCONSISTENT_GROUP_PROTOCOL"
    assert bench.groups.describe(GROUP).state == "Dead"
    assert bench.heartbeat("a").assigned == orders(0, 1, 2, 3)


# -- scripts, time and restarts ------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", BY_COORDINATOR)
def test_a_script_may_evict_pin_and_rebalance_in_either_protocol(bench, protocol):
    if protocol == "classic":
        a_id = bench.join("a").member_id
        b_id = bench.groups.join(GROUP, JoinRequest(TOPICS, client="b"))
    else:
        a_id, b_id = bench.heartbeat("a").member_id, bench.heartbeat("b").member_id
    bench.groups.pin(GROUP, orders(0, 1, 2, 3), b_id)
    bench.groups.force_rebalance(GROUP)
    bench.groups.evict(GROUP, a_id)
    assert list(bench.groups.describe(GROUP).members) == [b_id]
    assert refusal(bench.groups.evict, GROUP, a_id) == "UNKNOWN_MEMBER_ID"


def test_a_script_that_names_an_unknown_group_is_told_so(bench):
    assert refusal(bench.groups.evict, "nobody", "a") == "GROUP_ID_NOT_FOUND"
    assert refusal(bench.groups.pin, "nobody", orders(0), "a") == "GROUP_ID_NOT_FOUND"
    assert refusal(bench.groups.force_rebalance, "nobody") == "GROUP_ID_NOT_FOUND"
    assert bench.groups.describe("nobody").state == "Dead"


@pytest.mark.parametrize("protocol", BY_COORDINATOR)
def test_a_silent_member_is_evicted_in_either_protocol_and_then_nothing_is_due(bench, protocol):
    if protocol == "classic":
        bench.join("a", session_timeout_s=45.0)
    else:
        bench.heartbeat("a")
    assert bench.groups.due_s == 45.0
    bench.pass_time(45.0)
    assert not bench.groups.describe(GROUP).members
    assert bench.groups.due_s == math.inf


@pytest.mark.parametrize("protocol", BY_COORDINATOR)
def test_a_restart_keeps_members_pins_and_offsets_in_either_protocol(bench, protocol):
    if protocol == "classic":
        a = bench.join("a")
        sent = membership(a)
    else:
        sent = Membership(bench.heartbeat("a").member_epoch, "a")
    bench.groups.commit_offsets(GROUP, sent, at(5, 0))
    before = bench.groups.describe(GROUP)
    bench.groups.restart()
    assert bench.groups.describe(GROUP) == before
    assert bench.committed(0) == FetchedOffset(5)
    bench.groups.commit_offsets(GROUP, sent, at(6, 0))
    assert bench.committed(0) == FetchedOffset(6)


def test_a_pin_outlives_a_restart(bench):
    a = bench.join("a")
    bench.groups.pin(GROUP, orders(3), a.member_id)
    bench.groups.restart()
    b_id = bench.groups.join(GROUP, JoinRequest(TOPICS, client="b"))
    bench.groups.join(GROUP, JoinRequest(TOPICS, client="a", member_id=a.member_id))
    answer = bench.groups.joined(GROUP, a.member_id)
    assert answer is not None
    assert answer.assigned == orders(0, 1, 3)
    assert bench.groups.joined(GROUP, b_id) == JoinAnswer(b_id, 2, orders(2))


def test_what_one_gave_up_in_a_round_that_a_restart_forgot_is_not_left_without_an_owner(bench):
    def join(client: str, member_id: str = "", owned: frozenset[PartitionKey] = frozenset()) -> Any:
        request = JoinRequest(TOPICS, member_id, client=client, assignor=COOPERATIVE, owned=owned)
        return bench.groups.join(GROUP, request)

    a = bench.join("a", assignor=COOPERATIVE)
    b_id = join("b")
    join("a", a.member_id, a.assigned)
    kept = bench.groups.joined(GROUP, a.member_id).assigned
    join("a", a.member_id, kept)
    bench.groups.restart()
    assert refusal(bench.groups.joined, GROUP, a.member_id) == "REBALANCE_IN_PROGRESS"
    join("a", a.member_id, kept)
    join("b", b_id)
    assert bench.groups.joined(GROUP, a.member_id).assigned == kept
    assert bench.groups.joined(GROUP, b_id).assigned == a.assigned - kept


def test_a_group_in_its_very_first_round_is_lost_in_a_restart(bench):
    member_id = bench.groups.join(GROUP, JoinRequest(TOPICS, client="a"))
    bench.groups.restart()
    assert bench.groups.describe(GROUP).state == "Dead"
    assert refusal(bench.groups.joined, GROUP, member_id) == "UNKNOWN_MEMBER_ID"
    assert bench.join("a").generation == 1


def test_one_seed_gives_one_story():
    def story(seed: int) -> list[object]:
        bench = GroupBench(seed=seed)
        classic = bench.join("a")
        bench.groups.leave(GROUP, classic.member_id)
        return [classic, bench.heartbeat(""), bench.groups.describe(GROUP)]

    assert story(1) == story(1)
    assert story(1) != story(2)
