"""One input record for a test of the transform alone."""

from __future__ import annotations

import json

import pytest

from eos_client import DeserializedRecord, OutputRecord
from eos_client.testing import record


def price(order):
    yield OutputRecord("invoices", key=order.key(), value=b"%d" % (2 * int(order.value())))


def test_a_transform_is_tested_with_one_record_and_nothing_else():
    assert list(price(record(topic="orders", key=b"C-1", value=b"21"))) == [
        OutputRecord("invoices", key=b"C-1", value=b"42")
    ]


def test_a_record_that_is_made_says_what_one_of_a_cluster_says(simulated_cluster):
    simulated_cluster.create_topic("orders")
    simulated_cluster.write("orders", [b"21"])
    consumer = simulated_cluster.consumer(
        {"bootstrap.servers": "simulated", "group.id": "billing", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["orders"])
    (read,) = consumer.consume(1, 30)
    made = record(topic="orders", value=b"21", timestamp_ms=read.timestamp()[1])
    assert type(made) is type(read)
    for name in ("topic", "partition", "offset", "key", "value", "headers", "timestamp", "leader_epoch", "error"):
        assert getattr(made, name)() == getattr(read, name)(), name


def test_what_a_test_says_of_a_record_is_what_the_transform_reads():
    made = record(topic="orders", value=None, partition=3, offset=17, headers=[("origin", b"shop")], timestamp_ms=5)
    assert (made.value(), made.partition(), made.offset()) == (None, 3, 17)
    assert (made.headers(), made.timestamp()) == ([("origin", b"shop")], (1, 5))


@pytest.mark.parametrize("part", ["key", "value"])
def test_what_no_broker_sends_is_refused_with_the_way_out(part):
    with pytest.raises(TypeError, match=rf"{part}='21'.*bytes.*DeserializedRecord"):
        record(topic="orders", **{part: "21"})  # type: ignore[arg-type]


def test_a_record_for_a_transform_behind_deserialisers_is_made_of_it():
    raw = record(topic="orders", key=b"C-1", value=b'{"price": 21}')
    order = DeserializedRecord(raw, lambda each: (each.key(), json.loads(each.value() or b"")))
    assert (order.key(), order.value()["price"]) == (b"C-1", 21)
