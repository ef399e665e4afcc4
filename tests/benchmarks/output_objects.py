"""What it takes to make an object of a value and a key and to read both back, by kind of object, in nanoseconds.

    python -m tests.benchmarks.output_objects [--rounds 9] [--objects 300000]

The hand-written loop returns a tuple and ``produce_batch`` takes a dict. The other kinds say by name what they hold and
have room for a topic, headers, a partition and a timestamp, as an ``OutputRecord`` has; a namespace takes any other
name, too. Medians of interleaved rounds of one thread's processor time.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

from eos_client import OutputRecord
from tests.verification.tables import table

VALUE, KEY = b"x" * 100, b"key"
HEADS = ("kind", "made and read, ns")


class Named(NamedTuple):
    """As an OutputRecord, but a tuple."""

    value: Any
    key: Any = None
    topic: str | None = None
    headers: Any = None
    partition: int | None = None
    timestamp_ms: int | None = None


class Namespace(SimpleNamespace):
    """What C makes of the names that are given; the others are found in the class."""

    topic = key = headers = partition = timestamp_ms = None


def nothing(times: range) -> None:
    for _ in times:
        pass


def of_tuple(times: range) -> None:
    for _ in times:
        made = (VALUE, KEY)
        _value, _key = made


def of_dict(times: range) -> None:
    for _ in times:
        made = {"value": VALUE, "key": KEY}
        _value, _key = made["value"], made["key"]


def of_output_record(times: range) -> None:
    for _ in times:
        made = OutputRecord(value=VALUE, key=KEY)
        _value, _key = made.value, made.key


def of_namespace(times: range) -> None:
    for _ in times:
        made = Namespace(value=VALUE, key=KEY)
        _value, _key = made.value, made.key


def of_named_tuple(times: range) -> None:
    for _ in times:
        made = Named(value=VALUE, key=KEY)
        _value, _key = made.value, made.key


KINDS: dict[str, Callable[[range], None]] = {
    "tuple": of_tuple,
    "dict": of_dict,
    "SimpleNamespace": of_namespace,
    "OutputRecord (a frozen msgspec.Struct)": of_output_record,
    "NamedTuple": of_named_tuple,
}


def seconds(work: Callable[[range], None], times: range) -> float:
    began_s = time.thread_time()
    work(times)
    return time.thread_time() - began_s


def main(arguments: list[str]) -> int:
    """Measure each kind and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--objects", type=int, default=300_000)
    options = parser.parse_args(arguments)
    times = range(options.objects)
    taken: dict[str, list[float]] = {name: [] for name in KINDS}
    for _ in range(options.rounds):
        empty_s = seconds(nothing, times)
        for name, work in KINDS.items():
            taken[name].append((seconds(work, times) - empty_s) / options.objects * 1e9)
    print(table(HEADS, [(name, f"{statistics.median(each):.0f}") for name, each in taken.items()]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
