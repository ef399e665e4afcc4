"""A plain commit may have been sent twice: a copy served after a block would move the committed offsets backwards.

Nothing of Kafka refuses an OffsetCommit within one generation, so a consumer leaves its group before its first block.
"""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaException, TopicPartition

from eos_client import EosConsumer, Outcome
from eos_client.core.commit_gate import GateRule
from eos_client.errors import TransactionStateError
from tests.simulation.simulated_stage import SINK, SOURCE, SimulatedStage
from tests.support.interception import close_the_gate
from tests.support.protocols import CONSUMER, PROTOCOLS

ANSWER_S = 5.0
LATE_S = 12.0
IMPATIENT: dict[str, Any] = {"socket_timeout_ms": round(ANSWER_S * 1000)}


@pytest.fixture(params=PROTOCOLS)
def stage(request: Any) -> SimulatedStage:
    return SimulatedStage(request.param, records=1, partitions=1)


def left(stage: SimulatedStage) -> int:
    """How often the consumer has left its group."""
    return len(stage.named("partitions_revoked"))


def commit_twice(stage: SimulatedStage, consumer: EosConsumer) -> None:
    """Commit the first record, which is not answered in time: a first copy of the request is served much later."""
    stage.collect(consumer, 1)
    stage.cluster.delay("OffsetCommit", LATE_S)
    with pytest.raises(KafkaException, match="_TIMED_OUT"):
        consumer.commit(asynchronous=False)
    consumer.commit(asynchronous=False)
    stage.load(5)


def every_copy_is_served(stage: SimulatedStage) -> None:
    stage.cluster.advance(LATE_S)


def test_a_copy_that_is_served_after_a_block_does_not_take_the_group_back(stage: SimulatedStage) -> None:
    consumer, producer = stage.subscribed(**IMPATIENT), stage.producer()
    commit_twice(stage, consumer)
    stage.copy_the_rest(producer, consumer)
    every_copy_is_served(stage)
    assert stage.committed() == 6
    assert stage.outputs == stage.inputs[1:]


def test_the_group_is_left_once_and_not_before_each_block(stage: SimulatedStage) -> None:
    consumer, producer = stage.subscribed(), stage.producer()
    stage.collect(consumer, 1)
    consumer.commit(asynchronous=False)
    for number in range(3):
        stage.load(1)
        stage.copy_the_rest(producer, consumer)
        assert left(stage) == 1, f"after block {number}"


def test_a_consumer_that_has_committed_nothing_stays_in_its_group(stage: SimulatedStage) -> None:
    consumer, producer = stage.subscribed(), stage.producer()
    stage.copy_the_rest(producer, consumer)
    assert left(stage) == 0


def test_what_was_committed_before_a_partition_left_is_refused_already(stage: SimulatedStage) -> None:
    consumer, producer = stage.subscribed(), stage.producer()
    stage.collect(consumer, 1)
    consumer.commit(asynchronous=False)
    stage.cluster.lose()
    stage.wait_for(lambda: stage.named("partitions_lost"), lambda: consumer.consume(10, 0.1))
    stage.load(2)
    stage.copy_the_rest(producer, consumer)
    assert left(stage) == 0


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_plain_commit_beside_a_producer_is_refused(stage: SimulatedStage, *, asynchronous: bool) -> None:
    consumer, producer = stage.subscribed(), stage.producer()
    with producer.transaction(consumer) as txn:
        (message,) = stage.collect(consumer, 1)
        txn.produce(SINK, message.value())
    with pytest.raises(TransactionStateError, match="block without outputs"):
        consumer.commit(message, asynchronous=asynchronous)
    assert [each.request for each in stage.cluster.history if each.request == "OffsetCommit"] == []


def test_commit_with_nothing_new_beside_a_producer_does_what_it_does_elsewhere(stage: SimulatedStage) -> None:
    consumer, producer = stage.subscribed(), stage.producer()
    stage.copy_the_rest(producer, consumer)
    assert consumer.commit() is None
    with pytest.raises(KafkaException, match="_NO_OFFSET"):
        consumer.commit(asynchronous=False)


