"""Spark's own Kafka sink against EosKafkaSink: the same frame, in turns, on one Spark and one broker.

    python -m tests.benchmarks.spark_sink [--rounds 10] [--batches 12] [--warm-up 300] [--conf NAME=VALUE ...]

A round is a query of each sink over each case, in turns; rounds are short, because a shared machine changes its pace.
A micro-batch's time is Spark's own `triggerExecution`, the time behind the throughput that it reports for a query
(`processedRowsPerSecond`). What it does around `addBatch`, the part in which rows are made and written, takes as long
for either sink and moves the ratio towards 1; that of `addBatch` alone is printed beside it. Streams run for days,
so the JVM is warm when the first round begins: by then each sink has written batches that do not count, most of them
small, because what plans a job runs once a batch, and the JVM compiles it only after a thousand. Status 1 if ours
has less throughput at 100,000 rows a batch, or adds more than 0.1 s to 1,000. Numbers are the cheapest frame there is;
what a pipeline sees is in the third case: a topic of JSON, parsed and changed. Where all processors are busy, the CPU
of a batch, by process, says what the ratio can become; beside the two sinks stand, for 100,000 numbers, the steps
before a record is produced, written nowhere. `--conf` sets what Spark is started with.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  Spark's own habit
from pyspark.sql.streaming.query import StreamingQuery

from eos_client.confluent.admin.topic_records import TopicLoader
from eos_client.integration.spark import EosKafkaSink
from eos_client.testing.embedded_kafka import EmbeddedKafka
from eos_client.testing.spark_connector import connector_jars
from tests.benchmarks.nowhere import STEPS, Nowhere
from tests.benchmarks.process_cpu import PARTS, cpu_seconds
from tests.benchmarks.step_clock import DriverClock, StepClock
from tests.verification.tables import table
from tests.verification.topics import create_topics, delete_topics

OF_PLAIN_MIN, ADDED_MAX_S = 1.0, 0.1
PARTITIONS = SOURCE_PARTITIONS = 4
SLOTS = 2  # as many as cores: each slot is a task, and tasks that wait for a core add their start to the batch
WARM_UP_BATCHES = 2
SMALL_WARM_UP = 5  # times as many small batches as large ones
ROUND_TIMEOUT_S = 900.0
PLAIN, EOS = "Spark's own Kafka sink", "EosKafkaSink"
TASK_STEPS = ("start", "initialised", "ledger_read", "begun", "produced", "flushed", "offsets_sent", "committed")
DRIVER_STEPS = ("called", "job_done", "marker_committed", "returned")


@dataclass(frozen=True)
class Case:
    """What both sinks write: so many rows a batch, made from numbers or read from a topic of invoices."""

    rows: int
    invoices: bool = False

    @property
    def name(self) -> str:
        return f"{self.rows:,} {'invoices' if self.invoices else 'numbers'}"


LARGE, SMALL, PIPELINE = Case(100_000), Case(1_000), Case(100_000, invoices=True)
CASES = (LARGE, SMALL, PIPELINE)
INVOICES = "invoices"
INVOICE_WARM_UP = 24


@dataclass(frozen=True)
class Bench:
    """Where all of it happens."""

    spark: SparkSession
    broker: EmbeddedKafka
    directory: Path

    @property
    def bootstrap(self) -> str:
        return self.broker.bootstrap_servers


@dataclass(frozen=True)
class TimedSink:
    """The sink, with a note of when foreachBatch called it and when it was done."""

    sink: EosKafkaSink
    clock: StepClock

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        self.clock("called", -1, batch_id)
        self.sink(batch, batch_id)
        self.clock("returned", -1, batch_id)


def session(directory: Path, conf: Iterable[str]) -> SparkSession:
    """Spark in this process, local[2]."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").appName("spark-sink-benchmark")
    options = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.local.dir": str(directory / "spark"),
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        "spark.jars": ",".join(map(str, connector_jars(print))),
        "spark.sql.shuffle.partitions": str(SOURCE_PARTITIONS),
        "spark.sql.streaming.numRecentProgressUpdates": "10000",  # a turn is read at its end
    }
    for name, value in [*options.items(), *(each.split("=", 1) for each in conf)]:
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


