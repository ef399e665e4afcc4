"""Real brokers for verification runs: with short sessions, and where wanted behind the recording proxy."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from eos_client.testing.embedded_cluster import EmbeddedKafkaCluster
from eos_client.testing.embedded_kafka import EmbeddedKafka
from eos_client.testing.free_ports import free_ports
from tests.verification.protocols import LONG_SESSION_S, broker_properties
from tests.verification.proxy import KafkaProxy

PATIENT_PROPERTIES: Mapping[str, str] = broker_properties(LONG_SESSION_S)
"""For runs in which members leave and none is killed: no session ends because a client had to wait for its turn."""


@dataclass(frozen=True, slots=True)
class RunningBroker:
    """Where a broker answers, keeps its data and writes its log; `proxy` stands on its advertised port, if any.

    `others` are the other brokers of its `cluster`; `bootstrap` has the addresses of all then.
    """

    version: str
    bootstrap: str
    directory: Path
    log_path: Path
    proxy: KafkaProxy | None = None
    log_start: int = 0
    others: tuple[RunningBroker, ...] = ()
    cluster: EmbeddedKafkaCluster | None = None

    def from_now_on(self) -> RunningBroker:
        """The same broker with what it writes into its log from now on: what it wrote before is of other runs."""
        others = tuple(other.from_now_on() for other in self.others)
        return replace(self, log_start=self.log_path.stat().st_size, others=others)

    @property
    def directories(self) -> tuple[Path, ...]:
        """Where the brokers of its cluster keep their data."""
        return (self.directory, *(other.directory for other in self.others))

    def log_lines(self) -> list[str]:
        """What the brokers of its cluster have written into their logs since then."""
        with self.log_path.open("rb") as log:
            log.seek(self.log_start)
            lines = log.read().decode(errors="replace").splitlines()
        return lines + [line for other in self.others for line in other.log_lines()]


@contextlib.contextmanager
def direct_broker(version: str) -> Iterator[RunningBroker]:
    """A broker of that version that clients reach directly."""
    with tempfile.TemporaryDirectory(prefix="verification-") as name:
        directory = Path(name)
        with EmbeddedKafka(version=version, properties=broker_properties(), directory=directory) as broker:
            yield RunningBroker(version, broker.bootstrap_servers, directory, broker.log_path)


@contextlib.contextmanager
def proxied_broker(
    version: str, *, added_rtt_s: float, properties: Mapping[str, str] = PATIENT_PROPERTIES
) -> Iterator[RunningBroker]:
    """A broker all of whose clients come through a recording proxy that adds `added_rtt_s` seconds a round trip."""
    (port,) = free_ports(1)
    with tempfile.TemporaryDirectory(prefix="verification-") as name, KafkaProxy(port) as proxy:
        directory = Path(name)
        with EmbeddedKafka(
            version=version,
            properties=properties,
            directory=directory,
            port=port,
            advertised_port=proxy.port,
        ) as broker:
            proxy.reset(added_rtt_s=added_rtt_s)
            yield RunningBroker(version, broker.bootstrap_servers, directory, broker.log_path, proxy)


@contextlib.contextmanager
def replicated_broker(version: str) -> Iterator[RunningBroker]:
    """The first broker of a cluster of three, with short sessions; leaders stay where they are put."""
    properties = {**broker_properties(), "auto.leader.rebalance.enable": "false"}
    with EmbeddedKafkaCluster(version=version, properties=properties) as cluster:
        bootstrap = cluster.bootstrap_servers
        first, *others = [
            RunningBroker(version, bootstrap, broker.log_path.parent, broker.log_path)
            for broker in cluster.brokers.values()
        ]
        yield replace(first, others=tuple(others), cluster=cluster)
