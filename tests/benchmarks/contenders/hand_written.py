"""The opponent: a hand-written confluent-kafka transactional loop, as fast as one writes it without a framework.

Its tuning is in the settings it is given, so that the same code runs tuned and with librdkafka's defaults. It leaves
out everything that makes a loop safe under rebalances; that is what makes it a fair bar for speed.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable

from confluent_kafka import Consumer, Message, Producer

from eos_client import OutputRecord
from tests.benchmarks.contenders.assignment import (
    BATCH,
    BATCH_OBJECTS,
    BATCH_RECORDS,
    CALL_TIMEOUT_S,
    FIVE,
    HEADERS,
    INLINE,
    JSON,
    KEYED,
    LARGE,
    OBJECTS,
    POLL_TIMEOUT_S,
    VALUE,
    Assignment,
    assignment,
    report_commit,
)

QUEUE_MAX = 90_000  # of librdkafka's 100,000; beyond, produce raises BufferError

Write = Callable[[Producer, str, list[Message]], None]


def copy_value(record: Message) -> bytes | None:
    """The application's function: what to write for a record."""
    return record.value()


def copy_keyed(record: Message) -> tuple[bytes | None, bytes | None]:
    """The same with a key."""
    return record.value(), record.key()


def copy_object(record: Message) -> OutputRecord:
    """The same as an object that says by name what it holds."""
    return OutputRecord(value=record.value(), key=record.key())


def copy_with_header(record: Message) -> tuple[bytes | None, bytes | None, list[tuple[str, str | bytes | None]]]:
    """The same with a key and a header."""
    return record.value(), record.key(), [("origin", record.key())]


def write_values(producer: Producer, sink: str, records: list[Message]) -> None:
    for record in records:
        producer.produce(sink, copy_value(record))


def write_keyed(producer: Producer, sink: str, records: list[Message]) -> None:
    for record in records:
        value, key = copy_keyed(record)
        producer.produce(sink, value, key)


def write_objects(producer: Producer, sink: str, records: list[Message]) -> None:
    for record in records:
        output = copy_object(record)
        producer.produce(sink, output.value, output.key)


def write_batch_of_objects(producer: Producer, sink: str, records: list[Message]) -> None:
    for output in [OutputRecord(value=record.value(), key=record.key()) for record in records]:
        producer.produce(sink, output.value, output.key)


def write_with_headers(producer: Producer, sink: str, records: list[Message]) -> None:
    for record in records:
        value, key, headers = copy_with_header(record)
        producer.produce(
            sink, value, key, -1, None, None, 0, headers
        )  # by its name it would take 0.4 microseconds more


def change_json(record: Message) -> tuple[str, str | bytes | None]:
    """The document with a field that was changed and one that is new, and the key."""
    order = json.loads(record.value() or b"")
    order["amount"] *= 2
    order["state"] = "priced"
    return json.dumps(order), record.key()


def write_json(producer: Producer, sink: str, records: list[Message]) -> None:
    for record in records:
        value, key = change_json(record)
        producer.produce(sink, value, key)


def copy_five_times(record: Message) -> list[tuple[str | bytes | None, str | bytes | None]]:
    """Five outputs of one record."""
    value, key = record.value(), record.key()
    return [(value, key) for _ in range(5)]


def write_five_times(producer: Producer, sink: str, records: list[Message]) -> None:
    for record in records:
        for value, key in copy_five_times(record):
            producer.produce(sink, value, key)


def write_inline(producer: Producer, sink: str, records: list[Message]) -> None:
    """What a loop costs whose application calls nothing for a record."""
    for record in records:
        producer.produce(sink, record.value(), record.key())


def write_batch(producer: Producer, sink: str, records: list[Message]) -> None:
    """One call for all records, as an application makes it that converts them together."""
    producer.produce_batch(sink, [{"value": record.value(), "key": record.key()} for record in records])


WRITING: dict[str, Write] = {
    VALUE: write_values, KEYED: write_keyed, HEADERS: write_with_headers, INLINE: write_inline, BATCH: write_batch,
    OBJECTS: write_objects, BATCH_OBJECTS: write_batch_of_objects,
    JSON: write_json, FIVE: write_five_times, LARGE: write_keyed,
}  # fmt: skip


def copy_until(until_s: float, consumer: Consumer, producer: Producer, task: Assignment) -> int:
    """Consume and produce until the clock shows so many seconds; how many records that were."""
    write = WRITING[task.work]
    count = 0
    while (left_s := until_s - time.monotonic()) > 0:
        if len(producer) > QUEUE_MAX:
            producer.flush(CALL_TIMEOUT_S)
        messages = consumer.consume(BATCH_RECORDS, min(left_s, POLL_TIMEOUT_S))
        records = [message for message in messages if message.error() is None]
        write(producer, task.sink, records)
        count += len(records)
        producer.poll(0)
    return count


def main() -> None:
    """Copy until killed."""
    task = assignment()
    consumer = Consumer(
        {
            "bootstrap.servers": task.bootstrap,
            "group.id": task.group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            **task.consumer_settings,
        }
    )
    producer = Producer(
        {
            "bootstrap.servers": task.bootstrap,
            "transactional.id": task.transactional_id,
            **task.producer_settings,
        }
    )
    producer.init_transactions(CALL_TIMEOUT_S)
    consumer.subscribe([task.source])
    while True:
        producer.begin_transaction()
        count = 0
        while not count:
            count = copy_until(time.monotonic() + task.commit_interval_s, consumer, producer, task)
        began_s = time.monotonic()
        positions = [place for place in consumer.position(consumer.assignment()) if place.offset >= 0]
        producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), CALL_TIMEOUT_S)
        producer.commit_transaction(CALL_TIMEOUT_S)
        report_commit(count, time.monotonic() - began_s)


if __name__ == "__main__":
    main()
