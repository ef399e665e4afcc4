"""An output is written as it was when it was given, and a record that failed is as it was when it was consumed."""

from __future__ import annotations

import json
import re
from array import array
from collections.abc import Callable, Iterator
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from eos_client import AsyncExactlyOnceLoop, ExactlyOnceLoop, OutputRecord
from eos_client.errors import TransformError
from eos_client.observe import RecordDeadLettered, RecordSkipped, TransactionAborted
from eos_client.testing import SimulatedCluster
from eos_client.testing.simulator.brokers.settings import BrokerSettings
from tests.clients.conftest import Job

LETTERS = {"on_error": "dead_letter", "dead_letter_topic": "letters"}
COUNT = 100
NUMBERS = [b"%d" % number for number in range(COUNT)]


@pytest.fixture
def cluster() -> SimulatedCluster:
    made = SimulatedCluster(seed=1)
    for topic in ("orders", "invoices", "letters"):
        made.create_topic(topic)
    made.write("orders", NUMBERS)
    return made


def run(cluster: SimulatedCluster, transform: Any, form: str = "transform", **options: Any) -> Job:
    is_async = form.startswith("async")
    name = {"async": "transform", "async batch": "transform_batch"}.get(form, form)
    job = Job(cluster, **{name: transform}, kind=AsyncExactlyOnceLoop if is_async else ExactlyOnceLoop, **options)
    job.run() if is_async else job.loop.run()
    return job


# -- outputs -----------------------------------------------------------------------------------------------------------

CONTENTS = bytearray()
HEADERS: list[Any] = []
NAMED: dict[str, Any] = {}
CONTENT: dict[str, Any] = {}


def one_output(record: Any) -> OutputRecord:
    CONTENTS[:] = record.value()
    return OutputRecord(value=CONTENTS)


def one_output_in_a_list(record: Any) -> list[OutputRecord]:
    return [one_output(record)]


def one_output_yielded(record: Any) -> Iterator[OutputRecord]:
    yield one_output(record)


async def one_output_later(record: Any) -> OutputRecord:
    return one_output(record)


def one_output_of_a_batch(records: list[Any]) -> Iterator[OutputRecord]:
    yield from map(one_output, records)


FORMS = {
    one_output: "transform",
    one_output_in_a_list: "transform",
    one_output_yielded: "transform",
    one_output_later: "async",
    one_output_of_a_batch: "transform_batch",
}


@pytest.mark.parametrize("options", [{}, LETTERS], ids=["stop", "dead_letter"])
@pytest.mark.parametrize("transform", FORMS, ids=lambda transform: transform.__name__)
def test_a_buffer_that_is_given_again_with_other_content_is_another_output(
    cluster: SimulatedCluster, transform: Any, options: Any
) -> None:
    run(cluster, transform, FORMS[transform], **options)
    assert cluster.values("invoices") == NUMBERS


def twice(record: Any) -> Iterator[OutputRecord]:
    for place in (b"first", b"last"):
        CONTENTS[:] = record.value() + place
        yield OutputRecord(value=CONTENTS)


@pytest.mark.parametrize("options", [{}, LETTERS], ids=["stop", "dead_letter"])
def test_it_may_change_between_two_yields_for_one_record(cluster: SimulatedCluster, options: Any) -> None:
    run(cluster, twice, **options)
    assert cluster.values("invoices") == [number + place for number in NUMBERS for place in (b"first", b"last")]


def one_list_of_headers(record: Any) -> OutputRecord:
    HEADERS[:] = [("number", record.value())]
    return OutputRecord(value=record.value(), headers=HEADERS)


def one_list_of_headers_in_a_generator(record: Any) -> Iterator[OutputRecord]:
    yield one_list_of_headers(record)


def one_dict_of_headers(record: Any) -> Iterator[OutputRecord]:
    NAMED["number"] = record.value()
    yield OutputRecord(value=record.value(), headers=NAMED)


@pytest.mark.parametrize("transform", [one_list_of_headers, one_list_of_headers_in_a_generator, one_dict_of_headers])
def test_headers_may_be_filled_again_for_the_next_output(cluster: SimulatedCluster, transform: Any) -> None:
    run(cluster, transform)
    assert [record.headers for record in cluster.read("invoices")] == [(("number", number),) for number in NUMBERS]


def content_of(record: Any) -> dict[str, Any]:
    CONTENT["number"] = record.value().decode()
    return CONTENT


def one_content(record: Any) -> OutputRecord:
    return OutputRecord(value=content_of(record))


def one_content_yielded(record: Any) -> Iterator[OutputRecord]:
    yield OutputRecord(value=content_of(record))


