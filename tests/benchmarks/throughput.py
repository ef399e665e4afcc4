"""Records per second of our loop beside the same work by hand and by others, with its cost in CPU, commits and memory.

    python -m tests.benchmarks.throughput [--rounds 3] [--seconds 3] [--records 8000000] [--only eos-client ...]
        [--work keyed ...]

Each contender is a process of its own, or two; they take turns, round by round, on one broker and the same input, and
the medians are compared. A ratio is of the tuned hand-written loop that does the same work, with as many processes;
for batches, for a loop that calls no function for a record, and for one whose function returns the objects that a
transform of eos-client returns, of the keyed loop. Each row counts records of the input. `--only` and `--work` leave
out what they do not name. Exit status: 0 when each target is reached.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from confluent_kafka import Producer

from tests.benchmarks.bench_broker import COMMIT_INTERVAL_S, PARTITIONS, RECORD_BYTES, Bench, Task, bench_broker
from tests.benchmarks.contenders.assignment import JSON, LARGE
from tests.benchmarks.lineup import ENTRIES, Entry
from tests.benchmarks.measure import Mark, Measurement, Summary, is_complete, marks_in, measured, summary
from tests.benchmarks.publishing import publish
from tests.support.waiting import wait_for
from tests.verification.topics import create_topics, delete_topics
from tests.verification.worker_pool import WorkerPool

TURN_TIMEOUT_S = 180.0
LOAD_TIMEOUT_S = 120.0
SETTLE_S = 2.0  # the broker deletes what a turn has written one second later
LOOK_S = 0.05
HEADS = (
    "contender", "records/s", "min - max", "ratio", "target", "CPU us/record", "commit p50 ms", "p99 ms", "peak MB",
)  # fmt: skip


class ContenderFailedError(Exception):
    """A contender's process has ended by itself; the message holds the end of its log."""


@dataclass(frozen=True)
class Source:
    """An input topic: what every record in it holds, and how many there are for each record of the ordinary one."""

    topic: str
    value: bytes
    share: float = 1.0


ORDINARY = Source("throughput-in", b"v" * RECORD_BYTES)
ORDER = {"id": 4711, "customer": "c" * 40, "amount": 12.5, "lines": ["l" * 30] * 5, "state": "new"}
SOURCES = {
    JSON: Source("throughput-json-in", json.dumps(ORDER).encode(), 1 / 4),
    LARGE: Source("throughput-large-in", b"v" * 10_000, 1 / 25),
}
"""By work; the others have the ordinary one."""


def source_of(entry: Entry) -> Source:
    """The input of one row."""
    return SOURCES.get(entry.work, ORDINARY)


def load(bootstrap: str, source: Source, records: int) -> None:
    """Fill an input topic."""
    create_topics(bootstrap, {source.topic: PARTITIONS})
    producer = Producer({
        "bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 20, "batch.num.messages": 10_000,
        "queue.buffering.max.messages": 1_000_000, "queue.buffering.max.kbytes": 2_000_000,
    })  # fmt: skip
    for number in range(records):
        producer.produce(source.topic, value=source.value, key=b"%08d" % number, partition=number % PARTITIONS)
        if number % 10_000 == 0:
            producer.poll(0)
            if len(producer) * len(source.value) > 50_000_000:
                producer.flush(LOAD_TIMEOUT_S)
    if producer.flush(LOAD_TIMEOUT_S):
        raise TimeoutError(f"{records} records were not loaded within {LOAD_TIMEOUT_S} s")


def peak_mb(pid: int) -> float:
    """The most memory that a living process has had at once."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    if found is None:
        raise ValueError(f"/proc/{pid}/status names no VmHWM: {status}")
    return int(found[1]) / 1024


def watch(pool: WorkerPool, entry: Entry, options: argparse.Namespace) -> list[list[Mark]]:
    """Start the processes and return their marks when there are enough. Raises ContenderFailedError, TimeoutError."""
    slots, records = range(entry.processes), int(options.records * source_of(entry).share)

    def look() -> list[list[Mark]]:
        pool.supervise()
        if pool.own_exits:
            raise ContenderFailedError(str(pool.own_exits[0]))
        marks = [marks_in(pool.log_path(slot).read_text(errors="replace")) for slot in slots]
        return marks if is_complete(marks, entry.contender.warm_up_s, options.seconds, records) else []

    for slot in slots:
        pool.start(slot)
    found: list[list[Mark]] = wait_for(
        look, lambda: f"commits: {[pool.log_tail(slot, 600) for slot in slots]}", lambda: time.sleep(LOOK_S),
        timeout_s=TURN_TIMEOUT_S,
    )  # fmt: skip
    return found


def take_turn(entry: Entry, bench: Bench, options: argparse.Namespace, turn: int) -> Measurement:
    """One turn of one contender."""
    task = Task(f"turn-{turn}-{ENTRIES.index(entry)}", source_of(entry).topic, entry.work)
    with bench.pool(entry.contender, task) as pool:
        marks = watch(pool, entry, options)
        peak = max(peak_mb(pool.pid(slot)) for slot in range(entry.processes))
    delete_topics(bench.bootstrap, [task.name])
    time.sleep(SETTLE_S)
    return measured(marks, warm_up_s=entry.contender.warm_up_s, peak_mb=peak)


def in_turn(turn: int, entries: Sequence[Entry]) -> list[Entry]:
    """Each round has an order of its own: what the one before left to the disk and to the broker's heap counts."""
    return random.Random(turn).sample(entries, len(entries))


