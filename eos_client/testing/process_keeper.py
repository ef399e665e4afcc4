"""Runs one command, and cleans up after the process that started it has ended.

Started as a script by `kept_process.KeptProcess`. Linux's parent-death signal would fire when the *thread* that
started the broker ends, and a starter that is SIGKILLed cannot send a signal. A small process that reads a pipe
from the starter detects the end of the starter, and only that.

Arguments: the starter's process id, the log file, the number of paths to remove when the starter has died, those
paths, the command. It writes ``started PID`` and later ``exited CODE`` to standard output; one byte on standard
input dismisses it; the end of the input (or another parent) means that the starter has died.
"""

from __future__ import annotations

import ctypes
import os
import select
import shutil
import signal
import subprocess
import sys
from pathlib import Path

_POLL_S = 0.1
_PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> None:
    """Run the command until the keeper is dismissed or orphaned; then end the command."""
    starter_pid, log_path, path_count = int(arguments[0]), arguments[1], int(arguments[2])
    paths, command = arguments[3 : 3 + path_count], arguments[3 + path_count :]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with Path(log_path).open("ab") as log:
        kept = subprocess.Popen(  # noqa: S603  the command is the starter's
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            preexec_fn=_die_with_keeper,  # noqa: PLW1509  this process has one thread
        )
    _write_line(f"started {kept.pid}")
    orphaned = True
    try:
        orphaned = _keep(kept, starter_pid)
    finally:
        kept.kill()
        kept.wait()
        if orphaned:
            _remove(paths)


def _keep(kept: subprocess.Popen[bytes], starter_pid: int) -> bool:
    """Wait for the starter; returns True if it has died, False if it has dismissed the keeper."""
    is_exit_written = False
    while os.getppid() == starter_pid:
        if not is_exit_written and kept.poll() is not None:
            _write_line(f"exited {kept.returncode}")
            is_exit_written = True
        if select.select([0], [], [], _POLL_S)[0]:
            return os.read(0, 1) == b""
    return True


def _die_with_keeper() -> None:
    """End the command if this process is killed; only Linux supports that."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _write_line(line: str) -> None:
    try:
        os.write(1, f"{line}\n".encode())
    except BrokenPipeError:
        return  # the starter has died, which the next poll detects


def _remove(paths: list[str]) -> None:
    for path in map(Path, paths):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


if __name__ == "__main__":
    main(sys.argv[1:])
