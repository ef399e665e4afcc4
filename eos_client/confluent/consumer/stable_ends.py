"""The last stable offsets of partitions as of their last fetch, which librdkafka reports only in its statistics."""

from __future__ import annotations

from typing import Any

from eos_client.core.model import InputPartition


class StableEnds:
    """What the last statistics have told.

    ``get_watermark_offsets(cached=True)`` does not do: it gives the high watermark, also to a read_committed consumer.
    """

    def __init__(self) -> None:
        self._new: dict[InputPartition, int] | None = None

    def hear(self, statistics: dict[str, Any]) -> None:
        """Take note of what the last fetches have told."""
        self._new = {
            InputPartition(topic, int(number)): partition["ls_offset"]
            for topic, known in statistics.get("topics", {}).items()
            for number, partition in known["partitions"].items()
            if partition["ls_offset"] >= 0
        }

    def take(self) -> dict[InputPartition, int] | None:
        """Return what statistics have told since the last call; None where there were none."""
        new, self._new = self._new, None
        return new
