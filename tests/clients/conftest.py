"""A cluster with the topics of a job that prices orders, and the job."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from eos_client import AsyncExactlyOnceLoop, EosConfig
from eos_client.testing import SimulatedCluster
from tests.support.waiting import WAIT_S


@pytest.fixture
def cluster() -> SimulatedCluster:
    made = SimulatedCluster(seed=3)
    made.create_topic("orders", partitions=3)
    for topic in ("invoices", "letters"):
        made.create_topic(topic)
    return made


class Job:
    """A loop on the cluster, with the events that it has told; it is stopped after a minute."""

    def __init__(
        self, cluster: SimulatedCluster, transform: Any = None, *, kind: Any = AsyncExactlyOnceLoop, **options: Any
    ) -> None:
        names = {"transform_batch", "concurrency_max"}
        settings = {name: value for name, value in options.items() if name not in names}
        settings.setdefault("poll_timeout_s", 1.0)  # in the minute that is left it polls in vain
        self.events: list[Any] = []
        self.loop = kind(
            EosConfig({"bootstrap.servers": "simulated"}, group_id="billing", **settings),
            ["orders"],
            transform,
            **{name: value for name, value in options.items() if name in names},
            output_topic="invoices",
            hook=self.events.append,
            clients=cluster,
        )
        cluster.after(60, self.loop.stop)

    def run(self) -> None:
        asyncio.run(asyncio.wait_for(self.loop.run(), WAIT_S))
