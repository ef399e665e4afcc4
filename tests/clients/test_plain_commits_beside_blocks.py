"""A consumer commits plainly or in blocks: plain offsets, served after a block, would move the group's backwards."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from confluent_kafka import KafkaException

from eos_client import EosConsumer, Outcome
from eos_client.errors import TransactionStateError
from tests.clients.simulated_stage import SINK, SimulatedStage
from tests.support.interception import close_the_gate
from tests.support.protocols import CONSUMER, PROTOCOLS

ANSWER_S = 5.0
LATE_S = 12.0
IMPATIENT: dict[str, Any] = {"socket_timeout_ms": round(ANSWER_S * 1000)}

Act = Callable[[SimulatedStage, EosConsumer], object]


@pytest.fixture(params=PROTOCOLS)
def stage(request: Any) -> SimulatedStage:
    return SimulatedStage(request.param, records=1, partitions=1)


def commit_while_the_gate_is_closed(stage: SimulatedStage, consumer: EosConsumer) -> None:
    close_the_gate(consumer)
    assert consumer.commit(asynchronous=False) == []


def wait_for_the_start(stage: SimulatedStage, consumer: EosConsumer) -> None:
    stage.wait_for(lambda: stage.committed() == 1, lambda: consumer.consume(10, 0.1))


USES: dict[str, Act] = {
    "has called commit()": lambda stage, consumer: consumer.commit(asynchronous=False),
    "has called commit(), and has offsets of a commit() pending": lambda stage, consumer: consumer.commit(),
    "has offsets of a commit() pending": commit_while_the_gate_is_closed,
    "has handed out consumer_group_metadata()": lambda stage, consumer: consumer.consumer_group_metadata(),
}


def refusal_of(producer: Any, consumer: EosConsumer) -> str:
    with pytest.raises(TransactionStateError) as refused:
        producer.transaction(consumer)
    return str(refused.value)


# -- no block takes a consumer that has committed plainly --------------------------------------------------------------


@pytest.mark.parametrize("use", USES)
def test_a_consumer_whose_offsets_go_by_other_ways_enters_no_block(stage: SimulatedStage, use: str) -> None:
    consumer, producer = stage.subscribed(), stage.producer()
    stage.collect(consumer, 1)
    USES[use](stage, consumer)
    for _ in range(2):
        told = refusal_of(producer, consumer)
        assert f"transaction() with a consumer that {use}: " in told
        assert "Build another consumer of the same group" in told
        assert "first poll()" not in told


@pytest.mark.parametrize("use", USES)
def test_the_refusal_leaves_both_clients_as_they_were(stage: SimulatedStage, use: str) -> None:
    consumer, producer = stage.subscribed(), stage.producer()
    stage.collect(consumer, 1)
    USES[use](stage, consumer)
    refusal_of(producer, consumer)
    stage.load(2)
    assert len(stage.collect(consumer, 2)) == 2
    with suppress(KafkaException):
        consumer.commit(asynchronous=False)
    consumer.close()
    stage.load(1)
    stage.copy_the_rest(producer, stage.subscribed())
    assert stage.outputs == stage.inputs[-len(stage.outputs) :]
    assert stage.committed() == 4


def test_a_start_that_was_committed_before_the_session_is_named_with_the_order_of_calls(stage: SimulatedStage) -> None:
    consumer, producer = stage.subscribed(auto_offset_reset="latest"), stage.producer()
    wait_for_the_start(stage, consumer)
    told = refusal_of(producer, consumer)
    assert "has committed where a partition starts (auto.offset.reset=latest)" in told
    assert "call producer.transaction(consumer) before its first poll()" in told


def test_with_latest_a_consumer_that_was_given_to_transaction_first_may_poll_before_its_block(
    stage: SimulatedStage,
) -> None:
    consumer, producer = stage.subscribed(auto_offset_reset="latest"), stage.producer()
    producer.transaction(consumer)
    wait_for_the_start(stage, consumer)
    stage.load(3)
    stage.copy_the_rest(producer, consumer)
    assert stage.outputs == stage.inputs[1:]
    assert "OffsetCommit" not in [each.request for each in stage.cluster.history]


def test_a_consumer_that_has_only_read_enters_its_block_without_leaving_the_group(stage: SimulatedStage) -> None:
    consumer, producer = stage.subscribed(), stage.producer()
    (message,) = stage.collect(consumer, 1)
    with producer.transaction(consumer) as txn:
        txn.produce(SINK, message.value())
    assert txn.outcome is Outcome.COMMITTED
    assert stage.named("partitions_revoked") == []


# -- the way out: another consumer -------------------------------------------------------------------------------------


def commit_twice(stage: SimulatedStage, consumer: EosConsumer) -> None:
    """Commit the first record, which is not answered in time: a first copy of the request is served much later."""
    stage.collect(consumer, 1)
    stage.cluster.delay("OffsetCommit", LATE_S)
    with pytest.raises(KafkaException, match="_TIMED_OUT"):
        consumer.commit(asynchronous=False)
    consumer.commit(asynchronous=False)
    stage.load(5)


def goes_on_in_blocks(stage: SimulatedStage, **settings: Any) -> None:
    """Copy the rest by another consumer; every copy of an earlier request is served after that."""
    stage.copy_the_rest(stage.producer(), stage.subscribed(**settings))
    stage.cluster.advance(LATE_S)
    assert stage.committed() == 6
    assert stage.outputs == stage.inputs[1:]


@pytest.mark.parametrize("membership", [{}, {"group_instance_id": "one"}], ids=["dynamic", "static"])
def test_a_copy_that_is_served_after_the_other_consumers_block_does_not_take_the_group_back(
    stage: SimulatedStage, membership: dict[str, Any]
) -> None:
    consumer = stage.subscribed(**IMPATIENT, **membership)
    commit_twice(stage, consumer)
    refusal_of(stage.producer(), consumer)
    consumer.close()
    goes_on_in_blocks(stage, **membership)


def test_a_late_start_does_not_take_the_group_back_behind_the_other_consumers_block(stage: SimulatedStage) -> None:
    consumer = stage.subscribed(auto_offset_reset="latest", **IMPATIENT)
    stage.cluster.delay("OffsetCommit", LATE_S)
    wait_for_the_start(stage, consumer)
    consumer.close()
    stage.load(5)
    goes_on_in_blocks(stage)


@pytest.mark.parametrize("slow_s", [0.0, 1.0])
def test_a_group_that_has_not_heard_of_the_leaving_keeps_the_old_member_apart(slow_s: float) -> None:
    stage = SimulatedStage(CONSUMER, records=1, partitions=1)
    consumer = stage.subscribed(**IMPATIENT)
    commit_twice(stage, consumer)
    stage.cluster.lose_request("ConsumerGroupHeartbeat")
    if slow_s:
        stage.cluster.delay("ConsumerGroupHeartbeat", slow_s)
    consumer.close()
    goes_on_in_blocks(stage)


# -- a consumer with a session commits by its blocks alone -------------------------------------------------------------

REFUSED: dict[str, Callable[[EosConsumer], object]] = {
    "commit()": lambda consumer: consumer.commit(),
    "commit(asynchronous=False)": lambda consumer: consumer.commit(asynchronous=False),
    "consumer_group_metadata()": lambda consumer: consumer.consumer_group_metadata(),
}


def is_refused(consumer: EosConsumer, call: str) -> None:
    with pytest.raises(TransactionStateError, match=r"given to producer\.transaction\(\), whose transactions carry"):
        REFUSED[call](consumer)


@pytest.mark.parametrize("call", REFUSED)
def test_what_lets_offsets_out_is_refused_from_the_call_of_transaction_on(stage: SimulatedStage, call: str) -> None:
    consumer, producer = stage.subscribed(), stage.producer()
    block = producer.transaction(consumer)
    is_refused(consumer, call)
    with block as txn:
        is_refused(consumer, call)
        (message,) = stage.collect(consumer, 1)
        txn.produce(SINK, message.value())
        is_refused(consumer, call)
    is_refused(consumer, call)
    assert txn.outcome is Outcome.COMMITTED
    producer.close()
    is_refused(consumer, call)
    assert "OffsetCommit" not in [each.request for each in stage.cluster.history]
    consumer.close()
    with pytest.raises(RuntimeError, match="closed"):
        REFUSED[call](consumer)


@pytest.mark.parametrize("call", REFUSED)
def test_what_lets_offsets_out_is_refused_while_a_transaction_is_held(stage: SimulatedStage, call: str) -> None:
    consumer, producer = stage.subscribed(), stage.producer()
    stage.hold(producer, consumer, 1)
    is_refused(consumer, call)
    stage.cluster.rebalance()
    stage.load(1)
    stage.copy_the_rest(producer, consumer)
    assert stage.outputs == stage.inputs


def test_an_assignment_by_hand_lets_no_commit_pass_either(stage: SimulatedStage) -> None:
    consumer, producer = stage.subscribed(), stage.producer()
    stage.copy_the_rest(producer, consumer)
    consumer.unassign()
    for call in REFUSED:
        is_refused(consumer, call)


def test_a_commit_that_was_refused_changes_nothing_of_its_block(stage: SimulatedStage) -> None:
    consumer, producer = stage.subscribed(), stage.producer()
    with producer.transaction(consumer) as txn:
        (message,) = stage.collect(consumer, 1)
        is_refused(consumer, "commit()")
        txn.produce(SINK, message.value())
    assert txn.outcome is Outcome.COMMITTED
    assert stage.outputs == stage.inputs


def test_after_close_of_the_producer_another_one_takes_the_consumer_over(stage: SimulatedStage) -> None:
    consumer, producer = stage.subscribed(), stage.producer()
    stage.copy_the_rest(producer, consumer)
    producer.close()
    stage.load(3)
    stage.copy_the_rest(stage.producer(), consumer)
    assert stage.outputs == stage.inputs
    assert stage.named("partitions_revoked") == []


def test_after_close_of_the_producer_a_start_waits_for_the_next_one(stage: SimulatedStage) -> None:
    consumer, producer = stage.subscribed(auto_offset_reset="latest"), stage.producer()
    producer.transaction(consumer)
    producer.close()
    for _ in range(20):
        assert consumer.consume(10, 0.1) == []
    assert stage.committed() is None
    stage.load(3)
    stage.copy_the_rest(stage.producer(), consumer)
    assert stage.outputs == stage.inputs[1:]
    assert "OffsetCommit" not in [each.request for each in stage.cluster.history]
