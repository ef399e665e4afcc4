"""The input that is loaded, the reader that watches, and what is read back: raw confluent-kafka, never the client."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec
from confluent_kafka.cimpl import NewTopic

from tests.support.reading import read_to_the_end, reader
from tests.support.waiting import wait_for
from tests.verification.answers import ANSWER_TIMEOUT_S, settled
from tests.verification.brokers import RunningBroker
from tests.verification.checker import History, Stored
from tests.verification.commands import Transform
from tests.verification.protocols import TRANSACTION_TIMEOUT_MS
from tests.verification.segments import Fates, fates

FLUSH_TIMEOUT_S = 60.0
LOAD_TICK_S = 0.01


def create_topics(
    bootstrap: str, partitions: Mapping[str, int], *, replicas: int = 1, config: Mapping[str, str] | None = None
) -> None:
    """Create topics; raises KafkaException if one cannot be created."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 4})
    topics = [NewTopic(name, count, replicas, config=dict(config or {})) for name, count in partitions.items()]
    created = admin.create_topics(topics)
    for future in created.values():
        future.result(ANSWER_TIMEOUT_S)
    await_topics(admin, partitions)


def await_topics(admin: AdminClient, partitions: Mapping[str, int]) -> None:
    """Until the broker knows and serves topics that were just created: the controller answers before that."""
    wait_for(
        lambda: not _unknown(admin, partitions),
        lambda: f"the created topics {_unknown(admin, partitions)} are known",
        timeout_s=ANSWER_TIMEOUT_S,
    )
    places = [TopicPartition(name, number) for name, count in partitions.items() for number in range(count)]
    latest: Any = OffsetSpec.latest()
    ends = dict.fromkeys(places, latest)
    settled(lambda: [end.result(ANSWER_TIMEOUT_S) for end in admin.list_offsets(ends).values()])


def _unknown(admin: AdminClient, partitions: Mapping[str, int]) -> list[str]:
    known = settled(lambda: admin.list_topics(timeout=ANSWER_TIMEOUT_S)).topics
    return [
        name
        for name, count in partitions.items()
        if name not in known or sum(place.leader >= 0 for place in known[name].partitions.values()) < count
    ]


def delete_topics(bootstrap: str, names: Sequence[str]) -> None:
    """Delete topics; raises KafkaException if one cannot be deleted."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 4})
    for future in admin.delete_topics(list(names)).values():
        future.result(ANSWER_TIMEOUT_S)


def loader_settings(bootstrap: str) -> dict[str, str | int | bool]:
    """Settings of a producer that loses nothing: a batch that is refused is not overtaken (confluent-kafka-go #921)."""
    return {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5, "max.in.flight": 1}


class Loader:
    """Writes unique ids to a topic at a steady rate in a thread, idempotently, round robin over its partitions."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        partitions: int,
        *,
        rate_per_s: int,
        run_id: str,
        size_bytes: int = 0,
        record_id: Callable[[int], str] | None = None,
    ) -> None:
        self._producer = Producer(loader_settings(bootstrap))
        self._topic = topic
        self._partitions = partitions
        self._rate_per_s = rate_per_s
        self._record_id = record_id or (lambda number: f"{run_id}-{number}{'.' * size_bytes}")
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="loader", daemon=True)
        self.loaded = 0

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> int:
        """Stop, wait until all is delivered, and return how many records there are."""
        self._stopping.set()
        self._thread.join(FLUSH_TIMEOUT_S)
        if self._thread.is_alive() or self._producer.flush(FLUSH_TIMEOUT_S):
            raise TimeoutError(f"input of {self._topic} was not delivered within {FLUSH_TIMEOUT_S} s")
        return self.loaded

    def _run(self) -> None:
        started_s = time.monotonic()
        while not self._stopping.wait(LOAD_TICK_S):
            due = int((time.monotonic() - started_s) * self._rate_per_s)
            while self.loaded < due:
                record_id = self._record_id(self.loaded).encode()
                self._producer.produce(
                    self._topic, value=record_id, key=record_id, partition=self.loaded % self._partitions
                )
                self.loaded += 1
            self._producer.poll(0)


class Watcher:
    """Reads the output with read_committed while the run goes on, and remembers all it ever saw.

    `longest_gap_s`: how long a partition with records before and after showed none.
    """

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self._consumer = reader(bootstrap)
        self._consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watcher", daemon=True)
        self.seen: list[Stored] = []
        self.longest_gap_s = 0.0
        self._last_s: dict[int, float] = {}

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> list[Stored]:
        self._stopping.set()
        self._thread.join(ANSWER_TIMEOUT_S)
        self._consumer.close()
        return self.seen

    def _run(self) -> None:
        while not self._stopping.is_set():
            for message in self._consumer.consume(2000, 0.2):
                if message.error() is None:
                    self._see(stored(message), time.monotonic())

    def _see(self, record: Stored, now_s: float) -> None:
        self.longest_gap_s = max(self.longest_gap_s, now_s - self._last_s.get(record.partition, now_s))
        self._last_s[record.partition] = now_s
        self.seen.append(record)


def stored(message: Any) -> Stored:
    """What the checker looks at."""
    return Stored(message.partition(), message.offset(), message.value() or b"")


def read_all(bootstrap: str, topic: str, partitions: int, *, isolation: str = "read_committed") -> list[Stored]:
    """The whole topic by a fresh reader, to the end of each partition (read_committed: to the last stable offset)."""
    return [stored(message) for message in read_to_the_end(reader(bootstrap, isolation), topic, partitions)]


def ends(bootstrap: str, topic: str, partitions: int) -> dict[int, int]:
    """The end offset of every partition."""
    consumer = reader(bootstrap, "read_uncommitted")
    try:
        return dict(enumerate(watermarks(consumer, topic, partitions)))
    finally:
        consumer.close()


def watermarks(consumer: Consumer, topic: str, partitions: int) -> list[int]:
    """The end of every partition as that consumer's isolation level sees it."""
    places = [TopicPartition(topic, number) for number in range(partitions)]
    return [
        settled(lambda place=place: consumer.get_watermark_offsets(place, ANSWER_TIMEOUT_S))[1]  # type: ignore[misc]
        for place in places
    ]


def open_partitions(bootstrap: str, topic: str, partitions: int) -> list[int]:
    """Partitions whose last stable offset lies before their end: a transaction is open there."""
    found = {}
    for isolation in ("read_committed", "read_uncommitted"):
        consumer = reader(bootstrap, isolation)
        found[isolation] = watermarks(consumer, topic, partitions)
        consumer.close()
    both = zip(found["read_committed"], found["read_uncommitted"], strict=True)
    return [number for number, (stable, end) in enumerate(both) if stable < end]


def await_stable_end(bootstrap: str, topic: str, partitions: int, *, timeout_s: float) -> None:
    """Until no transaction is open: its markers are written after the commit was answered, or by its timeout."""
    wait_for(
        lambda: not open_partitions(bootstrap, topic, partitions),
        lambda: f"no transaction is open on {topic}: {open_partitions(bootstrap, topic, partitions)}",
        lambda: time.sleep(0.1),
        timeout_s=timeout_s,
    )


def committed(
    bootstrap: str, group: str, topic: str, partitions: int, *, isolation: str = "read_uncommitted"
) -> dict[int, int | None]:
    """The group's committed offsets as they stand now (read_committed: once none is pending); None where there is none.

    Asked by a consumer that never joins: the admin client's own call crashes the process when it meets a coordinator
    that is still loading (librdkafka 2.16.0).
    """
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "isolation.level": isolation})
    places = [TopicPartition(topic, number) for number in range(partitions)]
    try:
        answers = settled(lambda: consumer.committed(places, ANSWER_TIMEOUT_S))
    finally:
        consumer.close()
    for place in answers:
        if place.error is not None:
            raise KafkaException(place.error)
    return {place.partition: place.offset if place.offset >= 0 else None for place in answers}


