"""Consumers that note what they see: in this process, stopped and killed on the simulated cluster, or far away."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaException

from eos_client.core.model import UNJOINED
from eos_client.testing.simulated_clients.group_metadata import decode
from tests.conformance.versions import HEARTBEAT_S, SESSION_S
from tests.support.protocols import CONSUMER, settings_of

if TYPE_CHECKING:
    from tests.conformance.backends import Backend, SimulatedBackend

_POLL_S = 0.02
_END_S = 5.0
_CLASSIC_TIMES = {
    "session.timeout.ms": round(SESSION_S * 1000),
    "heartbeat.interval.ms": round(HEARTBEAT_S * 1000),
}
_CALLBACKS = ("on_assign", "on_revoke", "on_lost")
_CALLBACK_SETTINGS = ("on_commit", "on_delivery", "error_cb", "stats_cb", "logger")
_ROOT = Path(__file__).parents[2]


class Member:
    """A consumer subscribed to a topic; notes what its callbacks saw and what it was handed."""

    def __init__(
        self, backend: Backend, protocol: str, group: str, topic: str, *, without: Iterable[str] = (), **settings: Any
    ) -> None:
        by_protocol = settings_of(protocol) | ({} if protocol == CONSUMER else _CLASSIC_TIMES)
        self.backend = backend
        self.consumer = backend.consumer(
            {
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                **by_protocol,
                **dotted(settings),
            }
        )
        self.seen: list[tuple[str, list[int], int]] = []  # (callback, partitions, generation inside)
        self.got: list[Any] = []
        self.errors: list[Any] = []
        self.inside: Callable[[str, list[Any]], Any] = lambda kind, partitions: None
        self._closing = False
        self._callbacks = {name: self._noting(name) for name in _CALLBACKS if name not in without}
        if topic:
            self.subscribe(topic)

    def _noting(self, name: str) -> Callable[[Any, list[Any]], None]:
        def callback(_: Any, partitions: list[Any]) -> None:
            self.seen.append((name, sorted(p.partition for p in partitions), self._generation_inside()))
            self.inside(name, partitions)

        return callback

    def _generation_inside(self) -> int:
        try:
            return self.generation
        except RuntimeError:
            if not self._closing:
                raise
            return UNJOINED.generation_id  # librdkafka may serve a callback of close() when it has left the group

    def subscribe(self, *topics: str) -> None:
        """Subscribe, with the callbacks that note."""
        self.consumer.subscribe(list(topics), **self._callbacks)

    def poll(self, timeout: float = _POLL_S) -> None:
        """Serve callbacks, and keep what is handed over."""
        for message in self.consumer.consume(500, timeout):
            (self.got if message.error() is None else self.errors).append(message)

    @property
    def metadata(self) -> bytes:
        return bytes(self.consumer.consumer_group_metadata())

    @property
    def generation(self) -> int:
        return decode(self.metadata)[1].generation

    @property
    def member_id(self) -> str:
        return decode(self.metadata)[1].member_id

    @property
    def owned(self) -> list[int]:
        return sorted(p.partition for p in self.consumer.assignment())

    @property
    def topics(self) -> set[str]:
        return {p.topic for p in self.consumer.assignment()}

    @property
    def values(self) -> list[str]:
        return [message.value().decode() for message in self.got]

    @property
    def codes(self) -> list[str]:
        """The names of the errors that were handed over."""
        return [message.error().name() for message in self.errors]

    def told(self, since: int = 0) -> list[tuple[str, list[int]]]:
        """What the callbacks were told, without the generations."""
        return [(name, numbers) for name, numbers, _ in self.seen[since:]]

    def commit(self, **given: Any) -> str | None:
        """Commit synchronously, the present positions unless others are given; the name of the error, if any."""
        try:
            self.consumer.commit(asynchronous=False, **given)
        except KafkaException as refused:
            return str(refused.args[0].name())
        return None

    def close(self) -> None:
        self._closing = True
        self.consumer.close()


def dotted(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Keyword arguments as librdkafka's properties; callbacks keep their names."""
    return {key if key in _CALLBACK_SETTINGS else key.replace("_", "."): value for key, value in settings.items()}


class FreezableMember(Member):
    """A member on the simulated cluster that a test stops as a signal would."""

    def __init__(self, backend: SimulatedBackend, *arguments: Any, client_id: str, **settings: Any) -> None:
        super().__init__(backend, *arguments, client_id=client_id, **settings)
        self._cluster = backend.cluster
        self._client_id = client_id

    def frozen(self) -> contextlib.AbstractContextManager[None]:
        """Stopped as by SIGSTOP until the block ends."""
        return self._cluster.zombie(self._client_id)

    def kill(self) -> None:
        """Ended as by SIGKILL."""
        self._cluster.kill(self._client_id)


class FarMember:
    """A member in a process of its own. Attributes and calls that take and return plain values, nothing else."""

    def __init__(self, bootstrap: str, commit_validation: str, arguments: Any, settings: Any) -> None:
        given = json.dumps([bootstrap, commit_validation, arguments, settings])
        program = "import sys; from tests.conformance.far_process import serve; serve(sys.argv[1])"
        self._process = subprocess.Popen(
            [sys.executable, "-c", program, given], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=_ROOT
        )
        self._ask("owned")  # it is there

    def _ask(self, name: str, *arguments: Any) -> Any:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(json.dumps([name, *arguments]) + "\n")
        stdin.flush()
        return json.loads(stdout.readline())

    def poll(self, timeout: float = _POLL_S) -> None:
        self._ask("poll", timeout)

    def told(self, since: int = 0) -> list[tuple[str, list[int]]]:
        return [(name, numbers) for name, numbers in self._ask("told", since)]

    def __getattr__(self, name: str) -> Any:
        return self._ask(name)

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(_END_S)

    def close(self) -> None:
        self.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
