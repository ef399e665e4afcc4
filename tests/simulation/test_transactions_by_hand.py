"""Transactions that the application commits by itself, and blocks of the same consumer."""

from __future__ import annotations

from contextlib import suppress
from typing import Any
from unittest import mock

import pytest
from confluent_kafka import TopicPartition

from eos_client import EosProducer, Outcome
from eos_client.errors import (
    AbortableError,
    ClusterUnavailableError,
    ClusterUnfitError,
    RebuildProducerError,
    TransactionStateError,
)
from tests.simulation.simulated_stage import GROUP, SINK, SOURCE, SimulatedStage
from tests.support.protocols import PROTOCOLS

RECORDS = 4


@pytest.fixture(params=PROTOCOLS)
def stage(request: pytest.FixtureRequest) -> SimulatedStage:
    return SimulatedStage(request.param, records=RECORDS, partitions=1)


def commits_by_hand(stage: SimulatedStage, producer: Any, consumer: Any, count: int) -> None:
    messages = stage.collect(consumer, count)
    producer.begin_transaction()
    for message in messages:
        producer.produce(SINK, message.value())
    places = [TopicPartition(SOURCE, 0, messages[-1].offset() + 1)]
    producer.send_offsets_to_transaction(places, consumer.consumer_group_metadata())
    producer.commit_transaction()


@pytest.mark.parametrize("hand", ["the same producer", "another producer"])
def test_an_aborted_block_does_not_rewind_before_offsets_of_the_applications_transactions(stage, hand):
    producer, consumer = stage.producer(), stage.subscribed()
    other = producer if hand == "the same producer" else stage.producer(transactional_id="by hand")
    commits_by_hand(stage, other, consumer, 2)

    def fails() -> None:
        with producer.transaction(consumer):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    stage.copy_the_rest(producer, consumer)
    assert stage.outputs == stage.inputs


def test_an_aborted_block_after_mixed_transactions_rewinds_to_the_last_committed_offset(stage):
    producer, consumer = stage.producer(), stage.subscribed()
    commits_by_hand(stage, producer, consumer, 1)
    with producer.transaction(consumer) as txn:
        (message,) = stage.collect(consumer, 1)
        txn.produce(SINK, message.value())
    commits_by_hand(stage, producer, consumer, 1)

    def fails() -> None:
        with producer.transaction(consumer):
            stage.collect(consumer, 1)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    stage.copy_the_rest(producer, consumer)
    assert stage.outputs == stage.inputs


@pytest.mark.parametrize(
    "seeks", [(None, None), (1, None), (1, 2)], ids=["no seek", "a seek before", "seeks before and between"]
)
def test_a_rejoin_before_a_block_keeps_the_offsets_of_the_applications_transactions(stage, seeks):
    producer, consumer = stage.producer(), stage.subscribed()
    stage.collect(consumer, 1)
    consumer.commit(asynchronous=False)
    for seek in seeks:
        if seek is not None:
            consumer.seek(TopicPartition(SOURCE, 0, seek))
        commits_by_hand(stage, producer, consumer, 1)
    stage.copy_the_rest(producer, consumer)
    assert stage.outputs == stage.inputs[1:]
    assert not stage.named("transaction_aborted")


def test_a_block_is_not_entered_until_the_committed_offsets_are_read(stage):
    producer, consumer = stage.producer(), stage.subscribed()
    commits_by_hand(stage, producer, consumer, 2)
    for _ in range(3):
        stage.cluster.refuse("OffsetFetch", "UNSTABLE_OFFSET_COMMIT")
    stage.cluster.delay("OffsetFetch", 200.0)
    with pytest.raises(ClusterUnavailableError, match="committed offsets"):
        producer.transaction(consumer).__enter__()
    stage.cluster.faults.withdraw()
    stage.copy_the_rest(producer, consumer)
    assert stage.outputs == stage.inputs


