"""How the producer of a Spark sink's slot queues its rows: waiting for room, and naming what went wrong."""

from __future__ import annotations

import pytest

from eos_client.errors import OutputRefusedError, ProducerFencedError, RetriableError
from eos_client.testing import SimulatedCluster
from tests.clients.spark_story import ROWS, simulated_slot


@pytest.fixture
def cluster():
    made = SimulatedCluster()
    made.create_topic(ROWS)
    return made


def begun(cluster, **settings):
    producer = simulated_slot(cluster, 0, **settings)
    producer.init_transactions()
    producer.begin_transaction()
    return producer


def test_a_full_queue_is_waited_for(cluster):
    producer = begun(cluster, **{"queue.buffering.max.messages": 1})
    cluster.delay("Produce", 3.0)
    for row in (b"first", b"second"):
        producer.enqueue_row(ROWS, row, None, {}, 5.0)
    producer.commit_transaction()
    assert cluster.values(ROWS) == [b"first", b"second"]


def test_a_queue_that_stays_full_is_told(cluster):
    producer = begun(cluster, **{"queue.buffering.max.messages": 1})
    cluster.delay("Produce", 3.0)
    producer.enqueue_row(ROWS, b"first", None, {}, 1.0)
    began_at = cluster.clock()
    with pytest.raises(RetriableError, match="the local queue stayed full for 1 s"):
        producer.enqueue_row(ROWS, b"second", None, {}, 1.0)
    assert 1.0 <= cluster.clock() - began_at < 1.2
    producer.abort_transaction(5.0)


def test_a_row_that_is_too_large_is_called_a_row_and_both_settings_are_named(cluster):
    producer = begun(cluster)
    words = r"a row \(topic 'rows', partition 0, 2000000 bytes\).*MSG_SIZE_TOO_LARGE.*message.max.bytes.* in config"
    with pytest.raises(OutputRefusedError, match=words):
        producer.enqueue_row(ROWS, bytes(2_000_000), None, {"partition": 0}, 1.0)
    producer.enqueue_row(ROWS, b"small", None, {}, 1.0)
    producer.commit_transaction()
    assert cluster.values(ROWS) == [b"small"]


def test_a_slot_that_another_attempt_has_taken_is_told_as_a_fence_and_not_as_a_nameless_fatal_error(cluster):
    producer = begun(cluster)
    producer.enqueue_row(ROWS, b"first", None, {}, 1.0)
    begun(cluster)
    cluster.clock.sleep(1.0)
    with pytest.raises(ProducerFencedError, match="abort_transaction"):
        producer.enqueue_row(ROWS, b"another", None, {}, 1.0)
