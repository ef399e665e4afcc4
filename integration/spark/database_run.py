"""One run of a database's sink on its driver, from claiming the ledger to the last batch.

Start: check the table and the executors -> claim all rows of the ledger in one transaction, which initialises, resizes
or adopts it -> leave a record of the run beside the checkpoint, in case the database is another one next time.
Each batch: one Spark job, whose tasks write under this run's number -> move the batch-complete marker, if it still
shows this run. From the moment that a newer driver has claimed the rows, neither does anything.
"""

from __future__ import annotations

import threading
import time
from collections import deque

from pyspark.sql import DataFrame

from eos_client.core.batch_claims import Claim, SlotRow, check_run, plan_claim
from eos_client.core.batch_ledger import LedgerEntry, SinkIdentity
from eos_client.core.batch_ledger_start import RunRecord, StartQuestion
from eos_client.core.replayed_batch import ReplayedBatch
from eos_client.errors import RunFencedError
from eos_client.integration.spark import preflight
from eos_client.integration.spark.checkpoint_folder import RunRecords
from eos_client.integration.spark.database_settings import DatabaseSettings, engine_of, owner_name
from eos_client.integration.spark.database_task import DatabaseTask, named_store_errors
from eos_client.integration.spark.progress import SinkProgress, StepClock
from eos_client.integration.spark.rows import spread_by
from eos_client.integration.spark.run_checks import require_another_batch, require_free
from eos_client.integration.spark.settings import DriverStepObserver, StepObserver
from eos_client.integration.spark.slot_job import SlotJob
from eos_client.integration.spark.spark_query import RunningQuery, check_recomputation, tuned_session
from eos_client.integration.spark.staging import Stage
from eos_client.integration.spark.status import SlotStatus, content_of
from eos_client.integration.spark.table_columns import SLOT, TABLE_SLOT_FUNCTION_VERSION, project_table_columns
from eos_client.integration.sql.target_table import require_durable, target_table
from eos_client.observe import EventHook, SparkRunFenced, SparkRunStarted, safe_hook

_DATABASE = "database"
"""Where the cluster's id stands in the path of a Kafka sink's records."""


