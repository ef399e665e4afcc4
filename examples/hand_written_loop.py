"""A transactional loop written by hand on confluent-kafka's classes, and eos-client, under the same two events.

    python examples/hand_written_loop.py

Both run on a simulated cluster, so no broker is needed. Another instance of the application takes a partition for a few
seconds. Later one commit is refused, as the coordinator does when the group's generation has just moved. Each order
should become one invoice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Any

from confluent_kafka import KafkaException

from eos_client import EosConfig, ExactlyOnceLoop, OutputRecord
from eos_client.testing import SimulatedCluster

ORDERS = [f"order-{number}".encode() for number in range(100)]
END_S = 40.0


def cluster_with_rebalance() -> SimulatedCluster:
    """Script an order each 0.3 s, a rebalance, and a refused commit."""
    cluster = SimulatedCluster(seed=0)
    cluster.create_topic("orders", partitions=2)
    cluster.create_topic("invoices")
    for number, order in enumerate(ORDERS):
        cluster.after(2 + 0.3 * number, partial(cluster.write, "orders", [order], partition=number % 2))
    cluster.after(6.3, lambda: cluster.revoke(("orders", 1)))
    cluster.after(12.0, cluster.give_back)
    cluster.after(20.1, lambda: cluster.refuse("TxnOffsetCommit", "ILLEGAL_GENERATION"))
    return cluster


def by_hand(cluster: SimulatedCluster) -> None:
    """Run the loop that docs/explanation/why.md shows."""
    settings = {"bootstrap.servers": "simulated"}
    consumer = cluster.consumer(
        {**settings, "group.id": "billing", "enable.auto.commit": False, "auto.offset.reset": "earliest"}
    )
    producer = cluster.producer({**settings, "transactional.id": "billing-0"})
    producer.init_transactions()
    consumer.subscribe(["orders"])
    now = cluster.clock
    while now() < END_S:
        producer.begin_transaction()
        try:
            commit_at = now() + 1.0
            while now() < commit_at:
                for order in consumer.consume(100, 0.1):
                    producer.produce("invoices", order.value())
            positions = consumer.position(consumer.assignment())
            producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata())
            producer.commit_transaction()
        except KafkaException:
            producer.abort_transaction()


def with_eos_client(cluster: SimulatedCluster) -> None:
    """Do the same with the loop of eos-client."""

    def price(order: Any) -> Iterator[OutputRecord]:
        yield OutputRecord("invoices", value=order.value())

    config = EosConfig({"bootstrap.servers": "simulated"}, group_id="billing")
    loop = ExactlyOnceLoop(config, ["orders"], price, clients=cluster, hook=lambda _event: None)
    cluster.after(END_S, loop.stop)
    loop.run()


def main() -> None:
    """Run both and count the invoices."""
    for name, run in (("by hand", by_hand), ("eos-client", with_eos_client)):
        cluster = cluster_with_rebalance()
        run(cluster)
        invoices = Counter(cluster.values("invoices"))
        doubled = [order.decode() for order in ORDERS if invoices[order] > 1]
        lost = [order.decode() for order in ORDERS if not invoices[order]]
        print(f"{name}: {len(ORDERS)} orders, {invoices.total()} invoices")
        print(f"    doubled: {', '.join(doubled) or 'none'}")
        print(f"    lost:    {', '.join(lost) or 'none'}")


if __name__ == "__main__":
    main()
