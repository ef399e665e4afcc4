"""A transactional loop written by hand on aiokafka, with batches as large as librdkafka's."""

from __future__ import annotations

import asyncio
import time

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord, TopicPartition

from tests.benchmarks.contenders.assignment import BATCH_RECORDS, POLL_TIMEOUT_S, Assignment, assignment, report_commit

BATCH_BYTES = 1_000_000
LINGER_MS = 5


def copy_keyed(record: ConsumerRecord) -> tuple[bytes | None, bytes | None]:
    """The application's function: what to write for a record."""
    return record.value, record.key


def as_keywords(settings: dict[str, str]) -> dict[str, int]:
    """Settings as aiokafka's constructors name them; all that are given to it are numbers."""
    return {name.replace(".", "_"): int(value) for name, value in settings.items()}


async def copy_until(
    until_s: float, consumer: AIOKafkaConsumer, producer: AIOKafkaProducer, sink: str
) -> tuple[int, dict[TopicPartition, int]]:
    """Consume and produce until the clock shows so many seconds: how many records, and where to go on."""
    count, positions = 0, {}
    while (left_s := until_s - time.monotonic()) > 0:
        wait_ms = int(min(left_s, POLL_TIMEOUT_S) * 1000)
        for place, records in (await consumer.getmany(timeout_ms=wait_ms, max_records=BATCH_RECORDS)).items():
            for record in records:
                value, key = copy_keyed(record)
                await producer.send(sink, value, key)
            positions[place] = records[-1].offset + 1
            count += len(records)
    return count, positions


async def copy(task: Assignment) -> None:
    """Copy until killed."""
    consumer = AIOKafkaConsumer(
        task.source,
        bootstrap_servers=task.bootstrap,
        group_id=task.group,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        **as_keywords(task.consumer_settings),
    )
    producer = AIOKafkaProducer(
        bootstrap_servers=task.bootstrap,
        transactional_id=task.transactional_id,
        max_batch_size=BATCH_BYTES,
        linger_ms=LINGER_MS,
        **as_keywords(task.producer_settings),
    )
    await producer.start()
    await consumer.start()
    while True:
        await producer.begin_transaction()
        count = 0
        while not count:
            until_s = time.monotonic() + task.commit_interval_s
            count, positions = await copy_until(until_s, consumer, producer, task.sink)
        began_s = time.monotonic()
        await producer.send_offsets_to_transaction(positions, task.group)
        await producer.commit_transaction()
        report_commit(count, time.monotonic() - began_s)


if __name__ == "__main__":
    asyncio.run(copy(assignment()))
