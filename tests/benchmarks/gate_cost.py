"""What the gate costs a commit, in microseconds: the decision alone, and the whole check in the commit path.

    python -m tests.benchmarks.gate_cost

The check is made on a real, joined consumer that has consumed from 4, 64 and 500 partitions: read the membership,
build the attempt, decide. Serving callbacks is part of every poll loop and is shown beside it. Exit status: 0 when the
median check is below the target for every count.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import Producer

from eos_client.clients.commit_decisions import CommitDecisions
from eos_client.clients.consumer import EosConsumer
from eos_client.clock import MONOTONIC_CLOCK
from eos_client.core.commit_gate import CommitAttempt, CommitDecision, CommitRuling
from eos_client.observe import Event
from eos_client.ports import MembershipSnapshot
from eos_client.testing.embedded_kafka import EmbeddedKafka
from tests.verification.protocols import LATEST_VERSION
from tests.verification.tables import table
from tests.verification.topics import create_topics

PARTITION_COUNTS = (4, 64, 500)
REPEATS = 400
CHECK_US_MAX = 100.0
CONSUME_TIMEOUT_S = 60.0
HEADS = ("partitions", "decide us", "whole check us", "p99 us", "serve callbacks us")


def quiet(event: Event) -> None:
    """500 partitions make long log lines."""


def timed_us(call: Callable[[], object]) -> list[float]:
    """Each of many calls, in microseconds, after a warm-up."""
    for _ in range(REPEATS // 10):
        call()
    taken = []
    for _ in range(REPEATS):
        started_ns = time.perf_counter_ns()
        call()
        taken.append((time.perf_counter_ns() - started_ns) / 1000)
    return taken


def fill(bootstrap: str, topic: str, partitions: int) -> None:
    """Two records in each partition."""
    create_topics(bootstrap, {topic: partitions})
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(2 * partitions):
        producer.produce(topic, value=b"v", partition=number % partitions)
    producer.flush(CONSUME_TIMEOUT_S)


def consume_all(consumer: EosConsumer, partitions: int) -> None:
    """Until there is uncommitted work on every partition."""
    deadline_s = time.monotonic() + CONSUME_TIMEOUT_S
    while len(consumer.adapter.positions) < partitions:
        consumer.consume(500, 0.1)
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"records of {len(consumer.adapter.positions)} of {partitions} partitions after 60 s")


def row(bootstrap: str, partitions: int) -> tuple[list[object], bool]:
    """One line of the table, and whether the target is met."""
    topic = f"gate-{partitions}"
    fill(bootstrap, topic, partitions)
    settings = {"bootstrap.servers": bootstrap, "group.id": topic, "group.protocol": "consumer"}
    consumer = EosConsumer(settings, hook=quiet)
    attempts = CommitDecisions(consumer.adapter, quiet, MONOTONIC_CLOCK)
    consumer.subscribe([topic])
    consume_all(consumer, partitions)

    def check() -> tuple[CommitRuling, MembershipSnapshot]:
        return attempts.decide_after_callbacks(lambda: consumer.adapter.positions)

    ruling, snapshot = check()
    if ruling.decision is not CommitDecision.COMMIT:
        raise RuntimeError(f"the gate is to be measured open, but rules {ruling}")
    attempt = CommitAttempt(consumer.adapter.positions, snapshot.generation, generation_is_synced=True)
    decide_us = timed_us(lambda: consumer.gate.decide(attempt))
    check_us = timed_us(check)
    serve_us = timed_us(consumer.adapter.fetching.serve_callbacks)
    consumer.close()
    median_us = statistics.median(check_us)
    p99_us = statistics.quantiles(check_us, n=100)[98]
    figures = [statistics.median(decide_us), median_us, p99_us, statistics.median(serve_us)]
    return [partitions, *[f"{figure:.1f}" for figure in figures]], median_us < CHECK_US_MAX


def main(arguments: list[str]) -> int:
    """Measure and print the table."""
    if arguments:
        raise SystemExit(f"no arguments are known, got {arguments}")
    with (
        tempfile.TemporaryDirectory(prefix="gate-") as name,
        EmbeddedKafka(version=LATEST_VERSION, directory=Path(name)) as broker,
    ):
        rows, met = zip(*[row(broker.bootstrap_servers, count) for count in PARTITION_COUNTS], strict=True)
    print(f"gate, medians of {REPEATS} (target: whole check < {CHECK_US_MAX:.0f} us)")
    print(table(HEADS, rows))
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
