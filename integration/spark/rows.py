"""The columns of Spark's own Kafka sink, and how the rows are projected for the slots.

``value`` is required; ``key``, ``topic``, ``partition`` and ``headers`` are optional. A null value is a tombstone, a
null topic means the sink's topic, a null partition leaves the choice to the producer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame
from pyspark.sql.functions import expr
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    CalendarIntervalType,
    DataType,
    IntegerType,
    MapType,
    StringType,
    StructType,
    VariantType,
)

from eos_client.errors import FrameSchemaError
from eos_client.integration.spark.frame_columns import (
    HEADERS,
    KEY,
    PARTITION,
    SINK_COLUMNS,
    TOPIC,
    VALUE,
    matched_columns,
    sink_columns,
)
from eos_client.integration.spark.slots import slot_expression

FINGERPRINT = "eos_fingerprint"
_ORDER = "eos_order_"
_HEADERS_TYPE = "array<struct<key:string,value:binary>>"


def project_columns(frame: DataFrame, order_by: Sequence[str]) -> DataFrame:
    """Return the columns that the sink needs, in their types, with a hash of each row and what it is ordered by.

    Raises FrameSchemaError, naming the column, its type and the types that will do.
    """
    types = {f.name: f.dataType for f in frame.schema.fields}
    matched = matched_columns(frame, order_by)
    _refuse_unorderable({name: types[matched[name]] for name in order_by})
    columns = {name: _cast(matched[name], name, types[matched[name]]) for name in SINK_COLUMNS if name in matched}
    # As text, because each call on a Column is a round trip to the JVM, and this is done for every batch.
    return frame.selectExpr(
        *(f"{cast} as {name}" for name, cast in columns.items()),
        f"{_fingerprint(columns)} as {FINGERPRINT}",
        *(f"{_quoted(name)} as {_ORDER}{at}" for at, name in enumerate(order_by)),
    )


def projected_columns(frame: DataFrame, order_by: Sequence[str]) -> list[str]:
    """Return the columns that the tasks get of ``frame``."""
    return [*sink_columns(frame, order_by), FINGERPRINT]


def repartition_by_slot(frame: DataFrame, slots: int, *, keyed: bool, ordered_by: int = 0) -> DataFrame:
    """Bring each row of a projected frame to the partition of its slot, in order where one was asked for.

    ``keyed``: whether it has a column ``key``; ``ordered_by``: how many columns it is ordered by. The caller
    knows both; the frame would be asked over py4j, a millisecond of every batch.
    """
    spread = frame.repartitionById(slots, expr(slot_expression(slots, keyed=keyed)))
    ordering = [f"{_ORDER}{at}" for at in range(ordered_by)]
    return spread.sortWithinPartitions(*ordering).drop(*ordering) if ordering else spread


def _cast(name: str, wanted: str, found: DataType) -> str:
    """Return the column cast to the type that the tasks expect, as SQL."""
    types = _TYPES[wanted]
    if not any(_fits(found, each) for each in types):
        allowed = " or ".join(_HEADERS_TYPE if isinstance(each, ArrayType) else each.simpleString() for each in types)
        raise FrameSchemaError(
            f"column {name!r} is of type {found.simpleString()}; it must be {allowed}. Cast it before writing."
        )
    return f"cast({_quoted(name)} as {types[0].simpleString()})"


_HEADER = StructType().add("key", StringType()).add("value", BinaryType())
_TYPES: dict[str, tuple[DataType, ...]] = {
    VALUE: (BinaryType(), StringType()),
    KEY: (BinaryType(), StringType()),
    TOPIC: (StringType(),),
    PARTITION: (IntegerType(),),
    HEADERS: (ArrayType(_HEADER),),
}


def _fits(found: DataType, wanted: DataType) -> bool:
    if not isinstance(wanted, ArrayType):
        return type(found) is type(wanted)
    inner = found.elementType if isinstance(found, ArrayType) else None
    return isinstance(inner, StructType) and [(f.name, f.dataType) for f in inner.fields] == [
        (f.name, f.dataType) for f in _HEADER.fields
    ]


def _refuse_unorderable(types: Mapping[str, DataType]) -> None:
    for name, found in types.items():
        if not _is_orderable(found):
            raise FrameSchemaError(
                f"order_by names {name!r}, which is of type {found.simpleString()}: Spark cannot order by that. Name a "
                "column of another type."
            )


def _is_orderable(found: DataType) -> bool:
    if isinstance(found, ArrayType):
        return _is_orderable(found.elementType)
    if isinstance(found, StructType):
        return all(_is_orderable(field.dataType) for field in found.fields)
    return not isinstance(found, (MapType, VariantType, CalendarIntervalType))


def _fingerprint(columns: Mapping[str, str]) -> str:
    """Return a hash of the row, as SQL. xxhash64 skips nulls, so each column's nullness is hashed, too.

    A missing column hashes as a column of nulls.
    """
    said = (f"{columns[name]} is null, {columns[name]}" if name in columns else "true" for name in SINK_COLUMNS)
    return f"xxhash64({', '.join(said)})"


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"
