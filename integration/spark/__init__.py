"""Spark Structured Streaming into Kafka or a database, each micro-batch exactly once.

Needs the extra ``spark``, and ``sql`` for databases.
"""

import re
from typing import TYPE_CHECKING

import pyspark

from eos_client.errors import ConfigurationError
from eos_client.lazy_names import lazy_names

if TYPE_CHECKING:
    from eos_client.integration.spark.database_sink import EosDatabaseSink as EosDatabaseSink

_SPARK_FIRST, _SPARK_END = "4.1.1", "4.4"  # as the extra `spark` says in pyproject.toml


def check_spark(version: str = pyspark.__version__) -> None:
    """Raise ConfigurationError for a PySpark that the sink does not support."""
    if not _numbers(_SPARK_FIRST) <= _numbers(version) < _numbers(_SPARK_END):
        raise ConfigurationError(
            f"PySpark {version} is installed; the sink needs {_SPARK_FIRST} or later, and below {_SPARK_END}. Earlier "
            "ones (3.5, 4.0) can neither place a row in a given partition (repartitionById) nor notice that recomputed "
            "rows of a lost executor differ. Install 'eos-client[spark]' on a cluster of a supported version."
        )


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)[:3]]


check_spark()  # before anything is imported that earlier versions of PySpark lack

from eos_client.integration.spark.progress import SinkProgress  # noqa: E402
from eos_client.integration.spark.sink import EosKafkaSink  # noqa: E402

__all__ = ["EosDatabaseSink", "EosKafkaSink", "SinkProgress"]

if not TYPE_CHECKING:
    # It needs the extra `sql`, too.
    __getattr__, __dir__ = lazy_names(__name__, {"EosDatabaseSink": f"{__name__}.database_sink"})
