"""How fast the simulated cluster is: random stories with faults, judged, until the steps are taken.

    python -m tests.benchmarks.simulation [--steps 100000] [--first 0]

Prints the rate and what was wrong, with the numbers of the stories, which tell them again. Status 1 after a violation,
or if 100,000 steps would take longer than two minutes.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor

from tests.clients.storytellers import SETTINGS, tell
from tests.verification.tables import table

AT_ONCE = 20
LIMIT_S_PER_STEP = 120.0 / 100_000


def _told(number: int) -> tuple[Counter[str], list[str]]:
    setting, mix = SETTINGS[number % len(SETTINGS)]
    story = tell(number, setting=setting, mix=mix)
    counted = Counter(
        steps=story.steps_taken,
        requests=len(story.cluster.history),
        seconds=int(story.cluster.clock()),
        accepted=story.oracle.commits["accepted"],
        records=story.records_written,
    )
    return counted, [f"story {number} ({setting}): {violation}" for violation in story.oracle.violations]


def main(arguments: list[str]) -> int:
    """Tell stories until ``--steps`` steps are taken."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--first", type=int, default=0, help="the first story's number")
    options = parser.parse_args(arguments)
    total, wrong = Counter[str](), list[str]()
    began_s, number = time.perf_counter(), options.first
    with ProcessPoolExecutor() as pool:
        while total["steps"] < options.steps:
            for counted, violations in pool.map(_told, range(number, number + AT_ONCE)):
                total.update(counted)
                wrong += violations
            number += AT_ONCE
    took_s = time.perf_counter() - began_s
    rows = [
        ("stories", f"{number - options.first:,} ({options.first} to {number - 1})"),
        ("steps", f"{total['steps']:,}"),
        ("requests served", f"{total['requests']:,}"),
        ("commits of offsets accepted", f"{total['accepted']:,}"),
        ("input records, each found once", f"{total['records']:,}"),
        ("simulated time", f"{total['seconds'] / 3600:.1f} h"),
        ("real time", f"{took_s:.1f} s"),
        ("steps a second", f"{total['steps'] / took_s:,.0f}"),
        ("violations", str(len(wrong))),
    ]
    print(table(("simulated cluster", ""), rows))
    print("\n".join(wrong), end="\n" if wrong else "")
    return int(bool(wrong) or took_s / total["steps"] > LIMIT_S_PER_STEP)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
