"""A child process that cannot outlive this one, whatever ends this one (see `process_keeper`)."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from eos_client.errors import EmbeddedKafkaError

if TYPE_CHECKING:
    from collections.abc import Sequence

_KEEPER = Path(__file__).with_name("process_keeper.py")
_KEEPER_START_TIMEOUT_S = 30.0
_KEEPER_END_TIMEOUT_S = 10.0


class KeptProcess:
    """Starts ``command`` with its output in ``log_path``; removes ``paths`` if this process dies without `dismiss`."""

    def __init__(self, command: Sequence[str], *, log_path: Path, paths: Sequence[Path]) -> None:
        self._unread = b""
        self._exit_code: int | None = None
        self._keeper = subprocess.Popen(  # noqa: S603  our own interpreter and script
            [
                *(sys.executable, "-I", "-S", str(_KEEPER), str(os.getpid()), str(log_path)),
                *(str(len(paths)), *map(str, paths)),
                *command,
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=log_path.parent,  # where a crashing Java leaves its report
            start_new_session=True,  # Ctrl-C in a terminal is for the application, not for its broker
        )
        self.pid = self._await_start()

    def _await_start(self) -> int:
        line = self._read_line(_KEEPER_START_TIMEOUT_S)
        if line is None or not line.startswith("started "):
            self._keeper.kill()
            said = self._keeper.communicate()[1].decode(errors="replace")
            raise EmbeddedKafkaError(f"the broker's process could not be started: {line or ''} {said}")
        return int(line.split()[1])

    def exit_code(self, wait_s: float = 0.0) -> int | None:
        """Return the exit code (negative: the signal that ended it); None if it still runs after ``wait_s``."""
        if self._exit_code is None:
            line = self._read_line(wait_s)
            if line is not None:
                self._exit_code = int(line.split()[1]) if line.startswith("exited ") else -signal.SIGKILL
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
        self._keeper.communicate()
        if self._exit_code is None:
            self._exit_code = -signal.SIGKILL

    def _read_line(self, wait_s: float) -> str | None:
        """Read the keeper's next line; "" if the keeper has ended without one; None if nothing came in time."""
        stdout = self._keeper.stdout
        if stdout is None or stdout.closed:
            return ""
        deadline = time.monotonic() + wait_s
        while b"\n" not in self._unread:
            if not select.select([stdout], [], [], max(0.0, deadline - time.monotonic()))[0]:
                return None
            chunk = os.read(stdout.fileno(), 4096)
            if not chunk:
                return ""
            self._unread += chunk
        line, self._unread = self._unread.split(b"\n", 1)
        return line.decode()
