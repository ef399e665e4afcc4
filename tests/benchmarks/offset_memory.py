"""How much memory a committed offset takes: the growth of a process of its own, by shape of the groups.

    python -m tests.benchmarks.offset_memory [--entries 1000000]

Every entry is a (group, topic, partition, offset) of its own, committed in an order that is not the keys' order. The
limit is P4's, 64 bytes at a million entries. The last two rows are there for comparison: a million names that are long
themselves, and Python's own dict. Exit status: 0 when every row with a limit keeps it.
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from eos_client.testing.simulator.brokers.model import OffsetAndMetadata, PartitionKey
from eos_client.testing.simulator.brokers.offset_table import OffsetTable
from tests.verification.tables import table

ENTRIES = 1_000_000
BYTES_MAX = 64
STRIDE = 7_368_787  # a prime: its multiples visit every entry once, far from the keys' order
OFFSET_STEP = 1_234_567_891
OFFSETS_MAX = 10_000_000_000
HEADS = ("shape", "entries", "bytes each", "limit", "1 GB holds", "us a commit")

Put = Callable[[str, PartitionKey, OffsetAndMetadata], None]


class Shape(NamedTuple):
    """How many topics a group reads and how many partitions they have; ``prefix`` begins the group's name."""

    name: str
    topics: int = 1
    partitions: int = 1
    prefix: str = "billing-"
    topic: str = "orders"
    commits: int = 1
    limit: int | None = BYTES_MAX
    in_dict: bool = False

    def key(self, number: int) -> tuple[str, PartitionKey]:
        group, entry = divmod(number, self.topics * self.partitions)
        topic, partition = divmod(entry, self.partitions)
        topic_name = self.topic if self.topics == 1 else f"{self.topic}-{topic}"
        return f"{self.prefix}{group:06}", PartitionKey(topic_name, partition)


SHAPES = (
    Shape("one group of every partition", partitions=ENTRIES),
    Shape("100 groups of 100 topics of 100 partitions", topics=100, partitions=100),
    Shape("long names, 10 partitions a group", 1, 10, "payments-settlement-", "payments.settlement.requested"),
    Shape("a group of its own for each"),
    Shape("the same, each committed three times", commits=3),
    Shape(
        "a group with a long name for each", 1, 1, "payments-settlement-europe-west-", "payments.settled", limit=None
    ),
    Shape("a group of its own for each, in a dict", limit=None, in_dict=True),
)


def resident_bytes() -> int:
    """The process's memory now."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def into_table() -> tuple[object, Put]:
    offsets = OffsetTable()
    return offsets, lambda group, key, entry: offsets.put(group, {key: entry})


def into_dict() -> tuple[object, Put]:
    offsets: dict[tuple[str, PartitionKey], OffsetAndMetadata] = {}
    return offsets, lambda group, key, entry: offsets.__setitem__((group, key), entry)


def measured(shape: Shape, entries: int) -> tuple[float, float]:
    """Bytes an entry, and microseconds a commit."""
    held, put = into_dict() if shape.in_dict else into_table()
    put("warm-up", PartitionKey("orders", 0), OffsetAndMetadata(0))
    before = resident_bytes()
    started_s = time.perf_counter()
    for commit in range(shape.commits):
        for number in range(entries):
            group, key = shape.key(number * STRIDE % entries)
            put(group, key, OffsetAndMetadata((number + commit) * OFFSET_STEP % OFFSETS_MAX))
    taken_us = (time.perf_counter() - started_s) * 1e6 / (shape.commits * entries)
    grown = resident_bytes() - before
    del held
    return grown / entries, taken_us


def main(arguments: list[str]) -> int:
    """Measure every shape and print the table; status 1 if one needs more than it may."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--entries", type=int, default=ENTRIES)
    entries = parser.parse_args(arguments).entries
    rows = []
    kept = True
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as processes:
        for shape in SHAPES:
            taken_bytes, taken_us = processes.apply(measured, (shape, entries))
            kept = kept and (shape.limit is None or taken_bytes <= shape.limit)
            fit = f"{2**30 / taken_bytes / 1e6:.1f} million"
            limit = "-" if shape.limit is None else shape.limit
            rows.append((shape.name, f"{entries:,}", f"{taken_bytes:.1f}", limit, fit, f"{taken_us:.1f}"))
    print(table(HEADS, rows))
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