@pytest.mark.parametrize("ends", ["closed", "committed"])
def test_group_metadata_is_refused_to_another_producer_while_a_transaction_is_held(stage, ends):
    """A commit beyond the records of that block would lose them with its transaction, or double what comes after."""
    producer, other = stage.producer(), stage.producer(transactional_id="by hand")
    consumer = stage.subscribed()
    stage.hold(producer, consumer, 2)
    other.begin_transaction()
    stage.collect(consumer, 1)
    with pytest.raises(TransactionStateError, match="open transaction of a block"):
        consumer.consumer_group_metadata()
    other.abort_transaction()
    consumer.seek(TopicPartition(SOURCE, 0, 2))
    stage.cluster.rebalance()
    if ends == "closed":
        producer.close()
        producer = other
    stage.copy_the_rest(producer, consumer)
    assert stage.outputs == stage.inputs
    commits_nothing_more(stage, other, consumer)


def commits_nothing_more(stage: SimulatedStage, producer: Any, consumer: Any) -> None:
    producer.begin_transaction()
    producer.send_offsets_to_transaction([TopicPartition(SOURCE, 0, stage.written)], consumer.consumer_group_metadata())
    producer.commit_transaction()


def test_group_metadata_is_refused_inside_a_block(stage):
    producer, consumer = stage.producer(), stage.subscribed()
    with producer.transaction(consumer) as txn:
        (message,) = stage.collect(consumer, 1)
        txn.produce(SINK, message.value())
        with pytest.raises(TransactionStateError, match="open transaction of a block"):
            consumer.consumer_group_metadata()
    stage.copy_the_rest(producer, consumer)
    assert stage.outputs == stage.inputs


def test_a_stored_offset_that_a_block_has_committed_beyond_is_not_committed_any_more(stage):
    producer, consumer = stage.producer(), stage.subscribed(enable_auto_offset_store=False)
    (first,) = stage.collect(consumer, 1)
    consumer.store_offsets(first)
    with producer.transaction(consumer) as txn:
        for message in [first, *stage.collect(consumer, RECORDS - 1)]:
            txn.produce(SINK, message.value())
    assert txn.outcome is Outcome.COMMITTED
    consumer.commit()
    consumer.close()
    assert list(stage.cluster.committed(GROUP).values()) == [RECORDS]
    assert stage.outputs == stage.inputs


@pytest.mark.parametrize("ends", ["commit_transaction", "abort_transaction"])
def test_a_block_is_not_entered_beside_an_open_transaction_of_the_application(stage, ends):
    producer, consumer = stage.producer(), stage.subscribed()
    producer.begin_transaction()
    producer.produce(SINK, b"by hand")
    for _ in range(2):
        block = producer.transaction(consumer)
        with pytest.raises(TransactionStateError, match=r"begin_transaction\(\).*'billing-0'.*abort_transaction\(\)"):
            block.__enter__()
    getattr(producer, ends)()
    stage.copy_the_rest(producer, consumer)
    assert stage.outputs == sorted(stage.inputs + [b"by hand"] * (ends == "commit_transaction"))


def test_a_block_is_not_entered_beside_an_applications_transaction_that_must_be_aborted(stage):
    producer, consumer = stage.producer(), stage.subscribed()
    producer.begin_transaction()
    producer.produce(SINK, b"by hand")
    producer.flush()
    stage.cluster.refuse("AddOffsetsToTxn", "GROUP_AUTHORIZATION_FAILED")
    stage.collect(consumer, 1)
    with pytest.raises(ClusterUnfitError):
        producer.send_offsets_to_transaction([TopicPartition(SOURCE, 0, 1)], consumer.consumer_group_metadata())
    block = producer.transaction(consumer)
    with pytest.raises(TransactionStateError, match=r"abort_transaction\(\)"):
        block.__enter__()
    producer.abort_transaction()
    consumer.seek(TopicPartition(SOURCE, 0, 0))
    stage.copy_the_rest(producer, consumer)
    assert stage.outputs == stage.inputs


