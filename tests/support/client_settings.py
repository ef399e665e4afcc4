"""Settings of clients as keyword arguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_CALLBACKS = frozenset({"error_cb", "stats_cb", "throttle_cb", "on_commit", "on_delivery", "logger"})


def dotted(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Keyword arguments as librdkafka's properties; callbacks keep their names."""
    return {key if key in _CALLBACKS else key.replace("_", "."): value for key, value in settings.items()}
