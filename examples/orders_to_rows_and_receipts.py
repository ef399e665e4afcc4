"""Orders become rows of a database *and* receipts in a topic, each exactly once, through kills and a lost reply.

    python examples/orders_to_rows_and_receipts.py [--seed 0]

The handler writes a row for each order, and its receipt into an outbox, in one database transaction with the offsets of
the orders. A relay publishes the outbox. Cluster and broker are simulated; the database is an SQLite file. It needs
`pip install 'eos-client[sql]'`.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from typing import Any

from sqlalchemy import Column, Connection, MetaData, String, Table, create_engine, insert, select

from eos_client import EosConfig, OutputRecord
from eos_client.integration.sql import DatabaseLoop, OutboxRelay, outbox_table, write_outbox
from eos_client.testing import SimulatedCluster

METADATA = MetaData()
ROWS = Table("orders", METADATA, Column("name", String(20), nullable=False))  # no key and no unique constraint
OUTBOX = outbox_table("outbox", METADATA)
ORDERS = [f"order-{number}" for number in range(40)]


def take(connection: Connection, records: list[Any]) -> None:
    """Write a row and a receipt for each order, in the transaction that the loop commits."""
    names = [record.value().decode() for record in records]
    connection.execute(insert(ROWS), [{"name": name} for name in names])
    write_outbox(connection, OUTBOX, [OutputRecord("receipts", key=n, value=f"receipt of {n}") for n in names])


def main() -> int:
    """Tell the story; status 1 if a row or a receipt is missing or there twice."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0, help="decides everything random; the same seed, the same run")
    cluster = SimulatedCluster(parser.parse_args().seed)
    cluster.create_topic("orders", partitions=2)
    cluster.create_topic("receipts")
    cluster.create_topic("receipts-relay-outbox", partitions=4)  # on a real cluster, the relay creates its ledger
    for number, order in enumerate(ORDERS):
        cluster.write("orders", [order.encode()], partition=number % 2)

    with tempfile.TemporaryDirectory() as folder:
        engine = create_engine(f"sqlite:///{folder}/shop.db")
        METADATA.create_all(engine)

        def taking() -> DatabaseLoop:
            config = EosConfig({"bootstrap.servers": "simulated"}, group_id="taking", max_records=7, batch_size=7)
            return DatabaseLoop(config, ["orders"], take, engine=engine, clients=cluster)

        def relaying(name: str) -> OutboxRelay:
            config = EosConfig({"bootstrap.servers": "simulated", "client.id": name}, group_id="receipts-relay")
            return OutboxRelay(engine, OUTBOX, config, buckets=4, clients=cluster)

        taking().run(until_end=True)
        first = relaying("first")
        cluster.lose_reply("EndTxn")  # the first commit is resolved
        cluster.after(5, first.stop)
        first.run()
        for number, order in enumerate(ORDERS):
            cluster.write("orders", [f"late {order}".encode()], partition=number % 2)
        taking().run(until_end=True)
        relaying("second").run(until_end=True)
        with engine.connect() as connection:
            rows = sorted(connection.execute(select(ROWS.c.name)).scalars())
            left = len(connection.execute(select(OUTBOX.c.id)).all())
    receipts = sorted(value.decode() for value in cluster.values("receipts"))
    expected = sorted(ORDERS + [f"late {order}" for order in ORDERS])
    whole = rows == expected and receipts == [f"receipt of {name}" for name in expected] and not left
    verdict = "EXACTLY ONCE" if whole else "WRONG"
    print(f"{len(expected)} orders, {len(rows)} rows, {len(receipts)} receipts, {left} left in the outbox: {verdict}")
    return 0 if whole else 1


if __name__ == "__main__":
    sys.exit(main())
