"""Whether each number came out once: read back with read_committed, judged by the checker of the other runs."""

from __future__ import annotations

import time
from dataclasses import dataclass

from confluent_kafka import Consumer

from tests.verification.checker import History, Rule, Status, Stored, Verdict, check
from tests.verification.topics import read_all, watermarks

STABLE_TIMEOUT_S = 75.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What is in the topic after a run. `reordered` counts per key and output partition."""

    verdict: Verdict

    @property
    def lost(self) -> int:
        return self.verdict.count(Rule.LOST)

    @property
    def doubled(self) -> int:
        return self.verdict.count(Rule.DOUBLED)

    @property
    def reordered(self) -> int:
        return self.verdict.count(Rule.REORDERED)

    @property
    def inconclusive(self) -> bool:
        return self.verdict.status is Status.INCONCLUSIVE

    @property
    def exactly_once(self) -> bool:
        return not (self.lost or self.doubled or self.verdict.count(Rule.INVENTED) or self.inconclusive)

    def __str__(self) -> str:
        return str(self.verdict)


def judge(bootstrap: str, topic: str, partitions: int, total: int, keys: int, broker_log: str = "") -> Outcome:
    """The numbers 0 to `total` are the oracle; a key's numbers must come in order within an output partition."""
    await_stable_end(bootstrap, topic, partitions)
    inputs = [Stored(number % keys, number, str(number).encode()) for number in range(total)]
    outputs = read_all(bootstrap, topic, partitions)
    return Outcome(check(History(inputs, outputs, {}, {}, broker_log=broker_log.splitlines())))


def await_stable_end(bootstrap: str, topic: str, partitions: int) -> None:
    """Until no transaction is open; one that a killed process left behind ends by its timeout at the latest."""
    deadline_s = time.monotonic() + STABLE_TIMEOUT_S
    while (lag := open_partitions(bootstrap, topic, partitions)) and time.monotonic() < deadline_s:
        time.sleep(0.1)
    if lag:
        raise TimeoutError(f"{topic}: transactions are still open on partitions {lag} after {STABLE_TIMEOUT_S} s")


def open_partitions(bootstrap: str, topic: str, partitions: int) -> list[int]:
    """Partitions whose last stable offset lies before their end: a transaction is open there."""
    ends = {}
    for isolation in ("read_committed", "read_uncommitted"):
        settings = {"bootstrap.servers": bootstrap, "group.id": "rig-reader", "isolation.level": isolation}
        consumer = Consumer(settings)
        ends[isolation] = watermarks(consumer, topic, partitions)
        consumer.close()
    both = zip(ends["read_committed"], ends["read_uncommitted"], strict=True)
    return [number for number, (stable, end) in enumerate(both) if stable < end]
