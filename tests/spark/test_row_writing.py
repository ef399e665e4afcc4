"""How a task writes its rows: prefetched while a producer starts, and in order."""

from __future__ import annotations

from concurrent.futures import Future

import pyarrow as pa
import pytest

from eos_client.errors import OutputRefusedError
from eos_client.integration.spark import arrow_rows
from eos_client.integration.spark.arrow_rows import RecordWriter
from eos_client.integration.spark.task import prefetch_until


@pytest.mark.parametrize(("size", "count"), [(0, 5), (4_000_000, 4), (20_000_000, 1)])
def test_rows_are_prefetched_while_a_producer_starts_up_to_a_bound(size, count):
    rows = [pa.RecordBatch.from_pydict({"value": [b"%d" % n, bytes(size)]}) for n in range(5)]
    coming = iter(rows)
    prefetched = prefetch_until(coming, Future())
    assert [*prefetched, *coming] == rows
    assert len(prefetched) == count


def test_no_row_is_prefetched_once_the_producer_has_started():
    started: Future[None] = Future()
    started.set_result(None)
    assert not prefetch_until(iter([pa.RecordBatch.from_pydict({"value": [b"v"]})]), started)


class Outlet:
    """A producer's quick way in that refuses some rows the first time; the thorough way takes them."""

    def __init__(self, refused):
        self.refused, self.written = refused, []

    def quick(self, topic, value, key):
        if value in self.refused:
            raise BufferError("full")
        self.written.append((topic, value, key))

    def thorough(self, topic, value, key, _options):
        self.written.append((topic, value, key))


@pytest.mark.parametrize("refused", [set(), {b"0"}, {b"9"}, {b"3", b"4", b"8"}, {b"%d" % n for n in range(10)}])
@pytest.mark.parametrize("stride", [1, 3, 10, 2000])
def test_rows_that_the_queue_has_no_room_for_are_written_once_and_in_their_place(refused, stride, monkeypatch):
    monkeypatch.setattr(arrow_rows, "_STRIDE", stride)
    outlet = Outlet(refused)
    rows = pa.RecordBatch.from_pydict({"value": [b"%d" % n for n in range(10)], "key": [b"k%d" % n for n in range(10)]})
    RecordWriter("t", outlet.quick, outlet.thorough, lambda _timeout_s: None).write(rows)
    assert outlet.written == [("t", b"%d" % n, b"k%d" % n) for n in range(10)]


def test_what_serving_reports_raises_is_not_taken_for_a_row_that_failed(monkeypatch):
    def broken(_timeout_s):
        raise LookupError

    monkeypatch.setattr(arrow_rows, "_STRIDE", 2)
    outlet = Outlet(set())
    rows = pa.RecordBatch.from_pydict({"value": [b"1", b"2", b"3"]})
    with pytest.raises(LookupError):
        RecordWriter("t", outlet.quick, outlet.thorough, broken).write(rows)
    assert outlet.written == [("t", b"1", None), ("t", b"2", None)]


@pytest.mark.parametrize(
    ("column", "problem"),
    [
        ({"headers": [[{"key": "good\0bad", "value": b"x"}]]}, r"'good\\x00bad' contains a NUL, at which it would end"),
        (
            {"topic": ["good\0bad"]},
            r"a row for topic 'good\\x00bad' cannot be written: no broker takes the name of its",
        ),
        ({"topic": ["a b"]}, "a row for topic 'a b' cannot be written: no broker takes the name of its topic"),
    ],
)
def test_a_name_that_kafka_does_not_take_is_refused(column, problem):
    outlet = Outlet(set())
    rows = pa.RecordBatch.from_pydict({"value": [b"1"], **column})
    with pytest.raises(OutputRefusedError, match=problem):
        RecordWriter("t", outlet.quick, outlet.thorough, lambda _timeout_s: None).write(rows)
    assert outlet.written == []
