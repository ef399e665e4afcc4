"""A consumer that librdkafka has given up says so whenever it is asked for records, also when its one event is lost."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError, TopicPartition

from eos_client import EosConfig, EosConsumer, ExactlyOnceLoop
from eos_client.errors import ClusterUnfitError, FatalClientError
from tests.clients.simulated_stage import GROUP, QUIET, SINK, SOURCE, SimulatedStage
from tests.clients.struck_steps import CallStrike, StrikeError
from tests.support.protocols import COOPERATIVE, EAGER

GIVEN_UP = "the consumer cannot go on"


@pytest.fixture
def stage():
    return SimulatedStage(records=1)


@pytest.fixture
def refused(stage):
    """A function that makes a consumer whose instance id belongs to another member, which lives."""
    first = stage.subscribed(group_instance_id="desk-1")
    stage.collect(first, 2)

    def make(strike=None):
        made = stage.consumer(group_instance_id="desk-1")
        if strike is not None:
            made = struck_consumer(stage, strike, **{"group.instance.id": "desk-1"})
        made.subscribe([SOURCE])
        return made

    return make


def struck_consumer(stage, strike, **settings):
    config = {"bootstrap.servers": "simulated", "group.id": GROUP, "group.protocol": "consumer"}
    return EosConsumer(
        config | {"auto.offset.reset": "earliest"} | settings,
        factory=strike.around(stage.cluster.consumer),
        clock=stage.cluster.clock,
        hook=stage.events.append,
    )


def block_that_raises(stage, producer, consumer):
    with pytest.raises(FatalClientError, match=GIVEN_UP):
        stage.read_in_blocks(producer, consumer)


def one_block(producer, consumer):
    with producer.transaction(consumer) as block:
        consumer.consume(10, 0.2)
    return block


def test_a_block_ends_with_the_fatal_error_and_so_does_each_later_one(stage, refused):
    consumer, producer = refused(), stage.producer()
    for _ in range(3):
        block_that_raises(stage, producer, consumer)
    consumer.close()


@pytest.mark.parametrize("call", ["poll", "consume"])
def test_a_fatal_event_is_kept_when_its_call_is_interrupted(stage, refused, call):
    strike = CallStrike(1, after=True)
    consumer, producer = refused(strike), stage.producer()
    stage.cluster.clock.sleep(5.0)
    strike.is_armed = True
    with pytest.raises(StrikeError):
        consumer.consume(10, 0.2) if call == "consume" else consumer.poll(0.2)
    strike.is_armed = False
    for _ in range(2):
        block_that_raises(stage, producer, consumer)
    consumer.close()


def test_a_fatal_event_is_kept_by_a_rewind(stage, refused):
    consumer, producer = refused(), stage.producer()
    stage.cluster.clock.sleep(5.0)
    consumer.adapter.fetching.prefetch()
    consumer.adapter.fetching.rewind()
    block_that_raises(stage, producer, consumer)


def event_of(stage, consumer):
    """What it is handed first."""
    got: list[Any] = []
    stage.wait_for(lambda: got, lambda: got.extend(consumer.consume(1, 0.2)))
    return got


def test_plain_use_gets_the_event_as_confluent_kafka_hands_it_out_and_then_the_error(stage, refused):
    consumer = refused()
    got = event_of(stage, consumer)
    assert [(m.error().code(), m.error().fatal()) for m in got] == [(KafkaError._FATAL, False)]
    for _ in range(2):
        with pytest.raises(FatalClientError, match=GIVEN_UP):
            consumer.poll(0.1)
    consumer.close()


def test_what_was_found_out_before_the_event_came_does_not_hide_why(stage, refused):
    consumer = refused()
    stage.cluster.clock.sleep(5.0)
    stage.wait_for(consumer.adapter.library.check_fatal, lambda: stage.cluster.clock.sleep(0.1))
    (event,) = consumer.consume(10, 0.2)
    assert "desk-1" in event.error().str()
    with pytest.raises(FatalClientError, match="desk-1"):
        consumer.consume(10, 0.2)
    consumer.close()


@pytest.mark.parametrize("protocol", [EAGER, COOPERATIVE])
def test_a_classic_member_whose_id_was_taken_over_ends_with_the_fatal_error(protocol):
    stage = SimulatedStage(protocol, records=1)
    consumer, producer = stage.subscribed(group_instance_id="desk-1"), stage.producer()
    stage.wait_for(lambda: consumer.adapter.membership.state.assigned, lambda: one_block(producer, consumer))
    new_owner = stage.subscribed(group_instance_id="desk-1")
    stage.wait_for(lambda: new_owner.adapter.membership.state.assigned, lambda: new_owner.consume(1, 0.2))
    block_that_raises(stage, producer, consumer)


def test_a_commit_of_a_fatally_failed_client_raises_its_fatal_error(stage, refused):
    consumer = refused()
    event_of(stage, consumer)
    with pytest.raises(FatalClientError, match=GIVEN_UP):
        consumer._plain.send({}, asynchronous=False)


def test_a_loop_ends_with_the_fatal_error(stage, refused):
    config = EosConfig(
        {"bootstrap.servers": "simulated"},
        group_id="billing",
        transactional_id="billing-1",
        consumer={"group.protocol": "consumer", "group.instance.id": "desk-1"},
        producer={"logger": QUIET},
    )
    loop = ExactlyOnceLoop(config, [SOURCE], lambda r: [r.value()], output_topic=SINK, clients=stage.cluster)
    stage.cluster.after(60.0, loop.stop)
    with loop, pytest.raises(FatalClientError, match=GIVEN_UP):
        loop.run()


def test_a_working_client_continues_after_an_interrupted_call(stage):
    strike = CallStrike(1, after=True)
    consumer, producer = struck_consumer(stage, strike), stage.producer()
    consumer.subscribe([SOURCE])
    strike.is_armed = True
    with pytest.raises(StrikeError):
        consumer.poll(0.2)
    strike.is_armed = False
    stage.copy_the_rest(producer, consumer)
    assert stage.outputs == sorted(stage.inputs)


@pytest.mark.parametrize(
    ("code", "reason"),
    [("GROUP_MAX_SIZE_REACHED", "maximum size"), ("GROUP_ID_NOT_FOUND", f"group '{GROUP}' does not admit")],
)
def test_a_commit_of_a_consumer_that_its_group_refuses_has_the_class_and_the_reason_that_its_poll_has(
    stage, code, reason
):
    consumer = stage.subscribed()
    stage.collect(consumer, 1)
    stage.cluster.refuse("ConsumerGroupHeartbeat", code)
    with pytest.raises(ClusterUnfitError, match=reason):
        stage.wait_for(lambda: False, lambda: consumer.poll(0.1))
    with pytest.raises(ClusterUnfitError, match=reason) as caught:
        consumer.commit(offsets=[TopicPartition(SOURCE, 0, 1)], asynchronous=False)
    assert f"commit() failed with {code}" in str(caught.value)
