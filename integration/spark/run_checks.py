"""What a run of any sink refuses: a second sink of its name, a superseded query, a second call for a batch."""

from __future__ import annotations

from collections.abc import Collection

from eos_client.errors import ConfigurationError, RunFencedError
from eos_client.integration.spark.spark_query import RunningQuery


def require_free(
    sink_id: str,
    query: RunningQuery,
    used: tuple[RunningQuery, str, int] | None,
    superseded: Collection[RunningQuery],
) -> None:
    """Raise where ``query`` may not start a run of ``sink_id`` in this process.

    ``used``: the query, the output and the slots of the run that is under way. Raises ConfigurationError where that is
    another sink of the same query, RunFencedError where another query of this process has taken the sink over.
    """
    if used is not None and used[0] == query:
        _, output, slots = used
        raise ConfigurationError(
            f"sink_id {sink_id!r} is in use by another sink of this query ({output}, slots={slots}): one ledger cannot "
            "count both. Give each sink an id of its own, or close() the other sink to change its settings."
        )
    if query in superseded:
        raise RunFencedError(f"another query of this process has taken sink {sink_id!r} over: let this query end.")


def require_another_batch(sink_id: str, batch_id: int, last_batch_id: int | None) -> None:
    """Raise ConfigurationError for the batch that the run has just written: its rows would be lost."""
    if batch_id == last_batch_id:
        raise ConfigurationError(
            f"sink {sink_id!r} was called a second time for batch {batch_id}, which it has written: one ledger entry "
            "stands for a whole batch. Unite the frames (unionByName) and call the sink once, or give each frame a "
            "sink with a sink_id of its own."
        )
