"""Checks Spark, the query, the executors and the cluster before the first batch.

Without them, each of these defects would show late and far from its cause, or not at all.
"""

from __future__ import annotations

import contextlib
import importlib.util
import operator
from typing import SupportsIndex

import tenacity
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  # Spark's own name for it

from eos_client.clock import MONOTONIC_CLOCK
from eos_client.confluent.admin.cluster_admin import ClusterAdmin
from eos_client.confluent.ledger.slot_producer import SlotProducer
from eos_client.confluent.preflight import missing_topic, require_output_topics
from eos_client.core.internal_logs import whole_number
from eos_client.core.transaction_timeout import BROKERS_LIMIT, TIMEOUT_WAY_OUT, is_timeout_allowed
from eos_client.errors import ClusterUnfitError, ConfigurationError
from eos_client.integration.spark.settings import SinkSettings
from eos_client.integration.spark.spark_query import RunningQuery

_NEEDED_BY_EXECUTORS = ("pyarrow", "confluent_kafka", "eos_client")
_SPREAD_WAIT_S, _ASK_AGAIN_S = 5.0, 0.2
KAFKA_EXTRAS, DATABASE_EXTRAS = "spark", "spark,sql"


def new_admin(settings: SinkSettings) -> ClusterAdmin:
    """Return an admin client of the sink's cluster; each request takes at most ``start_timeout_s``."""
    return ClusterAdmin(settings.bootstrap_servers, settings.config_for_admin, timeout_s=settings.start_timeout_s)


def check_batch_id(batch_id: object) -> None:
    """Refuse what is no number: the ledger would take it for a batch that it has lost."""
    if not isinstance(batch_id, SupportsIndex) or operator.index(batch_id) < 0:
        raise ConfigurationError(
            f"batch_id={batch_id!r} must be a whole number of at least 0: as Spark gives it to foreachBatch, or, for a "
            "batch without a stream, one more than that of the batch before."
        )


def check_query(query: RunningQuery) -> None:
    """Refuse execution modes that do not fix a batch's offsets before it runs."""
    if "AsyncProgress" in query.execution:
        raise ConfigurationError(
            "asyncProgressTrackingEnabled writes a batch's offsets after it has begun, so a repeated batch may hold "
            "other rows. Remove the option."
        )
    if "RealTime" in query.trigger:
        raise ConfigurationError(
            "real-time mode logs a batch's offsets at its end, so a repeated batch may hold other rows. Use another "
            "trigger."
        )


def check_executors(frame: DataFrame, tasks: int, *further: str, extras: str = KAFKA_EXTRAS) -> None:
    """Run a small job that finds packages missing on the executors; raises ConfigurationError that names them.

    ``further``: packages that are needed beside those of every sink; ``extras`` bring what is needed.
    """
    needed = (*_NEEDED_BY_EXECUTORS, *further)

    # A nested function is pickled by value, so executors without this package can run it and report that.
    def lacking(_: int) -> str:
        import importlib  # noqa: PLC0415  # it runs elsewhere
        import sys  # noqa: PLC0415

        missing = []
        for name in needed:
            try:
                importlib.import_module(name)
            except ImportError as error:  # noqa: PERF203  # three times
                missing.append(str(error))
        return f"{sys.executable}: {', '.join(missing)}" if missing else ""

    probe = F.udf(lacking, "string", useArrow=False)
    rows = frame.sparkSession.range(0, tasks, 1, tasks).select(probe(F.col("id")).alias("lacks")).collect()
    if lacks := sorted({row["lacks"] for row in rows if row["lacks"]}):
        raise ConfigurationError(
            f"the executors' Python cannot run the sink: {'; '.join(lacks)}. Install 'eos-client[{extras}]' there, or "
            "set PYSPARK_PYTHON (spark.pyspark.python) to a Python that has it."
        )


def check_driver() -> None:
    """Raise ConfigurationError where the driver lacks the packages of PySpark's ``mapInArrow``."""
    missing = [name for name in ("pyarrow", "pandas") if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigurationError(
            f"the driver's Python lacks {' and '.join(missing)}, which PySpark needs. Install 'eos-client[spark]'."
        )


def check_driver_and_cluster(wanted: SinkSettings, admin: ClusterAdmin) -> tuple[SinkSettings, str]:
    """Refuse an unfit driver or cluster; needs no query. Returns the settings within its limits, and the cluster's id.

    The driver needs the packages of PySpark's ``mapInArrow``; the cluster the output topic, and it must grant the
    transaction timeout that was asked for.
    """
    check_driver()
    cluster = admin.cluster()
    limits = admin.broker_settings(next(iter(cluster.brokers)))
    limit_ms = whole_number(limits, BROKERS_LIMIT)
    settings = wanted.within(limit_ms or 0, whole_number(limits, "transactional.id.expiration.ms") or 0)
    wanted_ms = int(settings.transaction_timeout_s * 1000)
    if is_timeout_allowed(wanted_ms, limit_ms) is False:
        raise ClusterUnfitError(
            f"the brokers allow transactions of {limit_ms} ms (transaction.max.timeout.ms), the sink asks for "
            f"{wanted_ms} ms: in config, {TIMEOUT_WAY_OUT}."
        )
    _require_topic(settings.topic, admin)
    slot = SlotProducer(settings.producer, settings.transactional_id(0), limits=settings.limits)
    with contextlib.closing(slot) as producer:
        require_output_topics(producer, [settings.topic], settings.start_timeout_s, MONOTONIC_CLOCK)
    return settings, cluster.cluster_id


def _require_topic(topic: str, admin: ClusterAdmin) -> None:
    """Refuse a topic that does not exist, before a producer asks for it: some brokers create what producers ask for."""
    seen = tenacity.Retrying(
        retry=tenacity.retry_if_result(lambda described: described is None),
        stop=tenacity.stop_after_delay(_SPREAD_WAIT_S),  # not every broker knows at once what was just created
        wait=tenacity.wait_fixed(_ASK_AGAIN_S),
        retry_error_callback=lambda _: None,
    )
    if seen(lambda: admin.topics([topic])[topic]) is None:
        raise missing_topic(topic, admin.partition_counts(), "output")
