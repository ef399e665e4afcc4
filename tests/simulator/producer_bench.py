"""One transactional producer on a simulated cluster, and how its calls are refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from confluent_kafka import KafkaException, TopicPartition

from eos_client.testing.simulator import SimulatedCluster
from eos_client.testing.simulator.brokers.model import Membership, PartitionKey
from eos_client.testing.simulator.clients.group_metadata import encode

TOPIC, INPUTS, GROUP, ID = "outputs", "inputs", "group", "pinned"


ANONYMOUS = encode(GROUP, Membership())


AT_7 = [TopicPartition(INPUTS, 0, 7)]


COMMITTED_7 = {PartitionKey(INPUTS, 0): 7}


class ProducerBench:
    """A cluster and one transactional producer whose records are reported to ``reports``."""

    def __init__(self, **settings: Any) -> None:
        self.cluster = SimulatedCluster()
        self.cluster.create_topic(TOPIC, 2)
        self.cluster.create_topic(INPUTS)
        self.reports: list[tuple[str | None, bytes | None]] = []
        self.settings = {"linger.ms": 0, "socket.timeout.ms": 2000, "transactional.id": ID, **settings}
        self.producer = self.build()
        self.producer.init_transactions(5)

    def build(self) -> Any:
        return self.cluster.producer({**self.settings, "on_delivery": self.report})

    def report(self, error: Any, message: Any) -> None:
        self.reports.append((error and error.name(), message.value()))

    def begin(self, *values: bytes) -> None:
        self.producer.begin_transaction()
        for value in values:
            self.producer.produce(TOPIC, value, partition=0)

    def commit(self, *values: bytes) -> None:
        self.begin(*values)
        self.producer.commit_transaction(5)

    def requests(self, name: str) -> list[str]:
        return [each.result for each in self.cluster.history if each.request == name]

    def committed_offsets(self) -> Mapping[PartitionKey, int]:
        return self.cluster.committed(GROUP)

    def epochs(self) -> list[tuple[bytes | None, int, int]]:
        return [(r.value, r.producer_epoch, r.sequence) for r in self.cluster.read(TOPIC)]


def refusal(call: Callable[..., Any], *arguments: Any) -> tuple[str, str]:
    """What the call raises: its name, and its flag."""
    with pytest.raises(KafkaException) as raised:
        call(*arguments)
    error = raised.value.args[0]
    flags = [("fatal", error.fatal()), ("retriable", error.retriable()), ("abortable", error.txn_requires_abort())]
    return error.name(), " ".join(name for name, is_set in flags if is_set)
