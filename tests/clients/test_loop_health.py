"""What a loop says of its health from its start to its end, on the simulated cluster and from another thread."""

from __future__ import annotations

import multiprocessing
import os
import threading
from typing import Any

import pytest

from eos_client import EosConfig, ExactlyOnceLoop
from eos_client.core.loop_health import LoopHealth
from eos_client.observe import Event, PartitionsLost
from tests.support.protocols import EAGER, PROTOCOLS, settings_of

SOURCE, SINK = "orders", "invoices"


def copying(record: Any) -> bytes:
    value: bytes = record.value()
    return value


class Watched:
    """A loop on a simulated cluster whose health is noted at the moments that a test names."""

    def __init__(self, cluster: Any, protocol: str = EAGER, transform: Any = copying, **options: Any) -> None:
        self.cluster = cluster
        cluster.create_topic(SOURCE, 2)
        cluster.create_topic(SINK)
        config = EosConfig(
            {"bootstrap.servers": "simulated"}, group_id="billing", consumer=settings_of(protocol), **options
        )
        self.loop = ExactlyOnceLoop(config, [SOURCE], transform, output_topic=SINK, hook=self._hear, clients=cluster)
        self.heard_of: Any = (None, None)
        self.seen: dict[str, LoopHealth] = {}

    def _hear(self, event: Event) -> None:
        kind, then = self.heard_of
        if type(event) is kind:
            then()

    def look(self, name: str) -> None:
        self.seen[name] = self.loop.health()

    def at(self, seconds: float, name: str) -> None:
        self.cluster.after(seconds, lambda: self.look(name))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_loop_is_ready_once_it_is_assigned_and_no_longer_when_it_stops(protocol: str, simulated_cluster: Any) -> None:
    watched = Watched(simulated_cluster, protocol, liveness_limit_s=9.5)
    watched.look("before")
    watched.at(0.0, "starting")
    watched.at(20.0, "working")
    watched.cluster.after(21.0, watched.loop.stop)
    watched.at(21.0, "stopping")
    watched.loop.run()
    watched.look("after")
    assert {name: (health.live, health.ready) for name, health in watched.seen.items()} == {
        "before": (True, False),
        "starting": (True, False),
        "working": (True, True),
        "stopping": (True, False),
        "after": (False, False),
    }
    assert "run()" in watched.seen["before"].reasons[0]
    assert "not assigned" in watched.seen["starting"].reasons[0]
    assert watched.seen["working"].reasons == ()
    assert watched.seen["after"].reasons == ("The loop has ended: stop() was called.",)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_loop_that_was_evicted_is_not_ready_until_the_group_has_assigned_again(
    protocol: str, simulated_cluster: Any
) -> None:
    cluster = simulated_cluster
    watched = Watched(cluster, protocol)
    watched.heard_of = PartitionsLost, lambda: watched.at(0.0005, "lost")
    cluster.after(20.0, cluster.lose)
    watched.at(90.0, "joined again")
    cluster.after(91.0, watched.loop.stop)
    watched.loop.run()
    assert [watched.seen["lost"].ready, watched.seen["joined again"].ready] == [False, True]
    assert "not assigned" in watched.seen["lost"].reasons[0]


def test_a_standby_is_ready(simulated_cluster: Any) -> None:
    watched = Watched(simulated_cluster)
    watched.cluster.after(20.0, lambda: watched.cluster.revoke((SOURCE, 0), (SOURCE, 1)))
    watched.at(60.0, "standby")
    watched.cluster.after(61.0, watched.loop.stop)
    watched.loop.run()
    assert watched.loop.gate.state.assigned == frozenset()
    assert watched.seen["standby"].ready


def test_a_transform_that_does_not_return_makes_the_loop_dead_and_is_seen_from_another_thread(
    simulated_cluster: Any,
) -> None:
    in_transform, released = threading.Event(), threading.Event()

    def stuck(record: Any) -> bytes:
        in_transform.set()
        assert released.wait(30)
        return copying(record)

    watched = Watched(simulated_cluster, transform=stuck, liveness_limit_s=20.0)
    watched.cluster.write(SOURCE, [b"1"])
    runner = threading.Thread(target=watched.loop.run)
    runner.start()
    try:
        assert in_transform.wait(30)
        assert watched.loop.health().live
        watched.cluster.clock.now_s += 20.5
        dead = watched.loop.health()
        assert (dead.live, dead.ready) == (False, False)
        assert "not polled for 20.5 s" in dead.reasons[0]
    finally:
        watched.loop.stop()
        released.set()
        runner.join(30)
    assert watched.cluster.values(SINK) == [b"1"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_in_a_forked_child_a_loop_is_not_live_while_it_is_in_the_parent(simulated_cluster: Any) -> None:
    watched = Watched(simulated_cluster)
    answers, says = multiprocessing.get_context("fork").Pipe(duplex=False)

    def ask_a_child() -> None:
        if os.fork() == 0:
            says.send(watched.loop.health())
            os._exit(0)
        os.wait()
        watched.look("in the parent")

    watched.cluster.after(20.0, ask_a_child)
    watched.cluster.after(21.0, watched.loop.stop)
    watched.loop.run()
    child = answers.recv()
    assert (child.live, child.ready, watched.seen["in the parent"].ready) == (False, False, True)
    (reason,) = child.reasons
    assert "does not run in this process, which was forked" in reason


@pytest.mark.parametrize(
    ("consumer", "liveness_limit_s", "limit_s"),
    [
        ({}, None, 300),
        ({"max.poll.interval.ms": 200_000}, None, 200),
        ({"max.poll.interval.ms": 60_000}, None, 129.1),
        ({}, 30, 30),
    ],
)
def test_the_limit_is_the_one_that_is_set_or_that_of_the_group(
    consumer: Any, liveness_limit_s: Any, limit_s: float, simulated_cluster: Any
) -> None:
    config = EosConfig(
        {"bootstrap.servers": "simulated"}, group_id="g", consumer=consumer, liveness_limit_s=liveness_limit_s
    )
    with ExactlyOnceLoop(config, [SOURCE], copying, clients=simulated_cluster) as loop:
        loop._polled_at = simulated_cluster.clock()
        simulated_cluster.clock.now_s += limit_s
        assert loop.health().live
        simulated_cluster.clock.now_s += 0.1
        assert not loop.health().live
