"""From a record's creation to the sight of its committed output, at 1,000 records a second, by commit interval.

    python -m tests.benchmarks.latency [--seconds 5] [--only eos-client ...]

The outputs are seen by a reader with `read_committed`, outside of the contender; what its fetches take is included.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import asdict, dataclass

from tests.benchmarks.bench_broker import PARTITIONS, Bench, Task, bench_broker
from tests.benchmarks.contenders.assignment import KEYED
from tests.benchmarks.lineup import FRAMEWORKS, Contender
from tests.benchmarks.measure import TooFewCommitsError, percentile
from tests.benchmarks.observed_load import RECORDS_PER_S, ObservedLoad
from tests.benchmarks.publishing import publish
from tests.verification.topics import create_topics

COMMIT_INTERVALS_S = (0.02, 0.1, 1.0)
HEADS = ("contender", "commit interval ms", "p50 ms", "p99 ms", "max ms", "records")


@dataclass(frozen=True)
class Latency:
    """What one contender took with one commit interval."""

    contender: str
    commit_interval_ms: float
    p50_ms: float
    p99_ms: float
    max_ms: float
    records: int


def measure(contender: Contender, interval_s: float, bench: Bench, seconds: float) -> Latency:
    """Let one contender work until it is warm, and then for so many seconds."""
    name = f"latency-{contender.name}-{interval_s * 1000:.0f}".replace(" ", "-")
    task = Task(name, f"{name}-in", KEYED, interval_s)
    create_topics(bench.bootstrap, {task.source: PARTITIONS})
    with bench.pool(contender, task) as pool, ObservedLoad(bench.bootstrap, task.source, task.name) as load:
        pool.start(0)
        load.await_output(pool, 0.0)
        load.await_output(pool, time.monotonic())  # it has caught up
        time.sleep(max(contender.warm_up_s, interval_s))
        from_s = time.monotonic()
        time.sleep(seconds)
        taken_ms = [1000 * (sight.seen_s - sight.made_s) for sight in load.sights if sight.seen_s > from_s]
        if not taken_ms:
            raise TooFewCommitsError(f"no output of {name} was seen in {seconds:g} s: {pool.log_tail(0)}")
    found = Latency(
        contender.name, interval_s * 1000,
        percentile(taken_ms, 50), percentile(taken_ms, 99), max(taken_ms), len(taken_ms),
    )  # fmt: skip
    print(f"{found.contender}, {found.commit_interval_ms:g} ms: {found.p50_ms:.0f} ms", flush=True)
    return found


def main(arguments: list[str]) -> int:
    """Measure every contender with every interval and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5.0, help="length of each measurement")
    names = [each.name for each in FRAMEWORKS]
    parser.add_argument("--only", nargs="+", choices=names, default=names, help="contenders, all by default")
    options = parser.parse_args(arguments)
    contenders = [each for each in FRAMEWORKS if each.name in options.only]
    with bench_broker() as bench:
        found = [
            measure(contender, interval_s, bench, options.seconds)
            for interval_s in COMMIT_INTERVALS_S
            for contender in contenders
        ]
    rows = [
        (each.contender, f"{each.commit_interval_ms:g}", f"{each.p50_ms:.0f}", f"{each.p99_ms:.0f}",
         f"{each.max_ms:.0f}", each.records)
        for each in found
    ]  # fmt: skip
    title = f"end-to-end latency at {RECORDS_PER_S:,} records/s"
    publish("latency", title, HEADS, rows, {"rows": [asdict(each) for each in found]})
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
