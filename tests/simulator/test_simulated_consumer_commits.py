"""Plain commits of the simulated consumer: by hand, automatic, refused."""

from typing import Any

import pytest
from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException, TopicPartition

from eos_client.testing.simulator import SimulatedCluster
from tests.simulator.simulated_group import filled_cluster, group_member, pump, settle
from tests.support.protocols import CONSUMER, COOPERATIVE, EAGER, settings_of

FIRST, SECOND = TopicPartition("in", 0), TopicPartition("in", 1)


@pytest.fixture
def cluster():
    return filled_cluster(seed=9, partitions=2)


def consumer_of(cluster, protocol=EAGER, **settings):
    given = {k.replace("_", ".") if k != "on_commit" else k: v for k, v in settings.items()}
    base = {"bootstrap.servers": "simulated", "group.id": "g", "auto.offset.reset": "earliest"}
    return cluster.consumer({**base, "enable.auto.commit": False, **settings_of(protocol), **given})


def member_of(cluster, protocol=EAGER, number=20, **settings):
    consumer = consumer_of(cluster, protocol, **settings)
    consumer.subscribe(["in"])
    return consumer, collect(consumer, number)


def collect(consumer, number):
    got: list[Any] = []
    for _ in range(100):
        got += consumer.consume(number - len(got), 0.05) if len(got) < number else []
    return got


def committed(cluster):
    return {key.partition: offset for key, offset in cluster.committed("g").items()}


def code_of(raised):
    return raised.value.args[0].code()


def test_commit_of_a_message_of_offsets_and_of_nothing(cluster):
    consumer, messages = member_of(cluster)
    first = [next(m for m in messages if m.partition() == p) for p in range(2)]
    assert [p.offset for p in consumer.commit(message=first[0], asynchronous=False)] == [1]
    assert committed(cluster) == {0: 1}
    consumer.commit(offsets=[TopicPartition("in", 1, 3)], asynchronous=False)
    assert committed(cluster) == {0: 1, 1: 3}
    consumer.commit(asynchronous=False)
    assert committed(cluster) == {0: 10, 1: 10}
    assert [p.offset for p in consumer.committed([FIRST, SECOND], 1.0)] == [10, 10]


def test_commit_without_news_raises_no_offset_and_tells_on_commit(cluster):
    told: list[Any] = []
    consumer, _ = member_of(cluster, on_commit=lambda error, partitions: told.append((error.code(), partitions)))
    consumer.commit(asynchronous=False)
    with pytest.raises(KafkaException) as nothing:
        consumer.commit(asynchronous=False)
    assert code_of(nothing) == KafkaError._NO_OFFSET
    assert consumer.commit() is None
    consumer.poll(0.1)
    assert told == [(KafkaError._NO_OFFSET, [])]


def test_a_synchronous_commit_names_partitions_without_news_as_invalid(cluster):
    consumer, _ = member_of(cluster)
    consumer.commit(offsets=[TopicPartition("in", 1, 10)], asynchronous=False)
    answer = consumer.commit(asynchronous=False)
    assert sorted((p.partition, p.offset) for p in answer) == [(0, 10), (1, OFFSET_INVALID)]


@pytest.mark.parametrize("validation", ["exact", "assignment_epoch"])
def test_a_kip_848_commit_at_an_older_epoch_is_stale_where_the_check_is_exact(validation):
    """P1: STALE_MEMBER_EPOCH for plain commits."""
    cluster = SimulatedCluster(seed=1, commit_validation=validation)
    cluster.create_topic("in", 1)
    cluster.write("in", [b"x"] * 10)
    member = group_member(cluster, CONSUMER)
    pump(member)
    cluster.rebalance()
    cluster.lose_reply("ConsumerGroupHeartbeat")
    pump(member, seconds=6.0)
    assert member.generation == 1
    if validation == "assignment_epoch":
        member.consumer.commit(asynchronous=False)
        assert committed(cluster) == {0: 10}
        return
    with pytest.raises(KafkaException) as stale:
        member.consumer.commit(asynchronous=False)
    assert code_of(stale) == KafkaError.STALE_MEMBER_EPOCH


