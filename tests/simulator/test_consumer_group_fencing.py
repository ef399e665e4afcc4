"""A KIP-848 group's members that lose answers, fall silent, leave, come back, or share an instance id."""

from __future__ import annotations

import math

import pytest

from eos_client.testing.simulator.brokers.group_requests import ConsumerHeartbeat
from eos_client.testing.simulator.brokers.model import BrokerError, Membership
from tests.simulator.consumer_group_client import (
    P0,
    P1,
    P2,
    P3,
    PARTITIONS,
    Client,
    new_group,
    two_members,
)

# -- fencing and lost answers ------------------------------------------------------------------------------------


def test_a_heartbeat_from_the_future_is_fenced():
    _, a, _ = two_members()
    with pytest.raises(BrokerError, match="FENCED_MEMBER_EPOCH"):
        a.beat(epoch=7)


def test_a_heartbeat_of_an_older_epoch_is_fenced():
    group, a, _ = two_members()
    group.bump()
    a.beat()
    with pytest.raises(BrokerError, match="FENCED_MEMBER_EPOCH"):
        a.beat(epoch=1, owned=a.owned)


def test_a_member_whose_answer_was_lost_goes_on_from_the_epoch_before():
    group, a, _ = two_members()
    group.bump()
    a.beat()
    a.epoch = 2
    assert a.beat(owned=a.owned).assigned == a.owned
    assert a.epoch == 3


@pytest.mark.parametrize("owned", [None, frozenset(PARTITIONS)])
def test_the_epoch_before_is_fenced_unless_the_member_lists_what_it_may_own(owned):
    group, a, _ = two_members()
    group.bump()
    a.beat()
    with pytest.raises(BrokerError, match="FENCED_MEMBER_EPOCH"):
        a.beat(epoch=2, owned=owned)


def test_a_join_whose_answer_was_lost_may_be_repeated():
    group = new_group()
    a = Client(group, "a").join()
    a.join()
    assert (a.epoch, a.owned, group.describe().epoch) == (1, set(PARTITIONS), 1)


def test_a_member_that_moved_on_since_cannot_join_again_before_its_session_has_ended():
    group, a, _ = two_members()
    group.bump()
    a.beat()
    with pytest.raises(BrokerError, match="FENCED_MEMBER_EPOCH"):
        a.join()
    group.evict("a")
    a.join()


def test_a_heartbeat_of_a_stranger_is_refused():
    with pytest.raises(BrokerError, match="UNKNOWN_MEMBER_ID"):
        Client(new_group(), "a").beat(epoch=3)


# -- leaving, silence, static members ----------------------------------------------------------------------------


def test_a_member_that_leaves_frees_its_partitions():
    group, a, b = two_members()
    a.beat(epoch=-1)
    assert "a" not in group.describe().members
    assert b.settle().owned == set(PARTITIONS)


def test_a_member_that_keeps_silent_for_a_session_is_evicted():
    group = new_group(group_consumer_session_timeout_s=10.0)
    a = Client(group, "a").join(now_s=0.0)
    Client(group, "b").join(now_s=4.0)
    a.beat(5.0)
    assert group.due_s(5.0) == 14.0
    group.expire(13.9)
    assert sorted(group.describe().members) == ["a", "b"]
    group.expire(14.0)
    assert sorted(group.describe().members) == ["a"]
    assert group.due_s(14.0) == 15.0


def test_an_empty_group_waits_for_nobody():
    assert new_group().due_s(0.0) == math.inf


def test_a_time_that_has_passed_is_due_now():
    group = new_group()
    Client(group, "a").join()
    assert group.due_s(1000.0) == 1000.0


def test_a_member_that_gives_up_nothing_in_its_rebalance_timeout_is_evicted():
    group = new_group(group_consumer_session_timeout_s=1000.0)
    a = Client(group, "a").join()
    Client(group, "b").join()
    a.beat(10.0)
    a.beat(200.0)
    assert group.due_s(200.0) == 310.0
    group.expire(310.0)
    assert sorted(group.describe().members) == ["b"]


def test_a_member_says_how_long_it_may_take_to_give_partitions_up():
    group = new_group(group_consumer_session_timeout_s=1000.0)
    a = Client(group, "a").join()
    Client(group, "b").join()
    group.heartbeat(ConsumerHeartbeat("a", a.epoch, rebalance_timeout_s=20.0), 10.0)
    assert group.due_s(10.0) == 30.0


def test_a_member_that_gave_up_in_time_is_not_evicted():
    group = new_group(group_consumer_session_timeout_s=1000.0)
    a = Client(group, "a").join()
    Client(group, "b").join()
    a.beat(10.0)
    a.beat(200.0, owned=frozenset({P0, P1}))
    group.expire(310.0)
    assert sorted(group.describe().members) == ["a", "b"]


def test_a_refused_heartbeat_does_not_prolong_a_session():
    group = new_group(group_consumer_session_timeout_s=10.0)
    a = Client(group, "a").join()
    with pytest.raises(BrokerError, match="FENCED_MEMBER_EPOCH"):
        a.beat(9.0, epoch=7)
    group.expire(10.0)
    assert group.describe().state == "Empty"


def test_an_instance_in_use_cannot_be_taken_over():
    group = new_group()
    Client(group, "a", "worker-1").join()
    with pytest.raises(BrokerError, match="UNRELEASED_INSTANCE_ID"):
        Client(group, "a2", "worker-1").join()


def test_a_static_member_that_went_away_for_a_while_keeps_its_partitions():
    group = new_group()
    a = Client(group, "a", "worker-1").join()
    b = Client(group, "b").join()
    a.settle()
    b.settle()
    a.beat(epoch=-2)
    assert b.settle().owned == {P2, P3}
    back = Client(group, "a2", "worker-1").join()
    assert (back.owned, back.epoch, group.describe().epoch) == ({P0, P1}, 2, 2)
    assert sorted(group.describe().members) == ["a2", "b"]


def test_a_static_member_that_stays_away_for_a_session_is_evicted():
    group = new_group(group_consumer_session_timeout_s=10.0)
    a = Client(group, "a", "worker-1").join()
    a.beat(5.0, epoch=-2)
    group.expire(14.9)
    assert group.describe().state == "Stable"
    group.expire(15.0)
    assert group.describe().state == "Empty"


def test_the_process_that_lost_its_instance_is_fenced():
    group = new_group()
    a = Client(group, "a", "worker-1").join()
    a.beat(epoch=-2)
    Client(group, "a2", "worker-1").join()
    with pytest.raises(BrokerError, match="FENCED_INSTANCE_ID"):
        a.beat(epoch=1)
    with pytest.raises(BrokerError, match="FENCED_INSTANCE_ID"):
        a.beat(epoch=-1)
    with pytest.raises(BrokerError, match="UNKNOWN_MEMBER_ID"):
        group.validate_commit(Membership(1, "a", "worker-1"), [P0], transactional=True)


def test_an_instance_that_nobody_knows_cannot_go_on():
    with pytest.raises(BrokerError, match="UNKNOWN_MEMBER_ID"):
        Client(new_group(), "a", "worker-1").beat(epoch=1)


def test_a_pin_follows_a_static_member_to_its_new_process():
    group = new_group()
    a = Client(group, "a", "worker-1").join()
    b = Client(group, "b").join()
    group.pin(PARTITIONS, "a")
    a.settle()
    b.settle()
    a.beat(epoch=-2)
    back = Client(group, "a2", "worker-1").join()
    group.bump()
    assert back.settle().owned == set(PARTITIONS)
