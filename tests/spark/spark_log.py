"""Spark's own log of a query, in its checkpoint: which batches were begun and committed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path


class SparkLog:
    """The logs ``offsets`` and ``commits``; an entry is named by its batch, its checksum beside it ``.<batch>.crc``."""

    def __init__(self, checkpoint: Path) -> None:
        self._checkpoint = checkpoint

    def last_commit(self) -> int:
        """The last batch that is committed."""
        return max(batch for _, batch in self._entries("commits"))

    def forget_commit(self, batch_id: int) -> None:
        """Delete the entry of the last batch, as if the driver had died before writing it.

        The next batch, which may have been begun in order to stop before it, is forgotten too.
        """
        for log, oldest in (("commits", batch_id), ("offsets", batch_id + 1)):
            for entry, batch in [*self._entries(log)]:
                if batch >= oldest:
                    entry.unlink()

    def _entries(self, log: str) -> Iterator[tuple[Path, int]]:
        for entry in (self._checkpoint / log).iterdir():
            number = entry.name.removeprefix(".").split(".")[0]
            if number.isdigit():
                yield entry, int(number)
