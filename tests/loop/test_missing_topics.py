"""A named topic that is deleted under a client ends it within seconds, and a pattern that matches nothing is told."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError

from eos_client import EosConsumer, EosProducer
from eos_client.errors import ClusterUnfitError
from eos_client.observe import ClientReported
from eos_client.testing.simulator import SimulatedCluster
from tests.loop.bench import BROKERS, Bench

TOLD_WITHIN_S = 10.0


class Cluster:
    """The clients of a simulated cluster that leaves out `orders`, or gives it `error`, while `is_out` says so.

    ``asked``: when the consumer has looked a single topic up, and which.
    """

    def __init__(self, cluster: SimulatedCluster) -> None:
        self.clock, self.producer, self._cluster = cluster.clock, cluster.producer, cluster
        self.is_out: Callable[[], bool] = lambda: False
        self.error = KafkaError.UNKNOWN_TOPIC_OR_PART
        self.asked: list[tuple[float, str]] = []

    def consumer(self, config):
        made: Any = self._cluster.consumer(config)
        list_topics = made.list_topics

        def ask(topic=None, timeout=-1.0):
            answer: Any = list_topics(**({} if topic is None else {"topic": topic}), timeout=timeout)
            if topic is not None:
                self.asked.append((self.clock(), topic))
            if self.is_out():
                answer.topics.pop("orders", None)
                if topic == "orders":
                    answer.topics[topic] = SimpleNamespace(error=KafkaError(self.error))
            return answer

        made.list_topics = ask
        return made


class Reading(Bench):
    """A loop over two records of `orders`, of which the cluster knows nothing from `deleted_at` on."""

    def __init__(self, cluster, **options):
        self.library = Cluster(cluster)
        super().__init__(cluster, lambda record: [record.value()], clients=self.library, **options)
        self.load(2)
        self.health = []

    def watch(self, interval_s=0.5):
        health = self.loop.health()
        self.health.append((self.clock(), health))
        self.cluster.after(interval_s, self.watch)

    def delete_at(self, moment, until=float("inf")):
        self.library.is_out = lambda: moment <= self.clock() < until


def test_a_loop_whose_topic_is_gone_is_not_ready_and_ends_within_seconds(simulated_cluster):
    work = Reading(simulated_cluster)
    deleted_at = simulated_cluster.clock() + 30.0
    work.delete_at(deleted_at)
    work.watch()
    with pytest.raises(ClusterUnfitError, match="input topic 'orders' does not exist"):
        work.run()
    assert simulated_cluster.clock() - deleted_at < TOLD_WITHIN_S
    reasons = [health.reasons for moment, health in work.health if moment > deleted_at and not health.ready]
    assert any("topic 'orders' does not exist any more" in each for reason in reasons for each in reason)
    assert len(work.written) == 2


def test_one_broker_that_knows_no_such_topic_ends_nothing(simulated_cluster):
    work = Reading(simulated_cluster)
    began_at = simulated_cluster.clock()
    asked = work.library.asked
    work.library.is_out = lambda: len(asked) == 4 and asked[-1][0] == work.clock()  # the fourth answer alone
    work.watch()
    simulated_cluster.after(60.0, work.loop.stop)
    work.run()
    unready = [moment for moment, health in work.health if moment > began_at + 5.0 and not health.ready]
    assert unready
    assert work.health[-2][1].ready


def test_a_topic_without_a_leader_is_not_missing(simulated_cluster):
    work = Reading(simulated_cluster)
    work.library.error = KafkaError.LEADER_NOT_AVAILABLE
    work.delete_at(simulated_cluster.clock() + 10.0)
    work.watch()
    simulated_cluster.after(60.0, work.loop.stop)
    work.run()
    assert all(health.ready for moment, health in work.health[20:-2])


def test_a_topic_that_is_read_is_not_asked_for_and_a_silent_one_every_few_seconds(simulated_cluster):
    work = Reading(simulated_cluster)
    began_at = simulated_cluster.clock()
    for second in range(60):
        simulated_cluster.after(float(second), lambda: simulated_cluster.write("orders", [b"more"]))
    simulated_cluster.after(120.0, work.loop.stop)
    work.run()
    busy = [moment for moment, _ in work.library.asked if moment < began_at + 60.0]
    silent = [moment for moment, _ in work.library.asked if moment >= began_at + 60.0]
    assert len(busy) <= 1
    assert 10 <= len(silent) <= 21


def test_a_cluster_without_an_answer_is_asked_again_and_is_not_taken_to_lack_the_topic(simulated_cluster):
    work = Reading(simulated_cluster)
    deleted_at = simulated_cluster.clock() + 30.0
    work.delete_at(deleted_at)
    work.watch()
    simulated_cluster.after(9.0, lambda: simulated_cluster.lose_request("Metadata"))
    with pytest.raises(ClusterUnfitError, match="'orders'"):
        work.run()
    told = [moment for moment, health in work.health if "does not exist" in str(health.reasons)]
    assert told
    assert min(told) >= deleted_at


def blocks(cluster, settings=()):
    """A consumer and a producer on a library that a test may let forget `orders`."""
    library = Cluster(cluster)
    cluster.create_topic("orders")
    cluster.create_topic("payments")
    config = {**BROKERS, "group.id": "billing", **dict(settings)}
    consumer = EosConsumer(config, factory=library.consumer, clock=cluster.clock)
    producer = EosProducer(BROKERS, factory=library.producer, clock=cluster.clock)
    producer.init_transactions()
    return library, consumer, producer


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_one_of_two_topics_that_is_gone_ends_a_block_within_seconds(simulated_cluster, protocol):
    library, consumer, producer = blocks(simulated_cluster, {"group.protocol": protocol})
    consumer.subscribe(["payments", "orders"])
    clock = simulated_cluster.clock
    deleted_at = clock() + 20.0
    library.is_out = lambda: clock() >= deleted_at

    def read_on():
        while clock() < deleted_at + 10 * TOLD_WITHIN_S:
            with producer.transaction(consumer):
                consumer.consume(10, 0.5)

    with pytest.raises(ClusterUnfitError, match="'orders'"):
        read_on()
    assert clock() - deleted_at < TOLD_WITHIN_S


def test_what_a_consumer_has_unsubscribed_from_may_be_deleted(simulated_cluster):
    library, consumer, producer = blocks(simulated_cluster)
    consumer.subscribe(["orders"])
    with producer.transaction(consumer):
        consumer.consume(10, 0.5)
    consumer.unsubscribe()
    library.is_out = lambda: True
    for _ in range(60):
        with producer.transaction(consumer):
            consumer.consume(10, 0.5)
    assert library.asked == []


class Waiting:
    """A member that is subscribed to `^later.*` and to the topic `payments`, and what it was told of patterns."""

    def __init__(self, cluster, protocol="consumer"):
        self.cluster, self.told = cluster, []
        if "payments" not in cluster.brokers.topics:
            cluster.create_topic("payments")
        settings = {**BROKERS, "group.id": "billing", "group.protocol": protocol}
        self.consumer = EosConsumer(settings, hook=self._heard, factory=cluster.consumer, clock=cluster.clock)
        self.consumer.subscribe(["^later.*", "payments"])

    def _heard(self, event):
        if isinstance(event, ClientReported) and "no topic matches" in event.error:
            self.told.append(event.error)

    def poll_for(self, seconds):
        ends_at = self.cluster.clock() + seconds
        while self.cluster.clock() < ends_at:
            self.consumer.poll(1.0)


def test_a_pattern_that_matches_no_topic_is_told_once(simulated_cluster):
    waiting = Waiting(simulated_cluster)
    waiting.poll_for(TOLD_WITHIN_S)
    assert len(waiting.told) == 1
    assert "'^later.*'" in waiting.told[0]
    waiting.poll_for(1000.0)
    assert len(waiting.told) == 1


def test_a_pattern_that_matches_is_not_told(simulated_cluster):
    simulated_cluster.create_topic("later-1")
    waiting = Waiting(simulated_cluster)
    waiting.poll_for(1000.0)
    assert waiting.told == []


def test_a_pattern_whose_partitions_another_member_has_is_not_told(simulated_cluster):
    simulated_cluster.create_topic("later-1")
    members = [Waiting(simulated_cluster) for _ in range(3)]  # for two partitions
    for _ in range(30):
        for each in members:
            each.poll_for(1.0)
    assert [each.told for each in members] == [[], [], []]


def test_a_pattern_is_told_although_the_cluster_has_not_answered_at_first(simulated_cluster):
    waiting = Waiting(simulated_cluster)
    simulated_cluster.lose_request("Metadata")
    waiting.poll_for(2 * TOLD_WITHIN_S)
    assert len(waiting.told) == 1


def test_a_classic_member_hears_of_its_patterns_from_the_client_library_alone(simulated_cluster):
    waiting = Waiting(simulated_cluster, "classic")
    waiting.poll_for(1000.0)
    assert waiting.told == []
