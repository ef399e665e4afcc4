"""The columns of Spark's own Kafka sink, and how the rows are projected for the slots.

``value`` is required; ``key``, ``topic``, ``partition`` and ``headers`` are optional. A null value is a tombstone, a
null topic means the sink's topic, a null partition leaves the choice to the producer. Every other column is refused by
name: ignoring a ``Key`` would silently write records without keys.

A row's slot is a function of its key that never changes, in Spark and in Python alike. Spark's own partition ids differ
from run to run, so they must never decide. The version of the function is kept in the ledger.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence

from pyspark.sql import DataFrame
from pyspark.sql.functions import expr
from pyspark.sql.types import ArrayType, CalendarIntervalType, DataType, MapType, StructType, VariantType

from eos_client.errors import FrameSchemaError
from eos_client.integration.spark.content_count import FINGERPRINT

VALUE, KEY, TOPIC, PARTITION, HEADERS = "value", "key", "topic", "partition", "headers"
SINK_COLUMNS = (VALUE, KEY, TOPIC, PARTITION, HEADERS)
_CASES_MATTER = "spark.sql.caseSensitive"
_ORDER = "eos_order_"
_BYTES = ("binary", "string")
_TYPES = {
    VALUE: _BYTES,
    KEY: _BYTES,
    TOPIC: ("string",),
    PARTITION: ("int",),
    HEADERS: ("array<struct<key:string,value:binary>>",),
}
"""What Spark calls the types that each column may have; it is cast to the first."""

SLOT_FUNCTION_VERSION = 1
"""1: ``crc32(key, else value, else empty) mod slots``; librdkafka's own partitioner hashes keys with crc32 too."""


def project_columns(frame: DataFrame, order_by: Sequence[str]) -> tuple[DataFrame, list[str]]:
    """Return the columns that the sink needs, in their types, with a hash of each row and what it is ordered by.

    Returns also the names of the columns that the tasks get.

    Raises FrameSchemaError, naming the column, its type and the types that will do.
    """
    types = {f.name: f.dataType for f in frame.schema.fields}
    matched = _matched_columns(frame, order_by)
    for name in order_by:
        if not is_orderable(found := types[matched[name]]):
            raise FrameSchemaError(
                f"order_by names {name!r}, which is of type {found.simpleString()}: Spark cannot order by that. Name a "
                "column of another type."
            )
    columns = {name: _cast(matched[name], name, types[matched[name]]) for name in SINK_COLUMNS if name in matched}
    # As text, because each call on a Column is a round trip to the JVM, and this is done for every batch.
    projected = frame.selectExpr(
        *(f"{cast} as {name}" for name, cast in columns.items()),
        f"{_fingerprint(columns)} as {FINGERPRINT}",
        *ordering(order_by),
    )
    return projected, [*columns, FINGERPRINT]


def repartition_by_slot(frame: DataFrame, slots: int, *, keyed: bool, ordered_by: int = 0) -> DataFrame:
    """Bring each row of a projected frame to the partition of its slot, in order where one was asked for.

    ``keyed``: whether it has a column ``key``; ``ordered_by``: how many columns it is ordered by. The caller
    knows both; the frame would be asked over py4j, a millisecond of every batch.
    """
    return spread_by(frame, slots, slot_expression(slots, keyed=keyed), ordered_by)


def spread_by(frame: DataFrame, slots: int, slot: str, ordered_by: int) -> DataFrame:
    """Bring each row to the partition that ``slot`` names, as SQL, in the order of so many columns of `ordering`."""
    spread = frame.repartitionById(slots, expr(slot))
    names = [f"{_ORDER}{at}" for at in range(ordered_by)]
    return spread.sortWithinPartitions(*names).drop(*names) if names else spread


def ordering(order_by: Sequence[str]) -> list[str]:
    """Return the columns by which `spread_by` orders rows, as SQL."""
    return [f"{quoted(name)} as {_ORDER}{at}" for at, name in enumerate(order_by)]


