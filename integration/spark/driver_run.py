"""One run of a sink on its driver, from taking the lease to the last batch.

Start: join as the newest driver -> announce the run -> fence every slot -> read the ledger -> initialise, resize or
adopt it -> leave a record of the run beside the checkpoint, in case the ledger expires.
Each batch: gate -> one Spark job -> commit the batch-complete marker under the lease, which asks the gate. The marker's
commit is the only fence for tasks that found their slot written.

If the lease ends while the ledger's marker still names this run, no other driver has taken it: the driver takes the
lease again as the next run, and writes the batch again as a restarted query would.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace

from pyspark.sql import DataFrame

from eos_client.confluent.admin.cluster_admin import ClusterAdmin
from eos_client.confluent.ledger.ledger_topic import MARKER_PARTITION, LedgerTopic, partition_of_slot
from eos_client.confluent.ledger.slot_producer import SlotProducer
from eos_client.core.batch_ledger import LedgerEntry, SinkIdentity
from eos_client.core.batch_ledger_start import RunRecord, StartPlan, StartQuestion, marker_of, plan_start
from eos_client.core.replayed_batch import ReplayedBatch
from eos_client.errors import CommitRefusedError, RunFencedError
from eos_client.integration.spark import preflight
from eos_client.integration.spark.checkpoint_folder import RunRecords
from eos_client.integration.spark.lease import Lease
from eos_client.integration.spark.progress import SinkProgress, StepClock
from eos_client.integration.spark.rows import KEY, SLOT_FUNCTION_VERSION, project_columns, repartition_by_slot
from eos_client.integration.spark.run_checks import require_another_batch, require_free
from eos_client.integration.spark.settings import DriverStepObserver, SinkSettings, StepObserver
from eos_client.integration.spark.slot_job import SlotJob
from eos_client.integration.spark.spark_query import RunningQuery, check_recomputation, tuned_session
from eos_client.integration.spark.staging import Stage
from eos_client.integration.spark.status import SlotStatus, content_of
from eos_client.integration.spark.task import SlotTask
from eos_client.integration.spark.worker_clients import new_reader
from eos_client.observe import ClientReported, EventHook, SparkLeaseRenewed, SparkRunFenced, SparkRunStarted, safe_hook

_FENCING_THREADS_MAX = 16
_RENEWALS_MAX = 3
"""How often the lease is taken again within one batch."""
_EVICTION_NOTICED_S = 10.0
"""A driver learns of its eviction by its next heartbeat, possibly after its tasks."""
_REFUSED = CommitRefusedError.__name__  # in the traceback that Spark passes on


class DriverRun:
    """The lease, what the ledger says, and the batches since."""

    def __init__(
        self,
        settings: SinkSettings,
        query: RunningQuery,
        *,
        hook: EventHook,
        on_step: StepObserver | None,
        on_driver_step: DriverStepObserver | None,
    ) -> None:
        self.query = query
        self.settings = self._slot_settings = settings
        self.progress = SinkProgress(settings.sink_id, query.query_id)
        self._hook = safe_hook(hook)
        self._on_step = on_step
        self._on_driver_step = on_driver_step
        self._identity = SinkIdentity(query.query_id, settings.slots, SLOT_FUNCTION_VERSION, settings.topic)
        self._lease = Lease(settings)
        self._stage = Stage(settings.sink_id, query, settings.stage_dir) if settings.stable_input else None
        self._run = 0
        self._capacity = 0
        self.is_closed = False
        self._has_failed = False
        """The last batch ended with an error, so some of its slots may have committed it."""
        self._records: RunRecords | None = None
        self._committed_marker: LedgerEntry | None = None
        """The marker, while no batch is being written."""
        self._floors: tuple[int, ...] = ()
        self._holders = ("",) * settings.slots
        self._replayed: ReplayedBatch | None = None
        self._row_bytes = 0.0
        self._job = SlotJob(prepared=query.classic)

    # -- start -------------------------------------------------------------------------------------------------------

    def prepare(self, admin: ClusterAdmin, frame: DataFrame, batch_id: int) -> LedgerTopic:
        """Refuse a query that cannot continue at ``batch_id``, before a driver that is running is disturbed.

        Returns the ledger's topic, for `start`. Raises ConfigurationError, FrameSchemaError, ClusterUnfitError,
        ClusterUnavailableError, BatchLedgerError.
        """
        settings = self.settings
        self._slot_settings, cluster_id = preflight.check_driver_and_cluster(settings, admin)
        preflight.check_query(self.query)
        project_columns(frame, settings.order_by)
        if not settings.stable_input:
            check_recomputation(frame, self.query)
        preflight.check_executors(frame, settings.slots)
        if self.query.classic and (root := settings.stage_dir or self.query.checkpoint):
            self._records = RunRecords(frame.sparkSession, root, settings.sink_id, cluster_id)
        topic = LedgerTopic(admin, settings.ledger_topic)
        # No slot is fenced yet, so an open transaction of a dead task could delay a stable read.
        self._plan(topic.capacity(), batch_id, self._last_record(), stable=False)
        return topic

    def start(self, topic: LedgerTopic, batch_id: int) -> SparkRunStarted:
        """Take the sink over from any other driver, for a query whose first batch is ``batch_id``.

        Returns the event for `emit_started`. Raises ClusterUnfitError, ClusterUnavailableError, BatchLedgerError,
        RunFencedError.
        """
        began_at = time.perf_counter()
        settings = self.settings
        self._capacity = topic.ensure(settings.slots)
        self._lease.acquire()
        plan = self._take_over(batch_id)
        return SparkRunStarted(
            sink_id=settings.sink_id,
            query_id=self.query.query_id,
            run=self._run,
            slots=settings.slots,
            ledger=plan.decision.value,
            generation=self._lease.generation,
            duration_s=round(time.perf_counter() - began_at, 3),
        )

    def emit_started(self, started: SparkRunStarted, batch_id: int) -> None:
        """Emit that the run has started. A hook that closes the sink ends ``batch_id`` before it begins."""
        self._hook(started)
        self._observe_step("lease_held", batch_id)

    def _plan(self, capacity: int, batch_id: int, record: RunRecord | None, *, stable: bool) -> StartPlan:
        settings = self.settings
        asked = StartQuestion({}, self._identity, batch_id, adopt=settings.adopt_ledger, record=record)
        if capacity == 0:
            return plan_start(asked)
        with closing(new_reader(settings, stable=stable)) as reader:
            marker = reader.marker(settings.start_timeout_s)
            entries = reader.slots(range(capacity), settings.start_timeout_s)
        return plan_start(replace(asked, entries=entries, marker=marker))

    def _last_record(self) -> RunRecord | None:
        return None if self._records is None else self._records.last()

    def _present_marker(self) -> LedgerEntry | None:
        with closing(new_reader(self.settings)) as reader:
            return reader.marker(self.settings.start_timeout_s)

    def _take_over(self, batch_id: int) -> StartPlan:
        """Announce the run and fence the slots, in this order: a zombie's tasks check the marker before a slot."""
        marker, before = self._present_marker(), self._last_record()
        self._run = 1 + max(0 if marker is None else marker.run, 0 if before is None else before.run)
        self._lease.commit({MARKER_PARTITION: marker_of(marker, self._identity, self._run)})
        # Retired slots too: this ends transactions of older runs.
        with ThreadPoolExecutor(min(self._capacity, _FENCING_THREADS_MAX), "eos-fence") as pool:
            list(pool.map(self._fence_slot, range(self._capacity)))
        plan = self._plan(self._capacity, batch_id, before, stable=True)
        if plan.commits:
            whole = min(entry.next_batch for entry in plan.entries.values())
            commits = {partition_of_slot(slot): entry for slot, entry in plan.commits.items()}
            marker = LedgerEntry(whole, self._identity, plan.content, run=self._run)
            self._lease.commit({**commits, MARKER_PARTITION: marker})
        if self._records is not None:
            self._records.write(RunRecord(self._run, self.query.query_id))
        self._floors = tuple(plan.entries[slot].next_batch for slot in range(self.settings.slots))
        self._replayed = ReplayedBatch(batch_id, plan.entries, plan.content)
        self._holders = ("",) * self.settings.slots
        self._has_failed = False
        return plan

    def _fence_slot(self, slot: int) -> None:
        settings = self._slot_settings
        name = settings.transactional_id(slot)
        with closing(SlotProducer(settings.producer, name, limits=settings.limits)) as producer:
            producer.init_transactions()

    # -- each batch --------------------------------------------------------------------------------------------------

    def write(self, frame: DataFrame, batch_id: int) -> None:
        """Write one micro-batch; raises RunFencedError, BatchLedgerError, or what Spark raises for its job.

        Raises ConfigurationError for the batch that this run has just written: its rows would be lost.
        """
        require_another_batch(self.settings.sink_id, batch_id, self.progress.last_batch_id)
        clock = StepClock()
        self._committed_marker = None
        try:
            statuses = self._under_lease(frame, batch_id, clock)
        except RunFencedError as error:
            self._hook(SparkRunFenced(sink_id=self.settings.sink_id, run=self._run, reason=str(error)))
            raise
        except BaseException:
            self._has_failed = True
            raise
        self._replayed = None
        self._floors = (batch_id + 1,) * self.settings.slots
        self._holders = tuple(status.holder for status in statuses)
        self._row_bytes = max(status.row_bytes for status in statuses)
        self._hook(self.progress.count(batch_id, statuses, clock.seconds))
        self._observe_step("marker_committed", batch_id)

    def _under_lease(self, frame: DataFrame, batch_id: int, clock: StepClock) -> list[SlotStatus]:
        for _ in range(_RENEWALS_MAX):
            try:
                return self._attempt(frame, batch_id, clock)
            except Exception as error:  # noqa: PERF203  # a whole Spark job each
                within_s = _EVICTION_NOTICED_S if _REFUSED in str(error) else 0.0
                if self.is_closed or not self._lease.has_ended(within_s=within_s) or self._lease.is_superseded:
                    raise
                self._renew_lease(batch_id, error)
                clock.lap("renewal")
        return self._attempt(frame, batch_id, clock)

    def _attempt(self, frame: DataFrame, batch_id: int, clock: StepClock) -> list[SlotStatus]:
        snapshot = self._lease.require_membership()
        if self._has_failed:
            # The application went on after an error: read the ledger as a restarted query would.
            self._take_over(batch_id)
        clock.lap("gate")
        rows, columns = project_columns(frame, self.settings.order_by)
        if self._stage is not None:
            rows = self._stage.stable(rows, batch_id)
        clock.lap("rows")
        task = SlotTask(
            settings=self._slot_settings,
            identity=self._identity,
            batch_id=batch_id,
            run=self._run,
            group_metadata=snapshot.group_metadata,
            floors=self._floors,
            holders=self._holders,
            on_step=self._on_step,
        )
        with tuned_session(frame, self.query, self._row_bytes):
            statuses = self._write_slots(rows, columns, task)
        clock.lap("job")
        self._observe_step("job_done", batch_id)
        marker = LedgerEntry(batch_id + 1, self._identity, content_of(statuses), run=self._run)
        self._lease.commit({MARKER_PARTITION: marker})
        self._committed_marker = marker
        clock.lap("marker")
        return statuses

    def _renew_lease(self, batch_id: int, error: Exception) -> None:
        """Take the lease again unless a newer driver has announced itself; else raises ``error``."""
        if not self._is_announced():
            raise error
        reason = self._lease.ended or str(error)
        self._lease.release()
        self._lease = Lease(self.settings)
        if self.is_closed:  # close() may have released no more than the lease before
            self._lease.release()
        self._lease.acquire()
        if not self._is_announced():
            raise error
        self._take_over(batch_id)
        self.progress.leases_renewed += 1
        self._hook(SparkLeaseRenewed(sink_id=self.settings.sink_id, run=self._run, batch_id=batch_id, reason=reason))

    def _is_announced(self) -> bool:
        marker = self._present_marker()
        return marker is not None and (marker.run, marker.identity) == (self._run, self._identity)

    def _write_slots(self, rows: DataFrame, columns: Sequence[str], task: SlotTask) -> list[SlotStatus]:
        settings = self.settings
        spread = repartition_by_slot(rows, settings.slots, keyed=KEY in columns, ordered_by=len(settings.order_by))
        return self._job.write(
            rows, spread, columns, task, self._replayed, slots=settings.slots, accept_batch=settings.accept_batch
        )

    def _observe_step(self, step: str, batch_id: int) -> None:
        if self._on_driver_step is not None:
            self._on_driver_step(step, batch_id)

    def finish(self) -> None:
        """Release the lease for good, then record the next batch beside the checkpoint.

        In this order, because no batch begins once the lease is released.
        """
        self.close()
        whole = self._committed_marker
        if self._records is None or whole is None:
            return
        try:
            self._records.write(RunRecord(whole.run, self.query.query_id, whole.next_batch, whole.content))
        except Exception as error:  # noqa: BLE001  # Spark may have stopped; its JVM raises many kinds
            unrecorded = (
                "the end of the run could not be recorded beside the checkpoint, so the query needs its ledger when it "
                f"starts again (offsets.retention.minutes). Close the sink before Spark is stopped. {error}"
            )
            self._hook(ClientReported(client=self.settings.sink_id, error=unrecorded))

    def close(self) -> None:
        """Release the lease for good."""
        self.is_closed = True
        self._lease.release()


