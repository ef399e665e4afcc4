"""The steps before a record is produced, written nowhere: what a sink costs without its producing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame

from eos_client.integration.spark.rows import project_columns, repartition_by_slot

MADE, SPREAD, HANDED = "rows made", "and brought to their slots", "and handed to Python"
STEPS = (MADE, SPREAD, HANDED)


@dataclass(frozen=True)
class Nowhere:
    """A function for foreachBatch that does the steps up to ``last`` with keyed rows."""

    last: str
    slots: int

    def __call__(self, batch: DataFrame, _: int) -> None:
        rows = batch
        if self.last != MADE:
            rows = repartition_by_slot(project_columns(batch, ())[0], self.slots, keyed=True)
        if self.last == HANDED:
            rows = rows.mapInArrow(_dropped, "rows int")
        rows.write.format("noop").mode("append").save()


def _dropped(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    count = sum(batch.num_rows for batch in batches)
    yield pa.RecordBatch.from_arrays([pa.array([count], pa.int32())], names=["rows"])
