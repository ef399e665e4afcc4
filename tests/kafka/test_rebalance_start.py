"""A new owner starts at the group's stable offset, even where the client library has lost track of it.

librdkafka 2.16 does so when the assignment changes while an offset is pending (`confluent/consumer/start_offsets.py`);
here it is made to on every assignment.
"""

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.kafka.kafka_support import values
from tests.support.interception import intercepting
from tests.support.waiting import WAIT_S


def subscribe_and_forget_the_offsets(raw, topics, on_assign, **callbacks):
    """As librdkafka's subscribe, but what is assigned starts at auto.offset.reset."""

    def starts_over(consumer, partitions):
        on_assign(consumer, partitions)
        raw.incremental_assign([TopicPartition(p.topic, p.partition, 0) for p in partitions])

    raw.subscribe(topics, on_assign=starts_over, **callbacks)


FORGETFUL = intercepting(Consumer, subscribe=subscribe_and_forget_the_offsets)


@pytest.fixture
def predecessor(stage):
    """A transactional producer, and the metadata of nobody, under which it may commit for an empty group."""
    producer = Producer({"bootstrap.servers": stage.bootstrap, "transactional.id": stage.group})
    producer.init_transactions(WAIT_S)
    outsider = Consumer({"bootstrap.servers": stage.bootstrap, "group.id": stage.group})
    metadata = outsider.consumer_group_metadata()
    outsider.close()
    yield producer, metadata
    producer.close()


def send_offsets(stage, predecessor, offsets):
    producer, metadata = predecessor
    producer.begin_transaction()
    places = [TopicPartition(stage.source, p, offset) for p, offset in offsets.items()]
    producer.send_offsets_to_transaction(places, metadata, WAIT_S)


def test_a_partition_that_the_library_starts_over_continues_at_the_committed_offset(stage, predecessor):
    stage.load(10)
    send_offsets(stage, predecessor, {0: 7})
    predecessor[0].commit_transaction(WAIT_S)
    consumer = stage.subscribed(factory=FORGETFUL)
    got = stage.collect(consumer, 13)
    assert consumer.consume(10, 0.2) == []
    assert [m.offset() for m in got if m.partition() == 0] == [7, 8, 9]
    assert [m.offset() for m in got if m.partition() == 1] == list(range(10))


@pytest.mark.parametrize(("end", "start"), [("commit_transaction", 9), ("abort_transaction", 7)])
def test_a_partition_whose_offset_is_pending_waits_for_it_while_the_others_flow(stage, predecessor, end, start):
    stage.load(10)
    send_offsets(stage, predecessor, {0: 7})
    predecessor[0].commit_transaction(WAIT_S)
    send_offsets(stage, predecessor, {0: 9})
    consumer = stage.subscribed(factory=FORGETFUL)
    assert values(stage.collect(consumer, 10)) == [f"1-{n}" for n in range(10)]
    for _ in range(3):
        assert consumer.consume(10, 0.2) == []
        consumer.adapter.fetching.serve_callbacks(drain=True)
    getattr(predecessor[0], end)(WAIT_S)
    assert [m.offset() for m in stage.collect(consumer, 10 - start)] == list(range(start, 10))
    assert consumer.consume(10, 0.2) == []
