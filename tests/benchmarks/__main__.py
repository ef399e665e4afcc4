"""`make bench`: costs of gate and memory, recovery, throughput, refused commits. Status 1 if one misses its target."""

from __future__ import annotations

import argparse
import sys

from tests.benchmarks import (
    commit_checks,
    gate_cost,
    offset_memory,
    producer_state_memory,
    recovery,
    refusals,
    simulation,
    throughput,
)


def main(arguments: list[str]) -> int:
    """Run all of them, whatever each of them says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="throughput rounds")
    parser.add_argument("--seconds", type=float, default=50.0, help="length of each storm")
    options = parser.parse_args(arguments)
    statuses = [
        gate_cost.main([]),
        offset_memory.main([]),
        producer_state_memory.main([]),
        simulation.main([]),
        commit_checks.main([]),
        recovery.main([]),
        throughput.main(["--rounds", str(options.rounds)]),
        refusals.main(["--seconds", str(options.seconds)]),
    ]
    return max(statuses)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