def load_invoices(bootstrap: str, batches: int) -> None:
    """A topic of JSON, enough for so many batches."""
    create_topics(bootstrap, {INVOICES: PARTITIONS})
    with TopicLoader(bootstrap, INVOICES, {"linger.ms": 50}) as loader:
        for number in range(batches * PIPELINE.rows):
            body = {"order_id": number, "gross": f"{number % 9973}.90", "currency": "EUR", "note": "paid in advance"}
            loader.load(json.dumps(body).encode(), key=b"%d" % (number % 5003), partition=number % PARTITIONS)


def frame(bench: Bench, case: Case) -> DataFrame:
    """Keyed rows of some 100 bytes."""
    stream = bench.spark.readStream
    if case.invoices:
        source = stream.format("kafka").option("kafka.bootstrap.servers", bench.bootstrap).option("subscribe", INVOICES)
        source = source.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", case.rows)
        text = F.col("value").cast("string")
        fields = [F.get_json_object(text, f"$.{name}").alias(name) for name in ("order_id", "gross", "currency")]
        return source.load().select("key", F.to_json(F.struct(*fields, F.md5("value").alias("md5"))).alias("value"))
    number = F.col("value").cast("string")
    numbers = stream.format("rate-micro-batch").option("rowsPerBatch", case.rows)
    numbers = numbers.option("numPartitions", SOURCE_PARTITIONS)
    return numbers.load().select(number.alias("key"), F.rpad(number, 100, ".").alias("value"))


@dataclass(frozen=True)
class Batch:
    """Spark's own figures for a micro-batch: the whole of it, and the part in which rows are made and written."""

    trigger_s: float
    add_s: float


@dataclass(frozen=True)
class Turn:
    """The micro-batches of one query, without its first ones; the CPU milliseconds of a batch, the start included."""

    batches: list[Batch]
    cpu_ms: dict[str, float]


def turn(name: str, bench: Bench, case: Case, batches: int, steps: Path) -> Turn:
    """Run one query to so many batches."""
    topic = f"bench-{time.time_ns()}"
    bootstrap = bench.bootstrap
    create_topics(bootstrap, {topic: PARTITIONS})
    writer = frame(bench, case).writeStream.option("checkpointLocation", str(bench.directory / topic))
    sink = None
    if name == PLAIN:
        writer = writer.format("kafka").option("kafka.bootstrap.servers", bootstrap).option("topic", topic)
    elif name in STEPS:
        writer = writer.foreachBatch(Nowhere(name, SLOTS))
    else:
        (steps / topic).mkdir(parents=True)
        clock = StepClock(str(steps / topic))
        sink = EosKafkaSink(
            bootstrap,
            topic,
            sink_id=topic,
            slots=SLOTS,
            hook=lambda _event: None,
            on_step=clock,
            on_driver_step=DriverClock(clock),
        )
        writer = writer.foreachBatch(TimedSink(sink, clock))
    before_s = cpu_seconds(bench.broker.pid)
    query = writer.start()
    try:
        found = first_batches(query, WARM_UP_BATCHES + batches)
        after_s = cpu_seconds(bench.broker.pid)
    finally:
        query.stop()
        if sink is not None:
            sink.close()
    delete_topics(bootstrap, [topic])
    return Turn(found[WARM_UP_BATCHES:], {part: (after_s[part] - before_s[part]) / len(found) * 1000 for part in PARTS})


def first_batches(query: StreamingQuery, count: int) -> list[Batch]:
    """The first `count` batches of a query, once they are done."""
    deadline_s = time.monotonic() + ROUND_TIMEOUT_S
    # Looked at rarely, and whole only once: each look costs this process, which is also the driver, round trips to it.
    while (latest := query.lastProgress) is None or latest["batchId"] < count - 1:
        if (error := query.exception()) is not None:
            raise error
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"{count} batches were not done in {ROUND_TIMEOUT_S} s")
        time.sleep(0.25)
    found = {each["batchId"]: each["durationMs"] for each in query.recentProgress}
    taken_ms = [found[batch_id] for batch_id in range(count)]
    return [Batch(each["triggerExecution"] / 1000, each["addBatch"] / 1000) for each in taken_ms]


