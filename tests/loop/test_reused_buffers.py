"""An output is written as it was given, also where the application uses its buffer for the next one."""

import array
import asyncio
from typing import Any

import pytest

from eos_client import AsyncExactlyOnceLoop, EosConfig, ExactlyOnceLoop, OutputRecord
from eos_client.errors import TransformError
from tests.loop.writing import Writing

np = pytest.importorskip("numpy")  # it comes with pandas, which the oldest environment has not
WANTED = [b"%d%c" % (number, letter) for number in range(3) for letter in b"ab"]
BUFFERS = [lambda: bytearray(2), lambda: np.zeros(2, np.uint8), lambda: array.array("B", b"  ")]


def reusing(buffer):
    """One transform of a record, whose outputs are all made in ``buffer``."""

    def transform(record):
        for letter in b"ab":
            buffer[0], buffer[1] = record.value()[0], letter
            yield OutputRecord("invoices", value=buffer, key=buffer)

    return transform


def run(cluster, make, config=None):
    cluster.create_topic("orders")
    cluster.create_topic("invoices")
    cluster.write("orders", [b"%d" % number for number in range(3)])
    loop = make(config or EosConfig({"bootstrap.servers": "simulated"}, group_id="billing"), clients=cluster)
    cluster.after(10, loop.stop)
    ran = loop.run()
    if asyncio.iscoroutine(ran):
        asyncio.run(ran)
    records = cluster.read("invoices")
    return [(record.key, record.value) for record in records]


def by_record(transform):
    return lambda config, **given: ExactlyOnceLoop(config, ["orders"], transform, **given)


def by_batch(transform):
    def transform_batch(records):
        for record in records:
            yield from transform(record)

    return lambda config, **given: ExactlyOnceLoop(config, ["orders"], transform_batch=transform_batch, **given)


def by_coroutine(transform):
    async def transform_async(record):
        for output in transform(record):
            yield output

    return lambda config, **given: AsyncExactlyOnceLoop(config, ["orders"], transform_async, **given)


def by_list_of_one(transform):
    """The buffer is used again by the next record, not by the next output of the same one."""

    def last(record):
        return [[*transform(record)][-1]]

    return lambda config, **given: ExactlyOnceLoop(config, ["orders"], last, **given)


def iter_of_one(output):
    yield output


@pytest.mark.parametrize("buffer", BUFFERS)
@pytest.mark.parametrize("make", [by_record, by_batch, by_coroutine])
def test_a_buffer_that_is_used_again_is_written_as_it_was(simulated_cluster, make, buffer):
    assert run(simulated_cluster, make(reusing(buffer()))) == [(each, each) for each in WANTED]


@pytest.mark.parametrize("make", [by_record, by_batch, by_coroutine])
def test_also_where_a_serialiser_is_only_for_the_other_part(simulated_cluster, make):
    config = EosConfig({"bootstrap.servers": "simulated"}, group_id="billing", key_serializer=lambda key, _: bytes(key))
    assert run(simulated_cluster, make(reusing(bytearray(2))), config) == [(each, each) for each in WANTED]


def test_also_by_the_next_record(simulated_cluster):
    assert run(simulated_cluster, by_list_of_one(reusing(bytearray(2)))) == [(each, each) for each in WANTED[1::2]]


@pytest.mark.parametrize("on_error", ["stop", "dead_letter"])
@pytest.mark.parametrize(
    ("made", "told"),
    [
        (np.array([b"a", b"b"], dtype=object), "is an array of objects"),
        (np.array([(1, b"a")], dtype=[("O", int), ("b", object)]), "is an array of objects"),
        (np.array(["2026-01-01"], dtype="M8[D]"), "cannot include dtype"),
    ],
)
@pytest.mark.parametrize("field", ["value", "key"])
def test_a_buffer_whose_bytes_say_nothing_is_refused(made, told, on_error, field):
    letters: dict[str, Any] = {"dead_letter_topic": "letters"} if on_error == "dead_letter" else {}
    output = OutputRecord("invoices", **{"value": b"v", field: made})
    writing = Writing(lambda record: [output], on_error=on_error, **letters)
    if on_error == "stop":
        with pytest.raises(Exception, match=told):
            writing.write_at_last(1)
        assert writing.written == []
    else:
        assert writing.write_at_last(1) == [("letters", b"0")]


@pytest.mark.parametrize("form", [lambda one: one, lambda one: [one], lambda one: [one, one], iter_of_one])
def test_a_buffer_may_have_another_length_for_the_next_record(form):
    """A buffer that something holds cannot be resized."""
    buffer = bytearray()

    def transform(record):
        buffer[:] = record.value() * (1 + record.offset())
        return form(OutputRecord(value=memoryview(buffer)))

    written = Writing(transform).write(4)
    assert sorted({*written}) == [b"0", b"11", b"222", b"3333"]


def test_a_dict_is_no_collection_of_outputs():
    with pytest.raises(TransformError, match=r"returned \{b'a': 1\}; it must return an output or an iterable of them"):
        Writing(lambda record: {b"a": 1}).write(1)
