"""One input record for a test of the transform alone."""

from __future__ import annotations

import json
from datetime import datetime

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
    wrapped = r"DeserializedRecord\(record\(\.\.\.\), lambda message: \(key, value\)\)"
    with pytest.raises(TypeError, match=rf"{part}='21'.*bytes.*{wrapped}"):
        record(topic="orders", **{part: "21"})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"topic": None}, r"topic=None: the name of a topic is a str"),
        ({"topic": b"o"}, r"topic=b'o': the name of a topic is a str"),
        ({"topic": 5}, r"topic=5: the name"),
        ({"topic": ""}, r"topic='': no topic can be called that"),
        ({"topic": "a b"}, r"topic='a b': no topic can be called that"),
        ({"partition": -1}, r"partition=-1: give 0 or more"),
        ({"partition": "0"}, r"partition='0': give a whole number"),
        ({"offset": -5}, r"offset=-5: give 0 or more"),
        ({"offset": True}, r"offset=True: give a whole number"),
        ({"offset": 2**63}, r"offset=9223372036854775808: give 0 or more, below 2\*\*63"),
        ({"timestamp_ms": 1.5}, r"timestamp_ms=1.5: give a whole number"),
        ({"timestamp_ms": None}, r"timestamp_ms=None: give a whole number"),
        ({"timestamp_ms": datetime(2026, 1, 1)}, r"timestamp_ms=datetime.*: give a whole number"),  # noqa: DTZ001
        ({"timestamp_ms": 2**70}, r"timestamp_ms=\d+: give -1 or more, below 2\*\*63"),
        ({"timestamp_ms": -2}, r"timestamp_ms=-2: give -1 or more"),
        (
            {"headers": {"origin": b"shop"}},
            r"headers=\{'origin': b'shop'\}: give a list of pairs \(str, bytes or None\)",
        ),
        ({"headers": [("origin", "shop")]}, r"headers=\[\('origin', 'shop'\)\]: .* encode a str value"),
        ({"headers": [(b"origin", b"shop")]}, r"headers=.*: give a list"),
        ({"headers": [["origin", b"shop"]]}, r"headers=.*: give a list"),
        ({"headers": [("a", b"b", b"c")]}, r"headers=.*: give a list"),
        ({"headers": [5]}, r"headers=\[5\]: give a list"),
        ({"headers": 5}, r"headers=5: give a list"),
        ({"headers": "ab"}, r"headers='ab': give a list"),
    ],
    ids=lambda given: str(given)[:30] if isinstance(given, dict) else "",
)
def test_what_no_consumer_hands_over_is_refused_with_the_argument_and_the_way_out(wrong, words):
    with pytest.raises((TypeError, ValueError), match=words):
        record(**{"topic": "orders", **wrong})


def test_headers_may_be_none_as_a_consumer_hands_them_over():
    assert record(topic="orders", headers=None).headers() is None
    assert record(topic="orders", headers=(("a", None), ("a", b"2"))).headers() == [("a", None), ("a", b"2")]


def test_a_record_for_a_transform_behind_deserialisers_is_made_of_it():
    raw = record(topic="orders", key=b"C-1", value=b'{"price": 21}')
    order = DeserializedRecord(raw, lambda each: (each.key(), json.loads(each.value() or b"")))
    assert (order.key(), order.value()["price"]) == (b"C-1", 21)
