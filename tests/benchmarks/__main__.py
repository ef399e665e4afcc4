"""`make bench`: every figure that the docs claim. Names of sections choose some of them, `--quick` makes all short.

Status 1 if a section misses its target. A quick run shows that each section works; its figures mean nothing, and so
does the status of those sections that have targets for speed.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from tests.benchmarks import (
    commit_checks,
    failover,
    gate_cost,
    latency,
    offset_memory,
    output_objects,
    plugin_start,
    producer_state_memory,
    recovery,
    refusals,
    simulation,
    throughput,
)


class Section(NamedTuple):
    """A benchmark, and the arguments that make it short."""

    main: Callable[[list[str]], int]
    quick: Sequence[str] = ()


SECTIONS = {
    "throughput": Section(throughput.main, ("--rounds", "1", "--seconds", "0.5", "--records", "6000000")),
    "latency": Section(latency.main, ("--seconds", "1")),
    "failover": Section(failover.main, ("--rounds", "1")),
    "recovery": Section(recovery.main, ("--recoveries", "3")),
    "output-objects": Section(output_objects.main, ("--rounds", "3", "--objects", "30000")),
    "plugin-start": Section(plugin_start.main, ("--rounds", "3")),
    "gate-cost": Section(gate_cost.main),
    "refusals": Section(refusals.main, ("--seconds", "5")),
    "commit-checks": Section(commit_checks.main, ("--stories", "4")),
    "simulation": Section(simulation.main, ("--steps", "5000")),
    "offset-memory": Section(offset_memory.main, ("--entries", "50000")),
    "producer-state-memory": Section(producer_state_memory.main, ("--producers", "50000")),
}


def main(arguments: list[str]) -> int:
    """Run the chosen sections, whatever each of them says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=f"all by default: {', '.join(SECTIONS)}")
    parser.add_argument("--quick", action="store_true", help="a short run of each, for development")
    options = parser.parse_args(arguments)
    if unknown := set(options.sections) - set(SECTIONS):
        parser.error(f"no such section: {', '.join(sorted(unknown))}; there are {', '.join(SECTIONS)}")
    missed = []
    for name in options.sections or SECTIONS:
        began_s = time.monotonic()
        print(f"\n== {name}", flush=True)
        if SECTIONS[name].main(list(SECTIONS[name].quick) if options.quick else []):
            missed.append(name)
        print(f"== {name} took {time.monotonic() - began_s:.0f} s", flush=True)
    print(f"targets are missed in: {', '.join(missed)}" if missed else "all targets are reached")
    return int(bool(missed) and not options.quick)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
