"""What ``auto.offset.reset`` asks for, and what of it the client library is told."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any

_RESET = "auto.offset.reset"


class ResetPolicy(Enum):
    """What ``auto.offset.reset`` asks for where the group has no offset. librdkafka takes three spellings of two."""

    EARLIEST = frozenset({"earliest", "beginning", "smallest"})
    LATEST = frozenset({"latest", "end", "largest"})
    ERROR = frozenset({"error"})

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> ResetPolicy:
        """Return the policy of ``settings``; what librdkafka does not know it has refused already."""
        wanted = str(settings[_RESET]).lower()
        return next((policy for policy in cls if wanted in policy.value), cls.ERROR)


def library_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``settings`` for the client library, which must never skip to the end of a log by itself."""
    if ResetPolicy.of(settings) is ResetPolicy.LATEST:
        return {**settings, _RESET: "earliest"}
    return dict(settings)
