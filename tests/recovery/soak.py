"""Two hundred forced recoveries in a row, with workers running: `python -m tests.recovery.soak`.

    python -m tests.recovery.soak [--recoveries 200] [--seed N]

Exit status: 0 nothing lost, doubled or torn, and nothing leaked; 1 otherwise; 2 the broker itself broke atomicity.
"""

from __future__ import annotations

import argparse
import itertools
import random
import statistics
import sys

from eos_client.testing.embedded_kafka import EmbeddedKafka
from tests.kafka.loop_support import Job
from tests.recovery.forced_recoveries import BROKER, QUICK, SLOW, ForcedRecoveries, opened
from tests.verification.checker import Status
from tests.verification.conclusive import BrokerLog
from tests.verification.tables import table

SLOW_EVERY, EXPIRY_EVERY, RESTART_EVERY = 8, 50, 60
SLACK = 8
GROWTH_MAX_MB = 30
WARM, LOOK_EVERY = 20, 50


def force(forced: ForcedRecoveries, recoveries: int) -> list[dict[str, int]]:
    """Bring about so many; returns what was open after the warm-up, then after each fifty."""
    quick, slow = itertools.cycle(QUICK.items()), itertools.cycle(SLOW.items())
    looks = []
    for number in range(1, recoveries + 1):
        if number % RESTART_EVERY == 0:
            forced.restart_broker()
        if number % EXPIRY_EVERY == 0:
            forced.expire()
        forced.one(*next(slow if number % SLOW_EVERY == 0 else quick))
        if number == WARM or number % LOOK_EVERY == 0:
            forced.await_work()
            looks.append(opened())
            print(f"{number}: {looks[-1]}", flush=True)
    return looks


def report(forced: ForcedRecoveries, looks: list[dict[str, int]], verdict: object) -> None:
    """What was caused, how long it took, what became of the records."""
    to_commit_s = [event.to_commit_s for worker in forced.workers for event in worker.recovered]
    rebuilt_s = [seconds for worker in forced.workers for seconds in worker.rebuilt_s]
    print(table(("cause", "times"), [[name, count] for name, count in sorted(forced.caused.items())]))
    for name, seconds in (("failure to first commit", to_commit_s), ("rebuild", rebuilt_s)):
        print(f"{name}: {len(seconds)}, median {statistics.median(seconds):.3f} s, longest {max(seconds):.3f} s")
    print(f"open after {WARM} and at the end: {looks[0]}, {looks[-1]}")
    print(verdict)


def main(arguments: list[str]) -> int:
    """Run, print, judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recoveries", type=int, default=200)
    parser.add_argument("--seed", type=int, default=None)
    options = parser.parse_args(arguments)
    if options.recoveries < LOOK_EVERY:
        sys.exit(f"--recoveries {options.recoveries}: a leak shows between two looks; give {LOOK_EVERY} or more")
    seed = random.SystemRandom().randrange(1_000_000) if options.seed is None else options.seed
    print(f"seed {seed}", flush=True)
    with EmbeddedKafka(properties=BROKER) as broker:
        log = BrokerLog(broker)
        with Job(broker) as job, ForcedRecoveries(broker, job, seed) as forced:
            forced.await_work()
            looks = force(forced, options.recoveries)
            forced.finish()
            verdict = job.verdict()
            report(forced, looks, verdict)
            if verdict.status is not Status.HOLDS:
                return 2 if log.tells_of_hole() else 1
    first, last = looks[0], looks[-1]
    leaked = any(last[name] > first[name] + SLACK for name in ("threads", "handles"))
    return int(leaked or last["resident MB"] > first["resident MB"] + GROWTH_MAX_MB)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
