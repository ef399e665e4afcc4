"""The processes of one application, found by their session.

Spark's Python daemon leaves its process group, and orphans lose their parents, but all stay in the session. Without
/proc the process group is used instead, which lacks that daemon and its workers.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
_GONE = frozenset("ZX")
_CPU_TICKS = slice(11, 15)  # of the process in user and kernel mode, and of its ended children
_PS_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class Running:
    """One living process: ``stopped`` by SIGSTOP or not, its parent, its session and its command line.

    ``cpu_s``: seconds of CPU that it and its ended children have used; 0.0 without /proc.
    """

    pid: int
    parent: int
    session: int
    stopped: bool
    command: str
    cpu_s: float = 0.0


def living() -> list[Running]:
    """Return all living processes of the machine."""
    return list(_from_proc() if _PROC.is_dir() else _from_ps())


def session_of(pid: int) -> int:
    """Return the session of a process (without /proc: its process group)."""
    return os.getsid(pid) if _PROC.is_dir() else os.getpgid(pid)


def members_of(session: int) -> list[Running]:
    """Return all living processes of a session."""
    return [each for each in living() if each.session == session]


def spark_executors(session: int) -> list[int]:
    """Return the process ids of Spark executors that are Java processes of their own."""
    return [each.pid for each in members_of(session) if "CoarseGrainedExecutorBackend" in each.command]


def send_signal(number: int, pids: Iterable[int]) -> None:
    """Send a signal to each; ignores processes that have ended."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _from_proc() -> Iterator[Running]:
    for entry in _PROC.iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                # The name before the fields may contain brackets; the fields do not.
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                state, parent, _group, session = fields[:4]
                if state not in _GONE:
                    command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                    cpu_s = sum(map(int, fields[_CPU_TICKS])) / os.sysconf("SC_CLK_TCK")
                    yield Running(int(entry.name), int(parent), int(session), state == "T", command, cpu_s)


def _from_ps() -> Iterator[Running]:
    listed = subprocess.run(
        ["ps", "-A", "-o", "pid=,ppid=,pgid=,stat=,command="],  # noqa: S607  wherever the system has it
        capture_output=True,
        text=True,
        timeout=_PS_TIMEOUT_S,
        check=True,
    )
    for line in listed.stdout.splitlines():
        pid, parent, group, state, *command = line.split(maxsplit=4)
        if state[0] not in _GONE:
            yield Running(int(pid), int(parent), int(group), state[0] == "T", "".join(command))
