"""A backfill: one micro-batch of ten million rows."""

from __future__ import annotations

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from eos_client.observe import SparkBatchWritten
from tests.verification.topics import ends

pytestmark = [pytest.mark.kafka, pytest.mark.soak, pytest.mark.timeout(1200)]

ROWS = 10_000_000
PARTITIONS = 3
ANSWER_S = 60.0


def numbers_in(servers, topic):
    """Return how often each number below ROWS is there: a byte for each, for as objects they would not fit."""
    unread = ends(servers, topic, PARTITIONS)
    consumer = Consumer({"bootstrap.servers": servers, "group.id": topic, "enable.partition.eof": True})
    found = bytearray(ROWS)
    try:
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in unread])
        while unread:
            messages = consumer.consume(10_000, ANSWER_S)
            assert messages, f"nothing more comes from {unread}"
            for message in messages:
                if message.error() is None:
                    found[int(message.value() or b"")] += 1
                elif (message.offset() or 0) >= unread.get(message.partition() or 0, 0):
                    unread.pop(message.partition() or 0, None)
    finally:
        consumer.close()
    return found


def test_ten_million_rows_in_one_batch_come_out_once_each(local):
    assert local.stream(local.sink(slots=4), 1, rows=ROWS) is None
    [written] = [event for event in local.events if isinstance(event, SparkBatchWritten)]
    print(f"{written.rows} rows in {written.duration_s:.1f} s, {written.seconds}")
    found = numbers_in(local.servers, local.topic)
    assert found.count(1) == ROWS
