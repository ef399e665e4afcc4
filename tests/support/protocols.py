"""The group protocols that tests run under, as librdkafka's settings name them."""

from __future__ import annotations

CONSUMER, EAGER, COOPERATIVE = "consumer", "range", "cooperative-sticky"
PROTOCOLS = (CONSUMER, EAGER, COOPERATIVE)
"""KIP-848, and the classic protocol under the assignors that make it eager and cooperative."""


def settings_of(protocol: str) -> dict[str, str]:
    """A consumer's settings for one of `PROTOCOLS`."""
    if protocol == CONSUMER:
        return {"group.protocol": "consumer"}
    return {"group.protocol": "classic", "partition.assignment.strategy": protocol}
