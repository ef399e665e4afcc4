"""Spark Structured Streaming into Kafka, each micro-batch exactly once (needs the extra ``spark``)."""

from eos_client.integration.spark.progress import SinkProgress
from eos_client.integration.spark.sink import EosKafkaSink

__all__ = ["EosKafkaSink", "SinkProgress"]
