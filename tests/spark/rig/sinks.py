"""The sinks that the rig can run: ours, and Spark's own Kafka sink with the same seams for faults."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql.types import StringType, StructField, StructType

from tests.spark.rig.faults import DriverStriker, Striker
from tests.spark.rig.settings import Sink, StreamSettings

BatchSink = Callable[[DataFrame, int], None]
TRANSIT_S = 0.5
PIPE_BYTES = 200_000


def chosen_sink(settings: StreamSettings) -> BatchSink:
    """The sink that the settings name, with the faults built in."""
    driver = DriverStriker(Striker(settings.driver_faults, settings.directory))
    if settings.sink is Sink.PLAIN:
        return PlainSink(settings.bootstrap, settings.topic, Striker(settings.faults, settings.directory), driver)
    from tests.spark.rig.ours import our_database_sink, our_sink  # noqa: PLC0415  the baseline runs without it

    return our_database_sink(settings, driver) if settings.sink is Sink.DATABASE else our_sink(settings, driver)


@dataclass(frozen=True)
class PlainSink:
    """Spark's own Kafka sink, batch by batch. Faults strike when half of a task's rows, or all, were handed over."""

    bootstrap: str
    topic: str
    striker: Striker
    driver: DriverStriker

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        self.driver("lease_held", batch_id)
        rows = frame.select("key", "value")
        if self.striker.faults:
            rows = rows.mapInArrow(RowsWithFaults(self.striker, batch_id), _PADDED).drop("padding")
        writer = rows.write.format("kafka").option("kafka.bootstrap.servers", self.bootstrap)
        writer.option("topic", self.topic).save()
        self.driver("job_done", batch_id)
        self.driver("marker_committed", batch_id)


_PADDED = StructType(
    [StructField("key", StringType()), StructField("value", StringType()), StructField("padding", StringType())]
)


@dataclass(frozen=True)
class RowsWithFaults:
    """Passes rows on, half of them first. The padding drives them out of the pipe before the fault strikes."""

    striker: Striker
    batch_id: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        slot = _partition()
        for step in ("start", "initialised", "ledger_read", "begun"):
            self.striker(step, slot, self.batch_id)
        given = list(batches)
        table = pa.Table.from_batches(given) if given else None
        if table is None or table.num_rows == 0:
            return
        half = max(1, table.num_rows // 2)
        for part, steps in ((table[:half], ("produced",)), (table[half:], ("flushed", "offsets_sent", "committed"))):
            if part.num_rows:
                yield from _padded(part).to_batches()
            if self._wanted(steps, slot):
                time.sleep(TRANSIT_S)
                for step in steps:
                    self.striker(step, slot, self.batch_id)

    def _wanted(self, steps: tuple[str, ...], slot: int) -> bool:
        return any(
            fault.step in steps and fault.batch_id == self.batch_id and fault.slot in {None, slot}
            for fault in self.striker.faults
        )


def _partition() -> int:
    context = TaskContext.get()
    assert context is not None
    return context.partitionId()


def _padded(rows: pa.Table) -> pa.Table:
    padding = ["." * PIPE_BYTES, *[""] * (rows.num_rows - 1)]
    return rows.append_column("padding", pa.array(padding, pa.string()))
