"""Accepts settings as confluent_kafka's constructors do: a dict, keywords, or both, where keywords win."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def merged_settings(client: str, config: Mapping[str, Any] | None, keywords: Mapping[str, Any]) -> dict[str, Any]:
    """Merge both; raises TypeError when there is neither, as confluent_kafka does."""
    if config is None and not keywords:
        raise TypeError(f"expected configuration dict: {client}() was given neither a dict nor keywords")
    if config is not None and not isinstance(config, Mapping):
        raise TypeError(f"expected configuration dict: {client}() was given a {type(config).__name__}")
    return {**(config or {}), **keywords}