def one_content_of_a_batch(records: list[Any]) -> Iterator[OutputRecord]:
    yield from map(one_content, records)


async def one_content_later(record: Any) -> OutputRecord:
    return one_content(record)


async def one_content_of_a_batch_later(records: list[Any]) -> Any:
    for record in records:
        yield one_content(record)


@pytest.mark.parametrize(
    ("transform", "form"),
    [
        (one_content, "transform"),
        (one_content_yielded, "transform"),
        (one_content_of_a_batch, "transform_batch"),
        (one_content_later, "async"),
        (one_content_of_a_batch_later, "async batch"),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_what_is_serialised_may_be_filled_again_too(cluster: SimulatedCluster, transform: Any, form: str) -> None:
    run(cluster, transform, form, value_serializer=lambda content, _: json.dumps(content).encode())
    assert [json.loads(value)["number"].encode() for value in cluster.values("invoices")] == NUMBERS


BUFFER = bytearray(4)
BUFFERS: dict[str, Any] = {
    "bytearray": BUFFER,
    "memoryview": memoryview(BUFFER),
    "array": array("B", BUFFER),
    "numpy": np.zeros(4, np.uint8),
    "every other element": np.zeros(8, np.uint8)[::2],
}
NUMBERED = [b"%03d" % number + mark for number in range(COUNT) for mark in (b"a", b"b")]


def filled_again(buffer: Any, write: Callable[[Any], Any]) -> Callable[[Any], Iterator[Any]]:
    def outputs(record: Any) -> Iterator[Any]:
        for mark in b"ab":
            for place, content in enumerate(b"%03d%c" % (int(record.value()), mark)):
                buffer[place] = content
            yield write(buffer)

    return outputs


def in_form(outputs: Callable[[Any], Iterator[Any]], form: str) -> Any:
    async def later(record: Any) -> Any:
        for output in outputs(record):
            yield output

    async def all_later(records: list[Any]) -> Any:
        for record in records:
            for output in outputs(record):
                yield output

    def of_all(records: list[Any]) -> Iterator[Any]:
        for record in records:
            yield from outputs(record)

    return {"transform": outputs, "transform_batch": of_all, "async": later}.get(form, all_later)


@pytest.mark.in_turn(4)
@pytest.mark.parametrize("options", [{}, LETTERS], ids=["stop", "dead_letter"])
@pytest.mark.parametrize("form", ["transform", "transform_batch", "async", "async batch"])
@pytest.mark.parametrize("buffer", BUFFERS.values(), ids=BUFFERS)
def test_a_buffer_that_is_filled_again_is_written_as_it_was_given(
    cluster: SimulatedCluster, buffer: Any, form: str, options: Any
) -> None:
    outputs = filled_again(buffer, lambda given: OutputRecord(value=given, key=given))
    run(cluster, in_form(outputs, form), form, **options)
    assert cluster.values("invoices") == NUMBERED
    assert [record.key for record in cluster.read("invoices")] == NUMBERED


def test_a_buffer_that_one_output_for_each_record_fills_again_is_written_as_it_was(cluster: SimulatedCluster) -> None:
    def transform(record: Any) -> OutputRecord:
        BUFFER[:] = b"%04d" % int(record.value())
        return OutputRecord(value=BUFFER)

    run(cluster, transform)
    assert cluster.values("invoices") == [b"%04d" % number for number in range(COUNT)]


@pytest.mark.parametrize("form", ["transform", "transform_batch", "async", "async batch"])
@pytest.mark.parametrize("side", ["key_serializer", "value_serializer"])
def test_what_no_serialiser_takes_and_what_one_makes_may_be_filled_again(
    cluster: SimulatedCluster, form: str, side: str
) -> None:
    outputs = filled_again(BUFFER, lambda given: OutputRecord(value=given, key=given))
    run(cluster, in_form(outputs, form), form, **{side: lambda given, _: given})
    assert cluster.values("invoices") == NUMBERED
    assert [record.key for record in cluster.read("invoices")] == NUMBERED


OF_OBJECTS = np.array([b"content", 5], dtype=object)


@pytest.mark.parametrize("form", ["transform", "transform_batch", "async", "async batch"])
@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (OutputRecord(value=OF_OBJECTS), "is an array of objects: serialise it to bytes"),
        (OutputRecord(value=b"", key=OF_OBJECTS), "is an array of objects: serialise it to bytes"),
        ({b"value": b"written as its key"}, "or a list of them, or yield"),
        (MappingProxyType({b"value": b"written as its key"}), "or a list of them, or yield"),
        (array("B"), "or a list of them, or yield"),
    ],
    ids=["value", "key", "dict", "mapping", "empty array"],
)
def test_an_array_of_objects_and_a_mapping_are_no_output(
    cluster: SimulatedCluster, given: Any, reason: str, form: str
) -> None:
    def transform(record: Any) -> Any:
        return given if record.offset() == COUNT - 1 else record.value()

    async def later(record: Any) -> Any:
        return transform(record)

    def of_all(records: list[Any]) -> Any:
        return given if records[-1].offset() == COUNT - 1 else [record.value() for record in records]

    async def all_later(records: list[Any]) -> Any:
        return of_all(records)

    forms = {"transform": transform, "transform_batch": of_all, "async": later}
    with pytest.raises(TransformError, match=re.escape(reason)):
        run(cluster, forms.get(form, all_later), form)


