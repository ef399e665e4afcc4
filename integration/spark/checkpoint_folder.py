"""A folder beside the checkpoint, in the checkpoint's own file system (classic Spark only)."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession


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
        stream = self._files.open(file)
        try:
            return str(stream.readLine() or "")
        finally:
            stream.close()

    def write(self, name: str, line: str, *, replaces: bool) -> None:
        """Write a file. Without ``replaces``, fails if a file of that name exists."""
        stream = self._files.create(self._path_of(self._at, name), replaces)
        try:
            stream.writeBytes(line)
        finally:
            stream.close()

    def delete(self, name: str) -> None:
        """Delete a file, or a folder with all that is in it."""
        self._files.delete(self._path_of(self._at, name), True)
