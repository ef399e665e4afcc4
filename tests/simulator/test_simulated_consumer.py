"""What the simulated consumer hands over, and where it stands."""

from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, OFFSET_INVALID, KafkaError, KafkaException, TopicPartition

from eos_client.testing.simulator import SimulatedCluster
from eos_client.testing.simulator.brokers.model import (
    Membership,
    NewRecord,
    OffsetAndMetadata,
    PartitionKey,
    ProducerIdentity,
    RecordBatch,
)

FIRST, SECOND = TopicPartition("in", 0), TopicPartition("in", 1)
WRITER = ProducerIdentity(7, 0)


@pytest.fixture
def cluster():
    made = SimulatedCluster(seed=3)
    made.create_topic("in", 2)
    return made


def consumer_of(cluster, **settings):
    given = {k.replace("_", "."): v for k, v in settings.items()}
    return cluster.consumer(
        {"bootstrap.servers": "simulated", "group.id": "g", "auto.offset.reset": "earliest", **given}
    )


def assigned(cluster, *places, **settings):
    consumer = consumer_of(cluster, **settings)
    consumer.assign(list(places))
    return consumer


def at(place, offset):
    return TopicPartition(place.topic, place.partition, offset)


def write(cluster, number, partition=0, start=0):
    cluster.write("in", [f"{n}".encode() for n in range(start, start + number)], partition=partition)


def offsets(messages):
    return [m.offset() for m in messages]


def collect(consumer, number, limit_s=5.0):
    got: list[Any] = []
    for _ in range(int(limit_s / 0.05)):
        got += consumer.consume(number - len(got), 0.05) if len(got) < number else []
    return got


def test_poll_and_consume_hand_over_every_record_once_and_in_order(cluster):
    write(cluster, 20)
    consumer = assigned(cluster, FIRST)
    assert [consumer.poll(1.0).offset() for _ in range(5)] == [0, 1, 2, 3, 4]
    assert offsets(consumer.consume(100, 1.0)) == list(range(5, 20))
    assert consumer.poll(0.5) is None


def test_a_message_is_confluent_kafkas_own(cluster):
    header = (("h", b"1"),)
    batch = RecordBatch((NewRecord(b"v", b"k", header, 1_500), NewRecord(None)))
    cluster.brokers.produce(PartitionKey("in", 0), batch)
    full, bare = collect(assigned(cluster, FIRST), 2)
    assert (full.topic(), full.partition(), full.offset()) == ("in", 0, 0)
    assert (full.key(), full.value(), full.headers(), full.timestamp()) == (b"k", b"v", [("h", b"1")], (1, 1_500))
    assert (full.leader_epoch(), full.error()) == (0, None)
    assert (bare.key(), bare.value(), bare.headers()) == (None, None, None)


def test_consume_returns_as_soon_as_it_has_what_was_asked_for_and_else_waits_its_whole_time(cluster):
    write(cluster, 5)
    consumer = assigned(cluster, FIRST)
    consumer.consume(3, 10.0)
    assert cluster.clock() < 1.0
    before_s = cluster.clock()
    assert len(consumer.consume(10, 2.0)) == 2
    assert cluster.clock() == before_s + 2.0


def test_a_spinning_loop_gets_on(cluster):
    write(cluster, 1)
    consumer = assigned(cluster, FIRST)
    for _ in range(1000):
        if consumer.poll(0):
            break
    else:
        pytest.fail("no record")
    assert consumer.consume(0) == []
    assert cluster.clock() > 0


def test_seek_goes_back_and_forth_and_drops_what_was_fetched(cluster):
    write(cluster, 10)
    consumer = assigned(cluster, FIRST)
    collect(consumer, 6)
    for offset in (2, 7, 0):
        consumer.seek(at(FIRST, offset))
        assert offsets(collect(consumer, 2)) == [offset, offset + 1]
    consumer.seek(at(FIRST, OFFSET_BEGINNING))
    assert offsets(collect(consumer, 1)) == [0]
    consumer.seek(at(FIRST, OFFSET_END))
    assert consumer.poll(1.0) is None


def test_a_pause_before_the_first_record_loses_nothing(cluster):
    write(cluster, 3)
    consumer = assigned(cluster, FIRST)
    cluster.advance(1.0)
    consumer.pause([FIRST])
    assert consumer.poll(1.0) is None
    consumer.resume([FIRST])
    assert offsets(collect(consumer, 3)) == [0, 1, 2]


def test_a_manual_assignment_starts_where_it_says(cluster):
    """P4: offsets may live elsewhere: the consumer can start at given offsets."""
    write(cluster, 5)
    write(cluster, 5, partition=1)
    consumer = assigned(cluster, at(FIRST, 3), at(SECOND, OFFSET_END))
    assert offsets(collect(consumer, 2)) == [3, 4]
    write(cluster, 1, partition=1, start=5)
    assert offsets(collect(consumer, 1)) == [5]
    assert [(p.partition, p.offset) for p in consumer.assignment()] == [(0, 3), (1, OFFSET_END)]


def test_incremental_calls_add_and_take_away(cluster):
    write(cluster, 2)
    write(cluster, 2, partition=1)
    consumer = assigned(cluster, FIRST)
    consumer.incremental_assign([SECOND])
    assert len(collect(consumer, 4)) == 4
    consumer.incremental_unassign([FIRST])
    assert [p.partition for p in consumer.assignment()] == [1]


