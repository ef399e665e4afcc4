"""EosKafkaSink: a plain value that finds this process's run of the sink, or starts one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame

from eos_client.integration.spark import driver_run, preflight
from eos_client.integration.spark.progress import SinkProgress
from eos_client.integration.spark.rows import column_names
from eos_client.integration.spark.settings import KEPT_PRODUCERS, DriverStepObserver, SinkSettings, StepObserver
from eos_client.integration.spark.spark_query import running_query
from eos_client.observe import EventHook, log_event


class EosKafkaSink:
    """Writes each micro-batch of a query into Kafka exactly once; pass it to ``writeStream.foreachBatch``.

    Every record is written once, each slot of a batch is one transaction, and the batch becomes whole; with
    ``slots=1`` the batch is one transaction. The frame's columns are those of Spark's Kafka sink.

    :param sink_id: names the sink over all restarts; one running query per name. The newest driver wins.
    :param slots: parallel transactions of a batch, and Spark partitions; a row's slot follows from its key.
    :param config: librdkafka settings by their dotted names; ``oauth_cb`` is a function that Spark can pickle.
    :param stable_input: ``"stage"`` writes each batch beside the checkpoint first, for queries that are not
        deterministic (``rand()``, lookups); ``stage_dir`` puts it elsewhere.
    :param order_by: columns by which the rows of a slot, so also those of a key, are written in order.
    :param adopt_ledger: the token that a refused start prints. With it, the ledger is started anew at the current batch
        where it is another query's, or lost; it fits that ledger in that state, and nothing later.
    :param accept_batch: the token that a BatchContentError prints. With it, that one batch is ended although it holds
        other rows now than some of its slots have committed; the error says what is lost or doubled then.
    :param ledger_topic: the topic whose partitions carry the ledger; ``<sink_id>-ledger`` by default.
    :param query_id: stands for Spark's query id where that cannot be seen (Spark Connect).
    :param kept_producers: how many producers each Python worker keeps between batches, at most.
    :param hook: receives the events of the driver.
    :param on_step: called on the executors at each step of a slot; a seam for tests.
    :param on_driver_step: called on the driver at ``lease_held``, ``job_done``, ``marker_committed``; likewise.
    :raises ConfigurationError: a setting is unsafe, unknown or contradictory.
    """

    def __init__(  # noqa: PLR0913  # one call with names says it all; there is nothing to build up in steps
        self,
        bootstrap_servers: str,
        topic: str,
        *,
        sink_id: str,
        slots: int = 4,
        config: Mapping[str, Any] | None = None,
        stable_input: str | None = None,
        stage_dir: str | None = None,
        order_by: str | Sequence[str] | None = None,
        adopt_ledger: str | None = None,
        accept_batch: str | None = None,
        ledger_topic: str | None = None,
        query_id: str | None = None,
        start_timeout_s: float = 30.0,
        commit_timeout_s: float = 30.0,
        sibling_timeout_s: float = 10.0,
        kept_producers: int = KEPT_PRODUCERS,
        hook: EventHook = log_event,
        on_step: StepObserver | None = None,
        on_driver_step: DriverStepObserver | None = None,
    ) -> None:
        self.settings = SinkSettings(
            bootstrap_servers=bootstrap_servers,
            topic=topic,
            sink_id=sink_id,
            slots=slots,
            ledger_topic=f"{sink_id}-ledger" if ledger_topic is None else ledger_topic,
            config=dict(config or {}),
            order_by=column_names(order_by),
            stable_input=stable_input,
            stage_dir=stage_dir,
            adopt_ledger=adopt_ledger,
            accept_batch=accept_batch,
            query_id=query_id,
            start_timeout_s=start_timeout_s,
            commit_timeout_s=commit_timeout_s,
            sibling_timeout_s=sibling_timeout_s,
            kept_producers=kept_producers,
        )
        self._hook = hook
        self._on_step = on_step
        self._on_driver_step = on_driver_step

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        """Write ``frame`` as micro-batch ``batch_id`` of the running query.

        Raises RunFencedError when a newer driver has the sink, a BatchLedgerError when the ledger does not fit,
        FrameSchemaError for wrong columns, ConfigurationError for a ``batch_id`` that is no number,
        ClusterUnavailableError or ClusterUnfitError, and Spark's own errors. None of them leaves a slot half written;
        whatever was committed is not written again.
        """
        preflight.check_batch_id(batch_id)
        run = driver_run.current_run(self.settings)
        query = running_query(frame, self.settings.query_id, None if run is None else run.query)
        if run is None or run.query != query or run.settings != self.settings:
            run = driver_run.DriverRun(
                self.settings, query, hook=self._hook, on_step=self._on_step, on_driver_step=self._on_driver_step
            )
            driver_run.enter_run(run, frame, batch_id)
        run.write(frame, batch_id)

    def check(self) -> None:
        """Check what the first batch would check: whether this driver and the cluster meet the sink's needs.

        Worth a call before a query that reads from the same cluster is started: Spark's own source takes minutes to
        report a broker that cannot be reached. Raises ConfigurationError, ClusterUnavailableError, ClusterUnfitError.
        """
        with preflight.new_admin(self.settings) as admin:
            preflight.check_driver_and_cluster(self.settings, admin)

    def progress(self) -> SinkProgress | None:
        """Return what this process's run of the sink has done; None before its first batch, and after ``close()``."""
        run = driver_run.current_run(self.settings)
        return None if run is None else run.progress

    def close(self) -> None:
        """Release the lease, once the query has stopped. A query that starts again takes it over anyway.

        Inside the sink's own call, in a hook or a signal handler, it does not wait: that call raises RunFencedError
        unless its batch is whole.
        """
        driver_run.leave_run(self.settings)
