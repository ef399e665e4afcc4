"""Members that stall, are frozen, cut off, restarted, or replaced by one with their instance id."""

from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from eos_client.testing.simulator.brokers.model import Membership
from tests.simulator.simulated_group import filled_cluster, group_member, pump, settle
from tests.support.protocols import CONSUMER, COOPERATIVE, EAGER, PROTOCOLS


@pytest.fixture
def cluster():
    return filled_cluster()


@pytest.fixture(params=PROTOCOLS)
def protocol(request):
    return request.param


# -- stalls ------------------------------------------------------------------------------------------------------


def stalled(cluster, protocol, **settings):
    member = group_member(cluster, protocol, max_poll_interval_ms=60_000, **settings)
    pump(member)
    member.got.clear()
    cluster.advance(100.0)
    return member


def test_a_stalled_classic_member_has_left_the_group_and_its_metadata_is_anonymous_but_for_the_generation(cluster):
    member = stalled(cluster, EAGER)
    assert not cluster.brokers.groups.describe("g").members
    assert member.membership == Membership(1, "")


def test_a_stalled_kip_848_member_stays_until_its_session_ends(cluster):
    member = group_member(cluster, CONSUMER, max_poll_interval_ms=60_000)
    pump(member)
    cluster.advance(90.0)
    assert len(cluster.brokers.groups.describe("g").members) == 1
    cluster.advance(30.0)
    assert not cluster.brokers.groups.describe("g").members
    settle(member)
    assert member.told()[1:] == [("on_lost", [0, 1, 2, 3]), ("on_assign", [0, 1, 2, 3])]


def test_a_cooperative_member_that_stalls_while_it_waits_for_a_round_loses_everything(cluster):
    member = group_member(cluster, COOPERATIVE, max_poll_interval_ms=20_000, session_timeout_ms=10_000)
    other = group_member(cluster, COOPERATIVE)
    settle(member, other)
    cluster.rebalance()
    with cluster.zombie("consumer-2"):
        pump(member, seconds=5.0)
        seen = len(member.seen)
        cluster.advance(30.0)
        assert len(cluster.brokers.groups.describe("g").members) == 1
    settle(member, other)
    assert member.seen[seen][0] == "on_lost"
    assert len(member.owned) == len(other.owned) == 2


def test_a_cooperative_member_evicted_while_it_waits_for_a_round_joins_again_only_when_the_loss_was_told(cluster):
    member, other = group_member(cluster, COOPERATIVE), group_member(cluster, COOPERATIVE)
    settle(member, other)
    seen, lost = len(member.seen), member.owned
    with cluster.zombie("consumer-2"):
        cluster.rebalance()
        cluster.advance(5.0)
        cluster.lose("consumer-1")
        cluster.advance(100.0)
        assert not cluster.brokers.groups.describe("g").members
        pump(member)
        assert member.told(seen) == [("on_lost", lost), ("on_assign", [0, 1, 2, 3])]


def test_a_late_answer_does_not_make_a_stalled_kip_848_member_keep_its_partitions(cluster):
    member = group_member(cluster, CONSUMER, max_poll_interval_ms=60_000)
    pump(member)
    cluster.revoke(("in", 3))
    cluster.advance(58.0)
    cluster.delay("ConsumerGroupHeartbeat", 4.0, "consumer-1")
    cluster.advance(10.0)
    seen = len(member.seen)
    pump(member)
    assert member.told(seen)[:2] == [("on_revoke", [3]), ("on_lost", [0, 1, 2])]


def test_a_subscription_that_changes_while_a_heartbeat_is_on_its_way_is_told_at_once(cluster):
    cluster.create_topic("more", 1)
    member = group_member(cluster, CONSUMER)
    pump(member)
    cluster.delay("ConsumerGroupHeartbeat", 1.0)
    pump(member, seconds=4.5)
    member.consumer.subscribe(["in", "more"])
    pump(member, seconds=2.0)
    assert "more" in {p.topic for p in member.consumer.assignment()}


def test_an_unsubscribed_member_that_does_not_poll_any_more_disturbs_nobody(cluster, protocol):
    member = group_member(cluster, protocol)
    pump(member)
    member.consumer.unsubscribe()
    cluster.advance(200.0)
    pump(member)
    assert member.owned == []


