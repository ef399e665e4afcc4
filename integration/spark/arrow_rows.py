"""Turns Arrow columns into records; the hot path of a task."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from itertools import islice, repeat
from operator import length_hint
from typing import Any

import pyarrow as pa

from eos_client.confluent.producer.output_arguments import check_header_name
from eos_client.core.output_topics import is_topic_name
from eos_client.errors import BatchContentError, OutputRefusedError
from eos_client.integration.spark.rows import HEADERS, KEY, PARTITION, TOPIC, VALUE, slot_of

_STRIDE = 2_000

Produce = Callable[..., None]
Enqueue = Callable[[str, bytes | None, bytes | None, Mapping[str, Any]], None]
Poll = Callable[[float], Any]


def check_slot(batch: pa.RecordBatch, slot: int, slots: int) -> None:
    """Refuse rows that are not of this slot: the slot function differs between Spark and Python, or was bypassed."""
    if not batch.num_rows:
        return
    key = batch.column(KEY)[0].as_py() if KEY in batch.schema.names else None
    belongs = slot_of(key, batch.column(VALUE)[0].as_py(), slots)
    if belongs != slot:
        raise BatchContentError(
            f"a row of slot {belongs} came to slot {slot}: the rows were redistributed between the sink and its tasks. "
            "Nothing was written; report the Spark version and its settings."
        )


def _problem(partition: int | None, headers: Sequence[Mapping[str, Any] | None]) -> str:
    """Return a defect that Spark's own sink refuses and librdkafka would misinterpret; "" for none."""
    if partition is not None and partition < 0:
        return f"its partition is {partition}; null leaves the choice to the producer"
    for header in headers:
        if header is None or header["key"] is None:
            return "a header, or its key, is null"
        try:
            check_header_name(header["key"])
        except ValueError as error:
            return str(error)
    return ""


def _refused(topic: str, problem: str) -> OutputRefusedError:
    return OutputRefusedError(f"a row for topic {topic!r} cannot be written: {problem}. Correct that row.")


class RecordWriter:
    """Hands the rows of Arrow batches to a producer.

    ``raw_produce`` is the fast path; a row that it refuses is repeated with ``enqueue``, which waits for room in the
    queue and names the error. ``poll`` takes seconds, and frees what was delivered.
    """

    def __init__(self, topic: str, raw_produce: Produce, enqueue: Enqueue, poll: Poll) -> None:
        self._topic = topic
        self._raw_produce = raw_produce
        self._enqueue = enqueue
        self._poll = poll

    def write(self, batch: pa.RecordBatch) -> None:
        """Queue every row; raises what ``enqueue`` raises."""
        names = batch.schema.names
        values = batch.column(VALUE).to_pylist()
        keys: list[bytes | None] = batch.column(KEY).to_pylist() if KEY in names else [None] * len(values)
        if {TOPIC, PARTITION, HEADERS}.isdisjoint(names):
            self._write_plain(values, keys)
            return
        columns = [
            batch.column(name).to_pylist() if name in names else [None] * len(values)
            for name in (TOPIC, PARTITION, HEADERS)
        ]
        for topic in batch.column(TOPIC).unique().to_pylist() if TOPIC in names else ():
            if topic is not None and not is_topic_name(topic):
                raise _refused(topic, "no broker takes the name of its topic; null stands for the sink's topic")
        for value, key, topic, partition, headers in zip(values, keys, *columns, strict=True):
            options: dict[str, Any] = {}
            if partition is not None:
                options["partition"] = partition
            target = self._topic if topic is None else topic
            if problem := _problem(partition, headers or ()):
                raise _refused(target, problem)
            if headers is not None:
                options["headers"] = [(header["key"], header["value"]) for header in headers]
            try:
                self._raw_produce(target, value, key, **options)
            except Exception:  # noqa: BLE001  # as below
                self._enqueue(target, value, key, options)

    def _write_plain(self, values: list[bytes | None], keys: list[bytes | None]) -> None:
        # Free delivered records after each stride, so that their memory is reused while it is in the cache.
        left, left_keys = iter(values), iter(keys)
        while length_hint(left):
            try:
                deque(map(self._raw_produce, repeat(self._topic), islice(left, _STRIDE), left_keys), maxlen=0)
            except Exception:  # noqa: BLE001, PERF203  # the slow path repeats it and names the error
                failed = -length_hint(left) - 1  # the row that the iterator has given last
                self._enqueue(self._topic, values[failed], keys[failed], {})
            else:
                self._poll(0)
