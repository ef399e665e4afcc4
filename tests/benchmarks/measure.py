"""How a contender's own marks become a rate: the same window and formula for each of them."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from typing import NamedTuple

TAIL_SHARE = 0.1


class Mark(NamedTuple):
    """Taken after a commit: wall clock and CPU seconds of the process, and how many records are committed so far."""

    at_s: float
    cpu_s: float
    records: int


@dataclass(frozen=True, slots=True)
class Measurement:
    """One contender in one round."""

    records_per_s: float
    cpu_us_per_record: float
    commits: int

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, line: str) -> Measurement:
        """Read back what a contender printed."""
        return cls(**json.loads(line))


class Window:
    """Collects marks from the first commit on, until the time is over or only the tail of the input is left.

    In the tail partitions run dry one after the other, which says nothing about a loop. `seconds` counts from the
    first commit; `records` is what the input holds.
    """

    def __init__(self, seconds: float, records: int) -> None:
        self._seconds = seconds
        self._goal = records * (1 - TAIL_SHARE)
        self._marks: list[Mark] = []
        self._records = 0

    def committed(self, records: int) -> bool:
        """Note a commit of so many records; whether the measurement is complete."""
        self._records += records
        taken = Mark(time.monotonic(), time.process_time(), self._records)
        self._marks.append(taken)
        return self._records >= self._goal or taken.at_s - self._marks[0].at_s >= self._seconds

    def measurement(self) -> Measurement:
        """Rate and CPU between the first and the last commit."""
        first, last = self._marks[0], self._marks[-1]
        count = last.records - first.records
        return Measurement(
            count / (last.at_s - first.at_s), 1e6 * (last.cpu_s - first.cpu_s) / count, len(self._marks) - 1
        )
