"""A closed client sends nothing any more, whatever it had under way: as after rd_kafka_destroy."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaException

from eos_client import EosProducer
from eos_client.core.model import ProducerLimits
from eos_client.testing.simulator import SimulatedCluster
from tests.clients.simulated_stage import QUIET
from tests.interruption import BrokenOffError
from tests.support.protocols import CONSUMER, PROTOCOLS, settings_of

TOPIC, ID, GROUP = "orders", "billing-0", "billing"
REQUEST_S = 1.0
LONG_S = 400.0
"""Longer than every time-out of a client."""


class ClosingBench:
    """A cluster, and what its brokers heard of each client."""

    def __init__(self) -> None:
        self.cluster = SimulatedCluster(seed=3, request_timeout_s=REQUEST_S)
        self.cluster.create_topic(TOPIC, 2)
        self.cluster.write(TOPIC, [b"0", b"1"])

    def producer(self) -> Any:
        return self.cluster.producer({"transactional.id": ID})

    def wrapped(self) -> EosProducer:
        return EosProducer(
            {"bootstrap.servers": "simulated", "transactional.id": ID, "logger": QUIET},
            limits=ProducerLimits(start_timeout_s=30.0),
            factory=self.cluster.producer,
            clock=self.cluster.clock,
            hook=lambda _: None,
        )

    def consumer(self, protocol: str) -> Any:
        base = {"group.id": GROUP, "auto.offset.reset": "earliest", "enable.auto.commit": False}
        return self.cluster.consumer(
            {**base, **settings_of(protocol), "session.timeout.ms": 6000}
            if protocol != CONSUMER
            else base | settings_of(protocol)
        )

    def heard(self, client: str, request: str | None = None) -> int:
        """How many requests of ``client`` brokers have served."""
        return sum(each.client == client and request in (None, each.request) for each in self.cluster.history)

    def interrupt_soon(self) -> None:
        def interrupt() -> None:
            raise BrokenOffError

        self.cluster.after(REQUEST_S / 2, interrupt)

    def hears_no_more_of(self, client: str) -> None:
        """Let pass what is on its way; fails for anything that is sent later."""
        self.cluster.advance(REQUEST_S / 10)
        before = self.heard(client)
        self.cluster.advance(LONG_S)
        assert self.heard(client) == before


@pytest.fixture
def bench():
    return ClosingBench()


@pytest.mark.parametrize("kind", ["producer", "wrapped"])
@pytest.mark.parametrize("closes", [True, False], ids=["closed", "left behind"])
@pytest.mark.filterwarnings("ignore:Producer abort_transaction failed during close:RuntimeWarning")
def test_an_init_that_was_interrupted_does_not_fence_the_successor(bench, kind, closes):
    bench.cluster.lose_reply("InitProducerId")
    bench.interrupt_soon()
    first = getattr(bench, kind)()
    with pytest.raises(BrokenOffError):
        first.init_transactions()
    if closes:
        first.close()
    successor = getattr(bench, kind)()
    successor.init_transactions()
    bench.hears_no_more_of("producer-1")
    successor.begin_transaction()
    successor.produce(TOPIC, b"output")
    successor.commit_transaction()
    assert bench.heard("producer-1", "InitProducerId") == 1


def test_an_init_that_was_interrupted_goes_on_when_it_is_called_again(bench):
    bench.cluster.lose_reply("InitProducerId")
    bench.interrupt_soon()
    producer = bench.producer()
    with pytest.raises(BrokenOffError):
        producer.init_transactions()
    bench.cluster.advance(LONG_S)
    producer.init_transactions()
    producer.begin_transaction()


@pytest.mark.parametrize("purges", [True, False], ids=["after purge", "by itself"])
@pytest.mark.filterwarnings("ignore:Producer abort_transaction failed during close:RuntimeWarning")
def test_a_commit_that_no_broker_has_heard_of_is_not_sent_after_close(bench, purges):
    producer = bench.producer()
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(TOPIC, b"output")
    producer.flush()
    bench.cluster.lose_request("EndTxn")
    with pytest.raises(KafkaException):
        producer.commit_transaction(REQUEST_S / 2)
    if purges:
        producer.purge()
    producer.close()
    bench.hears_no_more_of("producer-1")
    assert b"output" not in bench.cluster.values(TOPIC)


def test_what_was_queued_is_not_sent_after_purge_and_close(bench):
    producer = bench.cluster.producer({"linger.ms": 500})
    producer.produce(TOPIC, b"output")
    producer.purge()
    producer.close()
    bench.hears_no_more_of("producer-1")
    assert b"output" not in bench.cluster.values(TOPIC)


def test_a_batch_is_not_repeated_by_a_producer_whose_close_was_interrupted(bench):
    producer = bench.cluster.producer({})
    producer.produce(TOPIC, b"output")
    bench.cluster.lose_request("Produce")
    bench.interrupt_soon()
    with pytest.raises(BrokenOffError):
        producer.close()
    bench.hears_no_more_of("producer-1")
    assert b"output" not in bench.cluster.values(TOPIC)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("moment_s", [0.0, 0.0005, 0.0015, 0.0025, 0.0035, 0.3])
def test_a_consumer_that_closes_while_it_joins_is_not_heard_of_any_more(bench, protocol, moment_s):
    consumer = bench.consumer(protocol)
    consumer.subscribe([TOPIC])
    bench.cluster.advance(moment_s)
    consumer.close()
    bench.hears_no_more_of("consumer-1")


def joined(bench, protocol):
    consumer = bench.consumer(protocol)
    consumer.subscribe([TOPIC])
    until_s = bench.cluster.clock() + 30
    while not consumer.poll(0.1):
        assert bench.cluster.clock() < until_s
    return consumer


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("fault", ["lose_reply", "lose_request"])
def test_a_commit_under_way_ends_with_its_consumer(bench, protocol, fault):
    consumer = joined(bench, protocol)
    getattr(bench.cluster, fault)("OffsetCommit")
    consumer.commit(asynchronous=True)
    consumer.close()
    bench.hears_no_more_of("consumer-1")


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_commit_that_was_interrupted_is_not_repeated(bench, protocol):
    consumer = joined(bench, protocol)
    bench.cluster.lose_request("OffsetCommit")
    bench.interrupt_soon()
    with pytest.raises(BrokenOffError):
        consumer.commit(asynchronous=False)
    consumer.close()
    bench.hears_no_more_of("consumer-1")
    assert bench.cluster.committed(GROUP) == {}


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("fault", ["lose_reply", "lose_request"])
def test_a_consumer_whose_close_was_interrupted_is_not_heard_of_any_more(bench, protocol, fault):
    consumer = joined(bench, protocol)
    getattr(bench.cluster, fault)("OffsetCommit")
    consumer.commit(asynchronous=True)
    bench.interrupt_soon()
    with pytest.raises(BrokenOffError):
        consumer.close()
    bench.hears_no_more_of("consumer-1")
    consumer.close()


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("late_s", [1.5, 7.0], ids=["within close", "after close"])
def test_answers_that_come_after_close_move_nothing(bench, protocol, late_s):
    consumer = joined(bench, protocol)
    bench.cluster.delay("OffsetCommit", late_s)
    consumer.commit(asynchronous=True)
    bench.cluster.lose()
    consumer.close()
    bench.cluster.advance(late_s)
    bench.hears_no_more_of("consumer-1")
