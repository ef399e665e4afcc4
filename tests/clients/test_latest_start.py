"""`latest` is the end of the log when a group's partition is first assigned, for every later owner too."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from eos_client import EosConsumer, ExactlyOnceLoop
from eos_client.config import EosConfig
from eos_client.core.commit_gate import GateSettings, RevocationEnded
from eos_client.errors import InputPositionError
from eos_client.testing import SimulatedCluster
from eos_client.testing.simulator.brokers.model import PartitionKey
from eos_client.testing.simulator.brokers.settings import BrokerSettings
from tests.support.protocols import BY_COORDINATOR

NOBODY = b"CGMDv2:" + struct.pack("=i", -1) + b"billing\0\0\1"
PLACE = PartitionKey("orders", 0)
HOLD_S = GateSettings().hold_limit_s


@pytest.fixture
def cluster(simulated_cluster: SimulatedCluster) -> SimulatedCluster:
    """With records that nobody wants: they are older than the group."""
    simulated_cluster.create_topic("orders")
    simulated_cluster.write("orders", [b"old-1", b"old-2"])
    return simulated_cluster


def consumer_of(
    cluster: SimulatedCluster, name: str, protocol: str = "consumer", on_assign: Callable[..., None] | None = None
) -> EosConsumer:
    settings = {
        "bootstrap.servers": "simulated",
        "client.id": name,
        "group.id": "billing",
        "auto.offset.reset": "latest",
        "group.protocol": protocol,
    }
    consumer = EosConsumer(settings, factory=cluster.consumer, clock=cluster.clock, hook=lambda _: None)
    consumer.subscribe(["orders"], on_assign=on_assign)
    return consumer


def values(consumer: EosConsumer, seconds: float) -> list[bytes]:
    found: list[Any] = []
    for _ in range(round(seconds * 10)):
        found += consumer.consume(10, 0.1)
    return [message.value() for message in found]


@pytest.mark.parametrize("protocol", BY_COORDINATOR)
def test_a_successor_reads_what_came_before_the_first_commit_of_a_member_that_was_killed(
    protocol: str, cluster: SimulatedCluster
) -> None:
    first = consumer_of(cluster, "first", protocol)
    assert values(first, 10) == []
    cluster.write("orders", [b"1", b"2"])
    assert values(first, 1) == [b"1", b"2"]
    cluster.kill("first")
    second = consumer_of(cluster, "second", protocol)
    assert values(second, 90) == [b"1", b"2"]
    second.close()


@pytest.mark.parametrize("protocol", BY_COORDINATOR)
def test_the_start_is_fixed_inside_the_assignment_before_any_record_has_come(
    protocol: str, cluster: SimulatedCluster
) -> None:
    first = consumer_of(cluster, "first", protocol)
    cluster.after(30.0, lambda: cluster.write("orders", [b"1"]))
    assert [m.value() for m in first.consume(1, 60.0)] == [b"1"]
    assert cluster.committed() == {PLACE: 2}
    first.close()


@pytest.mark.parametrize("refusal", ["REBALANCE_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE"])
def test_no_record_is_handed_over_before_a_refused_start_was_committed_after_all(
    refusal: str, cluster: SimulatedCluster
) -> None:
    for _ in range(4):
        cluster.refuse("OffsetCommit", refusal)
    handed_over_at: list[dict[PartitionKey, int]] = []
    consumer = consumer_of(cluster, "first")
    cluster.after(6.0, lambda: cluster.write("orders", [b"1", b"2"]))
    found: list[bytes] = []
    for _ in range(200):
        for message in consumer.consume(10, 0.1):
            handed_over_at.append(cluster.committed())
            found.append(message.value())
    assert found == [b"1", b"2"]
    assert handed_over_at == [{PLACE: 2}] * 2
    consumer.close()


def closing_the_gate(times: int = 1) -> Callable[[Any, Any], None]:
    closed: list[Any] = []

    def on_assign(consumer: Any, partitions: Any) -> None:
        if partitions and len(closed) < times:
            closed.append(consumer.adapter.snapshot().generation)
            consumer.gate.tell(RevocationEnded(frozenset(), closed[-1]))

    return on_assign


def test_a_closed_gate_keeps_the_start_back_until_the_generation_moves(cluster: SimulatedCluster) -> None:
    consumer = consumer_of(cluster, "first", on_assign=closing_the_gate())
    cluster.after(HOLD_S - 2, lambda: cluster.write("orders", [b"1", b"2"]))
    assert values(consumer, HOLD_S - 1) == []
    assert cluster.committed() == {}
    cluster.rebalance()
    assert values(consumer, 20) == [b"1", b"2"]
    consumer.close()


def test_a_closed_gate_keeps_the_start_back_for_the_hold_limit_where_the_epoch_does_not_move(
    cluster: SimulatedCluster,
) -> None:
    consumer = consumer_of(cluster, "first", on_assign=closing_the_gate())
    cluster.after(HOLD_S - 2, lambda: cluster.write("orders", [b"1", b"2"]))
    assert values(consumer, HOLD_S + 5) == [b"1", b"2"]
    consumer.close()


def test_a_start_that_the_gate_holds_again_is_held_from_the_later_revocation(
    make_simulated_cluster: Callable[..., SimulatedCluster],
) -> None:
    cluster = make_simulated_cluster(settings=BrokerSettings(group_consumer_heartbeat_interval_s=0.5))
    cluster.create_topic("orders")
    cluster.write("orders", [b"old-1", b"old-2"])
    consumer = consumer_of(cluster, "first", on_assign=closing_the_gate(2))
    assert values(consumer, HOLD_S - 2) == []
    cluster.revoke(("orders", 0))
    cluster.after(1.0, cluster.give_back)
    assert values(consumer, HOLD_S) == []
    assert cluster.committed() == {}
    assert values(consumer, 4) == []
    assert cluster.committed() == {PLACE: 2}
    consumer.close()


@pytest.mark.parametrize(("ending", "read"), [("commit", [b"old-2", b"1", b"2"]), ("abort", [b"1", b"2"])])
def test_a_pending_offset_decides_and_without_one_the_end_is_that_of_the_assignment(
    ending: str, read: list[bytes], cluster: SimulatedCluster
) -> None:
    dead = cluster.producer({"bootstrap.servers": "simulated", "transactional.id": "dead"})
    dead.init_transactions(5)
    dead.begin_transaction()
    dead.send_offsets_to_transaction([TopicPartition("orders", 0, 1)], NOBODY, 5)
    consumer = consumer_of(cluster, "first")
    assert values(consumer, 8) == []
    cluster.write("orders", [b"1", b"2"])
    assert values(consumer, 8) == []
    getattr(dead, f"{ending}_transaction")(5)
    assert values(consumer, 8) == read
    consumer.close()


def test_a_loop_that_is_killed_before_its_first_commit_leaves_the_start_to_the_next_one(
    cluster: SimulatedCluster,
) -> None:
    cluster.create_topic("invoices")
    config = EosConfig(
        {"bootstrap.servers": "simulated", "auto.offset.reset": "latest"}, group_id="billing", commit_interval_s=5.0
    )

    def fails(_: Any) -> Any:
        raise RuntimeError("a bad day")

    first = ExactlyOnceLoop(config, ["orders"], fails, output_topic="invoices", clients=cluster)
    cluster.after(30.0, lambda: cluster.write("orders", [b"1", b"2"]))
    with pytest.raises(Exception, match="a bad day"):
        first.run()
    second = ExactlyOnceLoop(config, ["orders"], lambda r: [r.value()], output_topic="invoices", clients=cluster)
    cluster.after(60.0, second.stop)
    second.run()
    assert cluster.values("invoices") == [b"1", b"2"]


def test_with_reset_error_a_loop_without_an_offset_ends_and_says_where(cluster: SimulatedCluster) -> None:
    cluster.create_topic("invoices")
    config = EosConfig({"bootstrap.servers": "simulated", "auto.offset.reset": "error"}, group_id="billing")
    loop = ExactlyOnceLoop(config, ["orders"], lambda r: [r.value()], output_topic="invoices", clients=cluster)
    cluster.after(60.0, loop.stop)
    with pytest.raises(InputPositionError, match=r"orders\[0\] has no committed offset.*Commit an offset") as raised:
        loop.run()
    assert (raised.value.topic, raised.value.partition, raised.value.offset) == ("orders", 0, None)


@pytest.mark.parametrize("incrementally", [False, True])
def test_an_assignment_by_hand_after_a_subscription_starts_at_the_end(
    incrementally: bool, cluster: SimulatedCluster
) -> None:
    cluster.create_topic("others")
    consumer = consumer_of(cluster, "first")
    consumer.subscribe(["others"])
    assert values(consumer, 5) == []
    consumer.unsubscribe()
    assert values(consumer, 5) == []
    assign = consumer.incremental_assign if incrementally else consumer.assign
    assign([TopicPartition("orders", 0)])
    assert values(consumer, 5) == []
    cluster.write("orders", [b"1"])
    assert values(consumer, 5) == [b"1"]
    assert PLACE not in cluster.committed()
    consumer.close()
