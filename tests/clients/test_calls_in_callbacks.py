"""What callbacks may call, as with confluent_kafka: whatever serves no callbacks of the same client meanwhile."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import TopicPartition

from eos_client import Outcome
from eos_client.confluent.thread_ownership import is_in_call
from eos_client.errors import TransactionStateError, WrongThreadError
from tests.clients.simulated_stage import SINK, SOURCE, SimulatedStage
from tests.support.protocols import PROTOCOLS


@pytest.fixture(params=PROTOCOLS)
def stage(request: Any) -> SimulatedStage:
    return SimulatedStage(request.param)


def block_whose_flush_meets_a_revocation(stage: SimulatedStage, producer: Any, on_revoke: Any) -> tuple[Any, Any]:
    """Return the consumer, and the block, which has come to its end with four outputs."""
    consumer = stage.subscribed(callbacks={"on_revoke": on_revoke}, heartbeat_interval_ms=100)
    with producer.transaction(consumer) as txn:
        for message in stage.collect(consumer, 4):
            txn.produce(SINK, message.value())
        stage.cluster.delay("Produce", 1.0)
        stage.cluster.after(0.1, lambda: stage.cluster.revoke((SOURCE, 1)))
    return consumer, txn


@pytest.mark.parametrize("protocol", ["range", "cooperative-sticky"])
def test_an_on_revoke_inside_the_flush_of_a_block_may_flush_the_producer(protocol: str) -> None:
    left: list[int] = []
    stage = SimulatedStage(protocol)
    producer = stage.producer()

    def on_revoke(*_: Any) -> None:
        assert is_in_call(producer)
        left.append(producer.flush(0.1))

    consumer, txn = block_whose_flush_meets_a_revocation(stage, producer, on_revoke)
    assert txn.outcome is Outcome.COMMITTED
    assert left == [4]
    stage.cluster.give_back()
    consumer.adapter.fetching.rewind()
    stage.copy_the_rest(producer, consumer)
    assert stage.outputs == stage.inputs


@pytest.mark.parametrize("protocol", ["range", "cooperative-sticky"])
def test_a_commit_in_on_revoke_while_a_block_is_being_ended_says_so(protocol: str) -> None:
    """Migrated loops often commit there; nothing is unknown, and the end of the block commits."""
    refused: list[str] = []
    stage = SimulatedStage(protocol)
    producer = stage.producer()

    def on_revoke(member: Any, _: Any) -> None:
        with pytest.raises(TransactionStateError) as told:
            member.commit(asynchronous=False)
        refused.append(str(told.value))

    _, txn = block_whose_flush_meets_a_revocation(stage, producer, on_revoke)
    assert txn.outcome is Outcome.COMMITTED
    (told,) = refused
    assert "commit() of a consumer that was given to producer.transaction()" in told


def test_rebalance_callbacks_may_ask_and_steer_the_consumer(stage: SimulatedStage) -> None:
    answers: list[Any] = []

    def on_assign(consumer: Any, partitions: list[TopicPartition]) -> None:
        places = [TopicPartition(SOURCE, partition.partition) for partition in partitions]
        consumer.assign(places) if stage.protocol == "range" else consumer.incremental_assign(places)
        answers.append((consumer.assignment(), consumer.position(places), consumer.committed(places, 1.0)))
        answers.append([consumer.get_watermark_offsets(place, 1.0) for place in places])
        consumer.pause(places)
        consumer.resume(places)

    consumer, producer = stage.subscribed(callbacks={"on_assign": on_assign}), stage.producer()
    stage.copy_the_rest(producer, consumer)
    assert stage.outputs == stage.inputs
    assert [(0, 2)] * stage.partitions in answers


def test_a_delivery_callback_may_produce_within_its_block(stage: SimulatedStage) -> None:
    consumer, producer = stage.subscribed(), stage.producer()

    def again(_: object, message: Any) -> None:
        if message.value() == b"first":
            producer.produce(SINK, b"second", on_delivery=again)

    with producer.transaction(consumer) as txn:
        producer.produce(SINK, b"first", on_delivery=again)
        producer.flush(1.0)
    assert txn.outcome is Outcome.COMMITTED
    assert stage.outputs == [b"first", b"second"]


CALLS_IN_AN_ABORT = {
    "begin": lambda consumer, producer: producer.begin_transaction(),
    "abort": lambda consumer, producer: producer.abort_transaction(),
    "commit": lambda consumer, producer: producer.commit_transaction(),
    "send": lambda consumer, producer: producer.send_offsets_to_transaction([], None),
    "block": lambda consumer, producer: producer.transaction(consumer).__enter__(),
    "poll": lambda consumer, producer: consumer.poll(0),
    "produce": lambda consumer, producer: producer.produce(SINK, b"again"),
}


@pytest.mark.parametrize("call", CALLS_IN_AN_ABORT)
def test_what_a_delivery_callback_calls_while_its_block_is_aborted_is_refused_and_the_error_of_the_block_comes_out(
    stage: SimulatedStage, call: str
) -> None:
    """In an abort they run in the thread of the handle; a program that produces a failed output again is usual."""
    refused: list[Exception] = []
    consumer, producer = stage.subscribed(), stage.producer()

    def on_delivery(error: Any, _: Any) -> None:
        assert error is not None
        try:
            CALLS_IN_AN_ABORT[call](consumer, producer)
        except (TransactionStateError, WrongThreadError) as refusal:
            refused.append(refusal)

    block = producer.transaction(consumer)

    def fail_in_the_block() -> None:
        with block:
            for message in stage.collect(consumer, 4):
                producer.produce(SINK, message.value(), on_delivery=on_delivery)
            raise KeyError("record 2")

    with pytest.raises(KeyError, match="record 2"):
        fail_in_the_block()
    assert block.outcome is Outcome.ABORTED
    expected = WrongThreadError if call in {"produce", "poll"} else TransactionStateError
    assert refused
    assert all(isinstance(each, expected) for each in refused)
    stage.copy_the_rest(producer, consumer)
    assert stage.outputs == stage.inputs


def test_a_call_that_is_refused_in_a_callback_changes_nothing(stage: SimulatedStage) -> None:
    seen: list[Any] = []

    def on_assign(consumer: Any, _: Any) -> None:
        member = consumer.adapter
        for drain in (True, False):
            before = member.table.state, member.membership.state
            with pytest.raises(TransactionStateError, match="inside another one"):
                member.fetching.serve_callbacks(drain=drain)
            seen.append((member.table.state, member.membership.state) == before)

    consumer = stage.subscribed(callbacks={"on_assign": on_assign})
    stage.collect(consumer, 4)
    assert seen
    assert all(seen)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_an_exception_of_on_revoke_without_a_text_is_raised_once_as_any_other(protocol):
    class OddError(Exception):
        def __str__(self):
            raise RuntimeError("no text")

    def on_revoke(*_):
        raise OddError

    stage = SimulatedStage(protocol)
    producer, consumer = stage.producer(), stage.subscribed(callbacks={"on_revoke": on_revoke})
    txn = producer.transaction(consumer)

    def block():
        with txn:
            for record in stage.collect(consumer, 4):
                txn.produce(SINK, record.value())
            stage.until_revoked(consumer)

    with pytest.raises(OddError):
        block()
    assert txn.outcome is Outcome.ABORTED
    with producer.transaction(consumer):
        pass
    assert stage.named("partitions_lost") == []
