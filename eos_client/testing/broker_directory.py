"""The files of one embedded broker; those that it made are removed with it."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from eos_client.errors import EmbeddedKafkaError

_LOG_TAIL_BYTES_MAX = 64 * 1024


class BrokerDirectory:
    """A broker's log, properties, data and class archive, in the caller's folder or in a temporary one."""

    def __init__(self, directory: Path | None, *, keep: bool) -> None:
        made = directory is None or not directory.exists()
        try:
            if directory is None:
                self.base = Path(tempfile.mkdtemp(prefix="eos-client-kafka-"))
            else:
                directory.mkdir(parents=True, exist_ok=True)
                self.base = directory.absolute()
        except OSError as error:
            raise EmbeddedKafkaError(f"the broker's directory {directory} cannot be made: {error}") from error
        self.log = self.base / "broker.log"
        self.properties = self.base / "server.properties"
        self.data = self.base / "data"
        self.classes = self.base / "classes.jsa"
        ours = [self.base] if made else [self.log, self.properties, self.data, self.classes]
        self.removable: list[Path] = [] if keep else ours
        """What is removed with the broker: only files that it made."""
        if not keep and not made and self.data.exists():
            raise EmbeddedKafkaError(
                f"{self.data} holds an earlier broker's data, which stop() would remove: "
                "pass keep_directory=True to use it, or another directory"
            )

    @property
    def cluster_id(self) -> str | None:
        """The id of the cluster that formatted the directory; None before that."""
        try:
            lines = (self.data / "meta.properties").read_text().splitlines()
        except FileNotFoundError:
            return None
        return next((line.split("=", 1)[1] for line in lines if line.startswith("cluster.id=")), None)

    def log_tail(self, lines: int) -> str:
        """Return the last lines of the broker's log; "" while there is none."""
        return "\n".join(self._log_from(-_LOG_TAIL_BYTES_MAX).splitlines()[-lines:])

    def log_errors(self, lines: int) -> str:
        """Return the first lines of the log that report an error; after a long shutdown they are not in its tail."""
        found = [line for line in self._log_from(0).splitlines() if " ERROR " in line or "Exception: " in line]
        return "\n".join(found[:lines])

    def log_has(self, text: str, *, since: int) -> bool:
        """Whether ``text`` is in the log after its first ``since`` bytes."""
        return text in self._log_from(since)

    def _log_from(self, start: int) -> str:
        """Return the log from a byte on, counted from its end if negative; "" while there is none."""
        try:
            with self.log.open("rb") as log:
                size = log.seek(0, os.SEEK_END)
                log.seek(start if start >= 0 else max(0, size + start))
                return log.read().decode(errors="replace")
        except FileNotFoundError:
            return ""

    def remove(self) -> None:
        """Remove the files that the broker made."""
        for path in self.removable:
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
