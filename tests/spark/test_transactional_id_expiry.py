"""Brokers forget the transactional ids of the slots between two batches, as when a query had no rows for a week."""

from __future__ import annotations

import pytest

from eos_client.observe import SparkBatchWritten
from tests.recovery.forced_support import await_state, coordinator
from tests.spark.local_query import each_once
from tests.support.waiting import wait_for

pytestmark = pytest.mark.kafka

OF_PRODUCERS = {
    "producer.id.expiration.ms": "1000",
    "producer.id.expiration.check.interval.ms": "200",
}
OF_IDS = {
    "transactional.id.expiration.ms": "5000",  # a task of a busy machine may be that slow between two requests
    "transaction.remove.expired.transaction.cleanup.interval.ms": "200",
}


@pytest.fixture
def on_broker(local, make_kafka_broker, monkeypatch):
    """Return a function that moves the stage to a broker of its own, and to Python workers of its own."""

    def move(properties):
        monkeypatch.setitem(local.spark.sparkContext.environment, "EOS_CLIENT_TEST_WORKERS", local.mark)
        local.servers = make_kafka_broker(properties=properties).bootstrap_servers
        local.new_topic("out")
        return local

    return move


def await_forgotten(local, slots, *, ids):
    """Wait until the leaders of the output know no producer and, with ``ids``, the coordinator none of the slots."""
    with coordinator(local.servers) as line:
        for slot in range(slots if ids else 0):
            await_state(line, f"{local.sink_id}-{slot}", None)
        wait_for(lambda: not any(line.producers(local.topic, p) for p in range(3)), "the producers to be forgotten")
        assert ids or all(line.transaction(f"{local.sink_id}-{slot}") for slot in range(slots))


def each_once_forgotten(local, slots, *, ids, forgotten):
    """Return a new sink that is called, after batch 0, only when brokers have forgotten the batch before."""
    sink = local.sink(slots=slots)

    def write(frame, batch_id):
        if batch_id > 0:
            await_forgotten(local, slots, ids=ids)
            forgotten.append(batch_id)
        sink(frame, batch_id)

    return write


def run_forgotten(local, slots, untils, *, ids):
    """Run the query up to each of ``untils``; every batch but the first begins when the one before is forgotten."""
    forgotten: list[int] = []
    for until in untils:
        assert local.stream(each_once_forgotten(local, slots, ids=ids, forgotten=forgotten), until) is None
        assert local.values() == each_once(0, 40 * until)
    assert forgotten == list(range(1, untils[-1]))
    written = [event for event in local.events if isinstance(event, SparkBatchWritten)]
    assert [(e.batch_id, e.slots_written, e.slots_skipped) for e in written] == [
        (batch_id, slots, 0) for batch_id in range(untils[-1])
    ]


@pytest.mark.soak
@pytest.mark.parametrize("slots", [1, 2])
def test_each_value_arrives_once_though_the_ids_expire_between_two_batches_of_one_run(on_broker, slots):
    run_forgotten(on_broker(OF_PRODUCERS | OF_IDS), slots, (2, 3), ids=True)


@pytest.mark.soak
@pytest.mark.parametrize("slots", [1, 2])
def test_each_value_arrives_once_though_the_ids_expire_before_each_restart(on_broker, slots):
    run_forgotten(on_broker(OF_PRODUCERS | OF_IDS), slots, (1, 2, 3), ids=True)


@pytest.mark.soak
@pytest.mark.parametrize("slots", [1, 2])
def test_each_value_arrives_once_though_the_leaders_forget_the_producers_between_batches(on_broker, slots):
    run_forgotten(on_broker(OF_PRODUCERS), slots, (3, 4), ids=False)
