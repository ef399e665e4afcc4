"""The files of one embedded server; those that it made are removed with it."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from eos_client.errors import EmbeddedKafkaError

_LOG_TAIL_BYTES_MAX = 64 * 1024


class ServerDirectory:
    """A server's log, data and ``further`` files, in the caller's folder or in a temporary one.

    ``server`` is what messages call it, a broker for example.
    """

    def __init__(
        self, directory: Path | None, *, keep: bool, server: str, prefix: str, log: str, further: tuple[str, ...] = ()
    ) -> None:
        made = directory is None or not directory.exists()
        try:
            if directory is None:
                self.base = Path(tempfile.mkdtemp(prefix=prefix))
            else:
                directory.mkdir(parents=True, exist_ok=True)
                self.base = directory.absolute()
        except OSError as error:
            raise EmbeddedKafkaError(f"the {server}'s directory {directory} cannot be made: {error}") from error
        self.log = self.base / log
        self.data = self.base / "data"
        ours = [self.base] if made else [self.log, self.data, *(self.base / name for name in further)]
        self.removable: list[Path] = [] if keep else ours
        """What is removed with the server: only files that it made."""
        if not keep and not made and self.data.exists():
            raise EmbeddedKafkaError(
                f"{self.data} holds an earlier {server}'s data, which stop() would remove: "
                "pass keep_directory=True to use it, or another directory"
            )

    def log_tail(self, lines: int) -> str:
        """Return the last lines of the server's log; "" while there is none."""
        return "\n".join(self.log_from(-_LOG_TAIL_BYTES_MAX).splitlines()[-lines:])

    def log_has(self, text: str, *, since: int) -> bool:
        """Whether ``text`` is in the log after its first ``since`` bytes."""
        return text in self.log_from(since)

    def log_size_bytes(self) -> int:
        """Return the size of the log; 0 while there is none."""
        return self.log.stat().st_size if self.log.exists() else 0

    def log_from(self, start: int) -> str:
        """Return the log from a byte on, counted from its end if negative; "" while there is none."""
        try:
            with self.log.open("rb") as log:
                size = log.seek(0, os.SEEK_END)
                log.seek(start if start >= 0 else max(0, size + start))
                return log.read().decode(errors="replace")
        except FileNotFoundError:
            return ""

    def remove(self) -> None:
        """Remove the files that the server made."""
        for path in self.removable:
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
