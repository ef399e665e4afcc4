"""Records per second of our loop beside a hand-written one, tuned and with librdkafka's defaults.

    python -m tests.benchmarks.throughput [--rounds 5] [--seconds 5] [--records 3000000]

Each contender is a process of its own; they take turns, round by round, on one broker and the same input, and the
medians are compared. The targets are about like and like: every loop calls the same trivial transform for each record.
Beside them stand a raw loop that calls none, and values with keys as `OutputRecord`. Exit status: 0 when both targets
are reached.
"""

from __future__ import annotations

import argparse
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import Producer

from eos_client.testing.embedded_kafka import EmbeddedKafka
from tests.benchmarks.contender_arguments import INLINE, KEYED, TRANSFORM
from tests.benchmarks.measure import Measurement
from tests.verification.protocols import LATEST_VERSION
from tests.verification.tables import table
from tests.verification.topics import create_topics, delete_topics
from tests.verification.worker_pool import REPOSITORY

PARTITIONS = 4
RECORD_BYTES = 100
CONTENDER_TIMEOUT_S = 180.0
LOAD_TIMEOUT_S = 120.0
SETTLE_S = 3.0  # the broker deletes what a turn has written one second later
OF_TUNED_MIN = 0.95
OF_DEFAULTS_MIN = 1.4
SOURCE = "throughput-in"


@dataclass(frozen=True, slots=True)
class Contender:
    """A module that is run as a process, with librdkafka settings."""

    name: str
    module: str
    config: Mapping[str, str] = field(default_factory=dict)
    form: str = TRANSFORM


SDK, RAW = "tests.benchmarks.sdk_contender", "tests.benchmarks.raw_contender"
TUNING = {"fetch.queue.backoff.ms": "10", "retry.backoff.ms": "10", "reconnect.backoff.ms": "10"}
OURS = Contender("eos-client loop", SDK)
TUNED = Contender("raw loop, tuned, same transform", RAW, TUNING)
DEFAULTS = Contender("raw loop, librdkafka defaults, same transform", RAW)
TUNED_INLINE = Contender("raw loop, tuned, no transform called", RAW, TUNING, INLINE)
OURS_KEYED = Contender("eos-client loop, OutputRecord with key", SDK, form=KEYED)
TUNED_KEYED = Contender("raw loop, tuned, with key, no transform called", RAW, TUNING, KEYED)
CONTENDERS = (OURS, TUNED, DEFAULTS, TUNED_INLINE, OURS_KEYED, TUNED_KEYED)


def load(bootstrap: str, records: int) -> None:
    """Fill the input topic."""
    create_topics(bootstrap, {SOURCE: PARTITIONS})
    producer = Producer({
        "bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 20, "batch.num.messages": 10_000,
        "queue.buffering.max.messages": 1_000_000,
    })  # fmt: skip
    value = b"v" * RECORD_BYTES
    for number in range(records):
        producer.produce(SOURCE, value=value, key=b"%08d" % number, partition=number % PARTITIONS)
        if number % 10_000 == 0:
            producer.poll(0)
            if len(producer) > 500_000:
                producer.flush(LOAD_TIMEOUT_S)
    if producer.flush(LOAD_TIMEOUT_S):
        raise TimeoutError(f"{records} records were not loaded within {LOAD_TIMEOUT_S} s")


def run(contender: Contender, bootstrap: str, options: argparse.Namespace, turn: int) -> Measurement:
    """One turn of one contender, to an output topic of its own. Raises CalledProcessError when it fails."""
    name = f"turn-{turn}-{CONTENDERS.index(contender)}"
    create_topics(bootstrap, {name: PARTITIONS})
    command = [sys.executable, "-m", contender.module, "--bootstrap", bootstrap, "--group", name]
    command += ["--from", SOURCE, "--to", name, "--records", str(options.records)]
    command += ["--seconds", str(options.seconds), "--form", contender.form]
    for key, value in contender.config.items():
        command += ["--config", f"{key}={value}"]
    finished = subprocess.run(
        command, cwd=REPOSITORY, check=True, stdout=subprocess.PIPE, text=True, timeout=CONTENDER_TIMEOUT_S
    )
    delete_topics(bootstrap, [name])
    time.sleep(SETTLE_S)
    return Measurement.from_json(finished.stdout.splitlines()[-1])


def in_turn(turn: int) -> list[Contender]:
    """Each round has an order of its own: what the one before left to the disk and to the broker's heap counts."""
    return random.Random(turn).sample(CONTENDERS, len(CONTENDERS))


def medians(rounds: list[Measurement]) -> tuple[float, float]:
    """Median rate and median CPU cost."""
    return (
        statistics.median(one.records_per_s for one in rounds),
        statistics.median(one.cpu_us_per_record for one in rounds),
    )


def report(measured: Mapping[str, list[Measurement]]) -> bool:
    """Print the table; whether both targets are reached."""
    rates = {name: medians(rounds)[0] for name, rounds in measured.items()}
    rows = []
    for name, rounds in measured.items():
        rate, cpu_us = medians(rounds)
        each = [one.records_per_s for one in rounds]
        spread = f"{min(each):,.0f} - {max(each):,.0f}"
        rows.append([name, f"{rate:,.0f}", spread, f"{cpu_us:.1f}"])
    print(table(("contender", "records/s", "min - max", "CPU us/record"), rows))
    of_tuned, of_defaults = rates[OURS.name] / rates[TUNED.name], rates[OURS.name] / rates[DEFAULTS.name]
    of_inline = rates[OURS.name] / rates[TUNED_INLINE.name]
    of_keyed = rates[OURS_KEYED.name] / rates[TUNED_KEYED.name]
    print(f"ours / tuned raw loop, same transform:            {of_tuned:.2f}  (target {OF_TUNED_MIN})")
    print(f"ours / default raw loop, same transform:          {of_defaults:.2f}  (target {OF_DEFAULTS_MIN})")
    print(f"ours / tuned raw loop that calls no transform:    {of_inline:.2f}")
    print(f"ours with OutputRecord / the same, with key:      {of_keyed:.2f}")
    return of_tuned >= OF_TUNED_MIN and of_defaults >= OF_DEFAULTS_MIN


def main(arguments: list[str]) -> int:
    """Run the rounds and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--records", type=int, default=3_000_000, help="size of the input")
    parser.add_argument("--seconds", type=float, default=5.0, help="length of each turn")
    options = parser.parse_args(arguments)
    measured: dict[str, list[Measurement]] = {contender.name: [] for contender in CONTENDERS}
    with tempfile.TemporaryDirectory(prefix="throughput-") as name:
        properties = {"log.segment.delete.delay.ms": "1000"}
        with EmbeddedKafka(version=LATEST_VERSION, properties=properties, heap_mb=1024, directory=Path(name)) as broker:
            load(broker.bootstrap_servers, options.records)
            for turn in range(options.rounds):
                for contender in in_turn(turn):
                    measurement = run(contender, broker.bootstrap_servers, options, turn)
                    measured[contender.name].append(measurement)
                    print(f"{turn + 1}: {contender.name}: {measurement.records_per_s:,.0f} records/s", flush=True)
    print(f"\n{RECORD_BYTES}-byte records, {PARTITIONS} partitions, commit every 100 ms, {options.rounds} rounds")
    return 0 if report(measured) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
