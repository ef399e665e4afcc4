"""The producer id and epoch of a handle, which librdkafka reports only in its statistics."""

from __future__ import annotations

from typing import Any


class ProducerIdentity:
    """``known`` is ``id/epoch`` as the last statistics told it, None before."""

    def __init__(self) -> None:
        self.known: str | None = None

    def hear(self, statistics: dict[str, Any]) -> None:
        """Take note of what is known by now."""
        told = statistics.get("eos", {})
        if told.get("producer_id", -1) >= 0:
            self.known = f"{told['producer_id']}/{told['producer_epoch']}"