def test_a_stalled_kip_848_member_leaves_when_it_has_told_the_loss_and_joins_anew(cluster, monkeypatch):
    member = group_member(cluster, CONSUMER, max_poll_interval_ms=60_000)
    pump(member)
    cluster.advance(70.0)
    epochs: list[int] = []
    serve = cluster.brokers.groups.consumer_heartbeat

    def noting(group_id, request):
        epochs.append(request.member_epoch)
        return serve(group_id, request)

    monkeypatch.setattr(cluster.brokers.groups, "consumer_heartbeat", noting)
    pump(member)
    assert epochs[:2] == [-1, 0]
    assert member.owned == [0, 1, 2, 3]


def test_a_poll_that_waits_long_is_no_stall(cluster, protocol):
    member = group_member(cluster, protocol, max_poll_interval_ms=60_000)
    pump(member)
    assert member.consumer.poll(200.0) is None
    assert member.told() == [("on_assign", [0, 1, 2, 3])]


# -- frozen and cut off ------------------------------------------------------------------------------------------


def test_a_classic_member_that_hears_nothing_for_its_session_gives_up_by_itself(cluster):
    member = group_member(cluster, EAGER, session_timeout_ms=10_000, socket_timeout_ms=60_000)
    pump(member)
    cluster.lose_reply("Heartbeat")
    ids: list[str] = []
    member.inside = lambda kind, partitions: ids.append(member.membership.member_id)
    pump(member, seconds=15.0)
    assert member.told()[1] == ("on_lost", [0, 1, 2, 3])
    assert ids[0] == ""


@pytest.mark.parametrize("request_name", ["JoinGroup", "SyncGroup"])
def test_a_lost_answer_while_joining_is_made_up_for(cluster, request_name):
    cluster.lose_reply(request_name)
    member = group_member(cluster, EAGER)
    pump(member, seconds=240.0, until=lambda: member.owned)
    assert member.owned == [0, 1, 2, 3]


def test_a_lost_kip_848_heartbeat_is_made_up_for(cluster):
    member = group_member(cluster, CONSUMER)
    cluster.lose_reply("ConsumerGroupHeartbeat")
    pump(member, seconds=240.0, until=lambda: member.owned)
    assert member.owned == [0, 1, 2, 3]


def test_a_coordinator_that_is_loading_is_asked_again(cluster, protocol):
    cluster.refuse("ConsumerGroupHeartbeat" if protocol == CONSUMER else "JoinGroup", "COORDINATOR_LOAD_IN_PROGRESS")
    member = group_member(cluster, protocol)
    pump(member)
    assert member.owned == [0, 1, 2, 3]


def test_a_restart_of_the_coordinator_does_not_part_the_members_from_their_partitions(cluster, protocol):
    member = group_member(cluster, protocol)
    pump(member)
    cluster.restart_coordinator()
    settle(member)
    assert member.owned == [0, 1, 2, 3]


# -- static members ----------------------------------------------------------------------------------------------


def test_a_classic_member_whose_instance_id_was_taken_over_is_fatally_fenced(cluster):
    member = group_member(cluster, EAGER, group_instance_id="one")
    pump(member)
    new_owner = group_member(cluster, EAGER, group_instance_id="one")
    settle(new_owner)
    pump(member, seconds=5.0)
    assert member.codes == ["_FATAL"]
    assert ("on_lost", [0, 1, 2, 3]) in member.told()
    with pytest.raises(KafkaException) as refused:
        member.consumer.commit(offsets=[TopicPartition("in", 0, 1)], asynchronous=False)
    error = refused.value.args[0]
    assert (error.code(), error.fatal()) == (KafkaError._FATAL, False)


def test_a_fenced_static_member_gets_an_error_event_and_no_error_cb(cluster):
    errors: list[Any] = []
    config = {"bootstrap.servers": "simulated", "group.id": "g", "group.instance.id": "one", "error_cb": errors.append}
    consumer = cluster.consumer(config)
    consumer.subscribe(["in"])
    consumer.poll(1.0)
    new_owner = group_member(cluster, EAGER, group_instance_id="one")
    settle(new_owner)
    event = consumer.poll(5.0)
    assert (event.error().code(), event.error().fatal()) == (KafkaError._FATAL, False)
    assert consumer.poll(5.0) is None
    assert errors == []
