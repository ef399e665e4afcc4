"""How many threads and connections a Python worker of Spark has whenever a task of the sink begins.

A module of its own, as `step_clock` is. Linux only: it looks into `/proc`.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

_ESTABLISHED = "01"


@dataclass(frozen=True)
class Load:
    """What one process had at one moment."""

    threads: int
    connections: int


@dataclass(frozen=True)
class LoadClock:
    """Notes the load of its process at each start of a task, one file for each process."""

    directory: str

    def __call__(self, step: str, slot: int, batch_id: int) -> None:
        if step == "start":
            load = load_of(os.getpid())
            with Path(self.directory, str(os.getpid())).open("a") as notes:
                notes.write(f"{load.threads} {load.connections}\n")


def load_of(pid: int) -> Load:
    """Return the load of a process, its connections to the JVM included."""
    process = Path("/proc", str(pid))
    own = {target for each in (process / "fd").iterdir() if (target := _target(each)).startswith("socket:")}
    found = 0
    for table in ("tcp", "tcp6"):
        for line in (process / "net" / table).read_text().splitlines()[1:]:
            columns = line.split()
            found += columns[3] == _ESTABLISHED and f"socket:[{columns[9]}]" in own
    return Load(len([*(process / "task").iterdir()]), found)


def _target(descriptor: Path) -> str:
    try:
        return str(descriptor.readlink())
    except OSError:  # it was closed meanwhile
        return ""


def loads(directory: Path) -> list[Load]:
    """Return every load that the processes of a query have noted."""
    lines = [line.split() for file in directory.iterdir() for line in file.read_text().splitlines()]
    return [Load(int(threads), int(connections)) for threads, connections in lines]
