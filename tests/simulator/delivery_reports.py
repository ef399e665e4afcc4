"""A simulated producer of one topic, and what its delivery reports said."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaException

from eos_client.testing.simulator import SimulatedCluster

TOPIC = "outputs"


IDEMPOTENT = {"enable.idempotence": True}


class Reports(list[tuple[str | None, bytes | None, int | None]]):
    """What the delivery reports said."""

    def __call__(self, error: Any, message: Any) -> None:
        self.append((error and error.name(), message.value(), message.offset()))


def running(*, partitions: Any = 1, seed: Any = 0, **settings: Any) -> tuple[SimulatedCluster, Any, Reports]:
    cluster, reports = SimulatedCluster(seed), Reports()
    cluster.create_topic(TOPIC, partitions)
    return cluster, cluster.producer({"on_delivery": reports, **settings}), reports


def served(cluster: SimulatedCluster, request: str) -> list[str]:
    return [each.result for each in cluster.history if each.request == request]


def refused_with(call: Callable[..., Any], *arguments: Any) -> str:
    with pytest.raises(KafkaException) as raised:
        call(*arguments)
    name: str = raised.value.args[0].name()
    return name