class DatabaseRun:
    """The ledger as this run has claimed it, and the batches since."""

    def __init__(
        self,
        settings: DatabaseSettings,
        query: RunningQuery,
        *,
        hook: EventHook,
        on_step: StepObserver | None,
        on_driver_step: DriverStepObserver | None,
    ) -> None:
        self.query = query
        self.settings = settings
        self.progress = SinkProgress(settings.sink_id, query.query_id)
        self._hook = safe_hook(hook)
        self._on_step = on_step
        self._on_driver_step = on_driver_step
        self._identity = SinkIdentity(query.query_id, settings.slots, TABLE_SLOT_FUNCTION_VERSION, settings.table)
        self._stage = Stage(settings.sink_id, query, settings.stage_dir) if settings.stable_input else None
        self._ledger = settings.ledger()
        self._columns: tuple[str, ...] = ()
        self._records: RunRecords | None = None
        self._run = 0
        self._floors: tuple[int, ...] = ()
        self._replayed: ReplayedBatch | None = None
        self._row_bytes = 0.0
        self._job = SlotJob(prepared=query.classic)
        self._has_failed = False
        """The last batch ended with an error, so some of its slots may have committed it."""
        self._fenced = ""
        """Why this run is over."""

    def start(self, frame: DataFrame, batch_id: int) -> SparkRunStarted:
        """Take the sink over from any other driver, for a query whose first batch is ``batch_id``.

        Returns the event that says so. A query that cannot continue is refused before a running driver is disturbed.
        Raises ConfigurationError, FrameSchemaError, ClusterUnfitError, ClusterUnavailableError, BatchLedgerError.
        """
        began_at, settings = time.perf_counter(), self.settings
        preflight.check_query(self.query)
        self._check_database()
        self._project(frame)
        if not settings.stable_input:
            check_recomputation(frame, self.query)
        packages = ("sqlalchemy", engine_of(settings.database).dialect.loaded_dbapi.__name__)
        preflight.check_executors(frame, settings.slots, *packages, extras=preflight.DATABASE_EXTRAS)
        if self.query.classic and (root := settings.stage_dir or self.query.checkpoint):
            self._records = RunRecords(frame.sparkSession, root, settings.sink_id, _DATABASE)
        claim = self._claim(batch_id, held_run=None)
        return SparkRunStarted(
            sink_id=settings.sink_id,
            query_id=self.query.query_id,
            run=self._run,
            slots=settings.slots,
            ledger=claim.plan.decision.value,
            duration_s=round(time.perf_counter() - began_at, 3),
        )

    def emit_started(self, started: SparkRunStarted, batch_id: int) -> None:
        """Emit that the run has started."""
        self._hook(started)
        self._observe_step("claimed", batch_id)

    def _check_database(self) -> None:
        with named_store_errors():
            engine = engine_of(self.settings.database)
            table = target_table(engine, self.settings.table)
            require_durable(engine, table)
            self._ledger.prepare()
            self._columns = tuple(table.columns.keys())

    def _project(self, frame: DataFrame) -> tuple[DataFrame, list[str]]:
        settings = self.settings
        return project_table_columns(
            frame, settings.table, self._columns, settings.key, settings.order_by, settings.slots
        )

    def _claim(self, batch_id: int, *, held_run: int | None) -> Claim:
        record = None if self._records is None else self._records.last()
        question = StartQuestion({}, self._identity, batch_id, adopt=self.settings.adopt_ledger, record=record)
        with named_store_errors():
            claim = self._ledger.claim(
                lambda found, marker: plan_claim(question, found, marker, owner_name(), held_run=held_run)
            )
        self._run = claim.run
        if self._records is not None:
            self._records.write(RunRecord(claim.run, self.query.query_id))
        self._floors = tuple(claim.plan.entries[slot].next_batch for slot in range(self.settings.slots))
        self._replayed = ReplayedBatch(batch_id, claim.plan.entries, claim.plan.content)
        self._has_failed = False
        return claim

    # -- each batch --------------------------------------------------------------------------------------------------

    def write(self, frame: DataFrame, batch_id: int) -> None:
        """Write one micro-batch; raises RunFencedError, BatchLedgerError, or what Spark raises for its job.

        Raises ConfigurationError for the batch that this run has just written: its rows would be lost.
        """
        if self._fenced:
            raise RunFencedError(self._fenced)
        require_another_batch(self.settings.sink_id, batch_id, self.progress.last_batch_id)
        clock = StepClock()
        try:
            statuses = self._attempt(frame, batch_id, clock)
        except RunFencedError as error:
            self._fenced = str(error)
            self._hook(SparkRunFenced(sink_id=self.settings.sink_id, run=self._run, reason=str(error)))
            raise
        except BaseException:
            self._has_failed = True
            raise
        self._replayed = None
        self._floors = (batch_id + 1,) * self.settings.slots
        self._row_bytes = max(status.row_bytes for status in statuses)
        self._hook(self.progress.count(batch_id, statuses, clock.seconds))
        self._observe_step("marker_moved", batch_id)

    def _attempt(self, frame: DataFrame, batch_id: int, clock: StepClock) -> list[SlotStatus]:
        settings = self.settings
        if self._has_failed:
            # The application went on after an error: read the ledger as a restarted query would.
            self._claim(batch_id, held_run=self._run)
        clock.lap("claim")
        rows, columns = self._project(frame)
        if self._stage is not None:
            rows = self._stage.stable(rows, batch_id)
        clock.lap("rows")
        task = DatabaseTask(settings, self._identity, batch_id, self._run, self._floors, self._on_step)
        spread = spread_by(rows, settings.slots, SLOT, len(settings.order_by))
        with tuned_session(frame, self.query, self._row_bytes):
            statuses = self._job.write(
                rows, spread, columns, task, self._replayed, slots=settings.slots, accept_batch=settings.accept_batch
            )
        clock.lap("job")
        self._observe_step("job_done", batch_id)
        self._move_marker(LedgerEntry(batch_id + 1, self._identity, content_of(statuses), self._run))
        clock.lap("marker")
        return statuses

    def _move_marker(self, marker: LedgerEntry) -> None:
        """Say that the batch is whole; raises RunFencedError where a newer run has claimed the ledger."""
        with named_store_errors():
            found = self._ledger.move_marker(SlotRow(marker, owner=owner_name()))
        if found is not None:
            check_run(found.entry, self._run)

    def _observe_step(self, step: str, batch_id: int) -> None:
        if self._on_driver_step is not None:
            self._on_driver_step(step, batch_id)


_RUNS: dict[tuple[object, str], DatabaseRun] = {}
_SUPERSEDED: deque[RunningQuery] = deque(maxlen=1000)
_LOCK = threading.RLock()
"""Runs start and end one at a time. No hook is called under it."""


def _key_of(settings: DatabaseSettings) -> tuple[object, str]:
    return settings.database, settings.sink_id


def current_run(settings: DatabaseSettings) -> DatabaseRun | None:
    """Return this process's run of the sink, if there is one."""
    return _RUNS.get(_key_of(settings))


def enter_run(run: DatabaseRun, frame: DataFrame, batch_id: int) -> None:
    """Start ``run`` as this process's run of its sink. Unless it is refused, the one before it is over."""
    key = _key_of(run.settings)
    with _LOCK:
        before = _RUNS.get(key)
        used = None if before is None else (before.query, f"table={before.settings.table!r}", before.settings.slots)
        require_free(run.settings.sink_id, run.query, used, _SUPERSEDED)
        started = run.start(frame, batch_id)
        if before is not None:
            _SUPERSEDED.append(before.query)
        _RUNS[key] = run
    run.emit_started(started, batch_id)


def leave_run(settings: DatabaseSettings) -> None:
    """Forget this process's run of the sink, if there is one, and close the connections that nothing uses."""
    with _LOCK:
        run = _RUNS.pop(_key_of(settings), None)
    if run is not None:
        engine_of(settings.database).dispose()
