"""What the producers that a Python worker keeps between batches cost it, and what they save a batch.

    python -m tests.benchmarks.spark_kept_clients [--slots 40] [--kept 0 4 8 40] [--batches 30] [--rounds 2]

One Spark (`local[2]`) and one broker. A query of keyed rows of 100 bytes is run for each number of producers kept, in
turns; its first batches do not count. Of each Python worker the threads and the connections to brokers are counted
whenever a task begins, so between two slots; the table has the most that one worker had. The time of a batch is
Spark's `triggerExecution`.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from eos_client.integration.spark import EosKafkaSink
from eos_client.observe import SparkBatchWritten
from eos_client.testing.embedded_kafka import EmbeddedKafka
from tests.benchmarks.spark_sink import PARTITIONS, Bench, Case, first_batches, frame, session
from tests.benchmarks.worker_load import Load, LoadClock, loads
from tests.verification.tables import table
from tests.verification.topics import create_topics, delete_topics

CORES = 2
WARM_UP_BATCHES = 5
ROWS = 4_000


@dataclass
class Found:
    """What the queries with one number of kept producers have shown."""

    batch_s: list[float] = field(default_factory=list)
    started: list[int] = field(default_factory=list)
    loads: list[Load] = field(default_factory=list)


def run(bench: Bench, slots: int, kept: int, batches: int, found: Found) -> None:
    """Run one query, and note its batches in `found`."""
    topic = f"kept-{time.time_ns()}"
    create_topics(bench.bootstrap, {topic: PARTITIONS})
    notes = bench.directory / "loads" / topic
    notes.mkdir(parents=True)
    events: list[Any] = []
    seen: dict[str, Any] = {"hook": events.append, "on_step": LoadClock(str(notes))}
    sink = EosKafkaSink(bench.bootstrap, topic, sink_id=topic, slots=slots, kept_producers=kept, **seen)
    writer = frame(bench, Case(ROWS)).writeStream.option("checkpointLocation", str(bench.directory / topic))
    query = writer.foreachBatch(sink).start()
    try:
        taken = first_batches(query, WARM_UP_BATCHES + batches)
    finally:
        query.stop()
        sink.close()
    delete_topics(bench.bootstrap, [topic])
    found.batch_s += [batch.trigger_s for batch in taken[WARM_UP_BATCHES:]]
    written = [event for event in events if isinstance(event, SparkBatchWritten)]
    found.started += [event.handles_started for event in written if event.batch_id >= WARM_UP_BATCHES]
    found.loads += loads(notes)


def main(arguments: list[str]) -> int:
    """Run the queries and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--slots", type=int, default=40)
    parser.add_argument("--kept", type=int, nargs="+", default=[0, 4, 8, 40], help="producers that a worker keeps")
    parser.add_argument("--batches", type=int, default=30, help="measured micro-batches of each query")
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args(arguments)
    measured: dict[int, Found] = defaultdict(Found)
    with tempfile.TemporaryDirectory(prefix="spark-bench-") as name, EmbeddedKafka(heap_mb=1024) as broker:
        bench = Bench(session(Path(name), []), broker, Path(name))
        for number in range(options.rounds):
            for kept in options.kept:
                run(bench, options.slots, kept, options.batches, measured[kept])
                print(f"{number + 1}: {kept} kept: {statistics.median(measured[kept].batch_s):.3f} s", flush=True)
        bench.spark.stop()
    rows = [
        [
            kept,
            max(load.threads for load in found.loads),
            max(load.connections for load in found.loads),
            f"{statistics.median(found.started):.0f}",
            f"{statistics.median(found.batch_s):.2f}",
            f"{min(found.batch_s):.2f} - {max(found.batch_s):.2f}",
        ]
        for kept, found in measured.items()
    ]
    print(f"\nlocal[{CORES}], {options.slots} slots, {ROWS:,} rows a batch, {options.rounds} rounds")
    print(table(("kept", "threads", "connections", "started a batch", "median s", "min - max"), rows))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
