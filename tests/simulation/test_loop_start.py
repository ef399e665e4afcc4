"""A loop that starts while the cluster answers some requests only."""

from __future__ import annotations

from typing import Any

import pytest

from eos_client import EosConfig, ExactlyOnceLoop
from eos_client.errors import ClusterUnavailableError


@pytest.mark.parametrize("client", ["consumer-1", "producer-1"])
def test_metadata_that_no_broker_answers_end_the_start_with_the_address(client: str, simulated_cluster: Any) -> None:
    for topic in ("orders", "invoices"):
        simulated_cluster.create_topic(topic)
    config = EosConfig({"bootstrap.servers": "simulated"}, group_id="billing")
    loop = ExactlyOnceLoop(config, ["orders"], lambda _: None, output_topic="invoices", clients=simulated_cluster)
    simulated_cluster.lose_reply("Metadata", client)
    with loop, pytest.raises(ClusterUnavailableError, match=r"bootstrap\.servers 'simulated' within 10 s"):
        loop.run()
