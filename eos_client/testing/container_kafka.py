"""The broker of `embedded_kafka` in a container, from the official image or one with the same variables."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from eos_client.errors import EmbeddedKafkaError
from eos_client.testing.broker_settings import (
    CHEAP_JVM,
    DEFAULT_VERSION,
    HOST,
    BrokerListeners,
    as_environment,
    broker_settings,
    new_cluster_id,
    refuse_owned_properties,
)
from eos_client.testing.docker_engine import engine_errors, new_container
from eos_client.testing.free_ports import free_ports
from eos_client.testing.readiness import serve_groups, serves_clients

if TYPE_CHECKING:
    from collections.abc import Mapping

    from docker.models.containers import Container
    from testcontainers.core.container import DockerContainer
    from typing_extensions import Self

_INTERNAL_PORT, _CONTROLLER_PORT = 9_192, 9_193  # inside the container, below what free_ports chooses
_DATA = "/tmp/kraft-combined-logs"  # noqa: S108  inside the container
_ALL_INTERFACES = "0.0.0.0"  # noqa: S104  of the container; the engine forwards to one of them
_READY_POLL_S = 0.1
_PORT_TRIES_MAX = 3
_ERROR_LINES = 60
_PORT_TAKEN = ("port is already allocated", "address already in use")


class ContainerKafka:
    """One broker in a container, with the interface of `EmbeddedKafka`; every failure is an `EmbeddedKafkaError`.

    It listens on ``port`` of the engine's host (None: a free one) and advertises ``advertised_port`` to clients.
    """

    kind = "container"

    def __init__(
        self,
        *,
        version: str = DEFAULT_VERSION,
        properties: Mapping[str, str] | None = None,
        port: int | None = None,
        advertised_port: int | None = None,
        heap_mb: int = 512,
        start_timeout_s: float = 120.0,
    ) -> None:
        self.version = version
        self.image = ""
        self._properties = dict(properties or {})
        refuse_owned_properties(self._properties)
        self._port = port
        self._advertised_port = advertised_port
        self._heap_mb = heap_mb
        self._start_timeout_s = start_timeout_s
        self._cluster_id = new_cluster_id()
        self._listeners: BrokerListeners | None = None
        self._container: DockerContainer | None = None
        self._last_tail = ""

    @property
    def bootstrap_servers(self) -> str:
        """The address for clients, ``HOST:PORT``, with the advertised port."""
        listeners = self._started()[0]
        return f"{listeners.host}:{listeners.advertised}"

    @property
    def running(self) -> bool:
        """Whether the container runs."""
        if self._container is None:
            return False
        container: Container = self._container.get_wrapped_container()
        container.reload()
        return bool(container.status == "running")

    def start(self) -> Self:
        """Start the container; returns when its broker serves clients and groups. Pulls the image if it is missing."""
        if self._container is not None:
            raise EmbeddedKafkaError("the broker's container is started already: use restart(), or another instance")
        for tries_left in reversed(range(_PORT_TRIES_MAX)):
            self._container = new_container(self.version)
            self.image = self._container.image
            self._listeners = self._configure(self._container)
            try:
                with engine_errors(f"a container of {self.image} could not be started"):
                    self._container.start()
                    self._await_ready()
            except EmbeddedKafkaError as error:
                self._remove()
                if self._port is None and tries_left and any(text in str(error) for text in _PORT_TAKEN):
                    continue
                raise
            except BaseException:
                self._remove()
                raise
            break
        return self

    def stop(self, timeout_s: float = 10.0) -> None:
        """Stop the broker, by force after ``timeout_s``, and remove its container. Does nothing if stopped."""
        if self._container is None:
            return
        try:
            with engine_errors(f"the container of {self.image} could not be stopped"):
                if self.running:
                    self._started()[1].stop(timeout=round(timeout_s))
        finally:
            self._remove()

    def kill(self) -> None:
        """SIGKILL the broker; its data stay in the stopped container, for `restart`."""
        container = self._started()[1]
        with engine_errors(f"the container of {self.image} could not be killed"):
            if self.running:
                container.kill()
                container.wait()

    def restart(self, timeout_s: float = 10.0) -> None:
        """Start the broker again on the same port and data, after a clean shutdown if it still runs."""
        container = self._started()[1]
        with engine_errors(f"the container of {self.image} could not be restarted"):
            if self.running:
                container.stop(timeout=round(timeout_s))
            container.start()
            self._await_ready()

    def log_tail(self, lines: int = 40) -> str:
        """Return the last lines of the broker's log, also after `stop`."""
        if self._container is None:
            return "\n".join(self._last_tail.splitlines()[-lines:])
        return _log_tail(self._container, lines)

    def __enter__(self) -> Self:
        return self if self._container is not None else self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _started(self) -> tuple[BrokerListeners, Container]:
        if self._listeners is None or self._container is None:
            raise EmbeddedKafkaError("the broker's container is not started: call start() first")
        return self._listeners, self._container.get_wrapped_container()

    def _configure(self, container: DockerContainer) -> BrokerListeners:
        port = self._port or free_ports(1)[0]
        engine_host = container.get_docker_client().host()
        host = HOST if engine_host == "localhost" else engine_host
        listeners = BrokerListeners(
            port, _INTERNAL_PORT, _CONTROLLER_PORT, self._advertised_port or port, host, _ALL_INTERFACES
        )
        container.with_bind_ports(port, port)
        container.with_envs(
            CLUSTER_ID=self._cluster_id,
            KAFKA_HEAP_OPTS=f"-Xmx{self._heap_mb}m",
            KAFKA_JVM_PERFORMANCE_OPTS=" ".join(CHEAP_JVM),
            **as_environment(broker_settings(listeners, _DATA, self._properties)),
        )
        return listeners

    def _await_ready(self) -> None:
        listeners, _ = self._started()
        deadline = time.monotonic() + self._start_timeout_s
        address = (listeners.host, listeners.client)
        while not (serves_clients(*address, self._cluster_id) and serve_groups({listeners.node_id: address})):
            if not self.running:
                problem = "ended while starting"
            elif time.monotonic() > deadline:
                problem = f"was not ready after {self._start_timeout_s:g} s"
            else:
                time.sleep(_READY_POLL_S)
                continue
            raise EmbeddedKafkaError(
                f"Kafka {self.version} in a container of {self.image} {problem}. "
                f"The end of its log:\n{self.log_tail(_ERROR_LINES)}"
            )

    def _remove(self) -> None:
        """Remove the container, and close the connection to the engine."""
        container, self._container, self._listeners = self._container, None, None
        if container is None:
            return
        with engine_errors(f"the container of {self.image} could not be removed"):
            self._last_tail = _log_tail(container, _ERROR_LINES)
            container.stop()


def _log_tail(container: DockerContainer, lines: int) -> str:
    from testcontainers.core.exceptions import ContainerStartException  # noqa: PLC0415  an optional dependency

    try:
        logs: bytes = container.get_wrapped_container().logs(tail=lines)
    except ContainerStartException:
        return ""
    return logs.decode(errors="replace")
