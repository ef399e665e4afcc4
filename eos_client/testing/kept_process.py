"""A child process that cannot outlive its parent, however the parent ends (see `process_keeper`)."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING

from eos_client.errors import EmbeddedKafkaError

if TYPE_CHECKING:
    from collections.abc import Sequence

_KEEPER = Path(__file__).with_name("process_keeper.py")
_KEEPER_START_TIMEOUT_S = 30.0
_KEEPER_END_TIMEOUT_S = 10.0
_MESSAGE_WAIT_S = 0.2


def require_posix() -> None:
    """Raise `EmbeddedKafkaError` on Windows: a keeper needs the sessions, signals and ``poll()`` of POSIX."""
    if os.name != "posix":
        raise EmbeddedKafkaError(
            "an embedded broker needs the processes of POSIX, and is tested on Linux only: here, run it in a container "
            "(ContainerKafka, or the fixtures with --eos-kafka=container), or test on a SimulatedCluster"
        )


class KeptProcess:
    """Starts ``command`` with its output in ``log_path``; removes ``paths`` if this process dies without `dismiss`."""

    def __init__(self, command: Sequence[str], *, log_path: Path, paths: Sequence[Path]) -> None:
        self.pid = 0
        self._exit_code: int | None = None
        self._reading = threading.Lock()
        self._keeper = subprocess.Popen(  # noqa: S603  our own interpreter and script
            [
                *(sys.executable, "-I", "-S", str(_KEEPER), str(os.getpid()), str(log_path)),
                *(str(len(paths)), *map(str, paths)),
                *command,
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=log_path.parent,  # where a crashing Java writes its report
            start_new_session=True,  # Ctrl-C in a terminal must not end the broker
        )
        if self._has_message(_KEEPER_START_TIMEOUT_S):
            self._read_message()
        if not self.pid:
            self._keeper.kill()
            output = self._keeper.communicate()[1].decode(errors="replace")
            raise EmbeddedKafkaError(
                f"{command[0]} could not be started: {output.strip() or 'its keeper did not answer'}"
            )

    def exit_code(self, wait_s: float = 0.0) -> int | None:
        """Return the exit code (negative: the signal that ended it); None if it still runs after ``wait_s``."""
        deadline = time.monotonic() + wait_s
        while self._exit_code is None:
            left_s = max(0.0, deadline - time.monotonic())
            if self._has_message(min(left_s, _MESSAGE_WAIT_S)):
                with self._reading:  # threads may wait at the same time, and one of them reads the message
                    if self._exit_code is None and self._has_message(0.0):
                        self._read_message()
            elif not left_s:
                break
        return self._exit_code

    def send_signal(self, signum: int) -> None:
        """Send a signal to the process, if it still runs."""
        if self.exit_code() is None:
            os.kill(self.pid, signum)

    def dismiss(self) -> None:
        """End the process at once if it still runs, and its keeper; nothing is removed."""
        stdin = self._keeper.stdin
        if stdin is not None and self._keeper.poll() is None:
            try:
                stdin.write(b".")
                stdin.flush()
                self._keeper.wait(_KEEPER_END_TIMEOUT_S)
            except (OSError, subprocess.TimeoutExpired):
                self._keeper.kill()
        with self._reading:
            if self._exit_code is None:
                self._exit_code = -signal.SIGKILL
            self._keeper.communicate()

    def _has_message(self, wait_s: float) -> bool:
        poller = select.poll()  # not select(): the application may have more than 1024 files open
        poller.register(self._pipe(), select.POLLIN)
        return bool(poller.poll(round(wait_s * 1000)))

    def _read_message(self) -> None:
        """Read the keeper's lines, which are short enough that a pipe never splits them."""
        received = os.read(self._pipe().fileno(), 4096)
        for line in received.decode().splitlines():
            event, number = line.split()
            if event == "started":
                self.pid = int(number)
            else:
                self._exit_code = int(number)
        if not received:
            self._exit_code = -signal.SIGKILL  # the process ends with its keeper

    def _pipe(self) -> IO[bytes]:
        if self._keeper.stdout is None:
            raise EmbeddedKafkaError("the broker's keeper was started without a pipe")
        return self._keeper.stdout
