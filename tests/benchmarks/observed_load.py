"""A steady load whose records say when they were made, and a reader that notes when each is seen, committed."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, NamedTuple

from confluent_kafka import Consumer, KafkaException, TopicPartition

from tests.benchmarks.bench_broker import PARTITIONS, RECORD_BYTES
from tests.support.waiting import wait_for
from tests.verification.answers import ANSWER_TIMEOUT_S
from tests.verification.topics import Loader
from tests.verification.worker_pool import WorkerPool

if TYPE_CHECKING:
    from typing_extensions import Self

POLL_S = 0.1
LOOK_S = 0.02
OUTPUT_TIMEOUT_S = 90.0
RECORDS_PER_S = 1000


class Sight(NamedTuple):
    """One output: from which partition of the input, when that record was made, and when its output was seen."""

    partition: int
    made_s: float
    seen_s: float


def stamped(number: int) -> str:
    """A record's value: its partition and the time."""
    return f"{number % PARTITIONS} {time.monotonic()} ".ljust(RECORD_BYTES, ".")


class ObservedLoad:
    """Loads ``source`` and reads ``sink`` with ``read_committed`` while its context lasts."""

    def __init__(self, bootstrap: str, source: str, sink: str) -> None:
        self._loader = Loader(bootstrap, source, PARTITIONS, rate_per_s=RECORDS_PER_S, run_id=source, record_id=stamped)
        self._reader = Consumer({
            "bootstrap.servers": bootstrap, "group.id": "observer", "enable.auto.commit": False,
            "isolation.level": "read_committed", "fetch.wait.max.ms": 50,
        })  # fmt: skip
        self._reader.assign([TopicPartition(sink, number, 0) for number in range(PARTITIONS)])
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="observer", daemon=True)
        self.sights: list[Sight] = []

    def __enter__(self) -> Self:
        self._thread.start()
        self._loader.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._loader.stop()
        self._stopping.set()
        self._thread.join(ANSWER_TIMEOUT_S)
        self._reader.close()

    def await_output(self, pool: WorkerPool, from_s: float) -> Sight:
        """Wait for the output of a record that was made after that time, while ``pool`` is supervised.

        Raises TimeoutError.
        """
        found: Sight = wait_for(
            lambda: next((sight for sight in self.sights if sight.made_s > from_s), None),
            lambda: f"a new output: {pool.log_tail(0)}",
            pool.supervise, lambda: time.sleep(LOOK_S), timeout_s=OUTPUT_TIMEOUT_S,
        )  # fmt: skip
        return found

    def _watch(self) -> None:
        while not self._stopping.is_set():
            message = self._reader.poll(POLL_S)
            if message is None:
                continue
            if message.error() is not None:
                raise KafkaException(message.error())
            partition, made, _ = (message.value() or b"").split(b" ")
            self.sights.append(Sight(int(partition), float(made), time.monotonic()))
