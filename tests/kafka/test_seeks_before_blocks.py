"""A seek that comes before the first block, for which a consumer leaves its group, on a real broker."""

from __future__ import annotations

import pytest
from confluent_kafka import TopicPartition

from tests.kafka.kafka_support import Stage
from tests.support.waiting import wait_for
from tests.verification.protocols import GroupProtocol


@pytest.fixture(params=GroupProtocol, ids=lambda protocol: protocol.value)
def stage(request, kafka_broker):
    with Stage(kafka_broker.bootstrap_servers, request.param, partitions=1) as made:
        made.load(10)
        yield made


def copied_from(stage, consumer, offset):
    """Copy in blocks to the end of the source: everything from ``offset`` on comes out once."""
    producer, expected = stage.producer(), [f"0-{number}" for number in range(offset, 10)]
    stage.copy_until(producer, consumer, lambda: len(stage.visible()) >= len(expected))
    for _ in range(3):
        stage.copy_until(producer, consumer, lambda: True)
    assert stage.outputs() == expected
    assert stage.committed() == {0: 10}


@pytest.mark.parametrize("offset", [2, 8])
def test_it_holds_after_a_plain_commit(stage, offset):
    consumer = stage.subscribed()
    stage.collect(consumer, 5)
    consumer.commit(asynchronous=False)
    consumer.seek(TopicPartition(stage.source, 0, offset))
    copied_from(stage, consumer, offset)


def test_it_holds_after_the_start_of_latest_was_committed(stage):
    consumer = stage.subscribed(auto_offset_reset="latest")
    wait_for(lambda: stage.committed() == {0: 10}, "the start to be committed", lambda: consumer.poll(0.05))
    consumer.seek(TopicPartition(stage.source, 0, 0))
    copied_from(stage, consumer, 0)
