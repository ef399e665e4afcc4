"""Records of each run beside the checkpoint, which are needed once the ledger has expired.

Each run writes a file named by its number, and the highest number counts: a file that an older driver still writes
changes nothing. The file is created before the run writes its first slot; it has a next batch only once the run was
closed with a whole batch.
"""

from __future__ import annotations

from pyspark.sql import SparkSession

from eos_client.core.batch_ledger_start import RunRecord, decode_record
from eos_client.integration.spark.checkpoint_folder import CheckpointFolder
from eos_client.integration.spark.settings import SinkSettings


class RunRecords:
    """The records of one sink in one checkpoint; those of one cluster, as a sink_id may be used on two."""

    def __init__(self, session: SparkSession, checkpoint: str, settings: SinkSettings, cluster_id: str) -> None:
        self._folder = CheckpointFolder(session, f"{checkpoint.rstrip('/')}/eos-ledger/{settings.sink_id}/{cluster_id}")

    def last(self) -> RunRecord | None:
        """Return the record of the last run, of whatever query; None before the first one."""
        run = max(self._runs(), default=None)
        return None if run is None else decode_record(run, self._folder.line(str(run)) or "")

    def leave(self, record: RunRecord) -> None:
        """Leave the record of a run, in place of the one that it has left before, and delete those of earlier runs."""
        self._folder.write(str(record.run), record.encode(), replaces=True)
        for run in self._runs():
            if run < record.run:
                self._folder.delete(str(run))

    def _runs(self) -> list[int]:
        return [int(name) for name in self._folder.names() if name.isdigit()]
