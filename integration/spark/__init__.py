"""Spark Structured Streaming into Kafka, each micro-batch exactly once (needs the extra ``spark``)."""

from eos_client.integration.spark.spark_version import check_spark

check_spark()  # before anything is imported that earlier versions of PySpark lack

from eos_client.integration.spark.progress import SinkProgress  # noqa: E402
from eos_client.integration.spark.sink import EosKafkaSink  # noqa: E402

__all__ = ["EosKafkaSink", "SinkProgress"]
