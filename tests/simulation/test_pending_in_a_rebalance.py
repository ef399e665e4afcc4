"""A partition leaves and comes back while a dead member's transaction holds its offset: nobody dies of it."""

from __future__ import annotations

import struct
from typing import Any
from unittest import mock

import pytest
from confluent_kafka import TopicPartition

from eos_client import EosConsumer
from eos_client.core import partition_states
from eos_client.testing import SimulatedCluster

NOBODY = b"CGMDv2:" + struct.pack("=i", -1) + b"billing\0\0\1"
SEEDS = range(20)  # a few of them return records that were collected before the revocation


def consumer_of(cluster: SimulatedCluster) -> EosConsumer:
    settings = {"bootstrap.servers": "simulated", "group.id": "billing", "auto.offset.reset": "earliest"}
    consumer = EosConsumer(settings, factory=cluster.consumer, clock=cluster.clock, hook=lambda _: None)
    consumer.subscribe(["orders"])
    values(consumer, 6)
    return consumer


def pend(cluster: SimulatedCluster) -> Any:
    """Stage an offset that nobody ends; then let records come, and a rebalance."""
    dead = cluster.producer({"bootstrap.servers": "simulated", "transactional.id": "dead"})
    dead.init_transactions(5)
    dead.begin_transaction()
    dead.send_offsets_to_transaction([TopicPartition("orders", 0, 1)], NOBODY, 5)
    cluster.after(0.5, lambda: cluster.write("orders", [b"1", b"2", b"3"]))
    cluster.after(1.0, cluster.rebalance)
    return dead


def values(consumer: EosConsumer, seconds: float) -> list[bytes]:
    found: list[Any] = []
    for _ in range(round(seconds * 10)):
        found += consumer.consume(10, 0.1)
    return [message.value() for message in found]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("ending", "read"), [("commit", [b"2", b"3"]), ("abort", [b"1", b"2", b"3"])])
def test_a_returned_partition_starts_at_the_offset_that_the_pending_transaction_leaves(
    seed: int, ending: str, read: list[bytes], make_simulated_cluster: Any
) -> None:
    resumes = (seed % 2 == 1) is (ending == "commit")  # each with each: every second seed
    cluster: SimulatedCluster = make_simulated_cluster(seed=seed)
    cluster.create_topic("orders")
    consumer = consumer_of(cluster)
    dead = pend(cluster)
    assert consumer.consume(50, 8.0) == []
    if resumes:
        consumer.resume([TopicPartition("orders", 0)])
    assert values(consumer, 20) == []
    getattr(dead, f"{ending}_transaction")(5)
    assert values(consumer, 5) == read
    consumer.close()


def test_some_seed_returns_a_partition_while_its_offset_is_pending(make_simulated_cluster: Any) -> None:
    with mock.patch.object(partition_states, "_begin_again", wraps=partition_states._begin_again) as begun_again:
        for seed in SEEDS:
            cluster = make_simulated_cluster(seed=seed)
            cluster.create_topic("orders")
            consumer = consumer_of(cluster)
            pend(cluster)
            consumer.consume(50, 8.0)
            consumer.close()
    assert begun_again.called
