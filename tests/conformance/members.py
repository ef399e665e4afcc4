"""Consumers that note what they see: in this process, stopped and killed on the simulated cluster, or far away."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.conformance.versions import HEARTBEAT_S, SESSION_S
from tests.support.group_member import POLL_S, GroupMember
from tests.support.protocols import CONSUMER

if TYPE_CHECKING:
    from tests.conformance.backends import Backend, SimulatedBackend

_END_S = 5.0
_CLASSIC_TIMES = {
    "session.timeout.ms": round(SESSION_S * 1000),
    "heartbeat.interval.ms": round(HEARTBEAT_S * 1000),
}
_ROOT = Path(__file__).parents[2]


class BackendMember(GroupMember):
    """A member on a backend; of a classic group, one whose session and heartbeats are short."""

    def __init__(
        self, backend: Backend, protocol: str, group: str, topic: str, *, without: Iterable[str] = (), **settings: Any
    ) -> None:
        times = {} if protocol == CONSUMER else _CLASSIC_TIMES
        super().__init__(backend, protocol, group, topic, without=without, **(times | settings))


class FreezableMember(BackendMember):
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

    def poll(self, timeout: float = POLL_S) -> None:
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
