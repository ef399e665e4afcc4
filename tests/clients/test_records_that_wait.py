"""A record that waits inside the consumer is out of the client library: pauses and assignments hold for it, too."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import pytest
from confluent_kafka import TopicPartition

from eos_client.core.record_runs import message_count
from tests.clients.simulated_stage import GROUP, SINK, SOURCE, SimulatedStage
from tests.support.protocols import COOPERATIVE, EAGER, PROTOCOLS

RECORDS = 12
PLACE = TopicPartition(SOURCE, 0)


@pytest.fixture(params=PROTOCOLS)
def stage(request: Any) -> SimulatedStage:
    return SimulatedStage(request.param, records=RECORDS, partitions=1)


def block(stage: SimulatedStage, producer: Any, consumer: Any, count: int = 3) -> list[int]:
    with producer.transaction(consumer) as txn:
        found = consumer.consume(count, 0.5)
        for message in found:
            txn.produce(SINK, message.value())
    return [message.offset() for message in found]


def waiting(stage: SimulatedStage) -> tuple[Any, Any]:
    """Clients after a block: its end has served callbacks, which leaves a record behind."""
    producer, consumer = stage.producer(), stage.subscribed()
    stage.wait_for(lambda: stage.cluster.committed(GROUP), lambda: block(stage, producer, consumer))
    assert consumer.adapter.state.waiting
    return producer, consumer


@pytest.mark.parametrize("call", ["poll", "consume"])
def test_nothing_of_a_paused_partition_comes_between_two_blocks(stage: SimulatedStage, call: str) -> None:
    producer, consumer = stage.producer(), stage.subscribed()
    for _ in range(2 * RECORDS):
        block(stage, producer, consumer)
        consumer.pause(consumer.assignment())
        assert not (consumer.poll(0.1) if call == "poll" else consumer.consume(5, 0.1))
        consumer.resume(consumer.assignment())
    assert stage.outputs == sorted(stage.inputs)
    assert list(stage.cluster.committed(GROUP).values()) == [RECORDS]


def test_a_block_gets_nothing_of_a_paused_partition_and_everything_after_it(stage: SimulatedStage) -> None:
    producer, consumer = waiting(stage)
    consumer.pause([PLACE])
    assert block(stage, producer, consumer) == []
    consumer.resume([PLACE])
    assert block(stage, producer, consumer, RECORDS)[0] == 3
    stage.copy_the_rest(producer, consumer)
    assert stage.outputs == sorted(stage.inputs)


def test_what_waits_of_another_partition_comes_while_one_is_paused(stage: SimulatedStage) -> None:
    stage.cluster.create_topic("others")
    stage.cluster.write("others", [b"other"] * 3)
    consumer = stage.consumer()
    consumer.subscribe([SOURCE, "others"])
    stage.wait_for(
        lambda: message_count(consumer.adapter.state.waiting) > 1,
        lambda: (consumer.adapter.fetching.prefetch(), consumer.adapter.fetching.serve_callbacks()),
    )
    consumer.pause([PLACE])
    found = [message for _ in range(5) for message in consumer.consume(10, 0.2)]
    assert [(message.topic(), message.offset()) for message in found] == [("others", offset) for offset in range(3)]
    consumer.resume([PLACE])
    assert [message.offset() for message in stage.collect(consumer, RECORDS)] == list(range(RECORDS))


@pytest.mark.parametrize("offset", [0, 3, 10])
def test_an_assignment_by_hand_starts_where_it_says(stage: SimulatedStage, offset: int) -> None:
    _, consumer = waiting(stage)
    there = [TopicPartition(SOURCE, 0, offset)]
    if stage.protocol == EAGER:
        consumer.assign(there)
    else:
        consumer.incremental_unassign([PLACE])
        consumer.incremental_assign(there)
    found = stage.collect(consumer, RECORDS - offset)
    assert [message.offset() for message in found] == list(range(offset, RECORDS))


def test_a_member_that_subscribes_again_at_once_gets_what_had_waited(stage: SimulatedStage) -> None:
    """A cooperative member keeps its partitions if a rebalance is pending, and reads on behind what had waited."""
    _, consumer = waiting(stage)
    (first,) = stage.cluster.committed(GROUP).values()
    if stage.protocol == COOPERATIVE:
        stage.cluster.clock.sleep(0.2)
        stage.subscribed()
        stage.cluster.clock.sleep(3.5)
    consumer.unsubscribe()
    consumer.subscribe([SOURCE])
    found = stage.collect(consumer, RECORDS - first)
    assert [message.offset() for message in found] == list(range(first, RECORDS))


def test_what_had_waited_comes_again_after_an_unsubscribe_that_was_interrupted(
    stage: SimulatedStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, consumer = waiting(stage)
    (first,) = stage.cluster.committed(GROUP).values()
    with monkeypatch.context() as patched:
        patched.setattr(consumer.adapter.library.raw, "seek", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            consumer.unsubscribe()
    found = stage.collect(consumer, RECORDS - first)
    assert [message.offset() for message in found] == list(range(first, RECORDS))


@pytest.mark.parametrize("call", ["unassign", "incremental_unassign", "unsubscribe"])
def test_records_of_partitions_given_up_are_not_delivered(stage: SimulatedStage, call: str) -> None:
    _, consumer = waiting(stage)
    if call == "incremental_unassign":
        if stage.protocol == EAGER:
            pytest.skip("an eager group has no incremental calls")
        consumer.incremental_unassign([PLACE])
    else:
        getattr(consumer, call)()
    assert consumer.poll(0.3) is None
    assert consumer.consume(5, 0.3) == []


def test_a_manual_assignment_of_another_topic_drops_the_first_ones_records(
    stage: SimulatedStage,
) -> None:
    stage.cluster.create_topic("others")
    stage.cluster.write("others", [b"other"] * 3)
    _, consumer = waiting(stage)
    if stage.protocol == EAGER:
        consumer.assign([TopicPartition("others", 0, 0)])
    else:
        consumer.incremental_unassign([PLACE])
        consumer.incremental_assign([TopicPartition("others", 0, 0)])
    found = stage.collect(consumer, 3)
    assert [(message.topic(), message.offset()) for message in found] == [("others", offset) for offset in range(3)]