def test_after_close_of_the_producer_plain_commits_work_and_the_next_block_rejoins(
    stage: SimulatedStage,
) -> None:
    consumer, producer = stage.subscribed(**IMPATIENT), stage.producer()
    producer.transaction(consumer)
    producer.close()
    commit_twice(stage, consumer)
    stage.copy_the_rest(stage.producer(), consumer)
    every_copy_is_served(stage)
    assert stage.committed() == 6
    assert stage.outputs == stage.inputs[1:]


def test_after_close_of_the_producer_a_partitions_start_is_committed(
    stage: SimulatedStage,
) -> None:
    consumer, producer = stage.subscribed(auto_offset_reset="latest"), stage.producer()
    producer.transaction(consumer)
    producer.close()
    stage.wait_for(lambda: stage.committed() == 1, lambda: consumer.consume(10, 0.1))
    stage.load(1)
    assert len(stage.collect(consumer, 1)) == 1


def test_a_start_that_was_committed_before_the_first_block_does_not_take_the_group_back(stage: SimulatedStage) -> None:
    consumer, producer = stage.subscribed(auto_offset_reset="latest", **IMPATIENT), stage.producer()
    stage.cluster.delay("OffsetCommit", LATE_S)
    stage.wait_for(lambda: stage.committed() == 1, lambda: consumer.consume(10, 0.1))
    stage.load(5)
    stage.copy_the_rest(producer, consumer)
    every_copy_is_served(stage)
    assert stage.committed() == 6


def test_what_the_gate_has_held_back_is_committed_on_the_way_out(stage: SimulatedStage) -> None:
    consumer, producer = stage.subscribed(), stage.producer()
    stage.collect(consumer, 1)
    close_the_gate(consumer)
    assert consumer.commit(asynchronous=False) == []
    stage.load(2)
    stage.copy_the_rest(producer, consumer)
    assert stage.outputs in (stage.inputs, stage.inputs[1:])
    assert stage.committed() == 3


def test_records_that_were_taken_before_the_block_come_again(stage: SimulatedStage) -> None:
    consumer, producer = stage.subscribed(), stage.producer()
    stage.collect(consumer, 1)
    consumer.commit(asynchronous=False)
    stage.load(1)
    (message,) = stage.collect(consumer, 1)
    with producer.transaction(consumer) as txn:
        txn.produce(SINK, message.value())
    assert txn.outcome is Outcome.ABORTED
    stage.copy_the_rest(producer, consumer)
    assert stage.outputs == stage.inputs[1:]


def test_an_on_revoke_that_raises_on_the_way_out_leaves_the_consumer_subscribed(stage: SimulatedStage) -> None:
    raising = [ZeroDivisionError("in on_revoke")]

    def on_revoke(*_: Any) -> None:
        if raising:
            raise raising.pop()

    consumer, producer = stage.subscribed(callbacks={"on_revoke": on_revoke}, **IMPATIENT), stage.producer()
    commit_twice(stage, consumer)
    with pytest.raises(ZeroDivisionError), producer.transaction(consumer):
        pytest.fail("the block was entered")
    stage.copy_the_rest(producer, consumer)
    every_copy_is_served(stage)
    assert stage.committed() == 6
    assert stage.outputs == stage.inputs[1:]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_copy_that_is_served_after_the_block_of_a_static_member_does_not_take_the_group_back(protocol: str) -> None:
    stage = SimulatedStage(protocol, records=1, partitions=1)
    consumer, producer = stage.subscribed(group_instance_id="one", **IMPATIENT), stage.producer()
    commit_twice(stage, consumer)
    stage.copy_the_rest(producer, consumer)
    every_copy_is_served(stage)
    assert stage.committed() == 6
    assert stage.outputs == stage.inputs[1:]


def test_pauses_and_subscriptions_are_as_after_any_rebalance(stage: SimulatedStage) -> None:
    consumer, producer = stage.subscribed(), stage.producer()
    stage.collect(consumer, 1)
    consumer.commit(asynchronous=False)
    consumer.pause([TopicPartition(SOURCE, 0)])
    stage.load(2)
    stage.copy_the_rest(producer, consumer)
    assert stage.outputs == stage.inputs[1:]


