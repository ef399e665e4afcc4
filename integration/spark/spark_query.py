"""Reads from the running query its id, run id, checkpoint and kind of execution.

Classic Spark gives all of it. On Spark Connect the function runs in a process of its own, one for each start of the
query, without the driver's objects: there the id must be given (``query_id``), and the process stands for the run.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from eos_client.errors import ConfigurationError

_CHECKSUM_SETTINGS = (
    "spark.sql.shuffle.orderIndependentChecksum.enabled",
    "spark.sql.shuffle.orderIndependentChecksum.enableFullRetryOnMismatch",
)
"""With these settings (default true from Spark 4.2 on) slots never mix rows of two runs of a non-deterministic query.

When Spark recomputes the output of a lost executor, it compares checksums and repeats the stage if they differ."""
_ADAPTIVE = "spark.sql.adaptive.enabled"
_ARROW_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
_ARROW_BYTES_DEFAULT, _ARROW_BYTES_ANY = "67108864b", str(2**31 - 1)
_SMALL_ROW_BYTES = 640  # a tenth of what Spark's own limits on rows and bytes of an Arrow batch allow together
_THIS_PROCESS = uuid.uuid4().hex


@dataclass(frozen=True, slots=True)
class RunningQuery:
    """One start of one query. ``query_id`` comes from the checkpoint and survives restarts, ``run_id`` does not."""

    query_id: str
    run_id: str
    checkpoint: str | None = None
    execution: str = ""
    trigger: str = ""
    classic: bool = True


def running_query(frame: DataFrame, given_id: str | None, known: RunningQuery | None = None) -> RunningQuery:
    """Describe the query that ``frame`` is a micro-batch of; ``known`` is the one of the batch before.

    Raises ConfigurationError where the id cannot be found out and was not given.
    """
    if not hasattr(frame, "_jdf"):
        if given_id is None:
            raise ConfigurationError(
                "this is Spark Connect, where a sink cannot see its query's id: pass query_id=..., a name that "
                "changes whenever the checkpoint is replaced."
            )
        return RunningQuery(given_id, _THIS_PROCESS, classic=False)
    context: Any = frame.sparkSession.sparkContext
    # Asking for everything takes longer than the ledger does; Spark's job group is the run id of the query.
    if known is not None and known.execution and known.run_id == context.getLocalProperty("spark.jobGroup.id"):
        return known
    query_id = context.getLocalProperty("sql.streaming.queryId")
    if query_id is None and given_id is None:
        raise ConfigurationError(
            "the sink was called outside a streaming query, or in another thread inside foreachBatch, where Spark does "
            "not name the query: pass the sink to writeStream.foreachBatch; start such threads as "
            "pyspark.InheritableThread, or give a pool functions from pyspark.inheritable_thread_target(session); or "
            "give query_id=..."
        )
    execution = None if query_id is None else _execution(frame, query_id)
    if execution is None:
        return RunningQuery(given_id or str(query_id), _THIS_PROCESS)
    return RunningQuery(
        given_id or str(query_id),
        str(execution.runId()),
        str(execution.resolvedCheckpointRoot()),
        str(execution.getClass().getSimpleName()),
        str(execution.trigger().getClass().getSimpleName()),
    )


@contextmanager
def tuned_session(frame: DataFrame, query: RunningQuery, row_bytes: float) -> Iterator[None]:
    """Run a job on a query's own micro-batch with settings that suit it, except those that the user has changed.

    The checksums of recomputed rows are always on. Adaptive execution is off, because there is only one exchange, of
    fixed size. If rows were small so far (``row_bytes`` on average; 0 when not known), Spark does not measure each one,
    which takes as long as passing it on. The settings stay as they are where the application has added to the frame's
    plan, and in a session that others may use; the session of a micro-batch is a clone for its query.
    """
    if not query.execution or not _has_its_own_session(frame):
        yield
        return
    conf: Any = frame.sparkSession.conf
    settings: dict[str, tuple[str, str]] = dict.fromkeys(_CHECKSUM_SETTINGS, ("false", "true"))
    if _is_unmodified_frame(frame):
        settings[_ADAPTIVE] = ("true", "false")
        if 0 < row_bytes <= _SMALL_ROW_BYTES:
            settings[_ARROW_BYTES] = (_ARROW_BYTES_DEFAULT, _ARROW_BYTES_ANY)
    changed = {name: values for name, values in settings.items() if conf.get(name) == values[0]}
    try:
        for name, (_, ours) in changed.items():
            conf.set(name, ours)
        yield
    finally:
        for name, (before, _) in changed.items():
            conf.set(name, before)


def check_recomputation(frame: DataFrame, query: RunningQuery) -> None:
    """Raise ConfigurationError where Spark does not compare recomputed rows with the first ones.

    In a query's own session `tuned_session` switches the comparison on.
    """
    if query.execution and _has_its_own_session(frame):
        return
    conf = frame.sparkSession.conf
    if unset := [name for name in _CHECKSUM_SETTINGS if conf.get(name, "true") == "false"]:
        raise ConfigurationError(
            "after the loss of an executor this Spark would mix recomputed rows with the first ones, although they may "
            f"differ: rows would be lost and doubled. Set {' and '.join(unset)} to true (the default from Spark 4.2 "
            'on), or set stable_input="stage".'
        )


def _has_its_own_session(frame: Any) -> bool:
    shared: Any = SparkSession._instantiatedSession  # noqa: SLF001  # there is no public way, nor in the next line
    return shared is not None and not frame.sparkSession._jsparkSession.equals(shared._jsparkSession)  # noqa: SLF001


def _is_unmodified_frame(frame: Any) -> bool:
    return str(frame._jdf.queryExecution().logical().nodeName()) == "LogicalRDD"  # noqa: SLF001


def _execution(frame: DataFrame, query_id: str) -> Any:
    """Return the JVM's StreamExecution. The session of a micro-batch is a clone that does not list its query."""
    session: Any = frame.sparkSession
    queries = session._jsparkSession.sharedState().activeStreamingQueries()  # noqa: SLF001  # there is no public way
    return queries.get(session._jvm.java.util.UUID.fromString(query_id))  # noqa: SLF001
