"""What an application is told by brokers that cannot fence its offsets."""

from __future__ import annotations

from typing import Any

import pytest

from eos_client import EosConfig, ExactlyOnceLoop, OutputRecord
from eos_client.errors import ClusterUnfitError


def copy(record: Any) -> Any:
    yield OutputRecord("invoices", value=record.value())


@pytest.mark.parametrize("request_", ["AddOffsetsToTxn", "TxnOffsetCommit"])
def test_brokers_too_old_to_fence_offsets_end_the_loop_and_the_version_needed_is_named(
    request_: str, simulated_cluster: Any
) -> None:
    """P2: brokers too old to do this give a clear error naming the version needed, not silent at-least-once."""
    simulated_cluster.create_topic("orders")
    simulated_cluster.create_topic("invoices")
    simulated_cluster.write("orders", [b"1"])
    config = EosConfig({"bootstrap.servers": "simulated"}, group_id="billing")
    loop = ExactlyOnceLoop(config, ["orders"], copy, clients=simulated_cluster)
    simulated_cluster.refuse(request_, "UNSUPPORTED_VERSION")
    simulated_cluster.after(60, loop.stop)
    with pytest.raises(ClusterUnfitError, match=r"Kafka 2\.5 or newer"):
        loop.run()
    assert simulated_cluster.values("invoices") == []
