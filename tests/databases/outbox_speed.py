"""Rows a second of a relay, against a hand-written loop without any protection, in one run.

    python -m tests.databases.outbox_speed --database postgresql+psycopg://postgres@127.0.0.1:25432/outbox

The hand-written loop reads rows by id, produces them without a transaction, flushes, and deletes them. Both are timed
from the first row that a reader could see to the moment at which the table is empty; they take turns.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from typing import Any

from confluent_kafka import Producer
from sqlalchemy import Engine, MetaData, create_engine, delete, func, insert, select, text

from eos_client import EosConfig
from eos_client.confluent.admin.cluster_admin import ClusterAdmin
from eos_client.integration.sql import OutboxRelay, outbox_table
from eos_client.testing import EmbeddedKafka

METADATA = MetaData()
OUTBOX = outbox_table("outbox_speed", METADATA)
TOPIC, BATCH = "speed-out", 1000


def fill(engine: Engine, rows: int) -> None:
    with engine.begin() as connection:
        for begin in range(0, rows, 5000):
            connection.execute(
                insert(OUTBOX),
                [
                    {"record_key": b"key-%d" % (n % 997), "record_value": b"v" * 200}
                    for n in range(begin, min(begin + 5000, rows))
                ],
            )


def left(engine: Engine) -> int:
    with engine.connect() as connection:
        return int(connection.execute(select(func.count()).select_from(OUTBOX)).scalar_one())


def by_hand(engine: Engine, bootstrap: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    while True:
        with engine.begin() as connection:
            rows: Any = connection.execute(select(OUTBOX).order_by(OUTBOX.c.id).limit(BATCH)).all()
            if not rows:
                return
            for row in rows:
                producer.produce(row.topic or TOPIC, row.record_value, row.record_key)
            producer.flush()
            connection.execute(delete(OUTBOX).where(OUTBOX.c.id.in_([row.id for row in rows])))


def by_relay(engine: Engine, bootstrap: str) -> None:
    config = EosConfig({"bootstrap.servers": bootstrap}, group_id="outbox-speed")
    with OutboxRelay(engine, OUTBOX, config, buckets=8, default_topic=TOPIC, hook=lambda _: None) as relay:
        assert relay.run(until_end=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--database", required=True)
    parser.add_argument("--rows", type=int, default=40_000)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    engine = create_engine(given.database)
    with engine.begin() as connection:
        for name in ("outbox_speed_buckets", "outbox_speed"):
            connection.execute(text(f"DROP TABLE IF EXISTS {name}"))
    METADATA.create_all(engine)
    speeds: dict[str, list[float]] = {"by hand": [], "relay": []}
    with EmbeddedKafka() as kafka:
        with ClusterAdmin(kafka.bootstrap_servers) as admin:
            admin.create_topics({TOPIC: 3})
        for number in range(given.rounds + 1):
            for name, drain in (("by hand", by_hand), ("relay", by_relay)):
                fill(engine, given.rows if number else 1000)  # the first round warms up
                began_at = time.monotonic()
                drain(engine, kafka.bootstrap_servers)
                took_s = time.monotonic() - began_at
                assert left(engine) == 0, left(engine)
                if number:
                    speeds[name].append(given.rows / took_s)
                    print(f"{name}: {given.rows / took_s:,.0f} rows/s ({took_s:.2f} s)", flush=True)
    ratios = [relay / hand for hand, relay in zip(speeds["by hand"], speeds["relay"], strict=True)]
    print(f"relay / by hand: median {statistics.median(ratios):.2f}, {min(ratios):.2f} to {max(ratios):.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
