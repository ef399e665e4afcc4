"""How long records wait when a process is killed and when one joins, as the reader of the committed output sees it.

    python -m tests.benchmarks.failover [--rounds 2] [--only eos-client ...]

At 1,000 records a second one process is killed by SIGKILL, and a successor with the same transactional id is started
at once: `to first commit` is the time until the output of a record is seen that was made after the kill. Then a second
process joins: `pause` is the longest time, from its start until it has committed for a while, in which nothing new was
seen of some partition. Sessions last 6 s and transactions 10 s, for everyone. A process that ends by itself is
started again 0.5 s later, and counted.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

from tests.benchmarks.bench_broker import PARTITIONS, SESSION_TIMEOUT_MS, Bench, Task, bench_broker
from tests.benchmarks.contenders.assignment import KEYED
from tests.benchmarks.lineup import FRAMEWORKS, OURS, Contender
from tests.benchmarks.measure import longest_gap_s, marks_in
from tests.benchmarks.observed_load import OUTPUT_TIMEOUT_S, RECORDS_PER_S, ObservedLoad
from tests.benchmarks.publishing import publish
from tests.support.waiting import wait_for
from tests.verification.topics import create_topics
from tests.verification.worker_pool import WorkerPool

STEADY_S = 1.0
LOOK_S = 0.02
TRANSACTION_TIMEOUT = {"transaction.timeout.ms": "10000"}
SESSION = {**TRANSACTION_TIMEOUT, "session.timeout.ms": str(SESSION_TIMEOUT_MS)}
# Under KIP-848 the session's length is the broker's to set, and has the same value there.
CASES = (
    replace(OURS, settings=SESSION),
    replace(OURS, name="eos-client, static members", settings={**SESSION, "group.instance.id": "{id}"}),
    replace(OURS, name="eos-client, KIP-848", settings={**TRANSACTION_TIMEOUT, "group.protocol": "consumer"}),
    *(replace(each, settings={**each.settings, **SESSION}) for each in FRAMEWORKS[1:]),
)
HEADS = ("contender", "killed: to first commit s", "min - max", "joined: pause s", "min - max", "own exits")


@dataclass(frozen=True)
class Failover:
    """One round of one contender."""

    to_commit_s: float
    pause_s: float
    own_exits: int


def work_on(pool: WorkerPool, seconds: float) -> None:
    """Let the processes work for a while."""
    until_s = time.monotonic() + seconds
    while time.monotonic() < until_s:
        pool.supervise()
        time.sleep(LOOK_S)


def kill_one(load: ObservedLoad, pool: WorkerPool) -> float:
    """Kill the only process, start its successor, and return the seconds until that one's first output is seen."""
    killed_s = time.monotonic()
    pool.kill(0)
    pool.start(0)
    return load.await_output(pool, killed_s).seen_s - killed_s


def let_one_join(load: ObservedLoad, pool: WorkerPool) -> float:
    """Start a second process, and return the longest time without a new output of some partition."""
    began_s = time.monotonic()
    pool.start(1)
    wait_for(
        lambda: marks_in(pool.log_path(1).read_text(errors="replace")),
        lambda: f"a commit of the second process: {pool.log_tail(1)}",
        pool.supervise, lambda: time.sleep(LOOK_S), timeout_s=OUTPUT_TIMEOUT_S,
    )  # fmt: skip
    work_on(pool, STEADY_S)
    ended_s = time.monotonic()
    return max(
        longest_gap_s([sight.seen_s for sight in load.sights if sight.partition == number], began_s, ended_s)
        for number in range(PARTITIONS)
    )


def measure(contender: Contender, bench: Bench, turn: int) -> Failover:
    """One round of one contender."""
    task = Task(f"failover-{turn}-{CASES.index(contender)}", f"failover-{turn}-{CASES.index(contender)}-in", KEYED)
    create_topics(bench.bootstrap, {task.source: PARTITIONS})
    with bench.pool(contender, task) as pool, ObservedLoad(bench.bootstrap, task.source, task.name) as load:
        pool.start(0)
        load.await_output(pool, 0.0)
        work_on(pool, STEADY_S)
        to_commit_s = kill_one(load, pool)
        work_on(pool, STEADY_S)
        pause_s = let_one_join(load, pool)
        return Failover(to_commit_s, pause_s, len(pool.own_exits))


def row(name: str, rounds: Sequence[Failover]) -> list[object]:
    """One line of the table."""
    cells: list[object] = [name]
    for seconds in ([each.to_commit_s for each in rounds], [each.pause_s for each in rounds]):
        cells += [f"{statistics.median(seconds):.2f}", f"{min(seconds):.2f} - {max(seconds):.2f}"]
    return [*cells, sum(each.own_exits for each in rounds)]


def main(arguments: list[str]) -> int:
    """Kill and join in turn and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=2)
    names = [each.name for each in CASES]
    parser.add_argument("--only", nargs="+", choices=names, default=names, help="contenders, all by default")
    options = parser.parse_args(arguments)
    cases = [each for each in CASES if each.name in options.only]
    with bench_broker() as bench:
        turns = [{each.name: measure(each, bench, turn) for each in cases} for turn in range(options.rounds)]
    found = {each.name: [turn[each.name] for turn in turns] for each in cases}
    title = f"failover at {RECORDS_PER_S:,} records/s, medians of {options.rounds} rounds, sessions of 6 s"
    figures = {name: [asdict(each) for each in rounds] for name, rounds in found.items()}
    publish("failover", title, HEADS, [row(name, rounds) for name, rounds in found.items()], figures)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
