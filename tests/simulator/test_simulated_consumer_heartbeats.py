"""What a KIP-848 member does when a heartbeat is not answered, or refused."""

from __future__ import annotations

from typing import Any

import pytest

from eos_client.testing import SimulatedCluster
from eos_client.testing.simulator.brokers.settings import BrokerSettings

HEARTBEAT = "ConsumerGroupHeartbeat"
QUICK = BrokerSettings(group_consumer_session_timeout_s=10.0, group_consumer_heartbeat_interval_s=1.0)


@pytest.fixture
def cluster(make_simulated_cluster: Any) -> SimulatedCluster:
    cluster: SimulatedCluster = make_simulated_cluster(settings=QUICK, request_timeout_s=1.0)
    cluster.create_topic("orders", 2)
    return cluster


def member(cluster: SimulatedCluster) -> Any:
    settings = {"group.id": "billing", "client.id": "a", "group.protocol": "consumer"}
    return cluster.consumer({"bootstrap.servers": "simulated", **settings})


def poll(consumer: Any, seconds: float) -> None:
    for _ in range(round(seconds * 10)):
        consumer.poll(0.1)


def heartbeats(cluster: SimulatedCluster) -> list[str]:
    return [each.result for each in cluster.history if (each.request, each.client) == (HEARTBEAT, "consumer-1")]


def test_an_acknowledgement_whose_answer_is_lost_is_repeated_in_full_and_fences_nobody(
    cluster: SimulatedCluster,
) -> None:
    told: list[str] = []

    def on_revoke(*_: Any) -> None:
        told.append("revoked")
        cluster.lose_reply(HEARTBEAT, "a")  # the next one acknowledges

    consumer = member(cluster)
    consumer.subscribe(["orders"], on_revoke=on_revoke, on_lost=lambda *_: told.append("lost"))
    poll(consumer, 3)
    peer = cluster.revoke(("orders", 1))
    poll(consumer, 5)
    assert told == ["revoked"]
    assert {p.partition for p in consumer.assignment()} == {0}
    assert {p.partition for p in peer.owned} == {1}
    assert set(heartbeats(cluster)) == {"ok"}


def test_a_new_epoch_whose_answer_is_lost_is_asked_for_in_full_and_fences_nobody(cluster: SimulatedCluster) -> None:
    told: list[str] = []
    consumer = member(cluster)
    consumer.subscribe(["orders"], on_lost=lambda *_: told.append("lost"))
    poll(consumer, 3)
    cluster.rebalance()
    cluster.lose_reply(HEARTBEAT, "a")
    poll(consumer, 5)
    assert told == []
    assert set(heartbeats(cluster)) == {"ok"}


def test_a_member_that_may_not_join_yet_asks_again_at_the_heartbeat_interval(cluster: SimulatedCluster) -> None:
    for _ in range(3):  # the broker still knows an older self of it
        cluster.refuse(HEARTBEAT, "FENCED_MEMBER_EPOCH")
    consumer = member(cluster)
    consumer.subscribe(["orders"])
    poll(consumer, 1.5)
    assert heartbeats(cluster) == ["FENCED_MEMBER_EPOCH"] * 2
    poll(consumer, 5)
    assert {p.partition for p in consumer.assignment()} == {0, 1}
