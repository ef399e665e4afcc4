"""Rows per second into PostgreSQL: DatabaseLoop beside a loop by hand that protects nothing.

    python -m tests.benchmarks.database_rows [--url postgresql+psycopg://...] [--records 200000] [--rounds 3]

Both write each batch of 500 records by `executemany`, or by COPY, and commit every 0.1 s; the loop by hand commits its
offsets to Kafka afterwards, without waiting. Each turn is a process of its own with a new group and an empty table; a
turn's time runs from its first record to the commit of its last. The order alternates from round to round. Ratios are
of two turns in a row. Exit status: 0 when the median of each reaches the target.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from confluent_kafka import Consumer, Producer
from sqlalchemy import Connection, Engine, create_engine, text

from eos_client import EosConfig
from eos_client.integration.sql import DatabaseLoop
from eos_client.observe import TransactionCommitted
from eos_client.testing.embedded_kafka import EmbeddedKafka
from tests.verification.protocols import LATEST_VERSION
from tests.verification.tables import table
from tests.verification.topics import create_topics

TOPIC, PARTITIONS, BATCH, COMMIT_S, TARGET = "bench-rows", 4, 500, 0.1, 0.9
OFFSETS_TABLE = "bench_offsets"
WAYS = ("executemany", "copy")
CONTENDERS = ("by hand", "DatabaseLoop")


def insert(connection: Connection, records: Sequence[Any]) -> None:
    """Write rows by the driver's executemany."""
    rows = [(record.partition(), record.offset(), record.value().decode()) for record in records]
    connection.connection.cursor().executemany("INSERT INTO bench_rows (p, o, v) VALUES (%s, %s, %s)", rows)


def copy(connection: Connection, records: Sequence[Any]) -> None:
    """Write rows by COPY."""
    cursor: Any = connection.connection.cursor()
    with cursor.copy("COPY bench_rows (p, o, v) FROM STDIN") as rows:
        for record in records:
            rows.write_row((record.partition(), record.offset(), record.value().decode()))


WRITE: dict[str, Callable[[Connection, Sequence[Any]], None]] = {"executemany": insert, "copy": copy}


def by_hand(bootstrap: str, url: str, group: str, way: str, count: int) -> float:
    """Consume, insert, commit the rows, then the offsets: seconds for ``count`` records."""
    engine, written, began_at = create_engine(url), 0, 0.0
    consumer = Consumer({
        "bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False,
        "fetch.queue.backoff.ms": 10,  # as eos-client has it: the default lets a fast reader sleep for a second
    })  # fmt: skip
    consumer.subscribe([TOPIC])
    with engine.connect() as connection:
        commit_at = 0.0
        while written < count:
            records = consumer.consume(BATCH, 0.1)
            if records:
                began_at = began_at or time.perf_counter()
                WRITE[way](connection, records)
                written += len(records)
            if time.perf_counter() >= commit_at or written >= count:
                connection.connection.commit()  # SQLAlchemy has not seen that the driver's cursor began a transaction
                if written:
                    consumer.commit(asynchronous=True)
                commit_at = time.perf_counter() + COMMIT_S
        ended_at = time.perf_counter()
    consumer.close()
    return _checked(engine, count, ended_at - began_at)


def by_loop(bootstrap: str, url: str, group: str, way: str, count: int) -> float:
    """Do the same in a DatabaseLoop."""
    engine, times = create_engine(url), [0.0, 0.0]
    written = 0

    def handle(connection: Connection, records: list[Any]) -> None:
        nonlocal written
        times[0] = times[0] or time.perf_counter()
        WRITE[way](connection, records)
        written += len(records)
        if written >= count:
            loop.stop()

    def committed(event: object) -> None:
        if isinstance(event, TransactionCommitted):
            times[1] = time.perf_counter()

    config = EosConfig(
        {"bootstrap.servers": bootstrap}, group_id=group, consumer={"auto.offset.reset": "earliest"},
        commit_interval_s=COMMIT_S, batch_size=BATCH,
    )  # fmt: skip
    with DatabaseLoop(config, [TOPIC], handle, engine=engine, offsets_table=OFFSETS_TABLE, hook=committed) as loop:
        loop.run()
    return _checked(engine, count, times[1] - times[0])


def _checked(engine: Engine, count: int, took_s: float) -> float:
    """Return ``took_s`` if the rows were committed."""
    with engine.connect() as connection:
        found = connection.execute(text("SELECT count(*) FROM bench_rows")).scalar_one()
    if found < count:
        raise SystemExit(f"only {found} of {count} rows were committed")
    return took_s


def turn(arguments: argparse.Namespace, bootstrap: str, contender: str, way: str, number: int) -> float:
    """One process's records per second."""
    with create_engine(arguments.url).begin() as connection:
        connection.execute(text("TRUNCATE bench_rows"))
    program = [sys.executable, "-m", "tests.benchmarks.database_rows", "--url", arguments.url]
    program += ["--records", str(arguments.records), "--turn", bootstrap, contender, way, f"{contender}-{number}"]
    done = subprocess.run(program, check=True, capture_output=True, text=True, timeout=300)
    records: int = arguments.records
    return records / float(done.stdout.split()[-1])


def main(arguments: argparse.Namespace) -> int:
    """Run the turns and print the table."""
    with create_engine(arguments.url).begin() as connection:
        for name in ("bench_rows", OFFSETS_TABLE):
            connection.execute(text(f"DROP TABLE IF EXISTS {name}"))
        connection.execute(text("CREATE TABLE bench_rows (p INT, o BIGINT, v TEXT)"))
    found: dict[tuple[str, str], list[float]] = {}
    with EmbeddedKafka(version=LATEST_VERSION) as broker:
        create_topics(broker.bootstrap_servers, {TOPIC: PARTITIONS})
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 20})
        for number in range(arguments.records):
            producer.produce(TOPIC, b"v" * 100, partition=number % PARTITIONS)
            producer.poll(0)
        producer.flush()
        for number in range(arguments.rounds + 1):
            for way in WAYS:
                for contender in CONTENDERS if number % 2 else reversed(CONTENDERS):
                    rate = turn(arguments, broker.bootstrap_servers, contender, way, number)
                    if number:  # the first round warms up: files of the database, the page cache
                        found.setdefault((contender, way), []).append(rate)
    # Each ratio is of two turns that ran one after the other, with the same load beside them.
    ratios = {
        way: [loop / hand for hand, loop in zip(found["by hand", way], found["DatabaseLoop", way], strict=True)]
        for way in WAYS
    }
    rows = [
        [contender, way, f"{statistics.median(rates):,.0f}", f"{min(rates):,.0f} - {max(rates):,.0f}",
         "" if contender == "by hand" else
         f"{statistics.median(ratios[way]):.2f} ({min(ratios[way]):.2f} - {max(ratios[way]):.2f})"]
        for (contender, way), rates in sorted(found.items())
    ]  # fmt: skip
    print(table(("contender", "writes by", "rows/s", "min - max", f"ratio, median (target {TARGET})"), rows))
    return 0 if all(statistics.median(each) >= TARGET for each in ratios.values()) else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", default="postgresql+psycopg://postgres@127.0.0.1/postgres")
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--turn", nargs=4, default=None, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.turn is None:
        raise SystemExit(main(given))
    run = by_hand if given.turn[1] == "by hand" else by_loop
    print(run(given.turn[0], given.url, f"{given.turn[3]}-{given.turn[2]}", given.turn[2], given.records))
