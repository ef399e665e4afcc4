"""Transactions that the application commits by itself, and blocks of the same producer."""

from __future__ import annotations

from contextlib import suppress
from typing import Any
from unittest import mock

import pytest
from confluent_kafka import TopicPartition

from eos_client import EosProducer
from eos_client.errors import (
    AbortableError,
    ClusterUnfitError,
    RebuildProducerError,
    TransactionStateError,
    WrongThreadError,
)
from tests.clients.simulated_stage import GROUP, SINK, SOURCE, SimulatedStage
from tests.confluent.threads import elsewhere
from tests.support.protocols import PROTOCOLS

RECORDS = 4


@pytest.fixture(params=PROTOCOLS)
def stage(request: pytest.FixtureRequest) -> SimulatedStage:
    return SimulatedStage(request.param, records=RECORDS, partitions=1)


@pytest.mark.parametrize("ends", ["commit_transaction", "abort_transaction"])
def test_a_block_is_not_entered_beside_an_open_transaction_of_the_application(stage, ends):
    producer, consumer = stage.producer(), stage.subscribed()
    producer.begin_transaction()
    producer.produce(SINK, b"by hand")
    for _ in range(2):
        block = producer.transaction(consumer)
        with pytest.raises(TransactionStateError, match=r"'billing-0'.*begin_transaction\(\).*abort_transaction\(\)"):
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
    consumer.close()
    consumer = stage.subscribed()
    block = producer.transaction(consumer)
    with pytest.raises(TransactionStateError, match=r"abort_transaction\(\)"):
        block.__enter__()
    producer.abort_transaction()
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
    consumer.close()
    stage.copy_the_rest(producer, stage.subscribed())
    assert stage.outputs == stage.inputs


def test_a_transaction_one_of_whose_outputs_was_refused_by_thread_is_not_committed(stage):
    producer, consumer = stage.producer(), stage.subscribed()
    (message,) = stage.collect(consumer, 1)

    def write_in_another_thread():
        with pytest.raises(WrongThreadError):
            elsewhere(lambda: producer.produce(SINK, message.value()))

    producer.begin_transaction()
    write_in_another_thread()
    for _ in range(2):
        with pytest.raises(AbortableError, match="another thread has tried to write"):
            producer.commit_transaction()
    producer.abort_transaction()
    write_in_another_thread()
    producer.begin_transaction()
    producer.produce(SINK, message.value())
    producer.commit_transaction()
    assert stage.outputs == [message.value()]


def test_an_output_to_a_missing_topic_lets_no_failed_transaction_commit(stage):
    """The client library takes neither the output nor notice of it, and would commit what was written before."""
    producer, consumer = stage.producer(), stage.subscribed()
    (message,) = stage.collect(consumer, 1)
    producer.begin_transaction()
    producer.produce("missing", b"known to be missing from then on")
    producer.flush()
    producer.abort_transaction()
    producer.begin_transaction()
    producer.produce(SINK, message.value())
    with pytest.raises(AbortableError) as refused:
        names_no_member(stage, producer, consumer, [TopicPartition(SOURCE, 0, 1)])
    with pytest.raises(ClusterUnfitError):
        producer.produce("missing", b"")
    with pytest.raises(AbortableError) as raised_again:
        producer.commit_transaction()
    assert raised_again.value is refused.value
    assert stage.outputs == []


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
    """Notes each call that is made through it."""

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


def test_a_block_calls_no_method_that_a_subclass_has_overridden() -> None:
    stage = SimulatedStage(partitions=1)
    with mock.patch("tests.clients.simulated_stage.EosProducer", TracedProducer):
        producer = stage.producer(queue_buffering_max_messages=1)
    assert isinstance(producer, TracedProducer)
    producer.calls, consumer = [], stage.subscribed()
    with suppress(ZeroDivisionError), producer.transaction(consumer) as txn:
        for message in stage.collect(consumer, 2):
            txn.produce(SINK, message.value())
        raise ZeroDivisionError
    stage.copy_the_rest(producer, consumer)
    assert producer.calls == []
    assert stage.outputs == stage.inputs
    with producer.transaction(consumer):
        producer.produce(SINK, b"the application's own call")
    assert producer.calls == ["produce"]
