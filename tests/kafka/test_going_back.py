"""Where an application goes back, pauses or commits by itself, blocks commit not too much and go back not too far."""

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


def commit_by_hand(stage, producer, consumer, messages):
    producer.begin_transaction()
    for message in messages:
        producer.produce(stage.sink, message.value())
    ends = {m.partition(): m.offset() + 1 for m in messages}
    producer.send_offsets_to_transaction(
        [TopicPartition(stage.source, partition, offset) for partition, offset in ends.items()],
        consumer.consumer_group_metadata(),
    )
    producer.commit_transaction()


def test_a_block_that_aborts_stays_ahead_of_a_transaction_by_hand(stage):
    written = stage.load(RECORDS)
    producer, consumer = stage.producer(), stage.subscribed()
    commit_by_hand(stage, producer, consumer, stage.collect(consumer, 2 * RECORDS)[:3])

    def fails():
        with producer.transaction(consumer):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    copy_the_rest(stage, producer, consumer)
    assert sorted(stage.outputs()) == sorted(written)


def test_so_does_the_first_block_after_a_plain_commit_and_a_seek(any_stage):
    """It leaves the group and joins it again: a seek does not outlive what the group has committed since."""
    stage = any_stage
    written = stage.load(RECORDS)
    producer, consumer = stage.producer(), stage.subscribed()
    (first,) = stage.collect(consumer, 1)
    consumer.commit(first, asynchronous=False)
    consumer.seek(TopicPartition(stage.source, first.partition(), first.offset() + 1))
    commit_by_hand(stage, producer, consumer, stage.collect(consumer, 2 * RECORDS - 1))
    written += stage.load(1, start=RECORDS)
    stage.copy_until(producer, consumer, lambda: stage.committed() == {0: RECORDS + 1, 1: RECORDS + 1})
    assert sorted(stage.outputs()) == sorted(set(written) - {first.value().decode()})


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