def test_a_member_whose_commit_was_stale_asks_for_its_epoch_at_once(cluster):
    consumer, messages = member_of(cluster, CONSUMER)
    cluster.refuse("OffsetCommit", "STALE_MEMBER_EPOCH")
    before_s = cluster.clock()
    with pytest.raises(KafkaException):
        consumer.commit(message=messages[0], asynchronous=False)
    consumer.poll(0.1)
    assert [d for d in cluster.history if d.request == "ConsumerGroupHeartbeat" and d.at_s > before_s]


def test_a_commit_of_an_evicted_classic_member_loses_everything_at_once(cluster):
    lost: list[Any] = []
    consumer = consumer_of(cluster)
    consumer.subscribe(["in"], on_lost=lambda _, partitions: lost.append(len(partitions)))
    collect(consumer, 20)
    cluster.lose()
    with pytest.raises(KafkaException) as refused:
        consumer.commit(asynchronous=False)
    assert code_of(refused) == KafkaError.UNKNOWN_MEMBER_ID
    consumer.poll(0.1)
    assert lost == [2]


def test_a_classic_commit_at_an_illegal_generation_loses_everything_and_makes_the_generation_invalid(cluster):
    seen: list[bytes] = []
    consumer = consumer_of(cluster)
    consumer.subscribe(["in"], on_lost=lambda c, _: seen.append(c.consumer_group_metadata()))
    collect(consumer, 20)
    cluster.refuse("OffsetCommit", "ILLEGAL_GENERATION")
    with pytest.raises(KafkaException) as refused:
        consumer.commit(asynchronous=False)
    assert code_of(refused) == KafkaError.ILLEGAL_GENERATION
    consumer.poll(0.1)
    assert b"CGMDv2:\xff\xff\xff\xff" in seen[0]


def test_between_a_round_and_its_assignment_the_generation_is_new_already_and_plain_commits_are_refused(cluster):
    leader, follower = group_member(cluster, COOPERATIVE), group_member(cluster, COOPERATIVE)
    settle(leader, follower)
    generation, seen = follower.generation, len(follower.seen)
    cluster.rebalance("g")
    cluster.delay("SyncGroup", 20.0, "consumer-1")
    pump(leader, follower, seconds=15.0)
    assert follower.generation == generation + 1
    assert len(follower.seen) == seen
    with pytest.raises(KafkaException) as refused:
        follower.consumer.commit(asynchronous=False)
    assert code_of(refused) == KafkaError.REBALANCE_IN_PROGRESS
    pump(leader, follower, seconds=10.0)
    assert follower.told(seen) == [("on_assign", [])]


def test_a_commit_that_nobody_answers_times_out_and_may_have_happened(cluster):
    consumer, _ = member_of(cluster, socket_timeout_ms=10_000)
    cluster.lose_reply("OffsetCommit")
    with pytest.raises(KafkaException) as late:
        consumer.commit(asynchronous=False)
    assert code_of(late) == KafkaError._TIMED_OUT
    assert committed(cluster) == {0: 10, 1: 10}


@pytest.mark.parametrize("protocol", [CONSUMER, EAGER, COOPERATIVE])
def test_automatic_commits_come_at_their_interval(cluster, protocol):
    consumer, _ = member_of(cluster, protocol, enable_auto_commit=True, auto_commit_interval_ms=2_000)
    assert committed(cluster) == {}
    consumer.poll(2.1 - cluster.clock())
    assert committed(cluster) == {0: 10, 1: 10}
    consumer.poll(20.0)
    assert [d.request for d in cluster.history].count("OffsetCommit") == 1


def test_lost_partitions_are_not_committed(cluster):
    consumer, _ = member_of(cluster, enable_auto_commit=True, auto_commit_interval_ms=600_000)
    cluster.lose()
    new_owner = consumer_of(cluster, EAGER)
    new_owner.subscribe(["in"])
    for _ in range(500):
        consumer.consume(10, 0.01)
    assert committed(cluster) == {}
    assert "OffsetCommit" not in {d.request for d in cluster.history}
