"""``stable_input="stage"``: a batch is written down before it is used, so that a re-run finds the same rows.

The stage lies beside the checkpoint and is deleted with it. A batch counts as staged when Spark has committed it with
``_SUCCESS``; it is deleted once a later batch begins.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame

from eos_client.errors import ConfigurationError
from eos_client.integration.spark.settings import SinkSettings
from eos_client.integration.spark.spark_query import RunningQuery


class Stage:
    """The staged batches of one sink in one checkpoint."""

    def __init__(self, settings: SinkSettings, query: RunningQuery) -> None:
        root = settings.stage_dir or query.checkpoint
        if not query.classic or root is None:
            raise ConfigurationError(
                'stable_input="stage" needs classic Spark and a checkpoint (or stage_dir=...) to write to.'
            )
        self._root = f"{root.rstrip('/')}/eos-stage/{settings.sink_id}"

    def stable(self, frame: DataFrame, batch_id: int) -> DataFrame:
        """Return ``frame`` as it was first seen under ``batch_id``, from the stage."""
        path = f"{self._root}/{batch_id}"
        if not self._exists(frame, f"{path}/_SUCCESS"):
            frame.write.mode("overwrite").parquet(path)
        self._delete_others(frame, batch_id)
        return frame.sparkSession.read.schema(frame.schema).parquet(path)

    def _exists(self, frame: DataFrame, path: str) -> bool:
        file_system, at = _hadoop(frame, path)
        return bool(file_system.exists(at))

    def _delete_others(self, frame: DataFrame, batch_id: int) -> None:
        file_system, at = _hadoop(frame, self._root)
        for status in file_system.listStatus(at):
            if status.getPath().getName() != str(batch_id):
                file_system.delete(status.getPath(), True)


def _hadoop(frame: DataFrame, path: str) -> tuple[Any, Any]:
    """Return the Hadoop file system of ``path``, and the path as it wants it."""
    session: Any = frame.sparkSession
    at = session._jvm.org.apache.hadoop.fs.Path(path)  # noqa: SLF001  # PySpark has no file system of its own
    return at.getFileSystem(session._jsparkSession.sessionState().newHadoopConf()), at  # noqa: SLF001