def test_after_the_error_event_of_auto_offset_reset_a_seek_is_refused_as_in_librdkafka(cluster):
    write(cluster, 5)
    consumer = assigned(cluster, FIRST, auto_offset_reset="error")
    assert consumer.poll(1.0).error() is not None
    with pytest.raises(KafkaException, match="_STATE"):
        consumer.seek(at(FIRST, 3))


def test_a_pending_start_is_forgotten_when_the_assignment_changes_as_in_librdkafka(cluster):
    """What `eos_client.confluent.consumer.start_offsets` is there for."""
    write(cluster, 10)
    groups, key = cluster.brokers.groups, PartitionKey("in", 0)
    groups.commit_offsets_in_transaction("g", Membership(), WRITER, {key: OffsetAndMetadata(6)})
    consumer = assigned(cluster, FIRST)
    assert consumer.poll(1.0) is None
    consumer.incremental_assign([SECOND])
    assert offsets(collect(consumer, 1)) == [0]


def test_a_question_that_nobody_answers_ends_at_its_time_out(cluster):
    consumer = assigned(cluster, FIRST)
    cluster.lose_request("Metadata")
    with pytest.raises(KafkaException) as late:
        consumer.list_topics(timeout=2.0)
    assert late.value.args[0].code() == KafkaError._TIMED_OUT
    assert cluster.clock() == 2.0


@pytest.mark.parametrize("request_name", ["Fetch", "OffsetFetch", "ListOffsets"])
def test_a_lost_or_refused_request_is_sent_again(cluster, request_name):
    write(cluster, 3)
    cluster.lose_reply(request_name)
    cluster.refuse(request_name, "NOT_COORDINATOR")
    assert offsets(collect(assigned(cluster, FIRST), 3, limit_s=70.0)) == [0, 1, 2]


def test_a_late_answer_to_a_fetch_from_before_a_seek_is_void(cluster):
    write(cluster, 10)
    consumer = assigned(cluster, at(FIRST, 0))
    cluster.delay("Fetch", 1.0)
    consumer.poll(0.5)
    consumer.seek(at(FIRST, 8))
    assert offsets(collect(consumer, 2)) == [8, 9]
    assert consumer.poll(2.0) is None


def test_a_frozen_client_cannot_be_used(cluster):
    consumer = assigned(cluster, FIRST)
    with cluster.zombie(), pytest.raises(RuntimeError, match="consumer-1 is frozen"):
        consumer.poll(0)
    assert consumer.poll(0) is None


def test_two_runs_with_one_seed_are_identical():
    def run():
        cluster = SimulatedCluster(seed=11)
        cluster.create_topic("in", 2)
        consumers = [consumer_of(cluster, group_protocol="consumer", auto_commit_interval_ms=300) for _ in range(3)]
        for consumer in consumers:
            consumer.subscribe(["in"])
        got = []
        for turn in range(200):
            write(cluster, 1, partition=turn % 2, start=turn)
            got += [(m.partition(), m.offset()) for c in consumers for m in c.consume(3, 0.03)]
        return got, list(cluster.history), [c.memberid() for c in consumers]

    assert run() == run()


def raising_from(cluster, start_s, number):
    """A `stats_cb` that raises the first `number` times from `start_s` on."""
    raised: list[ValueError] = []

    def stats_cb(_):
        if cluster.clock() > start_s and len(raised) < number:
            raised.append(ValueError(len(raised)))
            raise raised[-1]

    return stats_cb


def reporting(cluster, stats_cb):
    settings = {"bootstrap.servers": "simulated", "group.id": "g", "statistics.interval.ms": 10, "stats_cb": stats_cb}
    consumer = cluster.consumer({**settings, "auto.offset.reset": "earliest"})
    consumer.assign([FIRST])
    return consumer


@pytest.mark.parametrize("timeout", [0.19, 5.0])
def test_after_a_callback_that_raised_consume_drops_the_next_record_uncounted_as_librdkafka_does(cluster, timeout):
    consumer = reporting(cluster, raising_from(cluster, 1.0, number=2))
    consumer.consume(1, 0.1)
    cluster.after(1.0, lambda: write(cluster, 1))
    cluster.advance(0.95)
    with pytest.raises(ValueError, match="0"):  # the first of two
        consumer.consume(10, timeout)
    assert consumer.position([FIRST])[0].offset == OFFSET_INVALID
    write(cluster, 3)
    assert offsets(consumer.consume(3, 0.1)) == [1, 2, 3]


def test_after_a_callback_that_raised_poll_counts_the_next_record_and_gives_it_to_nobody(cluster):
    consumer = reporting(cluster, raising_from(cluster, 1.0, number=1))
    consumer.consume(1, 0.1)
    cluster.after(1.0, lambda: write(cluster, 2))
    cluster.advance(0.95)
    with pytest.raises(ValueError, match="0"):
        consumer.poll(5.0)
    assert consumer.position([FIRST])[0].offset == 1
    assert consumer.poll(1.0).offset() == 1


def test_what_a_callback_raised_comes_out_within_a_fifth_of_a_second(cluster):
    consumer = reporting(cluster, raising_from(cluster, 1.0, number=1))
    with pytest.raises(ValueError, match="0"):
        consumer.consume(10, 5.0)
    assert 1.0 < cluster.clock() < 1.3
