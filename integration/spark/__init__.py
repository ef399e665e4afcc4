"""Spark Structured Streaming into Kafka, each micro-batch exactly once (needs the extra ``spark``)."""

import pyspark

from eos_client.errors import ConfigurationError

_SPARK_MIN, _SPARK_END = (4, 1), (5, 0)


def check_spark(version: str = pyspark.__version__) -> None:
    """Raise ConfigurationError for a PySpark that the sink does not support."""
    known = tuple(int(part) for part in version.split(".")[:2])
    if not _SPARK_MIN <= known < _SPARK_END:
        raise ConfigurationError(
            f"PySpark {version} is installed; the sink needs 4.1 or later, and below 5. Earlier ones (3.5, 4.0) can "
            "neither place a row in a given partition (repartitionById) nor notice that recomputed rows of a lost "
            "executor differ. Install 'eos-client[spark]' on a cluster of a supported version."
        )


check_spark()  # before anything is imported that earlier versions of PySpark lack

from eos_client.integration.spark.progress import SinkProgress  # noqa: E402
from eos_client.integration.spark.sink import EosKafkaSink  # noqa: E402

__all__ = ["EosKafkaSink", "SinkProgress"]
