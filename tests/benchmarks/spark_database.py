"""Rows per second from Spark into PostgreSQL: EosDatabaseSink beside a foreachBatch function that protects nothing.

    python -m tests.benchmarks.spark_database [--rows 100000] [--batches 6] [--rounds 3] [--slots 2]

Both write the same micro-batches into an empty table by COPY with as many tasks, into a PostgreSQL that is started for
it; the function writes the partitions as the source gives them, each on a connection of its own, and knows nothing of
repeated tasks. Both turns of a round run in one Spark session, one after the other; the first batch of a turn is not
counted. A ratio is of the medians of all batches.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
from pyspark.sql import DataFrame
from sqlalchemy import create_engine, make_url, text

from eos_client.integration.spark import EosDatabaseSink
from eos_client.testing.embedded_postgres import EmbeddedPostgres
from tests.spark.local_query import run_query, spark_session
from tests.spark.rig.numbered_stream import consecutive_numbers
from tests.verification.tables import table

TABLE = "bench_rows"
PLAIN, OURS = "plain foreachBatch", "EosDatabaseSink"


def plain_task(batches: Iterator[pa.RecordBatch], dsn: str) -> Iterator[pa.RecordBatch]:
    """COPY one partition and commit it."""
    copying = f"COPY {TABLE} (key, value) FROM STDIN"
    with psycopg.connect(dsn) as connection, connection.cursor() as cursor, cursor.copy(copying) as rows:
        for batch in batches:
            for row in zip(batch.column("key").to_pylist(), batch.column("value").to_pylist(), strict=True):
                rows.write_row(row)
    yield pa.RecordBatch.from_arrays([pa.array([1], pa.int32())], names=["done"])


def plain(dsn: str) -> Callable[[DataFrame, int], None]:
    """The function of foreachBatch that protects nothing."""

    def write(frame: DataFrame, _: int) -> None:
        frame.mapInArrow(partial(plain_task, dsn=dsn), "done int").collect()

    return write


def timed(sink: Callable[[DataFrame, int], Any], seconds: list[float]) -> Callable[[DataFrame, int], None]:
    """``sink``, whose batches but the first are timed."""

    def write(frame: DataFrame, batch_id: int) -> None:
        began_at = time.perf_counter()
        sink(frame, batch_id)
        if batch_id:
            seconds.append(time.perf_counter() - began_at)

    return write


def main(arguments: argparse.Namespace) -> None:
    """Run the rounds and print the table."""
    spark = spark_session()
    found: dict[str, list[float]] = {PLAIN: [], OURS: []}
    with EmbeddedPostgres() as server, tempfile.TemporaryDirectory() as folder:
        engine = create_engine(server.url)
        dsn = make_url(server.url).set(drivername="postgresql").render_as_string(hide_password=False)
        with engine.begin() as connection:
            connection.execute(text(f"CREATE TABLE {TABLE} (key text, value text)"))
        for number in range(arguments.rounds):
            ours = EosDatabaseSink(server.url, TABLE, sink_id=f"bench-{number}", slots=arguments.slots, key="key")
            for name, sink in ((PLAIN, plain(dsn)), (OURS, ours)):
                with engine.begin() as connection:
                    connection.execute(text(f"TRUNCATE {TABLE}"))
                frame = consecutive_numbers(spark, arguments.rows)
                place = str(Path(folder) / f"{name}-{number}".replace(" ", "-"))
                failed = run_query(
                    spark, timed(sink, found[name]), frame, arguments.batches + 1, checkpointLocation=place
                )
                assert failed is None, failed
                with engine.connect() as connection:
                    count = connection.execute(text(f"SELECT count(*) FROM {TABLE}")).scalar()
                assert count == arguments.rows * (arguments.batches + 1)
            ours.close()
    spark.stop()
    rates = {name: [arguments.rows / each for each in seconds] for name, seconds in found.items()}
    medians = {name: statistics.median(each) for name, each in rates.items()}
    rows = [
        [name, f"{medians[name]:,.0f}", f"{min(each):,.0f} - {max(each):,.0f}", f"{medians[name] / medians[PLAIN]:.2f}"]
        for name, each in rates.items()
    ]
    print(table(("contender", "rows/s", "min - max", "ratio"), rows))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--batches", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--slots", type=int, default=2)
    main(parser.parse_args())
