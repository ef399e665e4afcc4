"""A real Kafka broker as a child process: one KRaft node for development and tests, ready in seconds.

The jars are in the user's cache (`kafka_jars`). The process ends with its parent, even if that is killed, and its files
are removed (`process_keeper`).
"""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING, NamedTuple

from eos_client.errors import EmbeddedKafkaError
from eos_client.testing.broker_directory import BrokerDirectory
from eos_client.testing.broker_java import BrokerJava
from eos_client.testing.broker_settings import (
    DEFAULT_VERSION,
    HOST,
    BrokerListeners,
    ClusterSeat,
    as_properties_file,
    broker_settings,
    login_properties,
    new_cluster_id,
    refuse_owned_properties,
)
from eos_client.testing.broker_storage import KeptFormat
from eos_client.testing.free_ports import free_ports, is_free
from eos_client.testing.java_runtime import find_java
from eos_client.testing.kafka_jars import kafka_jars
from eos_client.testing.kept_process import KeptProcess, require_posix
from eos_client.testing.readiness import serve_groups, serves_clients

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from typing_extensions import Self

_FORMAT_TIMEOUT_S = 60.0
_KILL_TIMEOUT_S = 30.0
_READY_POLL_S = 0.05
_ERROR_LINES = 60
PORT_TRIES_MAX = 3
_PORT_TAKEN = "Address already in use"
_UNFIT_SETTING = "ConfigException"


class PortTakenError(EmbeddedKafkaError):
    """Another process took a port between its choice and the broker's start: choose again."""


class _Started(NamedTuple):
    files: BrokerDirectory
    listeners: BrokerListeners
    process: KeptProcess
    java: BrokerJava


