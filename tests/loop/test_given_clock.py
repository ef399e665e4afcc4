"""Whatever waits, and whatever measures, goes by the clock that it was given: on a simulated one nothing takes time."""

import itertools
import time
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from eos_client import EosConsumer, EosProducer, ExactlyOnceLoop
from eos_client.confluent import diagnosis
from eos_client.confluent.client_library import CONFLUENT_KAFKA
from eos_client.confluent.preflight import require_output_topics, require_topics
from eos_client.confluent.producer import bounded_calls
from eos_client.core.commit_gate import GateSettings
from eos_client.core.model import ProducerLimits
from eos_client.errors import ClusterUnavailableError, ClusterUnfitError
from eos_client.observe import CommitSkipped, TransactionCommitted
from eos_client.ports import OutputRecord
from eos_client.testing.simulator import SimulatedCluster
from tests.loop.bench import BROKERS, config
from tests.support.interception import close_the_gate, intercepting
from tests.support.waiting import wait_for

LONG_S = 600.0
REALLY_S = 30.0
KAFKA = {"bootstrap.servers": "127.0.0.1:1"}


@pytest.fixture
def cluster():
    """Fails the test when it took real time."""
    began_at = time.monotonic()
    yield SimulatedCluster(seed=1, request_timeout_s=1.0)
    assert time.monotonic() - began_at < REALLY_S


class Clients:
    """A producer and a consumer of a cluster, and what they told."""

    def __init__(self, cluster, *, producer=None, consumer=None, gate=None, **options):
        self.cluster = cluster
        self.events: list[Any] = []
        for topic in ("orders", "invoices"):
            cluster.create_topic(topic)
        parts: dict[str, Any] = {"clock": cluster.clock, "hook": self.events.append}
        self.producer = EosProducer(
            {**BROKERS, **options.pop("settings", {})},
            generate_id=True,
            factory=producer or cluster.producer,
            limits=ProducerLimits(**options),
            **parts,
        )
        self.consumer = EosConsumer(
            {**BROKERS, "group.id": "billing", "auto.offset.reset": "earliest"},
            factory=consumer or cluster.consumer,
            gate=gate,
            **parts,
        )

    def read_one(self):
        self.cluster.write("orders", [b"1"])
        self.consumer.subscribe(["orders"])
        wait_for(lambda: self.consumer.poll(1.0), "the record", timeout_s=60.0, clock=self.cluster.clock)


@pytest.fixture
def passed(cluster):
    """The simulated seconds since this was last asked."""
    asked_at = [0.0]

    def passed():
        asked_at.append(cluster.clock())
        return asked_at[-1] - asked_at[-2]

    return passed


def lose_all(cluster, *requests):
    for _ in range(int(LONG_S) * 2):
        for request in requests:
            cluster.lose_request(request)


def test_init_transactions_is_repeated_for_its_limit_on_the_given_clock(cluster, passed, monkeypatch):
    """And no real cluster is asked why it failed."""
    monkeypatch.setattr(diagnosis, "ClusterAdmin", lambda *_, **__: pytest.fail("a real cluster was asked"))
    producer = Clients(cluster).producer
    lose_all(cluster, "InitProducerId")
    with pytest.raises(ClusterUnavailableError):
        producer.init_transactions(LONG_S)
    assert LONG_S <= passed() < LONG_S + 2


def test_committed_offsets_are_read_again_on_the_given_clock(cluster, passed):
    """What an unanswered commit comes to: the producer is rebuilt and the log is asked."""
    clients = Clients(cluster, recovery_timeout_s=LONG_S)
    clients.producer.init_transactions()
    clients.read_one()
    session = clients.producer.session(clients.consumer)
    session.outputs.begin()
    lose_all(cluster, "EndTxn", "OffsetFetch")
    passed()
    with pytest.raises(ClusterUnavailableError, match="could not be read within 600 s"):
        session.end()
    assert LONG_S <= passed() < LONG_S + 30


def test_how_long_a_plain_commit_is_held_is_measured_on_the_given_clock(cluster):
    clients = Clients(cluster, gate=GateSettings(hold_limit_s=LONG_S))
    clients.read_one()
    close_the_gate(clients.consumer)
    for _ in range(2):
        clients.consumer.commit(offsets=[TopicPartition("orders", 0, 1)])
        cluster.clock.sleep(11)
    skipped = [event.held_for_s for event in clients.events if isinstance(event, CommitSkipped)]
    assert skipped == pytest.approx([0, 11], abs=0.1)


