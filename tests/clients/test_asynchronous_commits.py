"""An asynchronous commit counts when the broker has confirmed it: until then the next commit covers its offsets."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from eos_client import EosConsumer
from eos_client.observe import CommitRefused
from eos_client.testing import SimulatedCluster
from eos_client.testing.simulator.brokers.model import PartitionKey
from tests.clients.simulated_stage import GROUP, SOURCE, SimulatedStage
from tests.support.interception import close_the_gate
from tests.support.protocols import CONSUMER, PROTOCOLS

PLACE = PartitionKey("orders", 0)
REFUSAL = "REBALANCE_IN_PROGRESS"


class Application:
    """A plain consumer of `orders`, with what `on_commit` and the hook were told."""

    def __init__(self, cluster: SimulatedCluster, **settings: Any) -> None:
        self.cluster = cluster
        self.told: list[tuple[Any, list[Any]]] = []
        self.events: list[Any] = []
        cluster.create_topic("orders", 2)
        cluster.write("orders", [b"1", b"2", b"3"])
        given = {"bootstrap.servers": "simulated", "group.id": "billing", "auto.offset.reset": "earliest", **settings}
        self.consumer = EosConsumer(
            {**given, "on_commit": lambda error, places: self.told.append((error, places))},
            factory=cluster.consumer,
            clock=cluster.clock,
            hook=self.events.append,
        )
        self.consumer.subscribe(["orders"])

    def read(self) -> list[Any]:
        found: list[Any] = []
        while len(found) < 3:
            found += self.consumer.consume(3, 0.5)
        return found

    def hear_of_commit(self) -> None:
        while not self.told:
            self.consumer.poll(0.1)

    @property
    def committed(self) -> dict[PartitionKey, int]:
        return self.cluster.committed()


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("is_held", [False, True], ids=["refused", "held by the gate"])
@pytest.mark.parametrize("then", ["another partition", "close", "revocation"])
def test_a_commit_that_a_seek_takes_back_is_not_repeated(protocol, is_held, then):
    stage = SimulatedStage(protocol)
    consumer = stage.subscribed()
    records = stage.collect(consumer, 4)
    if is_held:
        close_the_gate(consumer)
    else:
        stage.cluster.refuse("OffsetCommit", "REBALANCE_IN_PROGRESS")
    consumer.commit(offsets=[TopicPartition(SOURCE, 0, 2)])
    consumer.pause(consumer.assignment())
    for _ in range(3):
        consumer.poll(0.1)
    consumer.seek(TopicPartition(SOURCE, 0, 0))
    if then == "another partition":
        consumer.commit(message=next(record for record in records if record.partition() == 1))
        consumer.poll(1.0)
    elif then == "revocation":
        stage.cluster.revoke((SOURCE, 0))
        for _ in range(100):
            consumer.poll(0.1)
        assert stage.named("partitions_revoked")
    consumer.close()
    assert stage.cluster.committed(GROUP).get(PartitionKey(SOURCE, 0)) is None


@pytest.fixture
def application(simulated_cluster: SimulatedCluster) -> Any:
    made = Application(simulated_cluster)
    yield made
    made.consumer.close()


def test_a_synchronous_commit_covers_what_an_asynchronous_one_failed_to_commit(application: Application) -> None:
    application.read()
    application.cluster.refuse("OffsetCommit", REFUSAL)
    assert application.consumer.commit() is None
    application.hear_of_commit()
    assert application.told[0][0].name() == REFUSAL
    assert application.committed == {}
    (refused,) = (event for event in application.events if isinstance(event, CommitRefused))
    assert REFUSAL in refused.reason
    application.consumer.commit(asynchronous=False)
    assert application.committed == {PLACE: 3}


@pytest.mark.parametrize("how", ["message", "offsets"])
def test_a_commit_of_one_partition_covers_explicit_offsets_that_failed_for_another(
    application: Application, how: str
) -> None:
    last = application.read()[-1]
    application.cluster.refuse("OffsetCommit", REFUSAL)
    given: dict[str, Any] = {"message": last} if how == "message" else {"offsets": [TopicPartition("orders", 0, 3)]}
    application.consumer.commit(**given)
    application.hear_of_commit()
    application.consumer.commit(offsets=[TopicPartition("orders", 1, 0)], asynchronous=False)
    assert application.committed == {PLACE: 3, PartitionKey("orders", 1): 0}


def test_a_synchronous_commit_covers_one_that_nobody_has_confirmed_yet(application: Application) -> None:
    application.read()
    application.cluster.lose_request("OffsetCommit")
    application.consumer.commit()
    application.consumer.commit(asynchronous=False)
    assert application.committed == {PLACE: 3}


def test_a_later_commit_of_the_same_partition_takes_the_place_of_one_that_failed(application: Application) -> None:
    application.read()
    application.cluster.refuse("OffsetCommit", REFUSAL)
    application.consumer.commit(offsets=[TopicPartition("orders", 0, 1)])
    application.hear_of_commit()
    application.consumer.commit(offsets=[TopicPartition("orders", 0, 2)], asynchronous=False)
    application.consumer.commit(offsets=[TopicPartition("orders", 1, 0)], asynchronous=False)
    assert application.committed == {PLACE: 2, PartitionKey("orders", 1): 0}


@pytest.mark.parametrize("how", ["sync", "async"])
def test_an_older_commit_that_failed_is_not_sent_after_a_newer_one_whose_answer_was_lost(
    simulated_cluster: SimulatedCluster, how: str
) -> None:
    application = Application(simulated_cluster, **{"group.protocol": "consumer"})
    application.read()
    simulated_cluster.lose_reply("OffsetCommit")
    application.consumer.commit(offsets=[TopicPartition("orders", 0, 1)])
    simulated_cluster.lose_reply("OffsetCommit")
    if how == "sync":
        with pytest.raises(KafkaException):
            application.consumer.commit(asynchronous=False)
    else:
        application.consumer.commit()
    simulated_cluster.advance(100.0)
    application.consumer.poll(1.0)
    application.consumer.close()
    assert application.committed == {PLACE: 3}


def test_a_revocation_commits_offsets_whose_asynchronous_commit_failed(application: Application) -> None:
    application.read()
    application.cluster.refuse("OffsetCommit", REFUSAL)
    application.consumer.commit()
    application.hear_of_commit()
    application.consumer.close()
    assert application.committed == {PLACE: 3}


@pytest.mark.parametrize("leave", ["rebalance", "close"])
@pytest.mark.parametrize("refusal", ["COORDINATOR_LOAD_IN_PROGRESS", "GROUP_AUTHORIZATION_FAILED"])
def test_a_commit_that_fails_inside_the_revoke_callback_is_told_by_an_event_and_raised_by_no_other_call(
    application: Application, refusal: str, leave: str
) -> None:
    application.read()
    application.cluster.refuse("OffsetCommit", REFUSAL)
    application.consumer.commit()
    application.hear_of_commit()
    application.cluster.refuse("OffsetCommit", refusal)
    if leave == "rebalance":
        application.cluster.rebalance()
        assert [record.offset() for record in application.read()] == [0, 1, 2]
    application.consumer.close()
    reasons = [event.reason for event in application.events if isinstance(event, CommitRefused)]
    assert len(reasons) == 3
    assert f"with {refusal}" in reasons[1]


def test_a_confirmed_commit_is_not_sent_again(application: Application) -> None:
    application.read()
    application.consumer.commit()
    application.hear_of_commit()
    assert application.told[0][0] is None
    assert application.committed == {PLACE: 3}
    with pytest.raises(KafkaException) as raised:
        application.consumer.commit(asynchronous=False)
    assert raised.value.args[0].code() == KafkaError._NO_OFFSET


@pytest.mark.parametrize("off", [False, "false", "False", "f", "0", 0])
def test_only_stored_offsets_are_committed_however_the_setting_is_spelt(
    simulated_cluster: SimulatedCluster, off: object
) -> None:
    application = Application(simulated_cluster, **{"enable.auto.offset.store": off})
    application.consumer.store_offsets(message=application.read()[0])
    application.consumer.commit(asynchronous=False)
    assert application.committed == {PLACE: 1}
    application.consumer.close()


def test_stored_offsets_that_failed_are_covered_too(simulated_cluster: SimulatedCluster) -> None:
    application = Application(simulated_cluster, **{"enable.auto.offset.store": False})
    application.consumer.store_offsets(message=application.read()[1])
    simulated_cluster.refuse("OffsetCommit", REFUSAL)
    application.consumer.commit()
    application.hear_of_commit()
    application.consumer.commit(asynchronous=False)
    assert application.committed == {PLACE: 2}
    application.consumer.close()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_stored_offset_outlives_a_commit_that_covers_less_of_its_partition(protocol: str) -> None:
    """What an asynchronous commit has not confirmed yet goes with the next one, also of another partition."""
    stage = SimulatedStage(protocol, records=2)
    consumer = stage.subscribed(enable_auto_offset_store=False)
    stage.collect(consumer, 4)
    consumer.commit(offsets=[TopicPartition(SOURCE, 0, 1)])
    consumer.store_offsets(offsets=[TopicPartition(SOURCE, 0, 2)])
    consumer.commit(offsets=[TopicPartition(SOURCE, 1, 2)], asynchronous=False)
    consumer.commit(asynchronous=False)
    assert sorted(stage.cluster.committed(GROUP).values()) == [2, 2]


def test_an_on_commit_that_is_not_callable_is_refused_as_confluent_kafka_does() -> None:
    with pytest.raises(KafkaException, match="on_commit requires a callable"):
        EosConsumer({"bootstrap.servers": "127.0.0.1:1", "group.id": "billing", "on_commit": "later"})


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_an_offset_that_the_applications_own_transaction_has_overtaken_is_never_sent_after_it(protocol: str) -> None:
    stage = SimulatedStage(protocol, records=1, partitions=1)
    consumer, producer = stage.subscribed(), stage.producer()
    stage.collect(consumer, 1)
    stage.cluster.refuse("OffsetCommit", "STALE_MEMBER_EPOCH" if protocol == CONSUMER else REFUSAL)
    consumer.commit()
    stage.wait_for(lambda: stage.named("commit_refused"), lambda: consumer.poll(0.1))
    stage.load(5)
    stage.collect(consumer, 5)
    producer.begin_transaction()
    places = consumer.position(consumer.assignment())
    producer.send_offsets_to_transaction(places, consumer.consumer_group_metadata())
    producer.commit_transaction()
    consumer.close()
    assert stage.committed() == 6
