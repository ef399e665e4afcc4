"""A consumer that goes on with another producer: the first one was fenced in a block, or its block was broken off."""

from __future__ import annotations

from contextlib import suppress

import pytest

from eos_client import Outcome
from eos_client.errors import ProducerFencedError
from tests.simulation.simulated_stage import SINK, SimulatedStage
from tests.support.protocols import PROTOCOLS


@pytest.fixture(params=PROTOCOLS)
def stage(request):
    return SimulatedStage(request.param, records=7, partitions=3)


def copy(stage, producer, consumer, count):
    block = producer.transaction(consumer)
    with block:
        for message in consumer.consume(count, 0.5):
            producer.produce(SINK, message.value())
    return block


def fenced_in_a_block(stage, producer, consumer, count):
    newer = stage.producer(transactional_id=producer.transactional_id)
    block = producer.transaction(consumer)
    with suppress(ProducerFencedError), block:
        for message in consumer.consume(count, 0.5):
            producer.produce(SINK, message.value())
    newer.close()
    producer.close()
    return block


@pytest.mark.parametrize("count", [2, 3, 5])
@pytest.mark.parametrize("before", [1, 2, 3])
@pytest.mark.parametrize("in_a_row", [1, 2])
def test_records_of_a_fenced_producers_block_are_processed_again_with_its_successor(stage, before, count, in_a_row):
    consumer, producer = stage.subscribed(), stage.producer()
    for _ in range(before):
        copy(stage, producer, consumer, count)
    for number in range(in_a_row):
        assert fenced_in_a_block(stage, producer, consumer, count).outcome is Outcome.ABORTED
        producer = stage.producer(transactional_id=f"successor-{number}")
    stage.copy_the_rest(producer, consumer)
    assert stage.outputs == sorted(stage.inputs)


@pytest.mark.parametrize("count", [2, 3, 5])
def test_a_seek_after_the_fence_decides_where_the_successor_reads_on(stage, count):
    consumer, producer = stage.subscribed(), stage.producer()
    copy(stage, producer, consumer, count)
    fenced_in_a_block(stage, producer, consumer, count)
    for partition in consumer.assignment():
        partition.offset = 6
        consumer.seek(partition)
    producer = stage.producer(transactional_id="successor")
    with producer.transaction(consumer):
        got = stage.collect(consumer, 3)
    assert sorted(message.value() for message in got) == [b"0-6", b"1-6", b"2-6"]
