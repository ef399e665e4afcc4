"""A loop survives a rebalance and a lost commit reply on a simulated cluster, without a broker.

    python examples/survive_a_rebalance.py [--seed 0]

Twenty orders are priced while another instance of the application takes one of their partitions and gives it back, the
group's generation moves, and the answer to a commit gets lost. Each order ends up as one invoice.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import Any

from eos_client import EosConfig, ExactlyOnceLoop, OutputRecord
from eos_client.testing import SimulatedCluster

ORDERS = [f"order-{number}".encode() for number in range(20)]


def price(record: Any) -> Iterator[OutputRecord]:
    """One invoice for each order."""
    yield OutputRecord("invoices", key=record.key(), value=record.value().replace(b"order", b"invoice"))


def main() -> int:
    """Tell the story; status 1 if an invoice is missing or there twice."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0, help="decides everything random; the same seed, the same run")
    cluster = SimulatedCluster(parser.parse_args().seed)
    cluster.create_topic("orders", partitions=2)
    cluster.create_topic("invoices")

    config = EosConfig({"bootstrap.servers": "simulated", "client.id": "billing"}, group_id="billing")
    loop = ExactlyOnceLoop(config, ["orders"], price, clients=cluster)

    def order(numbers: range) -> None:
        for number in numbers:
            cluster.write("orders", [ORDERS[number]], partition=number % 2)

    cluster.after(1, lambda: order(range(10)))
    cluster.after(10, lambda: cluster.revoke(("orders", 1)))
    cluster.after(11, lambda: order(range(10, 19)))
    cluster.after(20, cluster.give_back)
    cluster.after(30, cluster.rebalance)
    cluster.after(40, lambda: cluster.lose_reply("EndTxn"))
    cluster.after(41, lambda: order(range(19, 20)))
    cluster.after(90, loop.stop)
    loop.run()

    invoices = cluster.values("invoices")
    whole = sorted(invoices) == sorted(order.replace(b"order", b"invoice") for order in ORDERS)
    print(f"{len(ORDERS)} orders, {len(invoices)} invoices: {'EXACTLY ONCE' if whole else 'WRONG'}")
    return 0 if whole else 1


if __name__ == "__main__":
    sys.exit(main())
