"""CPU seconds of the processes that this one has started, by the part that each plays in a Spark benchmark."""

from __future__ import annotations

import os

from eos_client.testing.process_session import living

PARTS = ("JVM", "Python workers", "broker", "driver")


def cpu_seconds(broker_pid: int) -> dict[str, float]:
    """Return what each part has used so far, its ended children included."""
    processes = living()
    parents = {each.pid: each.parent for each in processes}
    found = dict.fromkeys(PARTS, 0.0)
    for each in processes:
        if _descends(each.pid, parents):
            found[_part(each.pid, each.command, broker_pid)] += each.cpu_s
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
