"""The Spark job of a micro-batch: one task for each slot, and how a task learns which batch it is part of.

On Spark Connect the pickled function holds everything. On classic Spark the function is made once for a run, because
making it takes 32 calls to the JVM: what differs from batch to batch is sent as a property of the job. Properties are
written to Spark's event log, so this one holds no settings.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql.pandas.functions import pandas_udf
from pyspark.util import PythonEvalType

from eos_client.core.batch_ledger import SlotContent
from eos_client.integration.spark.status import STATUS_SCHEMA, SlotOutcome, SlotStatus
from eos_client.integration.spark.task import ContentCount, SlotTask
from eos_client.integration.spark.worker_clients import shorten_collections

if TYPE_CHECKING:
    import pyarrow as pa

    SlotFunction = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]

BATCH_PROPERTY = "eos_client.batch"


class SlotJob:
    """Runs the tasks of a run's batches; ``prepared``: make the function once, which needs classic Spark."""

    def __init__(self, *, prepared: bool) -> None:
        self._prepared = prepared
        self._functions: dict[tuple[str, ...], Any] = {}

    def run(self, spread: DataFrame, columns: Sequence[str], task: SlotTask) -> list[SlotStatus]:
        """Write each partition of ``spread``, which has ``columns``, as a slot; returns the tasks' reports."""
        mapped = self._mapped(spread, tuple(columns), task) if self._prepared else None
        if mapped is None:
            return _collected(spread.mapInArrow(_function(task), STATUS_SCHEMA))
        with _batch_property(spread, task):
            return _collected(mapped)

    def run_empty(self, anything: DataFrame, task: SlotTask) -> list[SlotStatus]:
        """Write each partition of ``anything`` as a slot without rows, so that the ledger moves."""
        return _collected(anything.mapInArrow(_function(task, empty=True), STATUS_SCHEMA))

    @staticmethod
    def count(spread: DataFrame, slots: int) -> dict[int, SlotContent]:
        """Return what each partition of ``spread`` holds, by slot, without writing anything."""
        # Spark runs no task for a frame that it knows to be empty.
        found = {status.slot: status.content for status in _collected(spread.mapInArrow(_count_slot, STATUS_SCHEMA))}
        return {slot: found.get(slot) or SlotContent(0, 0) for slot in range(slots)}

    def _mapped(self, spread: Any, columns: tuple[str, ...], task: SlotTask) -> DataFrame | None:
        """Return the frame of statuses; None where Spark's internals differ and only the public way works."""
        from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # noqa: PLC0415  # classic Spark only

        try:
            if columns not in self._functions:
                self._functions[columns] = _prepared_function(_function(task, by_property=True), columns)
            # As DataFrame.mapInArrow does, but with a function that was made before.
            return DataFrame(spread._jdf.mapInArrow(self._functions[columns], False, None), spread.sparkSession)  # noqa: SLF001
        except (AttributeError, TypeError, Py4JError):
            self._prepared = False
            return None


def batch_part(task: SlotTask) -> str:
    """Return what differs from batch to batch, as text without secrets."""
    part = [task.batch_id, task.run, task.group_metadata.hex(), task.floors, task.holders, task.accepts]
    return json.dumps(part, separators=(",", ":"))


def with_batch_part(task: SlotTask, text: str | None) -> SlotTask:
    """Return the task of the batch that ``text`` was made for; raises LookupError for None.

    Without a property the task must fail: with the values of an earlier batch its slots would be found written.
    """
    if text is None:
        raise LookupError("Spark has not passed the job's properties to its tasks, so they do not know their batch")
    batch_id, run, metadata, floors, holders, accepts = json.loads(text)
    return replace(
        task,
        batch_id=batch_id,
        run=run,
        group_metadata=bytes.fromhex(metadata),
        floors=tuple(floors),
        holders=tuple(holders),
        accepts=accepts,
    )


def _prepared_function(function: SlotFunction, columns: Sequence[str]) -> Any:
    make: Any = pandas_udf
    udf = make(function, returnType=STATUS_SCHEMA, functionType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
    return udf(*columns)._jc  # noqa: SLF001  # there is no public way


@contextmanager
def _batch_property(frame: DataFrame, task: SlotTask) -> Iterator[None]:
    context = frame.sparkSession.sparkContext
    context.setLocalProperty(BATCH_PROPERTY, batch_part(task))
    try:
        yield
    finally:
        context.setLocalProperty(BATCH_PROPERTY, None)  # type: ignore[arg-type]  # it removes the property


def _collected(mapped: DataFrame) -> list[SlotStatus]:
    return [SlotStatus.decode(row["slot"], row["status"]) for row in mapped.collect()]


def _function(task: SlotTask, *, by_property: bool = False, empty: bool = False) -> SlotFunction:
    """Return the function that Spark pickles. ``by_property``: a property of the job says which batch it is."""

    def write_slot(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context: Any = TaskContext.get()
        this = with_batch_part(task, context.getLocalProperty(BATCH_PROPERTY)) if by_property else task
        rows = iter(()) if empty else batches
        status = this.write(context.partitionId(), rows, first_attempt=context.attemptNumber() == 0)
        shorten_collections()
        yield status_row(status)

    return write_slot


def _count_slot(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    context: Any = TaskContext.get()
    count = ContentCount()
    for batch in batches:
        count.add(batch)
    rows, fingerprint = count.content.rows, count.content.fingerprint
    yield status_row(SlotStatus(context.partitionId(), SlotOutcome.COUNTED, rows, fingerprint=fingerprint))


def status_row(status: SlotStatus) -> pa.RecordBatch:
    """Return ``status`` as the row that a task returns."""
    import pyarrow as pa  # noqa: PLC0415  # executors only

    columns = [pa.array([status.slot], pa.int32()), pa.array([status.encode()], pa.string())]
    return pa.RecordBatch.from_arrays(columns, names=["slot", "status"])