def _cast(name: str, wanted: str, found: DataType) -> str:
    """Return the column cast to the type that the tasks expect, as SQL."""
    allowed = _TYPES[wanted]
    if found.simpleString().partition(" collate ")[0] not in allowed:
        raise FrameSchemaError(
            f"column {name!r} is of type {found.simpleString()}; it must be {' or '.join(allowed)}. Cast it before "
            "writing."
        )
    return f"cast({quoted(name)} as {allowed[0]})"


def is_orderable(found: DataType) -> bool:
    """Whether Spark can order by a column of this type."""
    if isinstance(found, ArrayType):
        return is_orderable(found.elementType)
    if isinstance(found, StructType):
        return all(is_orderable(field.dataType) for field in found.fields)
    return not isinstance(found, (MapType, VariantType, CalendarIntervalType))


def _fingerprint(columns: Mapping[str, str]) -> str:
    """Return a hash of the row, as SQL. xxhash64 skips nulls, so each column's nullness is hashed, too.

    A missing column hashes as a column of nulls.
    """
    hashed = (f"{columns[name]} is null, {columns[name]}" if name in columns else "true" for name in SINK_COLUMNS)
    return f"xxhash64({', '.join(hashed)})"


def column_names(given: str | Sequence[str] | None) -> tuple[str, ...]:
    """Return the names of columns, of which one may be ``given`` as a text alone."""
    return (given,) if isinstance(given, str) else tuple(given or ())


def quoted(name: str) -> str:
    """Return the name of a column as SQL."""
    return f"`{name.replace('`', '``')}`"


# -- which column is which, by the rules by which Spark matches names ------------------------------------------------


def _matched_columns(frame: DataFrame, order_by: Sequence[str]) -> Mapping[str, str]:
    """Return the frame's own name of each column that it has of the sink's and of ``order_by``.

    Raises FrameSchemaError for a missing ``value`` or ``order_by`` column, for two columns that stand for one, and for
    a column that the sink does not know and ``order_by`` does not name.
    """
    names = frame.columns
    known = {*SINK_COLUMNS, *order_by}
    # Most frames have the exact names; reading the setting is a py4j call in every batch.
    cases_matter = known.issuperset(names) or str(frame.sparkSession.conf.get(_CASES_MATTER, "false")).lower() == "true"
    folded = str if cases_matter else str.lower
    matched = {w: [name for name in names if folded(name) == folded(w)] for w in (*SINK_COLUMNS, *order_by)}
    for found in matched.values():
        if len(found) > 1:
            raise FrameSchemaError(f"columns {_listed(found)} match the same column: rename or drop all but one.")
    for name in order_by:
        if not matched[name]:
            raise FrameSchemaError(f"order_by names {name!r}, which the frame does not have: keep that column.")
    unknown = [name for name in names if not any(name in found for found in matched.values())]
    for name in unknown:
        if name.lower() in SINK_COLUMNS:
            raise FrameSchemaError(
                f"the sink has no column {name!r}; if {name.lower()!r} is meant, rename it: {_CASES_MATTER} is true."
            )
    if unknown:
        raise FrameSchemaError(
            f"the sink knows no columns {_listed(unknown)} (it knows {', '.join(SINK_COLUMNS)}): drop them, or name in "
            "order_by what the rows are to be ordered by."
        )
    if not matched[VALUE]:
        raise FrameSchemaError(
            f"the frame has no column 'value' (it has {', '.join(names) or 'none'}): select what is to be written "
            'as "value", of type string or binary.'
        )
    return {wanted: found[0] for wanted, found in matched.items() if found}


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names))


# -- slots -----------------------------------------------------------------------------------------------------------


def slot_expression(slots: int, *, keyed: bool) -> str:
    """Return the slot of a row in Spark's SQL, over binary columns ``value`` and, where ``keyed``, ``key``."""
    hashed = "coalesce(key, value, X'')" if keyed else "coalesce(value, X'')"
    return f"cast(pmod(crc32({hashed}), {slots}) as int)"


def slot_of(key: bytes | None, value: bytes | None, slots: int) -> int:
    """Return the slot of a row; the twin of ``slot_expression``."""
    hashed = key if key is not None else value if value is not None else b""
    return zlib.crc32(hashed) % slots
