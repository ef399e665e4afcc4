"""Chooses ports for brokers.

They are below the range from which the system takes the ports of outgoing connections: a client that keeps
reconnecting to a dead broker on a port of that range can get that port itself, connect to itself, and prevent
the restart of the broker.
"""

from __future__ import annotations

import random
import socket
from pathlib import Path

from eos_client.errors import EmbeddedKafkaError
from eos_client.testing.broker_settings import HOST

_LOWEST = 10_240
_HIGHEST = 32_767
_TRIES_MAX = 1_000
_EPHEMERAL_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


def free_ports(count: int) -> list[int]:
    """Return that many different ports that are free now; another process may take them at any time."""
    chosen: list[int] = []
    choice = random.SystemRandom()
    highest = _highest_below_ephemeral()
    for _ in range(_TRIES_MAX):
        port = choice.randint(_LOWEST, highest)
        if port not in chosen and is_free(port):
            chosen.append(port)
        if len(chosen) == count:
            return chosen
    raise EmbeddedKafkaError(
        f"no {count} free ports found between {_LOWEST} and {highest}: free some, or choose the port"
    )


def is_free(port: int) -> bool:
    """Whether a server can listen on ``port`` now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
            probe.listen(1)
        except OSError:
            return False
    return True


def _highest_below_ephemeral() -> int:
    try:
        lowest_ephemeral = int(_EPHEMERAL_RANGE.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return _HIGHEST
    return lowest_ephemeral - 1 if lowest_ephemeral > 2 * _LOWEST else _HIGHEST
