"""How the rows of a frame are projected for a table: its columns, the slot of each row, and a hash of it.

A row's slot is a function of its key columns, or of all its columns where no key is named, and never of Spark's own
partition, which differs from run to run. The version of the function is kept in the ledger.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql.types import (
    ArrayType,
    CalendarIntervalType,
    DataType,
    MapType,
    StructType,
    UserDefinedType,
    VariantType,
    YearMonthIntervalType,
)

from eos_client.errors import BatchContentError, FrameSchemaError
from eos_client.integration.spark.content_count import FINGERPRINT
from eos_client.integration.spark.rows import ordering, quoted

if TYPE_CHECKING:
    import pyarrow as pa

SLOT = "eos_slot"
"""The column with the slot of each row."""
TABLE_SLOT_FUNCTION_VERSION = 100
"""100: ``xxhash64`` of the key columns and of which of them are null, else of all columns, mod slots."""
_OURS = (FINGERPRINT, SLOT)
_NOT_IN_A_TABLE = (
    ArrayType,
    CalendarIntervalType,
    MapType,
    StructType,
    UserDefinedType,
    VariantType,
    YearMonthIntervalType,
)


def project_table_columns(
    frame: DataFrame, table: str, in_table: Collection[str], key: Sequence[str], order_by: Sequence[str], slots: int
) -> tuple[DataFrame, list[str]]:
    """Return the columns of ``frame`` that ``table`` has, with slot, hash, and what the rows are ordered by.

    Returns also the names of the columns that the tasks get. ``key`` and ``order_by`` may name columns that are not in
    the table. Raises FrameSchemaError, naming the column and what to do.
    """
    names = frame.columns
    _check_names(names, table, in_table, key, order_by)
    types = {field.name: field.dataType for field in frame.schema.fields}
    written = [name for name in names if name in in_table]
    for name in {*written, *key, *order_by}:
        _check_type(name, types[name])
    by = [*key] if key else written
    projected = frame.selectExpr(
        *(quoted(name) for name in written),
        f"{_hash(written)} as {FINGERPRINT}",
        f"cast(pmod({_hash(by)}, {slots}) as int) as {SLOT}",
        *ordering(order_by),
    )
    return projected, [*written, *_OURS]


def written_columns(batch: pa.RecordBatch) -> list[str]:
    """Return the names of the table's columns in a batch of a task."""
    return [name for name in batch.schema.names if name not in _OURS]


def check_slots(batch: pa.RecordBatch, slot: int) -> None:
    """Refuse rows that are not of this slot: something has redistributed them on their way to the task."""
    others = sorted({*batch.column(SLOT).unique().to_pylist()} - {slot})
    if others:
        raise BatchContentError(
            f"rows of slots {', '.join(map(str, others))} came to slot {slot}: the rows were redistributed between the "
            "sink and its tasks. Nothing of this slot was written; report the Spark version and its settings."
        )


def _check_names(
    names: Sequence[str], table: str, in_table: Collection[str], key: Sequence[str], order_by: Sequence[str]
) -> None:
    if doubled := sorted({name for name in names if names.count(name) > 1} | {*names}.intersection(_OURS)):
        raise FrameSchemaError(f"columns {_listed(doubled)} of the frame are ambiguous: rename or drop all but one.")
    for option, wanted in (("key", key), ("order_by", order_by)):
        for name in wanted:
            if name not in names:
                raise FrameSchemaError(f"{option} names {name!r}, which the frame does not have: keep that column.")
    if unknown := [name for name in names if name not in in_table and name not in {*key, *order_by}]:
        raise FrameSchemaError(
            f"the table {table!r} has no columns {_listed(unknown)} (it has {', '.join(in_table)}; names are compared "
            "letter by letter): rename or drop them, or name in order_by what the rows are to be ordered by."
        )
    if not any(name in in_table for name in names):
        raise FrameSchemaError(f"the frame has no column of the table {table!r} (it has {', '.join(names)}).")


def _check_type(name: str, found: DataType) -> None:
    if isinstance(found, _NOT_IN_A_TABLE):
        raise FrameSchemaError(
            f"column {name!r} is of type {found.simpleString()}, which a column of a table cannot hold as it is: write "
            "it as text, for example by to_json()."
        )


def _hash(names: Sequence[str]) -> str:
    """Return a hash of these columns, as SQL. xxhash64 skips nulls, so each column's nullness is hashed, too."""
    return f"xxhash64({', '.join(f'{quoted(name)} is null, {quoted(name)}' for name in names)})"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names))
