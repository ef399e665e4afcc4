"""Reading a topic to its end with the client library itself: what came out, for whoever judges a run."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from tests.support.waiting import WAIT_S

READING = {
    "group.id": "reads-back",
    "enable.auto.commit": False,
    "enable.partition.eof": True,
    "auto.offset.reset": "earliest",
    "fetch.wait.max.ms": 50,
    "fetch.queue.backoff.ms": 10,
}


def reader(bootstrap: str, isolation: str = "read_committed") -> Consumer:
    """A consumer that never joins its group."""
    return Consumer({**READING, "bootstrap.servers": bootstrap, "isolation.level": isolation, "log_level": 0})


def read_to_the_end(
    consumer: Any,
    topic: str,
    partitions: int,
    *,
    ends: Mapping[int, int] | None = None,
    limit_s: float = WAIT_S,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Any]:
    """Yield every record of the topic, to the end of each partition as the reader's isolation level sees it.

    ``ends``: where the partitions end at least. A commit is answered before its markers are written, so a partition
    may seem to end before its records. Closes the consumer; raises KafkaException for what the library reports, and
    TimeoutError after ``limit_s``.
    """
    unread = dict.fromkeys(range(partitions), 0) | dict(ends or {})
    deadline_s = clock() + limit_s
    try:
        consumer.assign([TopicPartition(topic, number, 0) for number in unread])
        while unread:
            if clock() > deadline_s:
                raise TimeoutError(f"{topic}: the ends of {unread} were not reached within {limit_s:g} s")
            message = consumer.poll(0.2)
            if message is None:
                continue
            error, partition = message.error(), message.partition()
            if error is None:
                yield message
            elif error.code() != KafkaError._PARTITION_EOF:
                raise KafkaException(error)
            elif message.offset() >= unread.get(partition, 0):
                unread.pop(partition, None)
    finally:
        consumer.close()
