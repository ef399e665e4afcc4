"""A Spark stream from a topic into a table that writes each row once, whatever is killed, retried or started twice.

    python examples/spark_to_database.py --bootstrap localhost:9092 --input invoices \
        --database postgresql+psycopg://billing@localhost/billing --table invoices --checkpoint /var/lib/billing

    CREATE TABLE invoices (customer text, order_id text, gross numeric(12, 2), partition_id int, record_offset bigint)

Topic and table must exist; the table needs no unique constraint. Kill it at any moment and start it again with the same
checkpoint. Started by python, it downloads Spark's Kafka connector the first time.
"""

from __future__ import annotations

import argparse
import os
import sys

from eos_client.errors import EosError

try:
    from pyspark.errors import StreamingQueryException
    from pyspark.sql import DataFrame, SparkSession

    from eos_client.integration.spark import EosDatabaseSink
    from eos_client.testing.spark_connector import connector_jars
except ImportError as missing:
    sys.exit(f"{missing.name} is missing: pip install 'eos-client[spark,sql]'")


def session(name: str) -> SparkSession:
    """Spark with its Kafka connector, wherever --master, SPARK_HOME or spark-submit say that it runs."""
    builder = SparkSession.builder.appName(name).config("spark.ui.enabled", "false")
    if not {"PYSPARK_GATEWAY_PORT", "PYSPARK_SUBMIT_ARGS"} & os.environ.keys():
        builder.config("spark.jars", ",".join(map(str, connector_jars(print))))
    return builder.getOrCreate()


def rows(invoices: DataFrame) -> DataFrame:
    """One row for each invoice, with the place that it came from."""
    return invoices.selectExpr(
        "cast(key as string) as customer",
        "get_json_object(cast(value as string), '$.order_id') as order_id",
        "cast(get_json_object(cast(value as string), '$.gross') as decimal(12, 2)) as gross",
        "partition as partition_id",
        "offset as record_offset",
    )


def main() -> int:
    """Run until stopped. A failed query ends it with status 1; starting it again is always safe."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("bootstrap", "input", "database", "table", "checkpoint"):
        options.add_argument(f"--{name}", required=True)
    given = options.parse_args()

    try:
        sink = EosDatabaseSink(
            given.database, given.table, sink_id=given.table, key="customer", order_by="record_offset"
        )
        sink.check()
        source = session(given.table).readStream.format("kafka").option("kafka.bootstrap.servers", given.bootstrap)
        source = source.option("subscribe", given.input).option("startingOffsets", "earliest")
        source = source.option("maxOffsetsPerTrigger", 100_000).option("kafka.isolation.level", "read_committed")
        stream = rows(source.load()).writeStream.foreachBatch(sink)
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
