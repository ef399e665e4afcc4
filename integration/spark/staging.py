"""``stable_input="stage"``: writes a batch down before it is used, so that a re-run reads the same rows.

The stage is beside the checkpoint and is deleted with it. Each attempt writes into a folder of its own, and a file
beside these folders names the chosen one. That file is created once; a second attempt uses the folder of the first.
Spark's own ``_SUCCESS`` file is no substitute: clusters switch it off, and a driver that was believed dead would
overwrite files that are being read.
"""

from __future__ import annotations

import uuid

from pyspark.sql import DataFrame

from eos_client.errors import ConfigurationError
from eos_client.integration.spark.checkpoint_folder import CheckpointFolder
from eos_client.integration.spark.spark_query import RunningQuery

_CHOICE = "CHOSEN"


class Stage:
    """The staged batches of one sink in one checkpoint."""

    def __init__(self, sink_id: str, query: RunningQuery, stage_dir: str | None) -> None:
        root = stage_dir or query.checkpoint
        if not query.classic or root is None:
            raise ConfigurationError(
                'stable_input="stage" needs classic Spark and a checkpoint (or stage_dir=...) to write to.'
            )
        self._root = f"{root.rstrip('/')}/eos-stage/{sink_id}"

    def stable(self, frame: DataFrame, batch_id: int) -> DataFrame:
        """Return ``frame`` as it was first seen under ``batch_id``, from the stage."""
        path = f"{self._root}/{batch_id}"
        batch = CheckpointFolder(frame.sparkSession, path)
        chosen = batch.line(_CHOICE)
        if not chosen:
            attempt = uuid.uuid4().hex
            frame.write.parquet(f"{path}/{attempt}")
            chosen = _choose(batch, attempt)
        batches = CheckpointFolder(frame.sparkSession, self._root)
        for name in batches.names():
            # Earlier ones only: an older driver at an earlier batch must not delete the current one.
            if name.isdigit() and int(name) < batch_id:
                batches.delete(name)
        return frame.sparkSession.read.schema(frame.schema).parquet(f"{path}/{chosen}")


def _choose(batch: CheckpointFolder, attempt: str) -> str:
    """Choose ``attempt`` for ``batch`` unless one was chosen; returns the chosen attempt."""
    is_interrupted = batch.line(_CHOICE) == ""
    try:
        batch.write(_CHOICE, attempt, replaces=is_interrupted)
    except Exception:
        if chosen := batch.line(_CHOICE):
            return chosen
        raise
    return attempt
