"""CPU seconds of the processes that this one has started, by the part that each plays in a Spark benchmark."""

from __future__ import annotations

import os
from pathlib import Path

PARTS = ("JVM", "Python workers", "broker", "driver")
_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(broker_pid: int) -> dict[str, float]:
    """Return what each part has used so far, its ended children included."""
    parents: dict[int, int] = {}
    used: dict[int, float] = {}
    commands: dict[int, str] = {}
    for place in Path("/proc").glob("[0-9]*"):
        try:
            # The name in front may hold anything, but no bracket comes after its last one.
            fields = (place / "stat").read_text().rpartition(")")[2].split()
            commands[int(place.name)] = (place / "cmdline").read_text()
        except OSError:
            continue  # it has ended
        parents[int(place.name)] = int(fields[1])
        used[int(place.name)] = sum(map(int, fields[11:15])) / _TICKS
    found = dict.fromkeys(PARTS, 0.0)
    for pid, seconds in used.items():
        if _descends(pid, parents):
            found[_part(pid, commands[pid], broker_pid)] += seconds
    return found


def _descends(pid: int, parents: dict[int, int]) -> bool:
    while pid not in {0, os.getpid()}:
        pid = parents.get(pid, 0)
    return pid != 0


def _part(pid: int, command: str, broker_pid: int) -> str:
    if pid == os.getpid():
        return "driver"
    if pid == broker_pid:
        return "broker"
    return "Python workers" if "pyspark.daemon" in command else "JVM"
