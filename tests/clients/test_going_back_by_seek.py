"""A seek back gives records back: they were handed over, and count as processed no more."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, OFFSET_INVALID, OFFSET_STORED, KafkaException, TopicPartition

from eos_client import Outcome
from eos_client.errors import InputPositionError
from tests.clients.simulated_stage import GROUP, SINK, SOURCE, SimulatedStage
from tests.support.protocols import PROTOCOLS

RECORDS = 3


@pytest.fixture(params=PROTOCOLS)
def stage(request: pytest.FixtureRequest) -> SimulatedStage:
    return SimulatedStage(request.param, records=RECORDS, partitions=1)


@pytest.fixture
def clients(stage: SimulatedStage) -> Iterator[tuple[Any, Any]]:
    producer, consumer = stage.producer(), stage.subscribed()
    yield producer, consumer
    producer.close()
    consumer.close()


def seek(consumer: Any, offset: int) -> None:
    consumer.seek(TopicPartition(SOURCE, 0, offset))


def committed(stage: SimulatedStage) -> list[int]:
    return list(stage.cluster.committed(GROUP).values())


def copy_with_new_clients(stage: SimulatedStage, clients: tuple[Any, Any]) -> None:
    for client in clients:
        client.close()
    with stage.subscribed() as consumer:
        stage.copy_the_rest(stage.producer(), consumer)


def test_a_block_commits_only_what_lies_before_the_place_it_has_gone_back_to(stage, clients):
    producer, consumer = clients
    with producer.transaction(consumer) as txn:
        first, second, _ = stage.collect(consumer, RECORDS)
        txn.produce(SINK, first.value())
        seek(consumer, second.offset())
    assert txn.outcome is Outcome.COMMITTED
    assert committed(stage) == [1]
    copy_with_new_clients(stage, clients)
    assert stage.outputs == stage.inputs


@pytest.mark.parametrize("start", [0, OFFSET_BEGINNING])
def test_a_block_commits_nothing_that_was_given_back_before_it(stage, clients, start):
    producer, consumer = clients
    stage.collect(consumer, 2)
    seek(consumer, start)
    with producer.transaction(consumer) as txn:
        pass
    assert txn.outcome is Outcome.COMMITTED
    assert committed(stage) == []
    stage.copy_the_rest(producer, consumer)
    assert stage.outputs == stage.inputs


def test_a_plain_commit_covers_nothing_that_was_given_back(stage, clients):
    _, consumer = clients
    stage.collect(consumer, 2)
    seek(consumer, 0)
    with pytest.raises(KafkaException, match="_NO_OFFSET"):
        consumer.commit(asynchronous=False)
    stage.collect(consumer, 2)
    seek(consumer, 1)
    consumer.commit(asynchronous=False)
    assert committed(stage) == [1]


def test_records_of_a_held_transaction_stay_in_it(stage, clients):
    """Their outputs are in the transaction, so taking their offsets out of it would double them."""
    producer, consumer = clients
    stage.hold(producer, consumer, RECORDS)
    seek(consumer, 1)
    seek(consumer, RECORDS)
    stage.cluster.rebalance()
    stage.copy_the_rest(producer, consumer)
    assert stage.outputs == stage.inputs


def test_a_seek_forward_gives_nothing_back(stage, clients):
    producer, consumer = clients
    with producer.transaction(consumer) as txn:
        (message,) = stage.collect(consumer, 1)
        txn.produce(SINK, message.value())
        seek(consumer, 2)
    assert committed(stage) == [1]
    with producer.transaction(consumer):
        assert [message.offset() for message in stage.collect(consumer, 1)] == [2]
    assert committed(stage) == [RECORDS]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_what_was_fetched_after_a_seek_to_the_end_is_not_skipped_by_an_abort(protocol):
    """The end is looked up once: what lies behind it by the time of the abort is read."""
    stage = SimulatedStage(protocol, records=0)
    producer, consumer = stage.producer(), stage.subscribed()
    stage.cluster.write(SOURCE, [b"before"], partition=1)
    stage.collect(consumer, 1)
    consumer.seek(TopicPartition(SOURCE, 1, OFFSET_END))
    for _ in range(10):
        assert not consumer.consume(1, 0.2)
    stage.cluster.write(SOURCE, [b"first"], partition=0)
    with producer.transaction(consumer):
        stage.collect(consumer, 1)
        producer.produce(SINK, b"first")
        stage.cluster.write(SOURCE, [b"second"], partition=1)
        stage.cluster.clock.sleep(5.0)
    with pytest.raises(OverflowError), producer.transaction(consumer):  # noqa: PT012  # all of it is the block
        producer.produce(SINK, b"aborted")
        stage.cluster.write(SOURCE, [b"third"], partition=1)
        raise OverflowError
    stage.copy_until(producer, consumer, lambda: len(stage.outputs) == 3)
    assert stage.outputs == [b"first", b"second", b"third"]


@pytest.mark.parametrize("place", [0, OFFSET_BEGINNING])
@pytest.mark.parametrize("seeks_first", [False, True])
def test_a_block_with_outputs_that_gives_back_all_of_its_records_is_aborted(stage, clients, place, seeks_first):
    """Its outputs would be written again."""
    producer, consumer = clients
    with producer.transaction(consumer) as txn:
        messages = stage.collect(consumer, RECORDS)
        if seeks_first:
            seek(consumer, place)
        for message in messages:
            txn.produce(SINK, message.value())
        if not seeks_first:
            seek(consumer, place)
    assert txn.outcome is Outcome.ABORTED
    assert "seek() has given back" in txn.reason
    stage.copy_the_rest(producer, consumer)
    assert stage.outputs == stage.inputs


def test_a_block_of_outputs_alone_is_committed_after_one_that_gave_back_its_records(stage, clients):
    producer, consumer = clients
    with producer.transaction(consumer):
        stage.collect(consumer, RECORDS)
        seek(consumer, 0)
    with producer.transaction(consumer) as txn:
        txn.produce(SINK, b"alone")
    assert txn.outcome is Outcome.COMMITTED
    assert stage.outputs == [b"alone"]


def test_a_block_that_gives_back_all_of_its_records_beside_held_ones_is_aborted(stage, clients):
    producer, consumer = clients
    stage.hold(producer, consumer, 1)
    with producer.transaction(consumer) as txn:
        (message,) = stage.collect(consumer, 1)
        txn.produce(SINK, message.value())
        seek(consumer, 1)
    assert txn.outcome is Outcome.ABORTED
    stage.cluster.rebalance()
    stage.copy_the_rest(producer, consumer)
    assert stage.outputs == stage.inputs


def test_a_seek_beyond_the_end_of_the_log_does_not_begin_again(stage, clients):
    producer, consumer = clients
    with producer.transaction(consumer):
        stage.collect(consumer, RECORDS)
    seek(consumer, 100)
    with pytest.raises(InputPositionError, match="offset 100, which lies beyond the end of its log"):
        consumer.consume(1, 5.0)


@pytest.mark.parametrize("reset", ["earliest", "latest"])
def test_an_assignment_beyond_the_end_of_the_log_does_not_begin_again(reset):
    stage = SimulatedStage(records=RECORDS, partitions=1)
    consumer = stage.consumer(auto_offset_reset=reset)
    consumer.subscribe([SOURCE], on_assign=lambda c, _: c.incremental_assign([TopicPartition(SOURCE, 0, 100)]))
    stage.cluster.after(1.0, lambda: stage.load(1))
    with pytest.raises(InputPositionError, match="offset 100, which lies beyond the end of its log"):
        stage.collect(consumer, 1)


@pytest.mark.parametrize("offset", [OFFSET_STORED, OFFSET_INVALID, -2005])
def test_a_seek_of_which_nobody_knows_what_comes_again_is_refused_and_changes_nothing(stage, clients, offset):
    producer, consumer = clients
    taken = stage.collect(consumer, 2)
    with pytest.raises(ValueError, match="the logical offset"):
        seek(consumer, offset)
    with producer.transaction(consumer) as txn:
        for record in taken:
            txn.produce(SINK, record.value())
    stage.copy_the_rest(producer, consumer)
    assert stage.outputs == stage.inputs
