"""How long a producer is away: from the failure over the rebuild to the first commit after it, on loopback.

    python -m tests.benchmarks.recovery [--recoveries 30]

The failure is a real one: somebody else initialises the loop's transactional.id, while records keep coming. Exit
status 1 when the median is above the target.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import threading
import time
from collections.abc import Sequence

from confluent_kafka import Producer

from eos_client import EosConfig, ExactlyOnceLoop
from eos_client.observe import Event, LoopStarted, ProducerRebuilt, ProducerRecovered
from eos_client.testing.embedded_kafka import EmbeddedKafka
from tests.benchmarks.contenders.eos_client_loop import copy_value
from tests.verification.tables import table
from tests.verification.topics import Loader, create_topics

TO_COMMIT_MAX_S = 1.0
RECOVERY_S = 30.0
BETWEEN_S = 0.2
PARTITIONS, RECORDS_PER_S = 4, 500
SOURCE, SINK, GROUP = "recovery-in", "recovery-out", "recovery"


class Watched:
    """A loop's hook that keeps what is measured."""

    def __init__(self) -> None:
        self.transactional_id = ""
        self.started = threading.Event()
        self.rebuilds_s: list[float] = []
        self.to_commits_s: list[float] = []

    def __call__(self, event: Event) -> None:
        """Take note of the event."""
        if isinstance(event, LoopStarted):
            self.transactional_id = event.transactional_id
            self.started.set()
        elif isinstance(event, ProducerRebuilt):
            self.rebuilds_s.append(event.duration_s)
        elif isinstance(event, ProducerRecovered):
            self.to_commits_s.append(event.to_commit_s)


def fence_again_and_again(bootstrap: str, watched: Watched, recoveries: int) -> None:
    """Take the id away and wait until the loop has committed again."""
    for number in range(1, recoveries + 1):
        other = Producer({"bootstrap.servers": bootstrap, "transactional.id": watched.transactional_id, "log_level": 0})
        other.init_transactions(RECOVERY_S)
        other.close()
        deadline_s = time.monotonic() + RECOVERY_S
        while len(watched.to_commits_s) < number:
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"recovery {number} took more than {RECOVERY_S:g} s")
            time.sleep(0.01)
        time.sleep(BETWEEN_S)


def measure(bootstrap: str, recoveries: int) -> Watched:
    """Run a loop and fence it so many times."""
    create_topics(bootstrap, {SOURCE: PARTITIONS, SINK: PARTITIONS})
    loader = Loader(bootstrap, SOURCE, PARTITIONS, rate_per_s=RECORDS_PER_S, run_id="r")
    watched = Watched()
    config = EosConfig({"bootstrap.servers": bootstrap, "log_level": 0}, group_id=GROUP)
    with ExactlyOnceLoop(config, [SOURCE], copy_value, output_topic=SINK, hook=watched) as loop:
        worker = threading.Thread(target=loop.run, name="loop")
        loader.start()
        worker.start()
        try:
            if not watched.started.wait(RECOVERY_S):
                raise TimeoutError(f"the loop did not start within {RECOVERY_S:g} s")
            fence_again_and_again(bootstrap, watched, recoveries)
        finally:
            loader.stop()
            loop.stop()
            worker.join(RECOVERY_S)
    return watched


def row(name: str, seconds: Sequence[float]) -> list[object]:
    """One line of the table, in milliseconds."""
    figures = (statistics.median(seconds), min(seconds), max(seconds))
    return [name, len(seconds), *(f"{each * 1000:.0f}" for each in figures)]


def main(arguments: list[str]) -> int:
    """Measure, print, judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recoveries", type=int, default=30)
    options = parser.parse_args(arguments)
    with EmbeddedKafka() as broker:
        watched = measure(broker.bootstrap_servers, options.recoveries)
    print("\nproducer recovery after a fence, milliseconds")
    rows = [row("rebuild", watched.rebuilds_s), row("failure to first commit", watched.to_commits_s)]
    print(table(("", "times", "median", "min", "max"), rows))
    print(f"at most {TO_COMMIT_MAX_S * 1000:.0f} at the median")
    return int(statistics.median(watched.to_commits_s) > TO_COMMIT_MAX_S)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
