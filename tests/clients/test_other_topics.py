"""A consumer of one topic that gets records of another one: each is processed once, and its own offset is committed."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from eos_client import EosConfig, EosConsumer, EosProducer, ExactlyOnceLoop, OutputRecord
from eos_client.errors import TransactionStateError
from eos_client.testing import SimulatedCluster
from tests.support.protocols import COOPERATIVE, EAGER, settings_of
from tests.support.waiting import wait_for

GROUP, SINK = "billing", "invoices"
TOPICS = ("orders", "refunds")
RECORDS = 8


@pytest.fixture
def cluster() -> SimulatedCluster:
    cluster = SimulatedCluster(seed=1)
    for topic in (*TOPICS, SINK):
        cluster.create_topic(topic)
    return cluster


def write(cluster: SimulatedCluster, number: int) -> None:
    for topic in TOPICS:
        cluster.write(topic, [f"{topic}-{number}".encode()])


def copy_by_loop(cluster: SimulatedCluster, settings: dict[str, Any], topics: list[str]) -> None:
    config = EosConfig({"bootstrap.servers": "simulated"}, group_id=GROUP, consumer=settings)
    loop = ExactlyOnceLoop(
        config, topics, lambda record: OutputRecord(SINK, value=record.value()), clients=cluster, hook=lambda _: None
    )
    cluster.after(5.0, loop.stop)
    loop.run()
    loop.close()


def copy_by_blocks(cluster: SimulatedCluster, settings: dict[str, Any], topics: list[str], **callbacks: Any) -> None:
    consumer = EosConsumer(
        {"bootstrap.servers": "simulated", "group.id": GROUP, "auto.offset.reset": "earliest", **settings},
        factory=cluster.consumer,
        clock=cluster.clock,
    )
    producer = EosProducer(
        {"bootstrap.servers": "simulated", "transactional.id": "copier"}, factory=cluster.producer, clock=cluster.clock
    )
    producer.init_transactions()
    consumer.subscribe(topics, **callbacks)
    until = cluster.clock() + 5.0
    with closing(producer), closing(consumer):
        while cluster.clock() < until:
            with producer.transaction(consumer) as txn:
                for record in consumer.consume(3, 0.3):
                    txn.produce(SINK, record.value())


@pytest.mark.parametrize("copy", [copy_by_loop, copy_by_blocks])
@pytest.mark.parametrize("protocol", [EAGER, COOPERATIVE])
def test_a_static_member_that_comes_back_with_fewer_topics_keeps_its_partitions_and_does_their_work_once(
    cluster: SimulatedCluster, copy: Any, protocol: str
) -> None:
    settings = {"group.instance.id": "copier-1", **settings_of(protocol)}
    write(cluster, 0)
    copy(cluster, settings, [*TOPICS])
    for number in range(1, RECORDS):
        cluster.after(0.2 * number, lambda number=number: write(cluster, number))  # type: ignore[misc]
    copy(cluster, settings, [TOPICS[0]])
    copy(cluster, settings, [*TOPICS])
    expected = sorted(f"{topic}-{number}".encode() for topic in TOPICS for number in range(RECORDS))
    assert sorted(cluster.values(SINK)) == expected


def test_a_block_refuses_what_was_assigned_beside_the_groups_partitions(cluster: SimulatedCluster) -> None:
    for number in range(RECORDS):
        write(cluster, number)

    def on_assign(consumer: Any, partitions: list[TopicPartition]) -> None:
        consumer.assign([*partitions, TopicPartition(TOPICS[1], 0)])

    with pytest.raises(TransactionStateError, match="did not give it"):
        copy_by_blocks(cluster, settings_of(EAGER), [TOPICS[0]], on_assign=on_assign)
    assert set(cluster.values(SINK)) <= {f"{TOPICS[0]}-{number}".encode() for number in range(RECORDS)}
    copy_by_blocks(cluster, settings_of(EAGER), [TOPICS[0]])
    assert sorted(cluster.values(SINK)) == [f"{TOPICS[0]}-{number}".encode() for number in range(RECORDS)]


def test_what_a_callback_assigned_beside_the_group_stays_refused_after_a_rebalance_without_it(
    cluster: SimulatedCluster,
) -> None:
    foreign = [TopicPartition(TOPICS[1], 0)]
    seen: list[list[TopicPartition]] = []

    def on_assign(consumer: Any, partitions: list[TopicPartition]) -> None:
        consumer.incremental_assign([*partitions, *foreign] if not seen else partitions)
        seen.append(partitions)

    consumer = EosConsumer(
        {"bootstrap.servers": "simulated", "group.id": GROUP, **settings_of(COOPERATIVE)},
        factory=cluster.consumer,
        clock=cluster.clock,
    )
    producer = EosProducer(
        {"bootstrap.servers": "simulated", "transactional.id": "copier"}, factory=cluster.producer, clock=cluster.clock
    )
    producer.init_transactions()
    consumer.subscribe([TOPICS[0]], on_assign=on_assign)
    with closing(producer), closing(consumer):
        for rebalances in (1, 2):
            wait_for(
                lambda: len(seen) >= rebalances,  # noqa: B023  asked in this turn
                "a rebalance",
                consumer.adapter.fetching.serve_callbacks,
                lambda: cluster.advance(0.5),
                timeout_s=60.0,
                clock=cluster.clock,
            )
            with pytest.raises(TransactionStateError, match="did not give it"):
                producer.transaction(consumer).__enter__()
            cluster.rebalance()
