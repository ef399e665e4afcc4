"""The producer id and epoch of a handle, which librdkafka reports only in its statistics."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

_CALLBACK = "stats_cb"


class IdentityWatch:
    """Reads ``id/epoch`` from the statistics, if the application has them made, and passes them on."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.known: str | None = None
        self._theirs: Callable[[str], Any] | None = settings.get(_CALLBACK)

    def added_to(self, settings: dict[str, Any]) -> dict[str, Any]:
        """Return ``settings`` with this watch in them, where they ask for statistics."""
        return settings if str(settings.get("statistics.interval.ms", 0)) == "0" else {**settings, _CALLBACK: self}

    def __call__(self, text: str) -> None:
        """Take note of what is known by now."""
        eos = json.loads(text).get("eos", {})
        if eos.get("producer_id", -1) >= 0:
            self.known = f"{eos['producer_id']}/{eos['producer_epoch']}"
        if self._theirs is not None:
            self._theirs(text)
