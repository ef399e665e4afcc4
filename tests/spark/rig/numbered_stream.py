"""A stream of consecutive numbers, for any query, also one on Spark Connect.

It imports nothing of PySpark's workers: PySpark 4.3 refuses that in a driver, with ``SPARK_TESTING`` set.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

COMPARED_ROWS = {
    "spark.sql.shuffle.orderIndependentChecksum.enabled": "true",
    "spark.sql.shuffle.orderIndependentChecksum.enableFullRetryOnMismatch": "true",
}
"""What the sink sets by itself in a classic stream's own session, and what is the default from PySpark 4.2 on."""


def consecutive_numbers(spark: SparkSession, rows: int) -> DataFrame:
    """A stream of ``rows`` keyed numbers a micro-batch, from 0 on without a gap."""
    reader = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", rows)
    numbers = reader.option("numPartitions", 2).load()
    return numbers.selectExpr("concat('k', value % 7) as key", "cast(value as string) as value")
