"""What a partition's memory of one idempotent producer costs: the latest sequence only against Kafka's five batches.

    python -m tests.benchmarks.producer_state_memory [--producers 1000000]

Each shape is filled in a process of its own, which tells by how much its resident memory grew. Every producer writes
five batches, so that all windows are full. Exit status 1 when the packed latest sequence is above its target.
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

from eos_client.testing.simulator.brokers.model import NewRecord, RecordBatch
from eos_client.testing.simulator.brokers.producer_state import FiveBatches, LatestSequence
from tests.verification.tables import table

BYTES_MAX = 40
BATCHES, RECORDS_A_BATCH = 5, 3
FIRST_PRODUCER_ID = 2**40
WINDOW = 10_000_000


class _States(Protocol):
    def record_append(self, batch: RecordBatch, base_offset: int, now_s: float) -> None: ...


class _KnownBatch(NamedTuple):
    last_sequence: int
    last_offset: int
    record_count: int


@dataclass(slots=True)
class _Entry:
    epoch: int
    used_s: float
    batches: tuple[_KnownBatch, ...]


class AsObjects:
    """The same facts as a dictionary of objects, the way one would write it without a thought for memory."""

    def __init__(self, batches_kept: int) -> None:
        self._kept = batches_kept
        self._entries: dict[int, _Entry] = {}

    def record_append(self, batch: RecordBatch, base_offset: int, now_s: float) -> None:
        """Remember ``batch``."""
        entry = self._entries.setdefault(batch.producer_id, _Entry(batch.producer_epoch, now_s, ()))
        count = len(batch.records)
        known = _KnownBatch(batch.base_sequence + count - 1, base_offset + count - 1, count)
        entry.batches = (*entry.batches, known)[-self._kept :]
        entry.used_s = now_s


SHAPES: dict[str, Callable[[], _States]] = {
    "latest sequence, packed": lambda: LatestSequence(WINDOW),
    "five batches, packed": FiveBatches,
    "latest sequence, objects": lambda: AsObjects(1),
    "five batches, objects": lambda: AsObjects(5),
}


def fill(states: _States, producers: int) -> None:
    """Let each producer write its batches, round by round, among the others."""
    records = (NewRecord(b"v"),) * RECORDS_A_BATCH
    for turn in range(BATCHES):
        for number in range(producers):
            batch = RecordBatch(records, FIRST_PRODUCER_ID + number, 3, turn * RECORDS_A_BATCH)
            states.record_append(batch, (turn * producers + number) * RECORDS_A_BATCH, 1000.0 + turn)


def measure(shape: str, producers: int) -> tuple[float, float]:
    """Return the bytes of resident memory a producer, and the microseconds of processor time a batch."""
    states = SHAPES[shape]()
    gc.collect()
    before = _resident_bytes()
    began_s = time.process_time()
    fill(states, producers)
    took_s = time.process_time() - began_s
    gc.collect()
    return (_resident_bytes() - before) / producers, took_s / producers / BATCHES * 1e6


def _resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure every shape and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--producers", type=int, default=1_000_000)
    producers = parser.parse_args(arguments).producers
    spawn = multiprocessing.get_context("spawn")
    measured: dict[str, tuple[float, float]] = {}
    for shape in SHAPES:
        with ProcessPoolExecutor(1, mp_context=spawn) as one:
            measured[shape] = one.submit(measure, shape, producers).result()
    rows = [
        (shape, f"{bytes_each:.1f}", f"{2**30 / bytes_each / 1e6:.1f}", f"{took_us:.2f}")
        for shape, (bytes_each, took_us) in measured.items()
    ]
    print(f"{producers:,} producers in one partition, {BATCHES} batches each")
    print(table(("shape", "bytes a producer", "million in 1 GiB", "CPU us a batch"), rows))
    return 0 if measured["latest sequence, packed"][0] <= BYTES_MAX else 1


if __name__ == "__main__":
    sys.exit(main())
