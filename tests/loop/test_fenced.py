"""A loop whose transactional.id another process has taken says so at ERROR, and that it must not be restarted."""

from __future__ import annotations

from typing import Any

import pytest

from eos_client import EosConfig, ExactlyOnceLoop
from eos_client.errors import ProducerFencedError
from eos_client.observe import LoopFenced


def test_a_fenced_loop_logs_an_error_that_names_the_id_and_warns_of_a_restart(simulated_cluster: Any) -> None:
    cluster = simulated_cluster
    for topic in ("orders", "invoices"):
        cluster.create_topic(topic)
    cluster.write("orders", [b"1"])
    rival = cluster.producer({"transactional.id": "billing-0"})

    def transform(record: Any) -> Any:
        rival.init_transactions(10)
        return record.value()

    config = EosConfig({"bootstrap.servers": "simulated"}, group_id="billing", transactional_id="billing-0")
    told: list[Any] = []
    with (
        ExactlyOnceLoop(
            config, ["orders"], transform, output_topic="invoices", hook=told.append, clients=cluster
        ) as loop,
        pytest.raises(ProducerFencedError) as raised,
    ):
        loop.run()
    assert "Do not start this one again while the other runs: it would take the id back" in str(raised.value)
    (fenced,) = [event for event in told if isinstance(event, LoopFenced)]
    assert (fenced.level, fenced.transactional_id) == ("error", "billing-0")
