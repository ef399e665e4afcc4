"""Matches a frame's columns to the sink's, by the rules by which Spark matches names.

Every other column is refused by name: ignoring a ``Key`` would silently write records without keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from pyspark.sql import DataFrame

from eos_client.errors import FrameSchemaError

VALUE, KEY, TOPIC, PARTITION, HEADERS = "value", "key", "topic", "partition", "headers"
SINK_COLUMNS = (VALUE, KEY, TOPIC, PARTITION, HEADERS)
_CASES_MATTER = "spark.sql.caseSensitive"


def sink_columns(frame: DataFrame, order_by: Sequence[str]) -> Mapping[str, str]:
    """Return the frame's own name of each of the sink's columns that it has; raises as ``matched_columns`` does."""
    matched = matched_columns(frame, order_by)
    return {wanted: matched[wanted] for wanted in SINK_COLUMNS if wanted in matched}


def matched_columns(frame: DataFrame, order_by: Sequence[str]) -> Mapping[str, str]:
    """Return the frame's own name of each column that it has of the sink's and of ``order_by``.

    Raises FrameSchemaError for a missing ``value`` or ``order_by`` column, for two columns that stand for one, and for
    a column that the sink does not know and ``order_by`` does not name.
    """
    names = frame.columns
    known = {*SINK_COLUMNS, *order_by}
    # Most frames have the exact names; reading the setting is a py4j call in every batch.
    cases_matter = known.issuperset(names) or _cases_matter(frame)
    matched = {wanted: _matching(wanted, names, cases_matter) for wanted in (*SINK_COLUMNS, *order_by)}
    for found in matched.values():
        if len(found) > 1:
            raise FrameSchemaError(f"columns {_listed(found)} match the same column: rename or drop all but one.")
    for name in order_by:
        if not matched[name]:
            raise FrameSchemaError(f"order_by names {name!r}, which the frame does not have: keep that column.")
    _refuse_unknown([name for name in names if not any(name in found for found in matched.values())])
    if not matched[VALUE]:
        raise FrameSchemaError(
            f"the frame has no column 'value' (it has {', '.join(names) or 'none'}): select what is to be written "
            'as "value", of type string or binary.'
        )
    return {wanted: found[0] for wanted, found in matched.items() if found}


def _cases_matter(frame: DataFrame) -> bool:
    return str(frame.sparkSession.conf.get(_CASES_MATTER, "false")).lower() == "true"


def _matching(wanted: str, names: Iterable[str], cases_matter: bool) -> list[str]:
    return [name for name in names if name == wanted or (not cases_matter and name.lower() == wanted.lower())]


def _refuse_unknown(unknown: Sequence[str]) -> None:
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


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names))
