"""What producers write while the leaders of their topics move: each record of a known outcome once, or how often not.

    python -m tests.verification.elections [--seconds N] [--producers transactional idempotent ...]

Three brokers, one topic of three partitions, whose leaders move every second to another replica; for one of the
producers those of the transaction coordinators' topic, too. A record carries the number of its attempt, so that one
that the application has written again after an abort is not taken for a doubled one. Exit status 1 if a transaction is
wrong.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from eos_client import EosProducer
from eos_client.errors import AbortableError, EosError
from eos_client.testing import EmbeddedKafkaCluster
from tests.support.reading import read_to_the_end, reader
from tests.verification.cluster_faults import TRANSACTIONS_TOPIC, LeaderMover, acting
from tests.verification.tables import table

HEADS = (
    "producer", "moves", "committed", "aborted", "unknown", "records", "doubled", "lost", "of an abort", "torn",
)  # fmt: skip
PARTITIONS = 3
RECORDS_EACH = 20
CALL_LIMIT_S = 30.0
BATCHES_S = 0.02
NO_SETTINGS: Mapping[str, Any] = {}


@dataclass(eq=False)
class Written:
    """What a producer has written, by attempt: how each has ended, and where the partitions end."""

    committed: set[int] = field(default_factory=set)
    aborted: set[int] = field(default_factory=set)
    unknown: set[int] = field(default_factory=set)
    ends: dict[int, int] = field(default_factory=dict)

    def record_delivered(self, message: Any) -> None:
        """Record how far its partition reaches: a reader that comes at once may see an older end."""
        self.ends[message.partition()] = max(self.ends.get(message.partition(), 0), message.offset() + 1)

    def judge(self, found: Mapping[tuple[int, int], int]) -> Counter[str]:
        """Count the records that are doubled, lost or torn from their transaction."""
        wrong: Counter[str] = Counter()
        wrong["doubled"] = sum(count - 1 for count in found.values())
        by_attempt = Counter(attempt for attempt, _ in found)
        wrong["lost"] = sum(RECORDS_EACH - by_attempt[attempt] for attempt in self.committed)
        wrong["of an abort"] = sum(by_attempt[attempt] for attempt in self.aborted)
        wrong["torn"] = sum(by_attempt[attempt] not in {0, RECORDS_EACH} for attempt in self.unknown)
        return wrong


def write_transactions(bootstrap: str, topic: str, until: float) -> Written:
    """Write one transaction after the other with `EosProducer`."""
    written, attempt = Written(), 0

    def delivered(error: Any, message: Any) -> None:
        if error is None:
            written.record_delivered(message)

    producer = EosProducer({"bootstrap.servers": bootstrap, "transactional.id": topic})
    producer.init_transactions()
    while time.monotonic() < until:
        attempt += 1
        try:
            producer.begin_transaction()
            for number in range(RECORDS_EACH):
                producer.produce(topic, f"{attempt}:{number}", partition=number % PARTITIONS, on_delivery=delivered)
            producer.commit_transaction()
            written.committed.add(attempt)
        except AbortableError:
            written.aborted.add(attempt)
            _abort(producer)
        except EosError:
            written.unknown.add(attempt)
            producer.init_transactions()
    producer.close()
    return written


def _abort(producer: EosProducer) -> None:
    try:
        producer.abort_transaction()
    except EosError:
        producer.init_transactions()


def write_idempotently(
    bootstrap: str, topic: str, until: float, *, client: Any = EosProducer, settings: Mapping[str, Any] = NO_SETTINGS
) -> Written:
    """Write without transactions; an attempt of which each record was acknowledged counts as committed."""
    written, attempt, acknowledged = Written(), 0, Counter[int]()
    producer = client({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5, **settings})
    while time.monotonic() < until:
        attempt += 1
        for number in range(RECORDS_EACH):

            def delivered(error: Any, message: Any, of: int = attempt) -> None:
                if error is None:
                    acknowledged[of] += 1
                    written.record_delivered(message)

            producer.produce(topic, f"{attempt}:{number}", partition=number % PARTITIONS, on_delivery=delivered)
        producer.poll(BATCHES_S)
    producer.flush(CALL_LIMIT_S)
    for each in range(1, attempt + 1):
        (written.committed if acknowledged[each] == RECORDS_EACH else written.unknown).add(each)
    return written


PRODUCERS: Mapping[str, Callable[[str, str, float], Written]] = {
    "transactional": write_transactions,
    "transactional-coordinator-moves": write_transactions,
    "idempotent": write_idempotently,
    "idempotent-one-in-flight": partial(write_idempotently, settings={"max.in.flight": 1}),
    "plain-idempotent": partial(write_idempotently, client=Producer),
}


def run(bootstrap: str, name: str, seconds: float) -> tuple[list[object], bool]:
    """Let one producer write for ``seconds``; returns a row of the table, and whether each transaction is right."""
    topic = f"{name}-{int(time.time())}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS, 3)])[topic].result(CALL_LIMIT_S)
    topics = (topic, TRANSACTIONS_TOPIC) if name.endswith("coordinator-moves") else (topic,)
    if len(topics) > 1:  # the second is made by its first user
        EosProducer({"bootstrap.servers": bootstrap, "transactional.id": "first"}).init_transactions()
    mover = LeaderMover(bootstrap, topics)
    with acting(mover):
        written = PRODUCERS[name](bootstrap, topic, time.monotonic() + seconds)
    found: Counter[tuple[int, int]] = Counter()
    for message in read_to_the_end(reader(bootstrap), topic, PARTITIONS, ends=written.ends):
        attempt, number = message.value().split(b":")
        found[int(attempt), int(number)] += 1
    wrong = written.judge(found)
    counts = [len(each) for each in (written.committed, written.aborted, written.unknown)]
    return [name, mover.moves, *counts, sum(found.values()), *wrong.values()], not any(wrong.values())


def main() -> int:
    """Run the producers one after the other and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long each producer writes")
    parser.add_argument("--producers", nargs="+", choices=tuple(PRODUCERS), default=list(PRODUCERS))
    given = parser.parse_args()
    rows, are_right = [], True
    with EmbeddedKafkaCluster() as cluster:
        for name in given.producers:
            row, is_right = run(cluster.bootstrap_servers, name, given.seconds)
            rows.append(row)
            are_right = are_right and (is_right or PRODUCERS[name] is not write_transactions)
            print(*row, flush=True)
    print(table(HEADS, rows))
    return 0 if are_right else 1


if __name__ == "__main__":
    sys.exit(main())
