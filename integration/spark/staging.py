"""``stable_input="stage"``: a batch is written down before it is used, so that a re-run finds the same rows.

The stage lies beside the checkpoint and is deleted with it. Each attempt writes into a folder of its own, and a file
beside it names the one that counts: it is made once, whoever comes second uses what the first has written. Spark's own
``_SUCCESS`` does not do: clusters switch it off, and a driver that was thought dead would overwrite what is being read.
"""

from __future__ import annotations

import uuid
from typing import Any

from pyspark.sql import DataFrame

from eos_client.errors import ConfigurationError
from eos_client.integration.spark.settings import SinkSettings
from eos_client.integration.spark.spark_query import RunningQuery

_CHOICE = "CHOSEN"


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
        batch = f"{self._root}/{batch_id}"
        chosen = _chosen(frame, batch)
        if not chosen:
            attempt = uuid.uuid4().hex
            frame.write.parquet(f"{batch}/{attempt}")
            chosen = _choose(frame, batch, attempt)
        self._delete_older(frame, batch_id)
        return frame.sparkSession.read.schema(frame.schema).parquet(f"{batch}/{chosen}")

    def _delete_older(self, frame: DataFrame, batch_id: int) -> None:
        """Delete the batches before: a driver left behind at one of them must not delete the one at work."""
        file_system, at = _hadoop(frame, self._root)
        for status in file_system.listStatus(at):
            name = status.getPath().getName()
            if name.isdigit() and int(name) < batch_id:
                file_system.delete(status.getPath(), True)


def _chosen(frame: DataFrame, batch: str) -> str:
    """Return the attempt that counts for ``batch``; empty where there is none, or its choice was broken off."""
    file_system, at = _hadoop(frame, f"{batch}/{_CHOICE}")
    if not file_system.exists(at):
        return ""
    stream = file_system.open(at)
    try:
        return str(stream.readLine() or "")
    finally:
        stream.close()


def _choose(frame: DataFrame, batch: str, attempt: str) -> str:
    """Let ``attempt`` count for ``batch`` unless another one does already; returns the one that does."""
    file_system, at = _hadoop(frame, f"{batch}/{_CHOICE}")
    is_broken_off = file_system.exists(at) and not _chosen(frame, batch)
    try:
        stream = file_system.create(at, is_broken_off)
    except Exception:
        if chosen := _chosen(frame, batch):
            return chosen
        raise
    stream.writeBytes(attempt)
    stream.close()
    return attempt


def _hadoop(frame: DataFrame, path: str) -> tuple[Any, Any]:
    """Return the Hadoop file system of ``path``, and the path as it wants it."""
    session: Any = frame.sparkSession
    at = session._jvm.org.apache.hadoop.fs.Path(path)  # noqa: SLF001  # PySpark has no file system of its own
    return at.getFileSystem(session._jsparkSession.sessionState().newHadoopConf()), at  # noqa: SLF001
