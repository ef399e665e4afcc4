"""The embedded broker that every contender of a section works on, with settings that no one may vary."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from eos_client.testing.embedded_kafka import EmbeddedKafka
from tests.benchmarks.contenders.assignment import Assignment
from tests.benchmarks.lineup import Contender
from tests.verification.protocols import LATEST_VERSION
from tests.verification.topics import create_topics
from tests.verification.worker_pool import WorkerPool

PARTITIONS = 4
RECORD_BYTES = 100
COMMIT_INTERVAL_S = 0.1
SESSION_TIMEOUT_MS = 6_000
PROPERTIES: Mapping[str, str] = {
    # What a turn has written is gone before the next one begins.
    "log.segment.delete.delay.ms": "1000",
    # Processes that are started together meet in their group's first generation.
    "group.initial.rebalance.delay.ms": "1000",
    "group.consumer.session.timeout.ms": str(SESSION_TIMEOUT_MS),
}
HEAP_MB = 1024


@dataclass(frozen=True)
class Bench:
    """Where contenders work, and where they write their logs."""

    bootstrap: str
    logs: Path

    def pool(self, contender: Contender, task: Task) -> WorkerPool:
        """Processes of the contender on this task, none of them started yet, with an output topic of their own."""
        create_topics(self.bootstrap, {task.name: PARTITIONS})
        logs = self.logs / task.name
        logs.mkdir()

        def command(slot: int) -> list[str]:
            return contender.command(
                Assignment(
                    self.bootstrap, task.name, task.source, task.name, str(slot),
                    task.commit_interval_s, task.work, str(logs / f"state-{slot}"), dict(task.settings),
                )
            )  # fmt: skip

        return WorkerPool(command, logs)


@dataclass(frozen=True)
class Task:
    """What is copied: from ``source`` to a topic that has the name of the task, as the group of that name."""

    name: str
    source: str
    work: str
    commit_interval_s: float = COMMIT_INTERVAL_S
    settings: Mapping[str, str] = field(default_factory=dict)


@contextlib.contextmanager
def bench_broker() -> Iterator[Bench]:
    """A broker for one section."""
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as name,
        EmbeddedKafka(
            version=LATEST_VERSION, properties=PROPERTIES, heap_mb=HEAP_MB, directory=Path(name, "broker")
        ) as broker,
    ):
        logs = Path(name, "logs")
        logs.mkdir()
        yield Bench(broker.bootstrap_servers, logs)
