"""A backfill: one micro-batch of ten million rows."""

from __future__ import annotations

import pytest

from eos_client.observe import SparkBatchWritten
from tests.support.reading import read_to_the_end, reader
from tests.verification.topics import ends

pytestmark = [pytest.mark.kafka, pytest.mark.soak, pytest.mark.timeout(1200)]

ROWS = 10_000_000
PARTITIONS = 3
READ_S = 600.0


def numbers_in(servers, topic):
    """Return how often each number below ROWS is there: a byte for each, for as objects they would not fit."""
    until = ends(servers, topic, PARTITIONS)
    found = bytearray(ROWS)
    for message in read_to_the_end(reader(servers), topic, PARTITIONS, ends=until, limit_s=READ_S):
        found[int(message.value())] += 1
    return found


def test_ten_million_rows_in_one_batch_come_out_once_each(local):
    assert local.stream(local.sink(slots=4), 1, rows=ROWS) is None
    [written] = [event for event in local.events if isinstance(event, SparkBatchWritten)]
    print(f"{written.rows} rows in {written.duration_s:.1f} s, {written.seconds}")
    found = numbers_in(local.servers, local.topic)
    assert found.count(1) == ROWS
