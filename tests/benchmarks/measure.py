"""How a contender's own marks become a rate: the same window and formula for each of them."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
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


def mark(records: int) -> Mark:
    """The mark for a commit that has just ended."""
    return Mark(time.monotonic(), time.process_time(), records)


def measure(marks: Sequence[Mark], records: int) -> Measurement:
    """From the first commit to the one that leaves only the tail, in which partitions run dry one after the other."""
    goal = records * (1 - TAIL_SHARE)
    inside = [taken for taken in marks if taken.records <= goal]
    first, last = inside[0], next((taken for taken in marks if taken.records > goal), marks[-1])
    count = last.records - first.records
    return Measurement(count / (last.at_s - first.at_s), 1e6 * (last.cpu_s - first.cpu_s) / count, commits=len(inside))
