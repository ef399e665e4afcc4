"""A query on Spark Connect with a server of its own, as an application of its own: rate-micro-batch into the sink.

    python -m tests.spark.rig.connect_query BOOTSTRAP TOPIC SINK_ID CHECKPOINT BATCHES [QUERY_ID]

It prints ``written N`` for each batch that the query has finished, and the error that ended it. After so many batches
it waits to be killed: whoever kills it then finds no batch half written.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable
from typing import Any

import tenacity
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from eos_client.integration.spark import EosKafkaSink
from tests.spark.rig.numbered_stream import COMPARED_ROWS, consecutive_numbers

POLL_S = 0.1
ROWS = 40
STARTS = 10
NOT_CONNECTED = "Python worker failed to connect back"
"""Spark gives the process of a query's function 10 s, which no setting changes; on a starved machine it needs more."""


def first_batches(sink: EosKafkaSink, batches: int) -> Callable[[DataFrame, int], None]:
    """The sink for so many batches: the next one is begun by Spark, and held back from the sink."""

    def write(frame: DataFrame, batch_id: int) -> None:
        logging.basicConfig(level=logging.INFO)  # this is a process of its own
        while batch_id >= batches:
            time.sleep(POLL_S)
        sink(frame, batch_id)

    return write


@tenacity.retry(
    retry=tenacity.retry_if_exception_message(match=NOT_CONNECTED),
    stop=tenacity.stop_after_attempt(STARTS),
    reraise=True,
)
def started(writer: DataStreamWriter) -> Any:
    """The query, started again where the process of its function did not connect back in time."""
    return writer.start()


def main(bootstrap: str, topic: str, sink_id: str, checkpoint: str, batches: str, query_id: str | None = None) -> None:
    """Run the query until it fails or this process is killed."""
    spark = (
        SparkSession.builder.remote("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config(map={**COMPARED_ROWS})
        .getOrCreate()
    )
    sink = EosKafkaSink(bootstrap, topic, sink_id=sink_id, slots=2, query_id=query_id)
    writer = consecutive_numbers(spark, ROWS).writeStream.foreachBatch(first_batches(sink, int(batches)))
    query = started(writer.option("checkpointLocation", checkpoint))
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