@pytest.mark.parametrize("form", ["transform", "transform_batch"])
def test_nothing_of_a_record_is_written_beside_its_letter_for_an_array_of_objects(
    cluster: SimulatedCluster, form: str
) -> None:
    def outputs(record: Any) -> Any:
        is_bad = record.offset() == COUNT // 2
        return [record.value(), OutputRecord(value=OF_OBJECTS)] if is_bad else [record.value()]

    of_all = in_form(lambda record: iter(outputs(record)), "transform_batch")
    run(cluster, of_all if form == "transform_batch" else outputs, form, **LETTERS)
    assert cluster.values("invoices") == [number for number in NUMBERS if number != b"%d" % (COUNT // 2)]
    assert cluster.values("letters") == [b"%d" % (COUNT // 2)]


class OwnOutput(OutputRecord, frozen=False):  # type: ignore[misc]  # which msgspec allows
    """The application's own kind of output, which can be changed."""


class OwnBytes(bytes):
    pass


@pytest.mark.parametrize("options", [{}, LETTERS], ids=["stop", "dead_letter"])
def test_outputs_of_classes_of_the_applications_own_are_written_like_others(
    cluster: SimulatedCluster, options: Any
) -> None:
    one: Any = OwnOutput(value=b"")

    def transform(record: Any) -> Iterator[Any]:
        one.value = record.value() + b"a"
        yield one
        yield OwnBytes(record.value() + b"b")

    run(cluster, transform, **options)
    assert cluster.values("invoices") == [number + mark for number in NUMBERS for mark in (b"a", b"b")]


# -- records -----------------------------------------------------------------------------------------------------------


def changes_its_record(record: Any) -> bytes:
    """Prices in cents; some application does it in the message itself."""
    record.set_key(b"changed")
    record.set_headers([*(record.headers() or []), ("seen", b"yes")])
    record.headers().append(("again", b"yes"))
    record.set_value(b"%d" % (int(record.value()) * 100))
    if record.offset() == COUNT // 2:
        raise ValueError("refused")
    return bytes(record.value())


def changes_its_batch(records: list[Any]) -> list[bytes]:
    return [changes_its_record(record) for record in records]


async def changes_its_record_later(record: Any) -> bytes:
    return changes_its_record(record)


async def changes_its_batch_later(records: list[Any]) -> list[bytes]:
    return changes_its_batch(records)


@pytest.mark.parametrize("attempts", [1, 3])
@pytest.mark.parametrize(
    ("transform", "form"),
    [
        (changes_its_record, "transform"),
        (changes_its_batch, "transform_batch"),
        (changes_its_record_later, "async"),
        (changes_its_batch_later, "async batch"),
    ],
)
def test_a_record_that_the_transform_changes_is_as_it_was_for_each_attempt_and_in_its_letter(
    cluster: SimulatedCluster, transform: Any, form: str, attempts: int
) -> None:
    run(cluster, transform, form, transform_attempts_max=attempts, **LETTERS)
    assert cluster.values("invoices") == [b"%d" % (100 * n) for n in range(COUNT) if n != COUNT // 2]
    (letter,) = cluster.read("letters")
    assert (letter.value, letter.key) == (NUMBERS[COUNT // 2], None)
    assert [name for name, _ in letter.headers if not name.startswith("eos.")] == []


Seen = tuple[Any, ...]
FORMS_OF_RECORDS = ["transform", "transform_batch", "async", "async batch"]
BROKERS = BrokerSettings(message_max_bytes=2_000)
REFUSED = {
    "the client library": OutputRecord(value=b"of no partition", partition=99),
    "the brokers": OutputRecord(value=b"x" * 5_000),
}


def seen_in(record: Any) -> Seen:
    headers = record.headers()
    return record.topic(), record.offset(), record.value(), record.key(), headers and [*headers]


class Marking:
    """A transform that changes all that can be changed in its record; `bad` is what it does at one of them."""

    def __init__(self, bad: Any) -> None:
        self.seen: list[Seen] = []
        self._bad = bad

    def __call__(self, record: Any) -> Any:
        self.seen.append(seen_in(record))
        value = record.value()
        record.headers().append(("seen", b"yes"))
        record.set_headers([*record.headers(), ("again", b"yes")])
        record.set_value(b"marked")
        record.set_key(b"marked")
        record.set_topic("elsewhere")
        if record.offset() != COUNT // 2:
            return value
        if isinstance(self._bad, Exception):
            raise self._bad
        return self._bad

    def in_form(self, form: str) -> Any:
        async def later(record: Any) -> Any:
            return self(record)

        async def all_later(records: list[Any]) -> list[Any]:
            return [*map(self, records)]

        forms = {"transform": self, "transform_batch": lambda records: [*map(self, records)], "async": later}
        return forms.get(form, all_later)


@pytest.fixture
def marked(make_simulated_cluster: Any) -> SimulatedCluster:
    """A cluster whose records have a key and a header, and whose brokers refuse large ones."""
    made: SimulatedCluster = make_simulated_cluster(settings=BROKERS)
    for topic in ("orders", "invoices", "letters"):
        made.create_topic(topic)
    producer = made.producer({"bootstrap.servers": "simulated"})
    for number in NUMBERS:
        producer.produce("orders", number, number, headers=[("number", number)])
    producer.flush()
    return made


CONSUMED = [("orders", n, number, number, [("number", number)]) for n, number in enumerate(NUMBERS)]
BAD = {**REFUSED, "the transform": ValueError("refused")}


@pytest.mark.in_turn(3)
@pytest.mark.parametrize("on_error", ["skip", "dead_letter"])
@pytest.mark.parametrize("form", FORMS_OF_RECORDS)
@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
def test_whoever_refuses_an_output_no_transform_sees_a_changed_record_and_no_letter_is_one(
    marked: SimulatedCluster, bad: Any, form: str, on_error: str
) -> None:
    transform = Marking(bad)
    letters = {"dead_letter_topic": "letters"} if on_error == "dead_letter" else {}
    job = run(marked, transform.in_form(form), form, on_error=on_error, **letters)
    assert [each for each in transform.seen if each not in CONSUMED] == []
    assert marked.values("invoices") == [number for number in NUMBERS if number != b"%d" % (COUNT // 2)]
    (told,) = [each for each in job.events if isinstance(each, RecordSkipped | RecordDeadLettered)]
    assert (told.topic, told.offset) == ("orders", COUNT // 2)
    assert len([each for each in job.events if isinstance(each, TransactionAborted)]) < 10
    for letter in marked.read("letters"):
        named = dict(letter.headers)
        assert (letter.value, letter.key, named["number"], named["eos.topic"]) == (*3 * [told_number()], b"orders")
        assert not {"seen", "again"} & named.keys()


def told_number() -> bytes:
    return NUMBERS[COUNT // 2]


@pytest.mark.parametrize("form", FORMS_OF_RECORDS)
@pytest.mark.parametrize("refused", REFUSED.values(), ids=REFUSED)
def test_stop_names_the_record_of_a_refused_output_that_its_transform_has_changed(
    marked: SimulatedCluster, refused: Any, form: str
) -> None:
    transform = Marking(refused)
    with pytest.raises(TransformError) as caught:
        run(marked, transform.in_form(form), form)
    assert (caught.value.partition, caught.value.offset) == (0, COUNT // 2)
    assert [each for each in transform.seen if each not in CONSUMED] == []


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("form", FORMS_OF_RECORDS)
@pytest.mark.parametrize("request_kind", ["TxnOffsetCommit", "EndTxn", "AddPartitionsToTxn"])
def test_a_record_that_comes_again_after_an_abort_is_as_it_was(
    marked: SimulatedCluster, request_kind: str, form: str
) -> None:
    """Whatever aborts: a commit that is refused, a fence, an eviction in the middle."""
    transform = Marking(NUMBERS[COUNT // 2])
    marked.refuse(request_kind, "INVALID_PRODUCER_EPOCH" if request_kind != "TxnOffsetCommit" else "UNKNOWN_MEMBER_ID")
    marked.after(0.5, lambda: marked.lose("billing"))
    run(marked, transform.in_form(form), form)
    assert len(transform.seen) > COUNT, "some came again"
    assert [each for each in transform.seen if each not in CONSUMED] == []
    assert marked.values("invoices") == NUMBERS