class EmbeddedKafka:
    """One broker, started by `start` or by entering the context; every failure is an `EmbeddedKafkaError`.

    ``properties``: further broker properties. ``port``: where it listens (None: a free one); ``advertised_port``: the
    one that it advertises to clients, if a proxy listens there. ``directory`` holds its data and its log (None: a
    temporary one); `stop` removes the files that the broker made in it unless ``keep_directory``, and then the next
    broker on it uses the same data. ``on_progress`` is called with a line from time to time while the jars are
    downloaded. ``seat``: set by an `EmbeddedKafkaCluster` for each of its brokers. ``passwords``: by user, where
    clients have to log in (``security.protocol=SASL_PLAINTEXT``, ``sasl.mechanism=PLAIN``).
    """

    kind = "process"

    def __init__(  # noqa: PLR0913  keyword-only, each with a default
        self,
        *,
        version: str = DEFAULT_VERSION,
        properties: Mapping[str, str] | None = None,
        port: int | None = None,
        advertised_port: int | None = None,
        heap_mb: int = 512,
        start_timeout_s: float = 120.0,
        directory: Path | None = None,
        on_progress: Callable[[str], None] | None = None,
        keep_directory: bool = False,
        seat: ClusterSeat | None = None,
        passwords: Mapping[str, str] | None = None,
    ) -> None:
        self.version = version
        refuse_owned_properties(properties or {})
        self._properties = {**(login_properties(passwords) if passwords else {}), **(properties or {})}
        self._clients_log_in = bool(passwords)
        self._port = port
        self._advertised_port = advertised_port
        self._heap_mb = heap_mb
        self._start_timeout_s = start_timeout_s
        self._directory = directory
        self._keep_directory = keep_directory
        self._seat = seat
        self._on_progress = on_progress or (lambda _line: None)
        self._owner_pid = os.getpid()
        self._java: BrokerJava | None = None
        self._files: BrokerDirectory | None = None
        self._listeners: BrokerListeners | None = None
        self._process: KeptProcess | None = None
        self._last_tail = ""

    @property
    def bootstrap_servers(self) -> str:
        """The address for clients, ``127.0.0.1:PORT``, with the advertised port."""
        return f"{HOST}:{self._started().listeners.advertised}"

    @property
    def port(self) -> int:
        """The port on which the broker itself listens for clients."""
        return self._started().listeners.client

    @property
    def pid(self) -> int:
        """Process id of the broker's Java process."""
        return self._started().process.pid

    @property
    def log_path(self) -> Path:
        """The broker's log, in its directory."""
        return self._started().files.log

    @property
    def running(self) -> bool:
        """Whether the broker's process is alive (it may be stopped by SIGSTOP)."""
        return self._process is not None and self._process.exit_code() is None

    def start(self) -> Self:
        """Start the broker; returns when it serves clients and groups. Downloads its jars if they are not cached."""
        if self._files is not None:
            raise EmbeddedKafkaError("the embedded broker is started already: use restart(), or another instance")
        require_posix()
        if self._port is not None and not is_free(self._port):
            raise EmbeddedKafkaError(
                f"port {self._port} is in use: stop what listens there, choose another, or leave it out for a free one"
            )
        java = find_java()
        jars = kafka_jars(self.version, java, self._on_progress)
        self._java = BrokerJava(java, jars, self._heap_mb)
        self._files = BrokerDirectory(self._directory, keep=self._keep_directory)
        self._owner_pid = os.getpid()
        try:
            self._start_on_free_ports(self._java, self._files, KeptFormat(jars, self._properties))
        except BaseException:
            self._release()
            raise
        return self

    def stop(self, timeout_s: float = 10.0) -> None:
        """Shut the broker down, by force after ``timeout_s``, and remove its files. Does nothing if stopped."""
        if self._files is None or os.getpid() != self._owner_pid:
            return  # a forked child has a copy of this object, but no broker
        try:
            self.shut_down(timeout_s)
        finally:
            self._release()

    def kill(self) -> None:
        """SIGKILL the broker and wait for its end; its data stay, for `restart`."""
        _kill(self._started().process)

    def shut_down(self, timeout_s: float = 10.0) -> None:
        """Shut the broker down, by force after ``timeout_s``; its data stay, for `restart`."""
        process = self._process
        if process is not None and process.exit_code() is None:
            process.send_signal(signal.SIGTERM)
            if process.exit_code(wait_s=timeout_s) is None:
                _kill(process)
            elif self._java is not None and self._files is not None:
                self._java.keep_archive(self._files.classes)

    def restart(self, timeout_s: float = 10.0) -> None:
        """Start the broker again on the same port and data, after a clean shutdown if it still runs."""
        started = self._started()
        self.shut_down(timeout_s)
        self._launch(started.java, started.files)
        self._await_ready(started.files, started.listeners)

    def log_tail(self, lines: int = 40) -> str:
        """Return the last lines of the broker's log, also after `stop`."""
        if self._files is None:
            return "\n".join(self._last_tail.splitlines()[-lines:])
        return self._files.log_tail(lines)

    def __enter__(self) -> Self:
        return self if self._files is not None else self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _started(self) -> _Started:
        if self._files is None or self._listeners is None or self._process is None or self._java is None:
            raise EmbeddedKafkaError("the embedded broker is not started: call start() first")
        return _Started(self._files, self._listeners, self._process, self._java)

    def _start_on_free_ports(self, java: BrokerJava, files: BrokerDirectory, kept: KeptFormat) -> None:
        """Start the broker, with other ports if one is taken before the broker binds it."""
        for tries_left in reversed(range(PORT_TRIES_MAX)):
            listeners = self._seat.listeners if self._seat else self._chosen_listeners()
            settings = broker_settings(listeners, str(files.data), self._properties)
            files.properties.write_text(as_properties_file(settings))
            if files.cluster_id is None:
                cluster_id = self._seat.cluster_id if self._seat else new_cluster_id()
                if not kept.write(files.data, cluster_id, listeners.node_id):
                    self._format(java, files, cluster_id)
                    kept.keep(files.data)
            log_start = files.log_size_bytes()
            self._launch(java, files)
            try:
                self._await_ready(files, listeners)
            except EmbeddedKafkaError as error:
                if not files.log_has(_PORT_TAKEN, since=log_start):
                    raise
                if self._seat or not tries_left:  # the other brokers know the ports of a seat
                    raise PortTakenError(str(error)) from error
            else:
                self._listeners = listeners
                return

    def _chosen_listeners(self) -> BrokerListeners:
        client, internal, controller = free_ports(3)
        client = self._port or client
        protocol = "SASL_PLAINTEXT" if self._clients_log_in else "PLAINTEXT"
        return BrokerListeners(client, internal, controller, self._advertised_port or client, client_protocol=protocol)

    def _format(self, java: BrokerJava, files: BrokerDirectory, cluster_id: str) -> None:
        command = java.format_command(cluster_id, files.properties)
        exit_code = self._run(command, files).exit_code(wait_s=_FORMAT_TIMEOUT_S)
        if exit_code != 0:
            ended = f"did not end in {_FORMAT_TIMEOUT_S:g} s" if exit_code is None else f"exit code {exit_code}"
            raise EmbeddedKafkaError(
                f"Kafka {self.version} does not accept its settings (formatting its storage: {ended}): "
                f"check the broker properties. Its output:\n{files.log_tail(_ERROR_LINES)}"
            )

    def _launch(self, java: BrokerJava, files: BrokerDirectory) -> None:
        self._run(java.broker_command(files.properties, files.classes), files)

    def _run(self, command: list[str], files: BrokerDirectory) -> KeptProcess:
        predecessor, self._process = self._process, KeptProcess(command, log_path=files.log, paths=files.removable)
        if predecessor is not None:
            predecessor.dismiss()  # only now: the directory must always have a keeper
        return self._process

    def _await_ready(self, files: BrokerDirectory, listeners: BrokerListeners) -> None:
        deadline = time.monotonic() + self._start_timeout_s
        while not self._is_ready(files.cluster_id or "", listeners):
            exit_code = self._process.exit_code(wait_s=_READY_POLL_S) if self._process else None
            if exit_code is not None:
                problem = f"ended while starting (exit code {exit_code})"
                if files.log_has(_UNFIT_SETTING, since=0):
                    problem = f"does not accept its settings and {problem}: check the broker properties"
            elif time.monotonic() > deadline:
                problem = f"was not ready after {self._start_timeout_s:g} s"
            else:
                continue
            errors = files.log_errors(_ERROR_LINES)
            beginning = f"Errors in its log:\n{errors}\nThe" if errors else "The"
            raise EmbeddedKafkaError(
                f"Kafka {self.version} {problem}. {beginning} end of its log:\n{files.log_tail(_ERROR_LINES)}"
            )

    def _is_ready(self, cluster_id: str, listeners: BrokerListeners) -> bool:
        # The questions are asked without a login. All listeners serve from the same moment on.
        port = listeners.internal if self._clients_log_in else listeners.client
        serves = serves_clients(HOST, port, cluster_id, node_id=listeners.node_id)
        # one of several brokers may be no group's coordinator: their cluster waits for the groups
        return serves and (self._seat is not None or serve_groups({listeners.node_id: (HOST, port)}))

    def _release(self) -> None:
        """End the broker's process and remove its files."""
        files, process = self._files, self._process
        self._files = self._listeners = self._process = None
        if process is not None:
            process.dismiss()
        if files is not None:
            self._last_tail = files.log_tail(_ERROR_LINES)
            files.remove()


def _kill(process: KeptProcess) -> None:
    process.send_signal(signal.SIGKILL)
    process.exit_code(wait_s=_KILL_TIMEOUT_S)
