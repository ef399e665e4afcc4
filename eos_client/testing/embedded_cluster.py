"""Several brokers of one cluster as child processes, for tests in which a coordinator moves or dies.

Every broker is an `EmbeddedKafka`, and also a controller, so that each of them may be killed, shut down and restarted
while the others run.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor, as_completed, wait
from typing import TYPE_CHECKING

from eos_client.errors import EmbeddedKafkaError
from eos_client.testing.broker_settings import (
    DEFAULT_VERSION,
    HOST,
    BrokerListeners,
    ClusterSeat,
    new_cluster_id,
    refuse_owned_properties,
    replication_properties,
)
from eos_client.testing.embedded_kafka import PORT_TRIES_MAX, EmbeddedKafka, PortTakenError
from eos_client.testing.free_ports import free_ports
from eos_client.testing.readiness import serve_groups

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from typing_extensions import Self

_PORTS_EACH = 3
_END_POLL_S = 0.1
_READY_POLL_S = 0.05


class EmbeddedKafkaCluster:
    """Brokers with the node ids 1, 2, ..., started by `start` or by entering the context.

    All topics, also those of offsets and transactions, have three replicas and accept writes while two are in sync.
    Other brokers lead a dead broker's partitions within a few seconds. ``properties`` override that. ``version``,
    ``heap_mb`` of each broker, ``start_timeout_s`` and ``on_progress`` are those of `EmbeddedKafka`; every failure is
    an `EmbeddedKafkaError`. The brokers end with this process, even if it is killed, and their files are removed.
    """

    kind = "process"

    def __init__(
        self,
        *,
        brokers: int = 3,
        version: str = DEFAULT_VERSION,
        properties: Mapping[str, str] | None = None,
        heap_mb: int = 384,
        start_timeout_s: float = 120.0,
        on_progress: Callable[[str], None] | None = None,
    ) -> None:
        if brokers < 1:
            raise EmbeddedKafkaError(f"brokers={brokers} is no cluster: use one or more, preferably an odd number")
        self.version = version
        self._size = brokers
        self._properties = {**replication_properties(brokers), **(properties or {})}
        refuse_owned_properties(self._properties)
        self._heap_mb = heap_mb
        self._start_timeout_s = start_timeout_s
        self._on_progress = on_progress
        self._brokers: dict[int, EmbeddedKafka] = {}
        self._last_tail = ""

    @property
    def brokers(self) -> Mapping[int, EmbeddedKafka]:
        """The brokers by node id: `kill`, `shut_down` and `restart` them one by one, but leave `stop` to the cluster.

        The cluster works only while a majority of them runs.
        """
        if not self._brokers:
            raise EmbeddedKafkaError("the embedded cluster is not started: call start() first")
        return dict(self._brokers)

    @property
    def bootstrap_servers(self) -> str:
        """The address for clients: every broker's ``127.0.0.1:PORT``, whether it runs or not."""
        return ",".join(broker.bootstrap_servers for broker in self.brokers.values())

    @property
    def running(self) -> bool:
        """Whether all brokers run."""
        return bool(self._brokers) and all(broker.running for broker in self._brokers.values())

    def start(self) -> Self:
        """Start all brokers at the same time; returns when every one of them serves clients, and all groups."""
        if self._brokers:
            raise EmbeddedKafkaError("the embedded cluster is started already: use another instance")
        for tries_left in reversed(range(PORT_TRIES_MAX)):
            brokers = self._seated_brokers()
            try:
                _start_together(list(brokers.values()))
            except PortTakenError:
                if not tries_left:
                    raise
            else:
                self._brokers = brokers
                break
        self._await_groups()
        return self

    def stop(self) -> None:
        """Kill all brokers and remove their data. Does nothing if stopped."""
        self._last_tail = self.log_tail() if self._brokers else self._last_tail
        brokers, self._brokers = self._brokers, {}
        for broker in brokers.values():
            broker.stop(timeout_s=0)

    def log_tail(self, lines: int = 40) -> str:
        """Return the last lines of every broker's log, below the broker's name; also after `stop`."""
        if not self._brokers:
            return self._last_tail
        tails = (f"-- broker {number}\n{broker.log_tail(lines)}" for number, broker in self._brokers.items())
        return "\n".join(tails)

    def __enter__(self) -> Self:
        return self if self._brokers else self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _await_groups(self) -> None:
        deadline = time.monotonic() + self._start_timeout_s
        addresses = {number: (HOST, broker.port) for number, broker in self._brokers.items()}
        while not serve_groups(addresses):
            if time.monotonic() > deadline:
                self.stop()
                raise EmbeddedKafkaError(
                    f"the brokers of Kafka {self.version} run, but no group had a coordinator after "
                    f"{self._start_timeout_s:g} s: check the broker properties. The end of their logs:\n"
                    f"{self.log_tail()}"
                )
            time.sleep(_READY_POLL_S)

    def _seated_brokers(self) -> dict[int, EmbeddedKafka]:
        """Return all brokers, each with the ports of all controllers."""
        cluster_id, ports = new_cluster_id(), iter(free_ports(_PORTS_EACH * self._size))
        chosen = {number: (next(ports), next(ports), next(ports)) for number in range(1, self._size + 1)}
        voters = {number: controller for number, (_, _, controller) in chosen.items()}
        return {
            number: EmbeddedKafka(
                version=self.version,
                properties=self._properties,
                heap_mb=self._heap_mb,
                start_timeout_s=self._start_timeout_s,
                on_progress=self._on_progress,
                seat=ClusterSeat(
                    cluster_id,
                    BrokerListeners(client, internal, controller, client, node_id=number, voters=voters),
                ),
            )
            for number, (client, internal, controller) in chosen.items()
        }


def _start_together(brokers: list[EmbeddedKafka]) -> None:
    """Start them in threads, because none is ready before most are; afterwards all of them run, or none."""
    with ThreadPoolExecutor(len(brokers), thread_name_prefix="eos-kafka-start") as starters:
        started = [starters.submit(broker.start) for broker in brokers]
        try:
            for each in as_completed(started):
                each.result()
        except BaseException:
            while wait(started, _END_POLL_S).not_done:  # without the failed one the others are never ready
                for broker in brokers:
                    broker.shut_down(timeout_s=0)
            for broker in brokers:
                broker.stop(timeout_s=0)
            raise
