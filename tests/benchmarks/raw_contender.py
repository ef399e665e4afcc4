"""The opponent: a hand-written confluent-kafka transactional loop, as fast as one writes it without a framework.

Its tuning is in the settings it is given, so that the same code runs tuned and with librdkafka's defaults. It leaves
out everything that makes a loop safe under rebalances; that is what makes it a fair bar for speed.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from confluent_kafka import Consumer, Message, Producer

from tests.benchmarks.contender_arguments import BATCH_RECORDS, COMMIT_INTERVAL_S, INLINE, KEYED, TRANSFORM, parse
from tests.benchmarks.measure import Window
from tests.benchmarks.transforms import copy_value

CALL_TIMEOUT_S = 30.0
POLL_TIMEOUT_S = 0.05
QUEUE_MAX = 90_000  # of librdkafka's 100,000; beyond, produce raises BufferError

Write = Callable[[Producer, str, list[Message]], int]


def write_transformed(producer: Producer, sink: str, messages: list[Message]) -> int:
    """Produce what the transform makes of each record, as an application's loop does; how many records that were."""
    count = 0
    for message in messages:
        if message.error() is None:
            for value in copy_value(message):
                producer.produce(sink, value)
            count += 1
    return count


def write_inline(producer: Producer, sink: str, messages: list[Message]) -> int:
    """Produce the values without calling anything: what no transform at all would cost."""
    count = 0
    for message in messages:
        if message.error() is None:
            producer.produce(sink, message.value())
            count += 1
    return count


def write_keyed(producer: Producer, sink: str, messages: list[Message]) -> int:
    """Produce values and keys, inline; how many records that were."""
    count = 0
    for message in messages:
        if message.error() is None:
            producer.produce(sink, message.value(), message.key())
            count += 1
    return count


WRITING: dict[str, Write] = {TRANSFORM: write_transformed, INLINE: write_inline, KEYED: write_keyed}


def copy_for(consumer: Consumer, producer: Producer, sink: str, write: Write, seconds: float) -> int:
    """Consume and produce until the time is over; how many records that were."""
    count = 0
    until_s = time.monotonic() + seconds
    while time.monotonic() < until_s:
        if len(producer) > QUEUE_MAX:
            producer.flush(CALL_TIMEOUT_S)
        messages = consumer.consume(BATCH_RECORDS, POLL_TIMEOUT_S)
        count += write(producer, sink, messages)
        producer.poll(0)
    return count


def main(arguments: list[str]) -> int:
    """Copy until the window is complete and print the measurement."""
    options = parse(arguments)
    consumer = Consumer(
        {
            "bootstrap.servers": options.bootstrap,
            "group.id": options.group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            **{key: value for key, value in options.config.items() if key.startswith("fetch.")},
        }
    )
    producer = Producer(
        {
            "bootstrap.servers": options.bootstrap,
            "transactional.id": options.group,
            **{key: value for key, value in options.config.items() if not key.startswith("fetch.")},
        }
    )
    producer.init_transactions(CALL_TIMEOUT_S)
    consumer.subscribe([options.source])
    write = WRITING[options.form]
    window = Window(options.seconds, options.records)
    count = 0
    while not (count and window.committed(count)):
        producer.begin_transaction()
        count = 0
        while not count:
            count = copy_for(consumer, producer, options.sink, write, COMMIT_INTERVAL_S)
        positions = [place for place in consumer.position(consumer.assignment()) if place.offset >= 0]
        producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), CALL_TIMEOUT_S)
        producer.commit_transaction(CALL_TIMEOUT_S)
    consumer.close()
    print(window.measurement().to_json())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
