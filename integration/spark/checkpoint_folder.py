"""Files beside the checkpoint, in its own file system (classic Spark only), among them the records of each run.

Those are needed once the ledger has expired. Each run writes a file named by its number, and the highest number counts:
a file that an older driver still writes changes nothing. The file is created before the run writes its first slot; it
has a next batch only once the run was closed with a whole batch.
"""

from __future__ import annotations

from contextlib import closing
from typing import Any

from pyspark.sql import SparkSession

from eos_client.core.batch_ledger_start import RunRecord, decode_record


class CheckpointFolder:
    """Small files by name, each written in one go. Raises what the JVM's file system raises."""

    def __init__(self, session: SparkSession, path: str) -> None:
        inside: Any = session
        self._path_of = inside._jvm.org.apache.hadoop.fs.Path  # noqa: SLF001  # PySpark has no file system of its own
        self._at = self._path_of(path)
        self._files = self._at.getFileSystem(inside._jsparkSession.sessionState().newHadoopConf())  # noqa: SLF001

    def names(self) -> list[str]:
        """Return what is in the folder; nothing where there is none."""
        if not self._files.exists(self._at):
            return []
        return [str(status.getPath().getName()) for status in self._files.listStatus(self._at)]

    def line(self, name: str) -> str | None:
        """Return the line in a file; None where there is no such file, empty where writing it was interrupted."""
        file = self._path_of(self._at, name)
        if not self._files.exists(file):
            return None
        with closing(self._files.open(file)) as stream:
            return str(stream.readLine() or "")

    def write(self, name: str, line: str, *, replaces: bool) -> None:
        """Write a file. Without ``replaces``, fails if a file of that name exists."""
        with closing(self._files.create(self._path_of(self._at, name), replaces)) as stream:
            stream.writeBytes(line)

    def delete(self, name: str) -> None:
        """Delete a file, or a folder with all that is in it."""
        self._files.delete(self._path_of(self._at, name), True)


class RunRecords:
    """The records of one sink in one checkpoint; those of one cluster, as a sink_id may be used on two."""

    def __init__(self, session: SparkSession, checkpoint: str, sink_id: str, cluster_id: str) -> None:
        self._folder = CheckpointFolder(session, f"{checkpoint.rstrip('/')}/eos-ledger/{sink_id}/{cluster_id}")

    def last(self) -> RunRecord | None:
        """Return the record of the last run, of whatever query; None before the first one."""
        run = max(self._runs(), default=None)
        return None if run is None else decode_record(run, self._folder.line(str(run)) or "")

    def write(self, record: RunRecord) -> None:
        """Write the record of a run, replacing its earlier one, and delete those of earlier runs."""
        self._folder.write(str(record.run), record.encode(), replaces=True)
        for run in self._runs():
            if run < record.run:
                self._folder.delete(str(run))

    def _runs(self) -> list[int]:
        return [int(name) for name in self._folder.names() if name.isdigit()]