def ratio(entry: Entry, found: Mapping[str, Summary]) -> float | None:
    """How fast it is beside its baseline; None where that was left out."""
    baseline = found.get(entry.baseline.name)
    return None if baseline is None else found[entry.name].records_per_s / baseline.records_per_s


def row(entry: Entry, found: Mapping[str, Summary]) -> list[object]:
    """One line of the table."""
    of_baseline, each = ratio(entry, found), found[entry.name]
    return [
        entry.name,
        f"{each.records_per_s:,.0f}",
        f"{each.slowest:,.0f} - {each.fastest:,.0f}",
        "-" if of_baseline is None else f"{of_baseline:.2f}",
        "" if entry.target is None else entry.target,
        f"{each.cpu_us_per_record:.2f}",
        f"{each.commit_p50_ms:.1f}",
        f"{each.commit_p99_ms:.1f}",
        f"{each.peak_mb:.0f}",
    ]


def missed(entries: Sequence[Entry], found: Mapping[str, Summary]) -> list[str]:
    """Those entries that are slower than their target."""
    with_target = [(entry, entry.target, ratio(entry, found)) for entry in entries]
    return [entry.name for entry, target, of in with_target if target is not None and of is not None and of < target]


def report(entries: Sequence[Entry], turns: Mapping[str, list[Measurement]], rounds: int) -> list[str]:
    """Publish the table; which entries miss their target."""
    found = {name: summary(each) for name, each in turns.items()}
    title = (
        f"{RECORD_BYTES}-byte records where nothing else is said, {PARTITIONS} partitions, "
        f"a commit every {COMMIT_INTERVAL_S * 1000:.0f} ms, medians of {rounds} interleaved rounds; "
        "ratio: of the hand-written loop that does the same"
    )
    figures = [
        {
            "name": entry.name, "contender": entry.contender.name, "work": entry.work, "processes": entry.processes,
            "ratio": ratio(entry, found), "target": entry.target, **asdict(found[entry.name]),
            "rounds": [turn.records_per_s for turn in turns[entry.name]],
        }
        for entry in entries
    ]  # fmt: skip
    publish("throughput", title, HEADS, [row(entry, found) for entry in entries], {"rows": figures})
    return missed(entries, found)


def main(arguments: list[str]) -> int:
    """Run the rounds and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--records", type=int, default=8_000_000, help="size of the input")
    parser.add_argument("--seconds", type=float, default=3.0, help="length of each turn")
    names = sorted({entry.contender.name for entry in ENTRIES})
    parser.add_argument("--only", nargs="+", choices=names, default=names, help="contenders, all by default")
    works = sorted({entry.work for entry in ENTRIES})
    parser.add_argument("--work", nargs="+", choices=works, default=works, help="what they do, everything by default")
    options = parser.parse_args(arguments)
    entries = [entry for entry in ENTRIES if entry.contender.name in options.only and entry.work in options.work]
    turns: dict[str, list[Measurement]] = {entry.name: [] for entry in entries}
    with bench_broker() as bench:
        for source in sorted({source_of(entry) for entry in entries}, key=lambda source: source.topic):
            load(bench.bootstrap, source, int(options.records * source.share))
        for turn in range(options.rounds):
            for entry in in_turn(turn, entries):
                print(f"{turn + 1}: {entry.name}: ", end="", flush=True)
                turns[entry.name].append(take_turn(entry, bench, options, turn))
                print(f"{turns[entry.name][-1].records_per_s:,.0f} records/s", flush=True)
    slow = report(entries, turns, options.rounds)
    print(f"below target: {slow}" if slow else "each target is reached")
    return int(bool(slow))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
