"""The Spark job of a micro-batch: one task for each slot, and how a task learns which batch it is part of.

On Spark Connect the pickled function holds everything. On classic Spark the function is made once for a run, because
making it takes 32 calls to the JVM: what differs from batch to batch is sent as a property of the job. Properties are
written to Spark's event log, so this one holds no settings.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql.pandas.functions import pandas_udf
from pyspark.util import PythonEvalType

from eos_client.core.batch_ledger import SlotContent
from eos_client.core.replayed_batch import ReplayedBatch
from eos_client.integration.spark.content_count import ContentCount
from eos_client.integration.spark.rows import quoted
from eos_client.integration.spark.status import STATUS_SCHEMA, SlotOutcome, SlotStatus, check_statuses
from eos_client.integration.spark.worker_clients import shorten_collections

if TYPE_CHECKING:
    import pyarrow as pa
    from typing_extensions import Self

    SlotFunction = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]

BATCH_PROPERTY = "eos_client.batch"


class BatchTask(Protocol):
    """What every task of a batch gets from the driver, as a plain value that Spark can pickle."""

    @property
    def batch_id(self) -> int:
        """The batch."""
        ...

    @property
    def part(self) -> Sequence[Any]:
        """What differs from batch to batch: values that JSON can carry, and no setting."""
        ...

    def with_part(self, part: Sequence[Any]) -> Self:
        """Return the task of another batch, whose ``part`` JSON has carried."""
        ...

    def accepting(self) -> Self:
        """Return the task of a batch whose committed slots may hold other rows now."""
        ...

    def write(self, slot: int, batches: Iterator[pa.RecordBatch], *, first_attempt: bool = True) -> SlotStatus:
        """Write ``batches`` as this batch's part of ``slot``, unless that was done.

        Returns a status where repeating the task cannot help; raises EosError where Spark should repeat it.
        """
        ...


T = TypeVar("T", bound=BatchTask)


class SlotJob:
    """Runs the tasks of a run's batches; ``prepared``: make the function once, which needs classic Spark."""

    def __init__(self, *, prepared: bool) -> None:
        self._prepared = prepared
        self._functions: dict[tuple[str, ...], Any] = {}

    def write(
        self,
        rows: DataFrame,
        spread: DataFrame,
        columns: Sequence[str],
        task: BatchTask,
        replayed: ReplayedBatch | None,
        *,
        slots: int,
        accept_batch: str | None,
    ) -> list[SlotStatus]:
        """Write the slots that have not committed the batch; refuse it when a committed slot's rows differ now.

        ``spread``: the ``rows``, each in the partition of its slot. ``replayed``: what was committed of this batch, or
        of an earlier one. ``accept_batch``: the token that confirms ending this batch with its present rows.
        """
        if replayed is not None and replayed.batch_id == task.batch_id and replayed.committed:
            refusal = replayed.refusal(self.count(spread, slots))
            is_accepted = replayed.token == accept_batch
            if refusal is not None and not is_accepted:
                raise refusal
            task = task.accepting() if is_accepted else task
        found = self.run(spread, columns, task)
        if not found and rows.isEmpty():
            # Spark runs no task for a frame that it knows to be empty, but the ledger must move all the same.
            found = self.run_empty(rows.sparkSession.range(0, slots, 1, slots), task)
        return check_statuses(found, slots)

    def run(self, spread: DataFrame, columns: Sequence[str], task: BatchTask) -> list[SlotStatus]:
        """Write each partition of ``spread``, which has ``columns``, as a slot; returns the tasks' reports."""
        mapped = self._mapped(spread, tuple(columns), task) if self._prepared else None
        if mapped is None:
            return _collected(spread.mapInArrow(_function(task), STATUS_SCHEMA))
        with _batch_property(spread, task):
            return _collected(mapped)

    def run_empty(self, anything: DataFrame, task: BatchTask) -> list[SlotStatus]:
        """Write each partition of ``anything`` as a slot without rows, so that the ledger moves."""
        return _collected(anything.mapInArrow(_function(task, empty=True), STATUS_SCHEMA))

    @staticmethod
    def count(spread: DataFrame, slots: int) -> dict[int, SlotContent]:
        """Return what each partition of ``spread`` holds, by slot, without writing anything."""
        # Spark runs no task for a frame that it knows to be empty.
        found = {status.slot: status.content for status in _collected(spread.mapInArrow(_count_slot, STATUS_SCHEMA))}
        return {slot: found.get(slot) or SlotContent(0, 0) for slot in range(slots)}

    def _mapped(self, spread: Any, columns: tuple[str, ...], task: BatchTask) -> DataFrame | None:
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


def batch_part(task: BatchTask) -> str:
    """Return what differs from batch to batch, as text without secrets."""
    return json.dumps(task.part, separators=(",", ":"))


def with_batch_part(task: T, text: str | None) -> T:
    """Return the task of the batch that ``text`` was made for; raises LookupError for None.

    Without a property the task must fail: with the values of an earlier batch its slots would be found written.
    """
    if text is None:
        raise LookupError("Spark has not passed the job's properties to its tasks, so they do not know their batch")
    return task.with_part(json.loads(text))


def _prepared_function(function: SlotFunction, columns: Sequence[str]) -> Any:
    make: Any = pandas_udf
    udf = make(function, returnType=STATUS_SCHEMA, functionType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
    return udf(*map(quoted, columns))._jc  # noqa: SLF001  # there is no public way


@contextmanager
def _batch_property(frame: DataFrame, task: BatchTask) -> Iterator[None]:
    context = frame.sparkSession.sparkContext
    context.setLocalProperty(BATCH_PROPERTY, batch_part(task))
    try:
        yield
    finally:
        context.setLocalProperty(BATCH_PROPERTY, None)  # type: ignore[arg-type]  # it removes the property


def _collected(mapped: DataFrame) -> list[SlotStatus]:
    return [SlotStatus.decode(row["slot"], row["status"]) for row in mapped.collect()]


def _function(task: BatchTask, *, by_property: bool = False, empty: bool = False) -> SlotFunction:
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
