"""The values at the border between the inner layers and the outside."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from eos_client.core.model import InputPartition
from eos_client.ports import OutputRecord, input_partitions


def test_an_output_record_leaves_open_what_is_not_said():
    record = OutputRecord(value=b"v")
    assert (record.topic, record.key, record.headers, record.partition, record.timestamp_ms) == (None,) * 5
    assert record.value == b"v"


def test_an_output_record_takes_only_its_topic_without_a_name():
    assert OutputRecord("invoices", value="v").topic == "invoices"
    with pytest.raises(TypeError):
        OutputRecord("invoices", "v")  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        OutputRecord("invoices")  # type: ignore[call-arg]


def test_output_records_are_equal_when_all_they_say_is_equal():
    said: dict[str, Any] = {"value": b"v", "key": b"k", "headers": [("h", b"1")], "partition": 2, "timestamp_ms": 7}
    assert OutputRecord("t", **said) == OutputRecord("t", **said)
    for name in said:
        assert OutputRecord("t", **said) != OutputRecord("t", **{**said, name: None})
    other: Any = "t"
    assert OutputRecord("t", value=b"v") != other


def test_an_output_record_shows_all_of_itself():
    assert repr(OutputRecord("t", value=b"v", key="k")) == (
        "OutputRecord(headers=None, key='k', partition=None, timestamp_ms=None, topic='t', value=b'v')"
    )


def test_partitions_of_any_library_become_names():
    theirs = [SimpleNamespace(topic="orders", partition=n, offset=99) for n in (1, 0, 1)]
    assert input_partitions(theirs) == {InputPartition("orders", 0), InputPartition("orders", 1)}
    assert input_partitions([]) == frozenset()