@pytest.mark.parametrize("slow_s", [0.0, 1.0])
@pytest.mark.parametrize("moves_on", [False, True])
def test_a_group_that_has_not_heard_of_the_leaving_keeps_the_old_member_apart(slow_s: float, *, moves_on: bool) -> None:
    """By the old name it would be the old membership, which neither name nor epoch tell where the group moves on."""
    stage = SimulatedStage(CONSUMER, records=1, partitions=1)

    def on_revoke(*_: Any) -> None:
        if moves_on:
            stage.cluster.rebalance()

    consumer, producer = stage.subscribed(callbacks={"on_revoke": on_revoke}, **IMPATIENT), stage.producer()
    commit_twice(stage, consumer)
    stage.cluster.lose_request("ConsumerGroupHeartbeat")
    if slow_s:
        stage.cluster.delay("ConsumerGroupHeartbeat", slow_s)
    stage.copy_the_rest(producer, consumer)
    every_copy_is_served(stage)
    assert stage.committed() == 6
    assert stage.outputs == stage.inputs[1:]


def test_a_commit_that_is_answered_after_its_partition_came_back_may_have_been_sent_since() -> None:
    """The client library may have kept it until it knew the coordinator: then it is of the new membership."""
    stage = SimulatedStage(CONSUMER, records=1, partitions=1)
    consumer, producer = stage.subscribed(), stage.producer()
    stage.collect(consumer, 1)
    stage.cluster.delay("OffsetCommit", 20.0)
    consumer.commit()
    stage.cluster.revoke((SOURCE, 0))
    stage.wait_for(lambda: left(stage) == 1, lambda: consumer.member.fetching.wait_while_paused(0.2))
    stage.cluster.give_back()
    stage.wait_for(lambda: consumer.member.membership.assigned, lambda: consumer.member.fetching.wait_while_paused(0.2))
    assert consumer.member.plain.unanswered()
    stage.wait_for(
        lambda: not consumer.member.plain.unanswered(), lambda: consumer.member.fetching.wait_while_paused(0.2)
    )
    stage.load(1)
    stage.copy_the_rest(producer, consumer)
    assert left(stage) == 2


def test_a_block_aborts_when_an_earlier_plain_commit_is_answered_inside_it(
    stage: SimulatedStage,
) -> None:
    consumer, producer = stage.subscribed(), stage.producer()
    stage.collect(consumer, 1)
    stage.cluster.delay("OffsetCommit", ANSWER_S)
    consumer.commit()
    stage.load(2)
    with producer.transaction(consumer) as txn:
        for message in stage.collect(consumer, 2):
            txn.produce(SINK, message.value())
        stage.wait_for(lambda: not consumer.member.plain.unanswered(), lambda: consumer.consume(1, 0.1))
    assert txn.outcome is Outcome.ABORTED
    assert "orders[0] was not answered before this block" in txn.reason
    assert [event.rule for event in stage.named("transaction_aborted")] == [GateRule.PLAIN_COMMIT_UNFENCED]
    assert consumer.gate.counters.by_rule[GateRule.PLAIN_COMMIT_UNFENCED] == 1
    stage.copy_the_rest(producer, consumer)
    assert stage.outputs == stage.inputs[1:]


def test_an_on_revoke_that_commits_on_the_way_out_has_nothing_to_commit(stage: SimulatedStage) -> None:
    """Like that of an application whose callbacks are from before it had blocks."""
    answers: list[object] = []

    def on_revoke(consumer: EosConsumer, _: object) -> None:
        answers.append(consumer.commit())

    consumer, producer = stage.subscribed(callbacks={"on_revoke": on_revoke}), stage.producer()
    (message,) = stage.collect(consumer, 1)
    consumer.commit(message, asynchronous=False)
    stage.load(2)
    stage.copy_the_rest(producer, consumer)
    assert answers == [None]
    assert stage.outputs == stage.inputs[1:]
