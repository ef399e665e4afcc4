"""When each step of the Spark sink was taken, noted so that the noting does not show in what it times.

A module of its own, because Spark sends what is defined in the program itself along with every batch, class and all.
"""

from __future__ import annotations

import functools
import json
import os
import time
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class StepClock:
    """Writes down when each step was taken, one file for each process."""

    directory: str

    def __call__(self, step: str, slot: int, batch_id: int) -> None:
        os.write(_notes(self.directory, os.getpid()), f"{json.dumps([step, slot, batch_id, time.time()])}\n".encode())


@dataclass(frozen=True)
class DriverClock:
    """The same for the driver's steps."""

    clock: StepClock

    def __call__(self, step: str, batch_id: int) -> None:
        self.clock(step, -1, batch_id)


@functools.cache
def _notes(directory: str, pid: int) -> int:
    return os.open(Path(directory, f"{pid}.jsonl"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
