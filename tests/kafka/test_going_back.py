"""Where an application goes back or pauses, blocks commit not too much and go back not too far."""

import pytest
from confluent_kafka import TopicPartition

from eos_client import Outcome
from tests.support.waiting import wait_for

RECORDS = 4


def copy_the_rest(stage, producer, consumer):
    stage.copy_until(producer, consumer, lambda: stage.committed() == {0: RECORDS, 1: RECORDS})


@pytest.mark.parametrize("place", ["in the block", "before it"])
def test_records_given_back_by_a_seek_come_again(stage, place):
    written = stage.load(RECORDS)
    producer, consumer = stage.producer(), stage.subscribed()
    if place == "before it":
        given_back = next(m for m in stage.collect(consumer, 2 * RECORDS) if m.partition() == 1 and m.offset() == 1)
        consumer.seek(TopicPartition(stage.source, 1, given_back.offset()))
    with producer.transaction(consumer) as txn:
        if place == "in the block":
            given_back = next(m for m in stage.collect(consumer, 2 * RECORDS) if m.partition() == 1 and m.offset() == 1)
            consumer.seek(TopicPartition(stage.source, 1, given_back.offset()))
    assert txn.outcome is Outcome.COMMITTED
    assert stage.committed() == {0: RECORDS, 1: 1}
    again = stage.collect(consumer, RECORDS - 1)
    assert [(m.partition(), m.offset()) for m in again] == [(1, offset) for offset in range(1, RECORDS)]
    assert {m.value().decode() for m in again} <= set(written)


def test_a_paused_partition_brings_nothing_between_two_blocks(stage):
    """The end of a block serves callbacks, which fetches a record that then waits inside the consumer."""
    written = stage.load(RECORDS)
    producer, consumer = stage.producer(), stage.subscribed()

    def keep_alive():
        consumer.pause(consumer.assignment())
        assert consumer.poll(0.05) is None
        consumer.resume(consumer.assignment())

    def block():
        with producer.transaction(consumer) as txn:
            for message in consumer.consume(1, 0.1):
                txn.produce(stage.sink, message.value())

    wait_for(lambda: stage.committed() == {0: RECORDS, 1: RECORDS}, "everything to be committed", block, keep_alive)
    assert sorted(stage.outputs()) == sorted(written)