def test_a_pending_start_offset_is_asked_for_again_on_the_given_clock(cluster):
    asked_at = []

    def committed(*_, **__):
        asked_at.append(cluster.clock())
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "as scripted"))

    clients = Clients(cluster, consumer=intercepting(cluster.consumer, committed=committed))
    clients.consumer.subscribe(["orders"])
    cluster.write("orders", [b"1"])
    for _ in range(20):
        assert clients.consumer.poll(0.1) is None
    gaps = [after - before for before, after in itertools.pairwise(asked_at)]
    assert len(gaps) >= 2
    assert all(0.5 <= gap < 0.7 for gap in gaps)


REQUIRED = {
    "input": (2, lambda clients: require_topics(clients.consumer.adapter, ["bills"], LONG_S, clients.cluster.clock)),
    "output": (
        5,
        lambda clients: require_output_topics(clients.producer.adapter, ["bills"], LONG_S, clients.cluster.clock),
    ),
}


@pytest.mark.parametrize("role", REQUIRED)
def test_a_missing_topic_is_asked_for_again_on_the_given_clock(role, cluster, passed):
    limit_s, require = REQUIRED[role]
    with pytest.raises(ClusterUnfitError, match=f"{role} topic 'bills' does not exist"):
        require(Clients(cluster))
    assert limit_s <= passed() < limit_s + 1


def test_a_full_local_queue_is_waited_for_on_the_given_clock(cluster, passed):
    clients = Clients(cluster, commit_timeout_s=200.0, settings={"queue.buffering.max.messages": 1})
    clients.producer.init_transactions()
    session = clients.producer.session(clients.consumer)
    session.outputs.begin()
    lose_all(cluster, "Produce")
    session.outputs.enqueue("invoices", OutputRecord(value=b"1"))
    passed()
    with pytest.raises(KafkaException, match="queue stayed full for 200 s"):
        session.outputs.enqueue("invoices", OutputRecord(value=b"2"))
    assert 200 <= passed() < 201


def test_a_session_measures_its_transactions_on_the_clock_of_its_producer(cluster):
    clients = Clients(cluster)
    clients.producer.init_transactions()
    session = clients.producer.session(clients.consumer)
    session.outputs.begin()
    clients.producer.produce("invoices", b"1")
    cluster.delay("EndTxn", 0.7)
    session.end()
    (event,) = [event for event in clients.events if isinstance(event, TransactionCommitted)]
    assert event.duration_s == pytest.approx(0.7, abs=0.05)


def slowly(*_, **__):
    time.sleep(0.2)


def test_a_call_that_takes_no_simulated_time_is_in_time_however_slow_the_machine_is(cluster, passed, monkeypatch):
    monkeypatch.setattr(bounded_calls, "_GRACE_S", 0.05)
    clients = Clients(
        cluster,
        producer=intercepting(cluster.producer, commit_transaction=slowly),
        consumer=intercepting(cluster.consumer, close=slowly),
    )
    clients.producer.init_transactions()
    clients.producer.begin_transaction()
    passed()
    clients.producer.commit_transaction(0.0)
    assert clients.consumer.close_within(0.01)
    assert passed() < 0.01


def make_loop(cluster, **options):
    return ExactlyOnceLoop(config(), ["orders"], lambda record: [], clients=cluster, hook=lambda event: None, **options)


def test_a_loop_takes_its_clients_and_its_time_from_its_library(cluster, passed):
    loop = make_loop(cluster)
    with pytest.raises(ClusterUnfitError, match="input topic 'orders'"):
        loop.run()
    assert loop._consumer._clock is loop._producer.adapter.calls.clock is cluster.clock
    assert 2 <= passed() < 3
    assert all(client._closed for client in (*cluster._consumers, *cluster._producers))


def test_a_loop_waits_for_its_output_topics_on_its_librarys_clock(cluster, passed):
    cluster.create_topic("orders")
    with pytest.raises(ClusterUnfitError, match="output topic 'invoices'"):
        make_loop(cluster, output_topic="invoices").run()
    assert 5 <= passed() < 6


def test_the_default_library_is_confluent_kafka_in_real_time():
    clock = CONFLUENT_KAFKA.clock
    here = time.monotonic()
    began_at = clock()
    clock.sleep(0.05)
    assert 0.05 <= clock() - began_at <= time.monotonic() - here
    consumer = CONFLUENT_KAFKA.consumer({**KAFKA, "group.id": "billing"})
    assert type(consumer) is Consumer
    assert type(CONFLUENT_KAFKA.producer(KAFKA)) is Producer
    consumer.close()
