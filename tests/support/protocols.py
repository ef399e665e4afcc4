"""The group protocols that tests run under, as librdkafka's settings name them. Every list of them comes from here."""

from __future__ import annotations

CONSUMER, EAGER, COOPERATIVE = "consumer", "range", "cooperative-sticky"
PROTOCOLS = (CONSUMER, EAGER, COOPERATIVE)
"""KIP-848, and the classic protocol under the assignors that make it eager and cooperative."""
NAMES = {"kip848": CONSUMER, "cooperative": COOPERATIVE, "eager": EAGER}
"""As tables, command lines and test ids name them."""
BY_COORDINATOR = ("classic", "consumer")
"""Values of ``group.protocol``: a named subset without the cooperative assignor, whose requests are those of eager."""


def settings_of(protocol: str) -> dict[str, str]:
    """A consumer's settings for one of `PROTOCOLS`."""
    if protocol == CONSUMER:
        return {"group.protocol": "consumer"}
    return {"group.protocol": "classic", "partition.assignment.strategy": protocol}


def protocol_and_assignor(protocol: str) -> tuple[str, str]:
    """The same in two words; a KIP-848 member never asks for its assignor, librdkafka's default."""
    settings = settings_of(protocol)
    return settings["group.protocol"], settings.get("partition.assignment.strategy", EAGER)
