"""Where a partition starts is the application's to say, also when it leaves and comes back within one `consume`."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest

from eos_client import EosConsumer
from eos_client.core import partition_states
from eos_client.testing import SimulatedCluster

SEEDS = range(20)  # a few of them return records that were collected before the revocation
CHOSEN = 2


def start_at_the_chosen_offset(consumer: Any, partitions: list[Any]) -> None:
    for partition in partitions:
        partition.offset = CHOSEN
    consumer.assign(partitions)


def consumer_of(cluster: SimulatedCluster) -> EosConsumer:
    settings = {"bootstrap.servers": "simulated", "group.id": "billing", "auto.offset.reset": "earliest"}
    consumer = EosConsumer(settings, factory=cluster.consumer, clock=cluster.clock, hook=lambda _: None)
    consumer.subscribe(["orders"], on_assign=start_at_the_chosen_offset)
    return consumer


def consume_through_a_rebalance(cluster: SimulatedCluster) -> list[bytes]:
    cluster.create_topic("orders")
    cluster.write("orders", [b"0", b"1"])
    consumer = consumer_of(cluster)
    assert consumer.consume(10, 6.0) == []
    cluster.after(0.5, lambda: cluster.write("orders", [b"2", b"3"]))
    cluster.after(1.0, cluster.rebalance)
    found = consumer.consume(50, 8.0)
    found += consumer.consume(50, 5.0)
    consumer.close()
    return [message.value() for message in found]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_returned_partition_starts_at_the_offset_that_on_assign_chose(seed: int, make_simulated_cluster: Any) -> None:
    assert consume_through_a_rebalance(make_simulated_cluster(seed=seed)) == [b"2", b"3"]


def test_some_seed_revokes_and_returns_a_partition_within_one_consume(make_simulated_cluster: Any) -> None:
    with mock.patch.object(partition_states, "_begin_again", wraps=partition_states._begin_again) as begin_again:
        for seed in SEEDS:
            consume_through_a_rebalance(make_simulated_cluster(seed=seed))
    states = [call.args[0] for call in begin_again.call_args_list]
    assert any(state.departed_in_call & state.assigned for state in states)


@pytest.mark.parametrize("seed", range(3))
def test_a_poll_that_had_to_withhold_a_record_goes_on_for_the_rest_of_its_time(
    seed: int, make_simulated_cluster: Any
) -> None:
    cluster = make_simulated_cluster(seed=seed)
    cluster.create_topic("orders")
    cluster.write("orders", [b"0", b"1"])
    consumer = consumer_of(cluster)
    assert consumer.consume(10, 6.0) == []
    cluster.after(0.5, cluster.rebalance)
    cluster.after(20.0, lambda: cluster.write("orders", [b"2", b"3"]))
    assert [consumer.poll(60.0).value() for _ in range(2)] == [b"2", b"3"]
    consumer.close()
