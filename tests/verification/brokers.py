"""Real brokers for verification runs: with short sessions, and where wanted behind the recording proxy."""

from __future__ import annotations

import contextlib
import socket
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from eos_client.testing.embedded_kafka import EmbeddedKafka
from tests.verification.protocols import broker_properties
from tests.verification.proxy import KafkaProxy


@dataclass(frozen=True, slots=True)
class RunningBroker:
    """Where a broker answers, keeps its data and writes its log; `proxy` stands on its advertised port, if any."""

    version: str
    bootstrap: str
    directory: Path
    log_path: Path
    proxy: KafkaProxy | None = None


@contextlib.contextmanager
def direct_broker(version: str) -> Iterator[RunningBroker]:
    """A broker of that version that clients reach directly."""
    with tempfile.TemporaryDirectory(prefix="verification-") as name:
        directory = Path(name)
        with EmbeddedKafka(version=version, properties=broker_properties(), directory=directory) as broker:
            yield RunningBroker(version, broker.bootstrap_servers, directory, broker.log_path)


@contextlib.contextmanager
def proxied_broker(version: str, *, added_rtt_s: float) -> Iterator[RunningBroker]:
    """A broker all of whose clients come through a recording proxy that adds `added_rtt_s` seconds a round trip."""
    port = _free_port()
    with tempfile.TemporaryDirectory(prefix="verification-") as name, KafkaProxy(port) as proxy:
        directory = Path(name)
        settings = broker_properties()
        with EmbeddedKafka(
            version=version, properties=settings, directory=directory, port=port, advertised_port=proxy.port
        ) as broker:
            proxy.reset(added_rtt_s=added_rtt_s)
            yield RunningBroker(version, broker.bootstrap_servers, directory, broker.log_path, proxy)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])