def wait_until_drained(
    bootstrap: str, group: str, topic: str, partitions: int, *, timeout_s: float, tick: Callable[[], None]
) -> float | None:
    """Seconds until the group's offsets reached the end of the input; None if they did not within `timeout_s`."""
    goal = ends(bootstrap, topic, partitions)
    started_s = time.monotonic()
    while time.monotonic() - started_s < timeout_s:
        tick()
        offsets = committed(bootstrap, group, topic, partitions)
        if all(end == 0 or (offsets[number] or 0) >= end for number, end in goal.items()):
            return time.monotonic() - started_s
        time.sleep(0.2)
    return None


def read_history(
    broker: RunningBroker,
    *,
    group: str,
    source: str,
    sink: str,
    partitions: int,
    watched: list[Stored],
    transform: Transform = Transform.COPY,
) -> History:
    """Everything the checker needs, from the broker, its data on disk and its log."""
    inputs = read_all(broker.bootstrap, source, partitions)
    found = _settled_fates(broker, sink)
    return History(
        inputs=inputs if transform is Transform.COPY else halves_of(inputs),
        outputs=read_all(broker.bootstrap, sink, partitions),
        input_ends=ends(broker.bootstrap, source, partitions),
        committed=committed(broker.bootstrap, group, source, partitions),
        watched=watched,
        aborted=found.aborted,
        unfinished=found.unfinished,
        broker_log=tuple(broker.log_lines()),
    )


def halves_of(inputs: Sequence[Stored]) -> list[Stored]:
    """Both outputs that `halves` makes of each input, so that a torn transaction has lost one of them.

    They are named by the input's place: the loader itself may write a record twice while leaders move.
    """
    return [
        Stored(record.partition, record.offset, f"{record.partition}:{record.offset}:{half}".encode())
        for record in inputs
        for half in "ab"
    ]


def _settled_fates(broker: RunningBroker, sink: str) -> Fates:
    """A committed transaction's markers come a moment later, a killed worker's transaction ends by its timeout."""
    deadline_s = time.monotonic() + TRANSACTION_TIMEOUT_MS / 1000 + ANSWER_TIMEOUT_S
    while (found := _fates(broker, sink)).unfinished and time.monotonic() < deadline_s:
        time.sleep(0.2)
    return found


def _fates(broker: RunningBroker, sink: str) -> Fates:
    """What any replica has: one that is behind has records of which the others know the end."""
    replicas = [fates(directory, sink) for directory in broker.directories]
    committed = {place for found in replicas for place in found.committed}
    aborted = {place for found in replicas for place in found.aborted}
    unfinished = {place for found in replicas for place in found.unfinished} - committed - aborted
    return Fates(committed, aborted, unfinished)
