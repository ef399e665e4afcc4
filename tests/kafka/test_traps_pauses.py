"""Pausing is a means of ours and of the application's: neither undoes the other's, and none outlives its partition."""

import time

import pytest
from confluent_kafka import TopicPartition

from tests.kafka.kafka_support import values
from tests.support.waiting import wait_for


def places(stage, partitions):
    return [TopicPartition(stage.source, p) for p in partitions]


def drain(consumer):
    for _ in range(3):
        consumer.adapter.fetching.serve_callbacks(drain=True)


def test_what_the_application_paused_stays_paused_and_the_rest_flows_after_a_drain(stage):
    stage.load(1)
    consumer = stage.subscribed()
    stage.collect(consumer, 2)
    consumer.pause(places(stage, [0]))
    written = stage.load(3, start=1)
    drain(consumer)
    consumer.adapter.fetching.wait_while_paused(0.1)
    assert values(stage.collect(consumer, 3)) == ["1-1", "1-2", "1-3"]
    assert consumer.consume(10, 0.3) == []
    consumer.resume(places(stage, [0]))
    assert values(stage.collect(consumer, 3)) == written[:3]


def test_what_the_application_resumed_flows_after_a_drain(stage):
    stage.load(1)
    consumer = stage.subscribed()
    stage.collect(consumer, 2)
    consumer.pause(places(stage, [0, 1]))
    drain(consumer)
    consumer.resume(places(stage, [0, 1]))
    stage.load(1, start=1)
    drain(consumer)
    assert sorted(values(stage.collect(consumer, 2))) == ["0-1", "1-1"]


def test_a_partition_that_a_callback_pauses_during_the_drain_stays_paused(stage):
    stage.load(1)
    paused: list[int] = []

    def on_revoke(consumer, partitions):
        if partitions and not paused:
            paused.extend({0, 1} - {p.partition for p in partitions})
            consumer.pause(places(stage, paused))

    consumer = stage.subscribed(callbacks={"on_revoke": on_revoke})
    stage.collect(consumer, 2)
    consumer.commit(asynchronous=False)
    newcomer = stage.raw_consumer()
    wait_for(
        lambda: paused and stage.assigned(newcomer),
        "the rebalance",
        lambda: consumer.adapter.fetching.serve_callbacks(drain=True),
        lambda: newcomer.poll(0.02),
    )
    stage.load(2, start=1)
    drain(consumer)
    assert consumer.consume(10, 0.5) == []
    consumer.resume(places(stage, paused))
    assert values(stage.collect(consumer, 2)) == [f"{paused[0]}-1", f"{paused[0]}-2"]


def test_a_partition_that_was_drained_while_it_started_does_not_go_back_to_its_start(any_stage):
    """librdkafka repeats a look-up of `auto.offset.reset` that a pause overtook, half a second later."""
    stage = any_stage
    stage.load(1)
    consumer = stage.subscribed()
    got: list[str] = []
    wait_for(
        lambda: len(got) >= 2,
        "the first records",
        lambda: consumer.adapter.fetching.serve_callbacks(drain=True),
        lambda: got.extend(values(consumer.consume(10, 0.002))),
    )
    drain(consumer)
    late = time.monotonic() + 1.0
    wait_for(lambda: time.monotonic() > late, "a second", lambda: got.extend(values(consumer.consume(10, 0.05))))
    assert sorted(got) == ["0-0", "1-0"]


def test_records_that_waited_when_the_drain_began_are_handed_over_once_and_in_order(stage):
    written = stage.load(500)
    consumer = stage.subscribed()
    got = stage.collect(consumer, 10)
    while len(got) < len(written):
        consumer.adapter.fetching.serve_callbacks(drain=True)
        got += stage.collect(consumer, min(90, len(written) - len(got)))
    assert consumer.consume(10, 0.2) == []
    for partition in range(2):
        assert [m.offset() for m in got if m.partition() == partition] == list(range(500))


def pausing_at_first(stage, *, raises=False):
    """A member whose `on_assign` pauses what it was given, which librdkafka does not heed at the first assignment."""

    def on_assign(consumer, partitions):
        consumer.pause(partitions)
        if raises:
            raise ZeroDivisionError

    return stage.subscribed(callbacks={"on_assign": on_assign})


def test_what_on_assign_pauses_is_paused_at_the_first_assignment_too(any_stage):
    stage = any_stage
    written = stage.load(5)
    consumer = pausing_at_first(stage)
    stage.assigned(consumer)
    assert consumer.consume(10, 1.0) == []
    assert consumer.poll(0.5) is None
    consumer.resume(places(stage, [0, 1]))
    assert sorted(values(stage.collect(consumer, 10))) == sorted(written)


def test_no_record_overtakes_those_that_wait_because_their_partition_was_paused(stage):
    stage.load(200)
    consumer = pausing_at_first(stage, raises=True)
    with pytest.raises(ZeroDivisionError):
        wait_for(lambda: False, "the callback's error", lambda: consumer.consume(150, 1.0))
    early = [consumer.poll(0.1) for _ in range(5)]
    consumer.resume(places(stage, [0, 1]))
    got = [*filter(None, early), *stage.collect(consumer, 400 - len(list(filter(None, early))))]
    for partition in range(2):
        assert [m.offset() for m in got if m.partition() == partition] == list(range(200))