def step_medians(directory: Path) -> list[tuple[str, float]]:
    """How long after the step before it each step was taken: milliseconds, medians over slots and batches."""
    at: dict[tuple[str, int, int], dict[str, float]] = defaultdict(dict)
    for file in directory.glob("*/*.jsonl"):
        for step, slot, batch_id, taken_s in map(json.loads, file.read_text().splitlines()):
            if batch_id >= WARM_UP_BATCHES:
                at[file.parent.name, slot, batch_id].setdefault(step, taken_s)
                if step == "produced":  # its last one: the whole slot was handed over
                    at[file.parent.name, slot, batch_id][step] = taken_s
    of_tasks = [taken for (_, slot, _), taken in at.items() if slot >= 0]
    of_driver = [taken for (_, slot, _), taken in at.items() if slot < 0]
    waits = [
        ("driver: called -> first slot's start (plan, shuffle)", lags(at, min, first="called", then="start")),
        ("first slot's start -> last slot's commit", spans(at)),
        *((f"  slot: -> {step}", gaps(of_tasks, TASK_STEPS[n], step)) for n, step in enumerate(TASK_STEPS[1:])),
        ("driver: last slot's commit -> job_done", lags(at, max, first="committed", then="job_done")),
        ("driver: -> marker_committed", gaps(of_driver, "job_done", "marker_committed")),
        ("whole call", gaps(of_driver, "called", "returned")),
    ]
    return [(name, statistics.median(values) * 1000) for name, values in waits if values]


def gaps(steps: Iterable[dict[str, float]], first: str, then: str) -> list[float]:
    return [taken[then] - taken[first] for taken in steps if first in taken and then in taken]


def lags(
    at: dict[tuple[str, int, int], dict[str, float]], choose: Callable[[list[float]], float], *, first: str, then: str
) -> list[float]:
    """From a driver's step to a slot's or back, where `choose` says which slot of a batch it is."""
    slot_step, driver_step = (then, first) if first in DRIVER_STEPS else (first, then)
    found = []
    for (query, slot, batch_id), driver in at.items():
        if slot < 0 and driver_step in driver:
            slots = [at.get((query, n, batch_id), {}).get(slot_step) for n in range(SLOTS)]
            taken = [each for each in slots if each is not None]
            if taken:
                found.append(abs(choose(taken) - driver[driver_step]))
    return found


def spans(at: dict[tuple[str, int, int], dict[str, float]]) -> list[float]:
    """From the first slot's start to the last one's commit, for each batch."""
    starts: dict[tuple[str, int], list[float]] = defaultdict(list)
    commits: dict[tuple[str, int], list[float]] = defaultdict(list)
    for (query, slot, batch_id), taken in at.items():
        if slot >= 0 and "start" in taken and "committed" in taken:
            starts[query, batch_id].append(taken["start"])
            commits[query, batch_id].append(taken["committed"])
    return [max(commits[batch]) - min(starts[batch]) for batch in starts]


def of_spark(medians_s: dict[tuple[str, Case], float]) -> dict[Case, float]:
    """How much of the throughput of Spark's own sink ours has."""
    return {case: medians_s[PLAIN, case] / medians_s[EOS, case] for case in CASES}


def print_cpu(turns: dict[tuple[str, Case], list[Turn]]) -> None:
    """Print who used how much CPU for a batch."""
    rows = []
    for (name, case), found in turns.items():
        each = [statistics.median(one.cpu_ms[part] for one in found) for part in PARTS]
        rows.append([f"{name}, {case.name}", *(f"{ms:.0f}" for ms in each), f"{sum(each):.0f}"])
    print("\nCPU of a batch in ms, medians of the rounds")
    print(table(("sink and batch", *PARTS, "sum"), rows))


