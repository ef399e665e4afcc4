"""What is refused before confluent_kafka's ``produce`` gets it."""

from typing import Any

import pytest

from eos_client.confluent.producer.output_arguments import produce_options
from eos_client.ports import OutputRecord

HEADERS: list[Any] = [[("\ud800", b"1")], {"\ud800": b"1"}, [("a\0b", b"1")], [(b"a", b"1")], {1: b"a"}, "ab", 42]


@pytest.mark.parametrize("headers", HEADERS, ids=range(len(HEADERS)))
def test_headers_that_end_the_process_or_are_written_as_something_else_are_refused(headers):
    with pytest.raises((TypeError, ValueError)):
        produce_options("bills", OutputRecord(value=b"", headers=headers))


@pytest.mark.parametrize("topic", ["", ".", "..", "no such name!", "x" * 250, "a\0b", "\ud800", b"bills", None])
def test_a_topic_that_no_broker_accepts_is_refused(topic: Any):
    with pytest.raises((TypeError, ValueError), match="the name of a topic"):
        produce_options(topic, OutputRecord(value=b""))


@pytest.mark.parametrize("timestamp_ms", [0, -1, -(2**62), True])
def test_a_timestamp_that_would_become_another_one_or_lies_before_the_epoch_is_refused(timestamp_ms: Any):
    with pytest.raises((TypeError, ValueError), match=f"timestamp_ms.*{timestamp_ms}"):
        produce_options("bills", OutputRecord(value=b"", timestamp_ms=timestamp_ms))


@pytest.mark.parametrize("partition", [True, False, -2])
def test_a_partition_that_is_no_number_of_a_partition_is_refused(partition: Any):
    with pytest.raises((TypeError, ValueError), match=f"partition.*{partition}"):
        produce_options("bills", OutputRecord(value=b"", partition=partition))


def test_what_is_given_is_passed_on():
    record = OutputRecord(value=b"", headers={"a": b"1", "ü": None}, partition=0, timestamp_ms=1)
    passed = {"headers": [("a", b"1"), ("ü", None)], "partition": 0, "timestamp": 1}
    assert produce_options("x" * 249, record) == passed
    assert produce_options("bills", OutputRecord(value=b"")) == {}
