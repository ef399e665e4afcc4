"""A transactional producer among random faults: what it was told was committed is visible, once and in order."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from confluent_kafka import KafkaException

from eos_client.testing.simulator import SimulatedCluster
from eos_client.testing.simulator.brokers.faults import Fault, FaultKind
from eos_client.testing.simulator.brokers.settings import BrokerSettings, ProducerStateKind

TOPIC, ID, PARTITIONS, TRANSACTIONS = "outputs", "pinned", 2, 12
REQUESTS = ("InitProducerId", "AddPartitionsToTxn", "Produce", "EndTxn")
PASSING = ("COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR", "COORDINATOR_LOAD_IN_PROGRESS")
KINDS = (FaultKind.LOSE_REQUEST, FaultKind.LOSE_REPLY, FaultKind.ERROR, FaultKind.DELAY)


class Work:
    """An application that retries, aborts or begins anew as each error asks for."""

    def __init__(self, seed: int, kind: ProducerStateKind) -> None:
        self.random = Random(seed)
        self.cluster = SimulatedCluster(seed, settings=BrokerSettings(producer_state=kind))
        self.cluster.create_topic(TOPIC, PARTITIONS)
        self.committed: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
        self.written = 0
        self.producer = self.started()

    def started(self) -> Any:
        producer = self.cluster.producer({"transactional.id": ID, "socket.timeout.ms": 2000, "batch.num.messages": 2})
        self.persist(producer.init_transactions)
        return producer

    def persist(self, call: Any) -> None:
        while not self.succeeds(call):
            pass

    def succeeds(self, call: Any) -> bool:
        try:
            call(3)
        except KafkaException as exception:
            if not exception.args[0].retriable():
                raise
            return False
        return True

    def abort(self) -> None:
        try:
            self.persist(self.producer.abort_transaction)
        except KafkaException as exception:
            # AddPartitionsToTxn was lost, and librdkafka ends what the coordinator never knew.
            if exception.args[0].name() != "INVALID_TXN_STATE":
                raise
            self.producer = self.started()

    def trouble(self) -> None:
        for _ in range(self.random.randrange(3)):
            kind = self.random.choice(KINDS)
            # A late copy may come when the next transaction has begun: only what is answered in time is delayed.
            self.cluster.faults.add(
                Fault(
                    kind,
                    self.random.choice(REQUESTS),
                    delay_s=self.random.uniform(0, 1.9) if kind is FaultKind.DELAY else 0.0,
                    code=self.random.choice(PASSING) if kind is FaultKind.ERROR else "",
                )
            )

    def transaction(self) -> None:
        values: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
        self.producer.begin_transaction()
        for _ in range(self.random.randrange(8)):
            partition = self.random.randrange(PARTITIONS)
            value = str(self.written).encode()
            self.written += 1
            values[partition].append(value)
            self.producer.produce(TOPIC, value, partition=partition)
            self.producer.poll(self.random.choice([0, 0.01]))
        if self.random.random() < 0.3:
            self.abort()
            return
        self.persist(self.producer.commit_transaction)
        for partition, fresh in enumerate(values):
            self.committed[partition] += fresh

    def visible(self) -> list[list[bytes]]:
        records = self.cluster.values(TOPIC)
        split = [
            [value for value in records if value is not None and value in set(values)] for values in self.committed
        ]
        assert sum(map(len, split)) == len(records), "something else is visible"
        return split


def worked(seed: int, kind: ProducerStateKind) -> Work:
    work = Work(seed, kind)
    for _ in range(TRANSACTIONS):
        work.trouble()
        if work.random.random() < 0.1:
            work.producer = work.started()
        work.transaction()
    work.cluster.faults.withdraw()
    work.cluster.advance(10)
    return work


@pytest.mark.parametrize("kind", ProducerStateKind)
@pytest.mark.parametrize("seed", range(25))
def test_what_was_committed_is_visible_once_and_in_order_and_nothing_else_is(seed, kind):
    work = worked(seed, kind)
    assert work.visible() == work.committed, f"seed {seed}"
    assert worked(seed, kind).cluster.history == work.cluster.history, f"seed {seed}"