def report(turns: dict[tuple[str, Case], list[Turn]], directory: Path) -> bool:
    """Print the tables; whether both targets are reached."""
    measured = {key: [each for one in found for each in one.batches] for key, found in turns.items()}
    whole_s = {key: [each.trigger_s for each in batches] for key, batches in measured.items()}
    medians_s = {key: statistics.median(each) for key, each in whole_s.items()}
    adds_s = {key: statistics.median(each.add_s for each in batches) for key, batches in measured.items()}
    rows = [
        [
            f"{name}, {case.name}",
            len(each),
            f"{medians_s[name, case]:.3f}",
            f"{min(each):.3f} - {max(each):.3f}",
            f"{case.rows / medians_s[name, case]:,.0f}",
            f"{adds_s[name, case]:.3f}",
        ]
        for (name, case), each in whole_s.items()
    ]
    print(table(("sink and batch", "batches", "median s", "min - max", "rows/s", "addBatch s"), rows))
    print_cpu(turns)
    for case in CASES:
        print(f"\nEosKafkaSink, {case.name}: each step after the one before it")
        print(table(("step", "median ms"), [[name, f"{ms:.1f}"] for name, ms in step_medians(directory / case.name)]))
    of_plain, of_add = of_spark(medians_s), of_spark(adds_s)
    added_s = medians_s[EOS, SMALL] - medians_s[PLAIN, SMALL]
    print("\nthroughput of Spark's own sink reached:")
    for case in (LARGE, PIPELINE):
        print(f"  {case.name}: {of_plain[case]:.2f}  (at least {OF_PLAIN_MIN}; by addBatch alone {of_add[case]:.2f})")
    print(f"{SMALL.name}: added to a batch: {added_s:.3f} s  (at most {ADDED_MAX_S})")
    return min(of_plain[LARGE], of_plain[PIPELINE]) >= OF_PLAIN_MIN and added_s <= ADDED_MAX_S


def contenders(case: Case, number: int) -> tuple[str, ...]:
    """What is measured in a round, in an order that changes from round to round."""
    both = (PLAIN, EOS) if number % 2 == 0 else (EOS, PLAIN)
    return (*both, *STEPS) if case is LARGE else both


def warm_up_of(name: str, case: Case, options: argparse.Namespace) -> int:
    """How many batches come before the rounds: few where the topic ends, or a sink has warmed it up."""
    if name in STEPS:
        return int(options.warm_up // 5)
    if case.invoices:
        return int(min(options.warm_up, INVOICE_WARM_UP))
    return int(options.warm_up * (SMALL_WARM_UP if case is SMALL else 1))


def main(arguments: list[str]) -> int:
    """Run the rounds and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--batches", type=int, default=12, help="measured micro-batches of each query")
    warm_up_help = f"large batches of each sink before the rounds, and {SMALL_WARM_UP} times as many small ones"
    parser.add_argument("--warm-up", type=int, default=300, help=warm_up_help)
    parser.add_argument("--conf", action="append", default=[], metavar="NAME=VALUE", help="a setting of the session")
    options = parser.parse_args(arguments)
    measured: dict[tuple[str, Case], list[Turn]] = defaultdict(list)
    with tempfile.TemporaryDirectory(prefix="spark-bench-") as name:
        directory = Path(name)
        with EmbeddedKafka(heap_mb=1024) as broker:
            load_invoices(broker.bootstrap_servers, WARM_UP_BATCHES + max(INVOICE_WARM_UP, options.batches))
            bench = Bench(session(directory, options.conf), broker, directory)
            for case in CASES:
                for sink in contenders(case, 0):
                    turn(sink, bench, case, warm_up_of(sink, case, options), directory / "warm-up" / case.name)
            for number in range(options.rounds):
                for case in CASES:
                    for sink in contenders(case, number):
                        found = turn(sink, bench, case, options.batches, directory / case.name)
                        measured[sink, case].append(found)
                        median_s = statistics.median(each.trigger_s for each in found.batches)
                        print(f"{number + 1}: {sink}, {case.name}: {median_s:.3f} s", flush=True)
            bench.spark.stop()
        shape = f"local[2], {PARTITIONS} partitions, {SLOTS} slots, keyed rows of 100 bytes, {options.rounds} rounds"
        print(f"\n{shape}", *options.conf)
        return 0 if report(measured, directory) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
