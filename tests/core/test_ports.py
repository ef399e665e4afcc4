"""The values at the border between the inner layers and the outside."""

from __future__ import annotations

import copy
import pickle
from types import SimpleNamespace
from typing import Any

import msgspec
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


def test_an_output_record_shows_all_that_was_given():
    assert repr(OutputRecord("t", value=b"v", key="k")) == "OutputRecord(topic='t', value=b'v', key='k')"
    assert repr(OutputRecord(value=None)) == "OutputRecord(value=None)"


def test_an_output_record_cannot_be_changed_but_copied_with_another_field():
    record = OutputRecord("t", value=b"v", headers=[("a", b"1")])
    with pytest.raises(AttributeError, match="immutable"):
        record.value = b"w"  # type: ignore[misc]  # what this tests
    changed = msgspec.structs.replace(record, value=b"w")
    assert (changed.topic, changed.value, changed.headers) == ("t", b"w", [("a", b"1")])
    assert record == OutputRecord("t", value=b"v", headers=[("a", b"1")])
    assert pickle.loads(pickle.dumps(record)) == copy.deepcopy(record) == record


@pytest.mark.parametrize(
    ("arguments", "named", "words"),
    [
        (("t",), {}, "Missing required argument 'value'"),
        (("t", b"v"), {}, "positional"),
        (("t",), {"value": b"v", "header": []}, "Unexpected keyword argument 'header'"),
    ],
)
def test_an_output_record_names_what_is_wrong_with_its_arguments(arguments, named, words):
    with pytest.raises(TypeError, match=words):
        OutputRecord(*arguments, **named)


def test_partitions_of_any_library_become_names():
    theirs = [SimpleNamespace(topic="orders", partition=n, offset=99) for n in (1, 0, 1)]
    assert input_partitions(theirs) == {InputPartition("orders", 0), InputPartition("orders", 1)}
    assert input_partitions([]) == frozenset()
