"""A Spark stream from topic to topic that writes each record once, whatever is killed, retried or started twice.

    python examples/spark_foreach_batch.py --bootstrap localhost:9092 --input invoices --output receipts \
        --checkpoint /var/lib/receipts

Both topics must exist. Kill it at any moment and start it again with the same checkpoint and sink id. Started by
python, it downloads Spark's Kafka connector the first time; spark-submit and PYSPARK_SUBMIT_ARGS bring their own.
"""

from __future__ import annotations

import argparse
import os
import sys

from eos_client.errors import EosError

try:
    from pyspark.errors import StreamingQueryException
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql import functions as F  # noqa: N812  Spark's own habit

    from eos_client.integration.spark import EosKafkaSink
    from eos_client.testing.spark_connector import connector_jars
except ImportError as missing:
    sys.exit(f"{missing.name} is missing: pip install 'eos-client[spark]'")


def session(name: str) -> SparkSession:
    """Spark with its Kafka connector, wherever --master, SPARK_HOME or spark-submit say that it runs."""
    builder = SparkSession.builder.appName(name).config("spark.ui.enabled", "false")
    # Over TCP, each small batch waits 40 ms for its rows.
    builder.config("spark.python.unix.domain.socket.enabled", "true")
    if not {"PYSPARK_GATEWAY_PORT", "PYSPARK_SUBMIT_ARGS"} & os.environ.keys():
        builder.config("spark.jars", ",".join(map(str, connector_jars(print))))
    return builder.getOrCreate()


def receipts(invoices: DataFrame) -> DataFrame:
    """One receipt for each invoice, with the invoice's key and headers and the place that it came from."""
    text = F.col("value").cast("string")
    fields = {name: F.get_json_object(text, f"$.{name}") for name in ("order_id", "gross", "currency")}
    body = F.struct(*(value.alias(name) for name, value in fields.items()), F.sha2("value", 256).alias("sha256"))
    place = [
        F.struct(F.lit(f"source.{name}").alias("key"), F.col(name).cast("string").cast("binary").alias("value"))
        for name in ("partition", "offset")
    ]
    headers = F.concat(F.coalesce("headers", F.array().cast("array<struct<key:string,value:binary>>")), F.array(*place))
    return invoices.select("key", F.to_json(body).alias("value"), headers.alias("headers"), "offset")


def main() -> int:
    """Run until stopped. A failed query ends it with status 1; starting it again is always safe."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--bootstrap", required=True, metavar="HOST:PORT")
    options.add_argument("--input", required=True, metavar="TOPIC")
    options.add_argument("--output", required=True, metavar="TOPIC")
    options.add_argument("--checkpoint", required=True, metavar="DIR", help="Spark's memory of what it has read")
    options.add_argument("--slots", type=int, default=4, metavar="N", help="transactions a batch; 1: a batch is atomic")
    options.add_argument("--sink-id", default="receipts", metavar="ID", help="who writes: one running stream for each")
    options.add_argument("--batch-records", type=int, default=100_000, metavar="N", help="most records of a batch")
    given = options.parse_args()

    try:
        sink = EosKafkaSink(given.bootstrap, given.output, sink_id=given.sink_id, slots=given.slots, order_by="offset")
        sink.check()
        source = session(given.sink_id).readStream.format("kafka").option("kafka.bootstrap.servers", given.bootstrap)
        source = source.option("subscribe", given.input).option("startingOffsets", "earliest")
        source = source.option("maxOffsetsPerTrigger", given.batch_records)
        source = source.option("includeHeaders", "true").option("kafka.isolation.level", "read_committed")
        stream = receipts(source.load()).writeStream.foreachBatch(sink)
        query = stream.option("checkpointLocation", given.checkpoint).start()
        try:
            query.awaitTermination()
        finally:
            query.stop()
            sink.close()
    except (EosError, StreamingQueryException) as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
