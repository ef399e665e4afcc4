"""Rows a second of a relay, against a hand-written loop without any protection, in one run.

    python -m tests.databases.outbox_speed [--database postgresql+psycopg://...] [--rows 60000] [--rounds 5]

The hand-written loop reads rows by id, produces them without a transaction, flushes, and deletes them. Both run already
when one transaction commits all rows, and are timed until they have deleted the last one. They take turns, and each
ratio is of two turns in a row. Exit status: 0 when the median of the ratios reaches the target.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import threading
import time
from contextlib import ExitStack
from typing import Any

from confluent_kafka import Producer
from sqlalchemy import Engine, MetaData, create_engine, delete, func, insert, inspect, select, text

from eos_client import EosConfig
from eos_client.confluent.admin.cluster_admin import ClusterAdmin
from eos_client.integration.sql import OutboxRelay, outbox_table
from eos_client.testing.embedded_kafka import EmbeddedKafka
from eos_client.testing.embedded_postgres import EmbeddedPostgres
from tests.verification.protocols import LATEST_VERSION

METADATA = MetaData()
OUTBOX = outbox_table("outbox_speed", METADATA)
TOPIC, BATCH, BUCKETS, TARGET = "speed-out", 1000, 8, 0.9
WARMING, LIMIT_S = 1000, 600.0


def fill(engine: Engine, rows: int) -> None:
    made = [{"record_key": b"key-%d" % (n % 997), "record_value": b"v" * 200} for n in range(rows)]
    with engine.begin() as connection:
        for begin in range(0, rows, 5000):
            connection.execute(insert(OUTBOX), made[begin : begin + 5000])


def left(engine: Engine) -> int:
    with engine.connect() as connection:
        return int(connection.execute(select(func.count()).select_from(OUTBOX)).scalar_one())


class ByHand:
    """The loop by hand, in a thread."""

    def __init__(self, engine: Engine, bootstrap: str) -> None:
        self._engine = engine
        self._producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
        self._is_stopping = False
        self.deleted = 0
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        while not self._is_stopping:
            if not self._relay():
                time.sleep(0.02)

    def _relay(self) -> bool:
        with self._engine.begin() as connection:
            rows: Any = connection.execute(select(OUTBOX).order_by(OUTBOX.c.id).limit(BATCH)).all()
            for row in rows:
                self._producer.produce(row.topic or TOPIC, row.record_value, row.record_key)
            self._producer.flush()
            if rows:
                connection.execute(delete(OUTBOX).where(OUTBOX.c.id.in_([row.id for row in rows])))
        self.deleted += len(rows)
        return bool(rows)

    def stop(self) -> None:
        self._is_stopping = True
        self.thread.join()


class ByRelay:
    """The relay, in a thread. How many rows it has deleted stands in its table of buckets."""

    def __init__(self, engine: Engine, bootstrap: str) -> None:
        config = EosConfig({"bootstrap.servers": bootstrap}, group_id="outbox-speed")
        self._engine = engine
        self._relay = OutboxRelay(
            engine, OUTBOX, config, buckets=BUCKETS, default_topic=TOPIC, poll_interval_s=0.02, hook=lambda _: None
        )
        self.thread = threading.Thread(target=self._relay.run)
        self.thread.start()
        while not inspect(engine).has_table(f"{OUTBOX.name}_buckets"):
            time.sleep(0.01)
        self._before = self._published()

    def _published(self) -> int:
        with self._engine.connect() as connection:
            return int(
                connection.execute(text(f"SELECT coalesce(sum(published), 0) FROM {OUTBOX.name}_buckets")).scalar_one()
            )

    @property
    def deleted(self) -> int:
        return self._published() - self._before

    def stop(self) -> None:
        self._relay.stop()
        self.thread.join()


def wait_for(contender: ByHand | ByRelay, deleted: int) -> None:
    deadline = time.monotonic() + LIMIT_S
    while contender.deleted < deleted:
        if time.monotonic() > deadline or not contender.thread.is_alive():
            raise SystemExit(f"only {contender.deleted} of {deleted} rows were relayed")
        time.sleep(0.01)


def rows_per_second(make: type[ByHand | ByRelay], engine: Engine, bootstrap: str, rows: int) -> float:
    contender = make(engine, bootstrap)
    try:
        fill(engine, WARMING)
        wait_for(contender, WARMING)
        fill(engine, rows)
        began_at = time.monotonic()
        wait_for(contender, WARMING + rows)
        took_s = time.monotonic() - began_at
    finally:
        contender.stop()
    assert left(engine) == 0, left(engine)
    print(f"{make.__name__}: {rows / took_s:,.0f} rows/s ({took_s:.2f} s)", flush=True)
    return rows / took_s


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--database", default=None)
    parser.add_argument("--rows", type=int, default=60_000)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    with ExitStack() as stack:
        url = given.database or stack.enter_context(EmbeddedPostgres()).url
        kafka = stack.enter_context(EmbeddedKafka(version=LATEST_VERSION))
        return compare(create_engine(url), kafka.bootstrap_servers, given.rows, given.rounds)


def compare(engine: Engine, bootstrap: str, rows: int, rounds: int) -> int:
    with engine.begin() as connection:
        for name in (f"{OUTBOX.name}_buckets", OUTBOX.name):
            connection.execute(text(f"DROP TABLE IF EXISTS {name}"))
    METADATA.create_all(engine)
    with ClusterAdmin(bootstrap) as admin:
        admin.create_topics({TOPIC: 3})
    ratios: list[float] = []
    for number in range(rounds):
        order = (ByHand, ByRelay) if number % 2 else (ByRelay, ByHand)
        speeds = {make: rows_per_second(make, engine, bootstrap, rows) for make in order}
        ratios.append(speeds[ByRelay] / speeds[ByHand])
    median = statistics.median(ratios)
    print(f"relay / by hand: median {median:.2f}, {min(ratios):.2f} to {max(ratios):.2f} (target {TARGET})")
    return 0 if median >= TARGET else 1


if __name__ == "__main__":
    sys.exit(main())
