"""The last stable offsets of partitions as of their last fetch, which librdkafka reports only in its statistics."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from eos_client.core.model import InputPartition

_CALLBACK = "stats_cb"


class StableEnds:
    """Reads them from the statistics, if the application has them made, and passes the statistics on.

    ``get_watermark_offsets(cached=True)`` does not do: it gives the high watermark, also to a read_committed consumer.
    """

    def __init__(self, settings: dict[str, Any]) -> None:
        self._theirs: Callable[[str], Any] | None = settings.get(_CALLBACK)
        self._new: dict[InputPartition, int] | None = None

    def added_to(self, settings: dict[str, Any]) -> dict[str, Any]:
        """Return ``settings`` with this watch in them, where they ask for statistics."""
        return settings if str(settings.get("statistics.interval.ms", 0)) == "0" else {**settings, _CALLBACK: self}

    def __call__(self, text: str) -> None:
        """Take note of what the last fetches have told."""
        self._new = {
            InputPartition(topic, int(number)): partition["ls_offset"]
            for topic, known in json.loads(text).get("topics", {}).items()
            for number, partition in known["partitions"].items()
            if partition["ls_offset"] >= 0
        }
        if self._theirs is not None:
            self._theirs(text)

    def take(self) -> dict[InputPartition, int] | None:
        """Return what statistics have told since the last call; None where there were none."""
        new, self._new = self._new, None
        return new
