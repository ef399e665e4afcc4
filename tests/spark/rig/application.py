"""The Spark program of the rig, a process of its own: numbers in, keyed records out, stopped after `batches`.

    python -m tests.spark.rig.application SETTINGS_JSON LABEL

It appends one line for each finished micro-batch to `progress-LABEL.jsonl`. Exit status 0: all batches are done;
1: the query failed, and `failure-LABEL.txt` says how.
"""

from __future__ import annotations

import json
import random
import sys
import time
import traceback
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession, functions

from tests.spark.rig.settings import StreamSettings
from tests.spark.rig.sinks import BatchSink, chosen_sink

ENOUGH = "the rig has seen enough batches"


class EnoughBatchesError(Exception):
    """All batches are done: raised before the next one is written, so that it is nobody's."""


class CountedBatches:
    """The function of foreachBatch: the sink, with a note of each batch when it is done."""

    def __init__(self, sink: BatchSink, settings: StreamSettings, progress: Path) -> None:
        self._sink = sink
        self._settings = settings
        self._progress = progress

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        if batch_id >= self._settings.batches_wanted():
            raise EnoughBatchesError(ENOUGH)
        began_s = time.time()
        self._sink(frame, batch_id)
        line = {"batch_id": batch_id, "began_s": began_s, "ended_s": time.time()}
        with self._progress.open("a") as progress:
            progress.write(json.dumps(line) + "\n")


def session(settings: StreamSettings) -> SparkSession:
    """Spark that stays on this machine and leaves nothing outside the run's directory."""
    from eos_client.testing.spark_connector import connector_jars  # noqa: PLC0415  slow, and only needed here
    from tests.spark.rig.class_archive import java_options  # noqa: PLC0415  likewise

    (settings.directory / "spark").mkdir(exist_ok=True)
    options = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "768m",
        "spark.executor.memory": "512m",
        "spark.executor.cores": "2",
        "spark.local.dir": str(settings.directory / "spark"),
        "spark.sql.warehouse.dir": str(settings.directory / "spark" / "warehouse"),
        "spark.worker.cleanup.enabled": "true",
        "spark.jars": ",".join(map(str, connector_jars())),
        "spark.sql.shuffle.partitions": str(settings.shuffle_partitions),
        "spark.sql.adaptive.enabled": str(settings.adaptive).lower(),
        "spark.sql.adaptive.streaming.stateless.enabled": str(settings.adaptive).lower(),
        "spark.task.maxFailures": "4",
        "spark.sql.streaming.metricsEnabled": "false",
        "spark.driver.extraJavaOptions": java_options(),
        "spark.executor.extraJavaOptions": java_options(),
    }
    builder = SparkSession.builder.master(settings.master).appName(settings.sink_id)
    for name, value in {**options, **settings.spark}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("WARN")
    return spark


def numbers(spark: SparkSession, settings: StreamSettings) -> DataFrame:
    """Contiguous numbers as `value`, the same ones for each batch id at each start, each with its key."""
    frame = (
        spark.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", settings.rows_per_batch)
        .option("numPartitions", settings.source_partitions)
        .load()
    )
    if settings.repartition is not None:
        frame = frame.repartition(settings.repartition)
    number = functions.col("value")
    chosen = _random_number(settings.keys) if settings.random_keys else number % settings.keys
    return frame.select(
        functions.concat(functions.lit("k"), chosen.cast("string")).alias("key"),
        number.cast("string").alias("value"),
        number.alias("number"),
    )


def _random_number(below: int) -> Column:
    """Another number each time that Spark makes a row, unlike `rand()`, which repeats itself within a run."""
    drawn = functions.udf(lambda: random.SystemRandom().randrange(below), "int")
    return drawn.asNondeterministic()()


def run(settings: StreamSettings, label: str) -> None:
    """Until all batches are done; raises what ended the query otherwise."""
    spark = session(settings)
    counted = CountedBatches(chosen_sink(settings), settings, settings.directory / f"progress-{label}.jsonl")
    writer = numbers(spark, settings).writeStream.foreachBatch(counted)
    writer = writer.option("checkpointLocation", str(settings.checkpoint)).trigger(
        processingTime=f"{settings.pace_s} seconds"
    )
    query = writer.start()
    try:
        query.awaitTermination()
    except Exception as error:
        if ENOUGH not in str(error):
            raise
    spark.stop()


def main(text: str, label: str) -> int:
    settings = StreamSettings.from_json(text)
    try:
        run(settings, label)
    except Exception:  # noqa: BLE001  whatever it is, the test wants to read it
        (settings.directory / f"failure-{label}.txt").write_text(traceback.format_exc())
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