def names_no_member(stage: SimulatedStage, producer: Any, consumer: Any, places: list[TopicPartition]) -> None:
    stranger = stage.consumer(group_id=GROUP)
    producer.send_offsets_to_transaction(places, stranger.consumer_group_metadata())


def follows_a_lost_connection(_stage: SimulatedStage, producer: Any, consumer: Any, places: list[Any]) -> None:
    producer.send_offsets_to_transaction(places, consumer.consumer_group_metadata())
    producer.adapter.library.log.losses += 1
    producer.send_offsets_to_transaction(places, consumer.consumer_group_metadata())


@pytest.mark.parametrize("sends", [names_no_member, follows_a_lost_connection])
def test_a_transaction_whose_offsets_were_refused_here_is_not_committed_without_them(stage, sends):
    producer, consumer = stage.producer(), stage.subscribed()
    (message,) = stage.collect(consumer, 1)
    producer.begin_transaction()
    producer.produce(SINK, message.value())
    with pytest.raises(AbortableError) as refused:
        sends(stage, producer, consumer, [TopicPartition(SOURCE, 0, 1)])
    with pytest.raises(AbortableError) as raised_again:
        producer.commit_transaction()
    assert raised_again.value is refused.value
    assert stage.outputs == []
    producer.abort_transaction()
    consumer.seek(TopicPartition(SOURCE, 0, 0))
    stage.copy_the_rest(producer, consumer)
    assert stage.outputs == stage.inputs


def test_a_block_replaces_a_handle_that_failed_in_the_applications_transaction(stage):
    producer, consumer = stage.producer(), stage.subscribed()
    producer.begin_transaction()
    producer.produce(SINK, b"by hand")
    producer.flush()
    stage.cluster.delay("EndTxn", 20.0)
    with pytest.raises(RebuildProducerError):
        producer.abort_transaction(0.1)
    stage.copy_the_rest(producer, consumer)
    assert stage.outputs == stage.inputs


class TracedProducer(EosProducer):
    """Stands around every call of a block, as one that measures does."""

    calls: list[str]

    def begin_transaction(self) -> None:
        self.calls.append("begin")
        super().begin_transaction()

    def send_offsets_to_transaction(self, *arguments: Any) -> None:
        self.calls.append("send_offsets")
        super().send_offsets_to_transaction(*arguments)

    def commit_transaction(self, timeout: float = -1) -> None:
        self.calls.append("commit")
        super().commit_transaction(timeout)

    def abort_transaction(self, timeout: float = -1) -> None:
        self.calls.append("abort")
        super().abort_transaction(timeout)

    def produce(self, topic: str, *arguments: Any, **options: Any) -> None:
        super().produce(topic, *arguments, **options)
        self.calls.append("produce")

    def poll(self, timeout: float = -1) -> int:
        self.calls.append("poll")
        return super().poll(timeout)


def test_a_subclass_may_override_the_producer_calls_of_a_block() -> None:
    stage = SimulatedStage(partitions=1)
    with mock.patch("tests.simulation.simulated_stage.EosProducer", TracedProducer):
        producer = stage.producer(queue_buffering_max_messages=1)
    assert isinstance(producer, TracedProducer)
    producer.calls, consumer = [], stage.subscribed()
    with suppress(ZeroDivisionError), producer.transaction(consumer) as txn:
        for message in stage.collect(consumer, 2):
            txn.produce(SINK, message.value())
        raise ZeroDivisionError
    stage.copy_the_rest(producer, consumer)
    assert "poll" in producer.calls  # where the queue was full
    writes = ["produce"] * len(stage.inputs)
    assert [call for call in producer.calls if call != "poll"] == [
        *("begin", "produce", "produce", "abort"),
        *("begin", *writes, "send_offsets", "commit"),
    ]
    assert stage.outputs == stage.inputs
