"""A loop that starts while the cluster answers some requests only."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from eos_client import AsyncExactlyOnceLoop, EosConfig, ExactlyOnceLoop
from eos_client.errors import ClusterUnavailableError, ClusterUnfitError
from eos_client.observe import ClientReported, LoopStopped

QUESTIONS = {"consumer-1": 5, "producer-1": 1}  # how often it asks within ten seconds


@pytest.mark.parametrize("client", QUESTIONS)
def test_metadata_that_no_broker_answers_end_the_start_with_the_address(client: str, simulated_cluster: Any) -> None:
    for topic in ("orders", "invoices"):
        simulated_cluster.create_topic(topic)
    config = EosConfig({"bootstrap.servers": "simulated"}, group_id="billing")
    loop = ExactlyOnceLoop(config, ["orders"], lambda _: None, output_topic="invoices", clients=simulated_cluster)
    for _ in range(QUESTIONS[client]):
        simulated_cluster.lose_reply("Metadata", client)
    with loop, pytest.raises(ClusterUnavailableError, match=r"bootstrap\.servers 'simulated' within 10 s"):
        loop.run()


@pytest.mark.parametrize("client", QUESTIONS)
def test_no_port_is_asked_what_it_speaks_where_the_cluster_is_simulated(client: str, simulated_cluster: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setblocking(False)
        for topic in ("orders", "invoices"):
            simulated_cluster.create_topic(topic)
        config = EosConfig({"bootstrap.servers": f"127.0.0.1:{listening.getsockname()[1]}"}, group_id="billing")
        loop = ExactlyOnceLoop(config, ["orders"], lambda _: None, output_topic="invoices", clients=simulated_cluster)
        for _ in range(QUESTIONS[client]):
            simulated_cluster.lose_reply("Metadata", client)
        simulated_cluster.after(0.1, lambda: simulated_cluster.report_error("_TRANSPORT", client))
        with loop, pytest.raises(ClusterUnavailableError, match="_TRANSPORT"):
            loop.run()
        with pytest.raises(BlockingIOError):
            listening.accept()


async def nothing(_: Any) -> None:
    pass


@pytest.mark.parametrize(("client", "waited"), [("consumer-1", "0.5 s"), ("producer-1", "10 s")])
@pytest.mark.parametrize("kind", [ExactlyOnceLoop, AsyncExactlyOnceLoop])
def test_a_loop_that_was_stopped_while_it_started_returns_and_tells_why_it_did_not_start(
    kind: Any, client: str, waited: str, simulated_cluster: Any
) -> None:
    for topic in ("orders", "invoices"):
        simulated_cluster.create_topic(topic)
    config = EosConfig({"bootstrap.servers": "simulated"}, group_id="billing")
    transform: Any = nothing if kind is AsyncExactlyOnceLoop else lambda _: None
    told: list[Any] = []
    loop = kind(config, ["orders"], transform, output_topic="invoices", hook=told.append, clients=simulated_cluster)
    simulated_cluster.lose_reply("Metadata", client)
    loop.stop("nobody wants it")
    asyncio.run(loop.run()) if kind is AsyncExactlyOnceLoop else loop.run()
    (reported,) = [event for event in told if isinstance(event, ClientReported) and event.client == "loop"]
    assert f"within {waited}" in reported.error
    assert [event.reason for event in told if isinstance(event, LoopStopped)] == ["nobody wants it"]


def test_a_group_whose_members_speak_the_other_protocol_is_named_with_the_way_out(simulated_cluster: Any) -> None:
    for topic in ("orders", "invoices"):
        simulated_cluster.create_topic(topic)
    member = simulated_cluster.consumer({"group.id": "billing", "partition.assignment.strategy": "range"})
    member.subscribe(["orders"])
    member.poll(1)
    config = EosConfig({"bootstrap.servers": "simulated", "group.protocol": "consumer"}, group_id="billing")
    loop = ExactlyOnceLoop(config, ["orders"], lambda _: None, output_topic="invoices", clients=simulated_cluster)
    simulated_cluster.after(60, loop.stop)
    with pytest.raises(ClusterUnfitError, match=r"group 'billing' does not admit this consumer: .*protocol=classic"):
        loop.run()
