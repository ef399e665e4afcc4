"""A query on Spark Connect with a server of its own, as an application of its own: rate-micro-batch into the sink.

    python -m tests.spark.rig.connect_query BOOTSTRAP TOPIC SINK_ID CHECKPOINT BATCHES [QUERY_ID]

It prints ``written N`` for each batch that the query has finished, and the error that ended it. After so many batches
it waits to be killed: whoever kills it then finds no batch half written.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from pyspark.sql import DataFrame, SparkSession

from eos_client.integration.spark import EosKafkaSink
from tests.spark.local_stage import consecutive_numbers

POLL_S = 0.1
ROWS = 40


def first_batches(sink: EosKafkaSink, batches: int) -> Callable[[DataFrame, int], None]:
    """The sink for so many batches: the next one is begun by Spark, and held back from the sink."""

    def write(frame: DataFrame, batch_id: int) -> None:
        while batch_id >= batches:
            time.sleep(POLL_S)
        sink(frame, batch_id)

    return write


def main(bootstrap: str, topic: str, sink_id: str, checkpoint: str, batches: str, query_id: str | None = None) -> None:
    """Run the query until it fails or this process is killed."""
    spark = (
        SparkSession.builder.remote("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .getOrCreate()
    )
    sink = EosKafkaSink(bootstrap, topic, sink_id=sink_id, slots=2, query_id=query_id)
    writer = consecutive_numbers(spark, ROWS).writeStream.foreachBatch(first_batches(sink, int(batches)))
    query = writer.option("checkpointLocation", checkpoint).start()
    said = -1
    while (error := query.exception()) is None:
        latest = query.lastProgress
        if latest is not None and latest["batchId"] > said:
            said = latest["batchId"]
            print(f"written {said}", flush=True)
        time.sleep(POLL_S)
    print(error, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
