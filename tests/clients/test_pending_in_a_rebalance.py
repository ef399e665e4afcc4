"""A partition leaves and comes back while a dead member's transaction holds its offset: nobody dies of it."""

from __future__ import annotations

import struct
from typing import Any
from unittest import mock

import pytest
from confluent_kafka import TopicPartition

from eos_client import EosConsumer
from eos_client.confluent.consumer.library_consumer import LibraryConsumer
from eos_client.core import partition_states
from eos_client.core.model import CommittedOffset, InputPartition
from eos_client.errors import FatalClientError
from eos_client.testing import SimulatedCluster
from tests.support.protocols import settings_of

NOBODY = b"CGMDv2:" + struct.pack("=i", -1) + b"billing\0\0\1"
SEEDS = range(20)  # a few of them return records that were collected before the revocation


def consumer_of(cluster: SimulatedCluster, reset: str = "earliest", protocol: str = "range") -> EosConsumer:
    settings = {"bootstrap.servers": "simulated", "group.id": "billing", "auto.offset.reset": reset}
    settings |= settings_of(protocol)
    consumer = EosConsumer(settings, factory=cluster.consumer, clock=cluster.clock, hook=lambda _: None)
    consumer.subscribe(["orders"])
    values(consumer, 6)
    return consumer


def pend(cluster: SimulatedCluster, offset: int = 1) -> Any:
    """Stage an offset that nobody ends; then let records come, and a rebalance."""
    dead = cluster.producer({"bootstrap.servers": "simulated", "transactional.id": "dead"})
    dead.init_transactions(5)
    dead.begin_transaction()
    dead.send_offsets_to_transaction([TopicPartition("orders", 0, offset)], NOBODY, 5)
    cluster.after(0.5, lambda: cluster.write("orders", [b"1", b"2", b"3"]))
    cluster.after(1.0, cluster.rebalance)
    return dead


def values(consumer: EosConsumer, seconds: float) -> list[bytes]:
    found: list[Any] = []
    for _ in range(round(seconds * 10)):
        found += consumer.consume(10, 0.1)
    return [message.value() for message in found]


@pytest.mark.in_turn(3)
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


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (None, "but the group does not say yet where it starts"),
        ({InputPartition("orders", 0): CommittedOffset(2, "")}, "but the group has committed offset 2"),
    ],
    ids=["pending", "committed meanwhile"],
)
def test_with_error_a_look_up_that_a_rebalance_has_ended_is_told_as_what_it_is(
    answer: Any, says: str, simulated_cluster: SimulatedCluster, monkeypatch: Any
) -> None:
    """librdkafka forgets its look-up then, says that the group has no offset, and seeks that partition no more."""
    cluster = simulated_cluster
    cluster.create_topic("orders")
    cluster.write("orders", [b"0", b"1", b"2"])
    first = consumer_of(cluster)
    first.commit(offsets=[TopicPartition("orders", 0, 1)], asynchronous=False)
    first.close()
    pend(cluster, 2)
    monkeypatch.setattr(LibraryConsumer, "committed_offsets", lambda *_: answer)
    with pytest.raises(FatalClientError, match=rf"{says}\. Start the process again; nothing is lost"):
        consumer_of(cluster, "error", "cooperative-sticky")
