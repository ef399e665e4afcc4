"""EosDatabaseSink: a plain value that finds this process's run of the sink, or starts one."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame

from eos_client.integration.spark import database_run, preflight
from eos_client.integration.spark.database_settings import Database, DatabaseSettings, engine_of, portable
from eos_client.integration.spark.database_task import named_store_errors
from eos_client.integration.spark.progress import SinkProgress
from eos_client.integration.spark.rows import column_names
from eos_client.integration.spark.settings import DriverStepObserver, StepObserver
from eos_client.integration.spark.spark_query import running_query
from eos_client.integration.sql.target_table import require_durable, target_table
from eos_client.observe import EventHook, log_event


class EosDatabaseSink:
    """Writes each micro-batch of a query into a table exactly once; pass it to ``writeStream.foreachBatch``.

    Every row is inserted once, each slot of a batch is one transaction of the database, and the batch becomes whole;
    with ``slots=1`` the batch is one transaction. The table needs no unique constraint and no column for it.

    :param database: the URL of the database, as SQLAlchemy's ``create_engine`` takes it, or a function that returns an
        engine, which Spark can pickle.
    :param table: the table, or ``schema.table``; it must exist and have the frame's columns.
    :param sink_id: names the sink over all restarts; one running query per name. The newest driver wins.
    :param slots: parallel transactions of a batch, and Spark partitions; a row's slot follows from its key.
    :param key: columns whose equal values are written by one slot, so in order; all columns by default.
    :param order_by: columns by which the rows of a slot, so also those of a key, are written in order.
    :param use_copy: write by PostgreSQL's COPY where the driver is psycopg 3; else, and without it, by INSERT.
    :param stable_input: ``"stage"`` writes each batch beside the checkpoint first, for queries that are not
        deterministic (``rand()``, lookups); ``stage_dir`` puts it elsewhere.
    :param adopt_ledger: the token that a refused start prints. With it, the ledger is started anew at the current batch
        where it is another query's, or lost; it fits that ledger in that state, and nothing later.
    :param accept_batch: the token that a BatchContentError prints. With it, that one batch is ended although it holds
        other rows now than some of its slots have committed; the error says what is lost or doubled then.
    :param ledger_table: the table of the ledger in the same database; it is created where it is missing.
    :param query_id: stands for Spark's query id where that cannot be seen (Spark Connect).
    :param timeout_s: for how long the ledger is asked where the database is away, or another transaction holds a row.
    :param hook: receives the events of the driver.
    :param on_step: called on the executors at each step of a slot; a seam for tests.
    :param on_driver_step: called on the driver at ``claimed``, ``job_done``, ``marker_moved``; likewise.
    :raises ConfigurationError: a setting is unsafe, unknown or contradictory.
    """

    def __init__(  # noqa: PLR0913  # one call with names says it all; there is nothing to build up in steps
        self,
        database: Database,
        table: str,
        *,
        sink_id: str,
        slots: int = 4,
        key: str | Sequence[str] | None = None,
        order_by: str | Sequence[str] | None = None,
        use_copy: bool = True,
        stable_input: str | None = None,
        stage_dir: str | None = None,
        adopt_ledger: str | None = None,
        accept_batch: str | None = None,
        ledger_table: str = "eos_batches",
        query_id: str | None = None,
        timeout_s: float = 30.0,
        hook: EventHook = log_event,
        on_step: StepObserver | None = None,
        on_driver_step: DriverStepObserver | None = None,
    ) -> None:
        self.settings = DatabaseSettings(
            portable(database),
            table,
            sink_id,
            slots,
            ledger_table,
            key=column_names(key),
            order_by=column_names(order_by),
            use_copy=use_copy,
            stable_input=stable_input,
            stage_dir=stage_dir,
            adopt_ledger=adopt_ledger,
            accept_batch=accept_batch,
            query_id=query_id,
            timeout_s=timeout_s,
        )
        self._hook = hook
        self._on_step = on_step
        self._on_driver_step = on_driver_step

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        """Write ``frame`` as micro-batch ``batch_id`` of the running query.

        Raises RunFencedError when a newer driver has the sink, a BatchLedgerError when the ledger does not fit,
        FrameSchemaError for wrong columns, ConfigurationError for a ``batch_id`` that is no number,
        ClusterUnavailableError or ClusterUnfitError for the database, and Spark's own errors. None of them leaves a
        slot half written; whatever was committed is not written again.
        """
        preflight.check_batch_id(batch_id)
        run = database_run.current_run(self.settings)
        query = running_query(frame, self.settings.query_id, None if run is None else run.query)
        if run is None or run.query != query or run.settings != self.settings:
            run = database_run.DatabaseRun(
                self.settings, query, hook=self._hook, on_step=self._on_step, on_driver_step=self._on_driver_step
            )
            database_run.enter_run(run, frame, batch_id)
        run.write(frame, batch_id)

    def check(self) -> None:
        """Check what the first batch would check of this driver and the database, and create the ledger's table.

        Raises ConfigurationError, ClusterUnavailableError, ClusterUnfitError.
        """
        preflight.check_driver()
        with named_store_errors():
            engine = engine_of(self.settings.database)
            require_durable(engine, target_table(engine, self.settings.table))
            self.settings.ledger().prepare()

    def progress(self) -> SinkProgress | None:
        """Return what this process's run of the sink has done; None before its first batch, and after ``close()``."""
        run = database_run.current_run(self.settings)
        return None if run is None else run.progress

    def close(self) -> None:
        """Forget the run, once the query has stopped, and close the driver's connections.

        A query that starts again claims the ledger anyway.
        """
        database_run.leave_run(self.settings)
