"""From the lines that contenders print after their commits to rates, costs and ratios: one formula for all of them."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

LINE_START = "commit"
TAIL_SHARE = 0.1


class TooFewCommitsError(Exception):
    """A contender committed too seldom in the time that is looked at."""


class Mark(NamedTuple):
    """One commit: when, what CPU time the process had used by then, how many records, and how long it took."""

    at_s: float
    cpu_s: float
    records: int
    commit_s: float


@dataclass(frozen=True)
class Measurement:
    """One contender in one turn. ``records_per_s`` is of all its processes together, ``peak_mb`` of the largest."""

    records_per_s: float
    cpu_us_per_record: float
    commits_s: tuple[float, ...]
    peak_mb: float


def marks_in(printed: str) -> list[Mark]:
    """Read what a contender has printed so far. A line that is not yet whole is left for the next time."""
    lines = (line.split() for line in printed.splitlines(keepends=True) if line.endswith("\n"))
    return [
        Mark(float(line[1]), float(line[2]), int(line[3]), float(line[4]))
        for line in lines
        if len(line) == 1 + len(Mark._fields) and line[0] == LINE_START
    ]


def settled_at_s(processes: Sequence[Sequence[Mark]], warm_up_s: float) -> float:
    """When measuring begins: so long after the last process has committed for the first time."""
    return max(marks[0].at_s for marks in processes) + warm_up_s


def is_complete(processes: Sequence[Sequence[Mark]], warm_up_s: float, seconds: float, records: int) -> bool:
    """Whether all have been at work for so long, or only the tail of the ``records`` of the input is left.

    In the tail partitions run dry one after the other, which says nothing about a loop.
    """
    if not all(processes):
        return False
    ended_s = min(marks[-1].at_s for marks in processes)
    done = sum(mark.records for marks in processes for mark in marks)
    return done >= records * (1 - TAIL_SHARE) or ended_s - settled_at_s(processes, warm_up_s) >= seconds


def measured(processes: Sequence[Sequence[Mark]], *, warm_up_s: float, peak_mb: float) -> Measurement:
    """Add up what the processes did while all of them were at work. Raises `TooFewCommitsError`."""
    if not all(processes):
        raise TooFewCommitsError("a process has not committed at all")
    from_s, to_s = settled_at_s(processes, warm_up_s), min(marks[-1].at_s for marks in processes)
    spans = [[mark for mark in marks if from_s <= mark.at_s <= to_s] for marks in processes]
    if min(map(len, spans)) < 2:
        raise TooFewCommitsError(
            f"a process has committed {min(map(len, spans))} times in the {to_s - from_s:.1f} s after the warm-up: "
            "measure longer (--seconds) or give it more input (--records)"
        )
    records = sum(mark.records for span in spans for mark in span[1:])
    rate = sum(sum(mark.records for mark in span[1:]) / (span[-1].at_s - span[0].at_s) for span in spans)
    cpu_s = sum(span[-1].cpu_s - span[0].cpu_s for span in spans)
    commits_s = tuple(mark.commit_s for span in spans for mark in span[1:])
    return Measurement(rate, 1e6 * cpu_s / records, commits_s, peak_mb)


def percentile(values: Iterable[float], percent: float) -> float:
    """The smallest of the values that is not exceeded by so many percent of them (nearest rank)."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


@dataclass(frozen=True)
class Summary:
    """All turns of one contender: medians over the turns, and percentiles of all their commits together."""

    records_per_s: float
    slowest: float
    fastest: float
    cpu_us_per_record: float
    commit_p50_ms: float
    commit_p99_ms: float
    peak_mb: float


def summary(turns: Sequence[Measurement]) -> Summary:
    """Sum up the turns."""
    rates = [turn.records_per_s for turn in turns]
    commits_ms = [1000 * commit_s for turn in turns for commit_s in turn.commits_s]
    return Summary(
        statistics.median(rates),
        min(rates),
        max(rates),
        statistics.median(turn.cpu_us_per_record for turn in turns),
        percentile(commits_ms, 50),
        percentile(commits_ms, 99),
        max(turn.peak_mb for turn in turns),
    )


def longest_gap_s(seen_s: Sequence[float], from_s: float, to_s: float) -> float:
    """The longest time between two sights, or an end of the span and its nearest sight; the sights are in order."""
    inside = [from_s, *(each for each in seen_s if from_s < each < to_s), to_s]
    return max(after - before for before, after in itertools.pairwise(inside))