_RUNS: dict[tuple[str, str], DriverRun] = {}
_STARTING: dict[tuple[str, str], DriverRun] = {}
"""The run that is being started, by sink; `_LOCK` guards it."""
_SUPERSEDED: deque[RunningQuery] = deque(maxlen=1000)
_LOCK = threading.RLock()
"""Runs start and end one at a time. No hook is called under it; a signal handler may be, and may close the sink."""


def _key_of(settings: SinkSettings) -> tuple[str, str]:
    return settings.bootstrap_servers, settings.sink_id


def current_run(settings: SinkSettings) -> DriverRun | None:
    """Return this process's run of the sink, if there is one."""
    return _RUNS.get(_key_of(settings))


def enter_run(run: DriverRun, frame: DataFrame, batch_id: int) -> None:
    """Start ``run`` as this process's run of its sink. Unless it is refused, the one before it is closed."""
    with _LOCK:
        started = _start(run, frame, batch_id)
    run.emit_started(started, batch_id)


def _start(run: DriverRun, frame: DataFrame, batch_id: int) -> SparkRunStarted:
    key = _key_of(run.settings)
    before = _RUNS.get(key)
    used = None if before is None else (before.query, f"topic={before.settings.topic!r}", before.settings.slots)
    require_free(run.settings.sink_id, run.query, used, _SUPERSEDED)
    with preflight.new_admin(run.settings) as admin:
        _STARTING[key] = run
        try:
            topic = run.prepare(admin, frame, batch_id)
            if before is not None:
                _RUNS.pop(key, None)
                before.close()
                _SUPERSEDED.append(before.query)
            started = run.start(topic, batch_id)
            _RUNS[key] = run
            if run.is_closed:
                _RUNS.pop(key, None)
        except BaseException:
            run.close()
            raise
        finally:
            del _STARTING[key]
    return started


def leave_run(settings: SinkSettings) -> None:
    """Close this process's run of the sink, if there is one.

    Inside the sink's own call this does not wait for that call, which ends with RunFencedError unless its batch is
    whole.
    """
    key = _key_of(settings)
    with _LOCK:
        run, starting = _RUNS.pop(key, None), _STARTING.get(key)
    if starting is not None:
        starting.close()
    if run is not None:
        run.finish()
