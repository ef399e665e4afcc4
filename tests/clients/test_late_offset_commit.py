"""A request that arrives when its client has given it up must not count as the next transaction's (KAFKA-17754).

The simulated brokers check what Kafka's do (KIP-890 part 1): a late TxnOffsetCommit at the running transaction's epoch
is accepted once that transaction has announced the group's offsets, and committed with it.
"""

from __future__ import annotations

from typing import Any

import pytest

from eos_client import EosConsumer, EosProducer, Outcome
from eos_client.core.model import ProducerLimits
from eos_client.testing.simulator import SimulatedCluster
from eos_client.testing.simulator.brokers.model import PartitionKey

RECORDS = 6
BUDGET_S = 2.0
LATE_S = 4.0
PLACE = PartitionKey("orders", 0)
LIMITS = ProducerLimits(commit_timeout_s=BUDGET_S, start_timeout_s=20.0, recovery_timeout_s=30.0)


class Application:
    """A consumer and a producer with a pinned id, and one partition of `RECORDS` records before them."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self.cluster = cluster
        self.events: list[Any] = []
        if not cluster.history:
            cluster.create_topic("orders")
            cluster.create_topic("invoices")
            cluster.write("orders", [b"%d" % number for number in range(RECORDS)])
        common: dict[str, Any] = {"hook": self.events.append, "clock": cluster.clock}
        brokers = {"bootstrap.servers": "simulated"}
        self.consumer = EosConsumer(
            {**brokers, "group.id": "billing", "auto.offset.reset": "earliest"}, factory=cluster.consumer, **common
        )
        self.producer = EosProducer(
            {**brokers, "transactional.id": "billing-0"}, factory=cluster.producer, limits=LIMITS, **common
        )
        self.consumer.subscribe(["orders"])
        self.producer.init_transactions()

    def copy(self, count: int) -> Outcome | None:
        """Copy the next `count` records in one transaction."""
        with self.producer.transaction(self.consumer) as txn:
            copied = 0
            while copied < count:
                for message in self.consumer.consume(count - copied, 0.1):
                    txn.produce("invoices", message.value())
                    copied += 1
        return txn.outcome

    def close(self) -> None:
        self.consumer.close()
        self.producer.close()


def answers(cluster: SimulatedCluster, request: str) -> list[str]:
    """How every such request was answered: `ok`, or the error's name."""
    return [each.result for each in cluster.history if each.request == request]


def test_offsets_that_arrive_in_the_next_transaction_are_refused(simulated_cluster: SimulatedCluster) -> None:
    cluster = simulated_cluster
    ours = Application(cluster)
    cluster.delay("TxnOffsetCommit", LATE_S)
    assert ours.copy(4) is Outcome.ABORTED
    cluster.advance(1.0)
    cluster.delay("EndTxn", 1.5)  # so that they come after the next transaction's own offsets, before its end
    assert ours.copy(2) is Outcome.COMMITTED
    assert cluster.committed() == {PLACE: 2}
    assert answers(cluster, "TxnOffsetCommit") == ["ok", "INVALID_PRODUCER_EPOCH"]
    ours.close()

    assert Application(cluster).copy(RECORDS - 2) is Outcome.COMMITTED
    assert cluster.values("invoices") == [b"%d" % number for number in range(RECORDS)]


@pytest.mark.parametrize("late_s", [BUDGET_S - 0.5, BUDGET_S + 0.5, LATE_S, 3 * LATE_S])
@pytest.mark.parametrize("request_", ["AddPartitionsToTxn", "Produce", "AddOffsetsToTxn", "TxnOffsetCommit", "EndTxn"])
def test_whichever_request_is_late_no_record_is_lost_or_doubled(
    simulated_cluster: SimulatedCluster, request_: str, late_s: float
) -> None:
    cluster = simulated_cluster
    ours = Application(cluster)
    cluster.delay(request_, late_s)
    while cluster.committed().get(PLACE, 0) < RECORDS:
        ours.copy(1)
    cluster.advance(3 * LATE_S)
    assert cluster.values("invoices") == [b"%d" % number for number in range(RECORDS)]
    assert cluster.committed() == {PLACE: RECORDS}
