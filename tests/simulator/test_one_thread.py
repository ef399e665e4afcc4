"""A cluster has one clock: a second thread that uses it while the first one is inside a call is refused."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from eos_client.testing import SimulatedCluster
from tests.support.waiting import WAIT_S

SECOND = "second"


@pytest.fixture
def cluster(simulated_cluster: SimulatedCluster) -> SimulatedCluster:
    simulated_cluster.create_topic("orders")
    return simulated_cluster


def in_second_thread(act: Callable[[], object]) -> list[RuntimeError]:
    """Run ``act`` in another thread to its end; return the error that it was refused with."""
    refused = []

    def run() -> None:
        try:
            act()
        except RuntimeError as error:
            refused.append(error)

    thread = threading.Thread(target=run, name=SECOND)
    thread.start()
    thread.join(WAIT_S)
    assert not thread.is_alive()
    return refused


class Interrupted:
    """Background work in whose middle another thread acts, as where Python switches threads at any moment."""

    def __init__(self, act: Callable[[], object]) -> None:
        self.refused: list[RuntimeError] = []
        self.due_s = 1.0
        self._act = act

    def work(self) -> None:
        self.due_s = 1e9
        self.refused = in_second_thread(self._act)


CALLS: list[Callable[[SimulatedCluster, Any, Any], object]] = [
    lambda cluster, _, __: cluster.advance(1),
    lambda cluster, _, __: cluster.clock.sleep(1),
    lambda cluster, _, __: cluster.write("orders", [b"1"]),
    lambda cluster, _, __: cluster.after(1, list),
    lambda cluster, _, __: cluster.rebalance(),
    lambda _, consumer, __: consumer.poll(0.1),
    lambda _, consumer, __: consumer.subscribe(["orders"]),
    lambda _, __, producer: producer.produce("orders", b"1"),
    lambda _, __, producer: producer.flush(1),
]


@pytest.mark.parametrize("call", CALLS)
def test_a_call_of_a_second_thread_into_the_middle_of_a_call_is_refused(cluster: SimulatedCluster, call: Any) -> None:
    consumer = cluster.consumer({"bootstrap.servers": "simulated", "group.id": "billing"})
    producer = cluster.producer({"bootstrap.servers": "simulated"})
    worker = Interrupted(lambda: call(cluster, consumer, producer))
    cluster._schedule.add(worker)
    cluster.advance(2)
    (refused,) = worker.refused
    assert "thread 'second' uses a simulated cluster while thread 'MainThread' is inside a call of it" in str(refused)


def test_threads_that_take_turns_are_served(cluster: SimulatedCluster) -> None:
    producer = cluster.producer({"bootstrap.servers": "simulated"})
    assert in_second_thread(lambda: producer.produce("orders", b"1")) == []
    producer.flush(1)
    assert in_second_thread(lambda: cluster.advance(1)) == []
    assert cluster.values("orders") == [b"1"]


def test_a_scripted_action_may_wait_for_another_thread_that_uses_the_cluster(cluster: SimulatedCluster) -> None:
    refused: list[RuntimeError] = []
    cluster.after(1, lambda: refused.extend(in_second_thread(lambda: cluster.advance(1))))
    cluster.advance(5)
    assert (refused, cluster.clock()) == ([], 5.0)


def test_a_call_that_ends_in_an_error_leaves_the_cluster_to_others(cluster: SimulatedCluster) -> None:
    def fail() -> None:
        raise ArithmeticError

    cluster.after(1, fail)
    with pytest.raises(ArithmeticError):
        cluster.advance(2)
    assert in_second_thread(lambda: cluster.advance(1)) == []


def test_two_loops_in_two_threads_are_an_error_and_no_wrong_result(cluster: SimulatedCluster) -> None:
    stopping, together = threading.Event(), threading.Barrier(2)
    refused: list[RuntimeError] = []

    def poll() -> None:
        together.wait(WAIT_S)
        try:
            consumer = cluster.consumer({"bootstrap.servers": "simulated", "group.id": "billing"})
            consumer.subscribe(["orders"])
            while not stopping.is_set():
                consumer.poll(1.0)
        except RuntimeError as error:
            refused.append(error)
            stopping.set()

    threads = [threading.Thread(target=poll) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    stopping.set()
    assert "one clock" in str(refused[0])
