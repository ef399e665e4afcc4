"""Conditions under which clusters run queries: speculation, executors that come and go, skew, long suspensions."""

from __future__ import annotations

import faulthandler
import signal
import time
from typing import Any

import pytest

from eos_client.testing import EmbeddedKafka
from eos_client.testing.process_session import members_of, send_signal
from tests.spark.rig.cluster_query import ClusterQuery
from tests.spark.rig.settings import Action, Fault
from tests.spark.rig.standalone import standalone_cluster
from tests.spark.rig.stories import CLUSTER, SIGNAL_TIMEOUT_S

pytestmark = [pytest.mark.kafka, pytest.mark.soak, pytest.mark.timeout(1500)]

SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.25",
    "spark.speculation.minTaskRuntime": "500ms",
}
COMING_AND_GOING = {
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.shuffleTracking.enabled": "true",
    "spark.dynamicAllocation.shuffleTracking.timeout": "1s",
    "spark.dynamicAllocation.executorIdleTimeout": "1s",
    "spark.dynamicAllocation.minExecutors": "0",
    "spark.dynamicAllocation.maxExecutors": "2",
}
SUSPENDED_S = 600.0
SHORT_SESSION = {"session.timeout.ms": "6000", "heartbeat.interval.ms": "1000", "transaction.timeout.ms": "8000"}


@pytest.mark.parametrize("step", ["initialised", "begun", "produced", "flushed", "offsets_sent"])
def test_a_slow_task_that_spark_runs_a_second_time_elsewhere_adds_nothing(kafka_broker, tmp_path, step):
    fault = Fault(step, 1, Action.FREEZE)
    with (
        standalone_cluster(tmp_path / "cluster", workers=2) as (master, _),
        ClusterQuery(
            kafka_broker.bootstrap_servers, tmp_path, master=master, faults=(fault,), batches=6, spark=SPECULATION
        ) as stage,
    ):
        application = stage.start()
        frozen = stage.await_strike(application, fault)
        # The batch ends by the second attempt alone.
        stage.await_batches(application, fault.batch_id + 1)
        send_signal(signal.SIGCONT, [frozen])
        stage.await_end(application)
        outcome = stage.judge()
    assert outcome.exactly_once, outcome


def test_executors_that_come_and_go_between_batches_lose_and_double_nothing(kafka_broker, tmp_path):
    with ClusterQuery(
        kafka_broker.bootstrap_servers, tmp_path, master=CLUSTER, batches=6, pace_s=5.0, spark=COMING_AND_GOING
    ) as stage:
        application = stage.start()
        for batches in (1, 2, 3):
            stage.await_batches(application, batches)
            application.until(lambda: not application.executors(), "all executors have left", SIGNAL_TIMEOUT_S)
        stage.await_end(application)
        outcome = stage.judge()
    assert outcome.exactly_once, outcome


def test_a_standalone_cluster_that_loses_a_worker_loses_and_doubles_nothing(kafka_broker, tmp_path):
    fault = Fault("produced", 2, Action.KILL_EXECUTOR)
    with (
        standalone_cluster(tmp_path / "cluster", workers=2) as (master, workers),
        ClusterQuery(
            kafka_broker.bootstrap_servers, tmp_path, master=master, batches=8, pace_s=0.5, faults=(fault,)
        ) as stage,
    ):
        application = stage.start()
        stage.await_strike(application, fault)
        stage.await_batches(application, 4)
        workers[0].kill()
        stage.await_end(application)
        outcome = stage.judge()
    assert outcome.exactly_once, outcome


def test_all_rows_under_one_key_are_written_by_one_slot_in_order(kafka_broker, tmp_path):
    with ClusterQuery(
        kafka_broker.bootstrap_servers, tmp_path, master=CLUSTER, keys=1, rows_per_batch=50_000, batches=4
    ) as stage:
        stage.run_to_end()
        outcome = stage.judge()
    assert outcome.exactly_once, outcome
    assert not outcome.reordered


@pytest.mark.parametrize("step", ["produced", "job_done"])
@pytest.mark.parametrize(("asleep_s", "config"), [(12.0, SHORT_SESSION), (SUSPENDED_S, {})], ids=["short", "600 s"])
def test_an_application_that_was_suspended_goes_on_and_adds_nothing_twice(tmp_path, step, asleep_s, config):
    faulthandler.cancel_dump_traceback_later()  # it would end this process meanwhile; the mark above has a limit, too
    of_driver = step == "job_done"
    fault = Fault(step, 1, Action.FREEZE_APPLICATION)
    faults: dict[str, Any] = {"driver_faults" if of_driver else "faults": (fault,)}
    with (
        EmbeddedKafka() as broker,
        ClusterQuery(broker.bootstrap_servers, tmp_path, master=CLUSTER, batches=4, config=config, **faults) as stage,
    ):
        application = stage.start(lifetime_s=2 * SUSPENDED_S)
        stage.await_strike(application, fault)
        application.freeze()
        application.until(
            lambda: all(each.stopped for each in members_of(application.session)), "the freeze", SIGNAL_TIMEOUT_S
        )
        time.sleep(asleep_s)
        stage.release(fault)
        application.thaw()
        application.wait(SUSPENDED_S)
        if application.failure():
            stage.run_to_end(faults=(), driver_faults=())
        outcome = stage.judge()
        print(application.failure() or "the query went on by itself")
    assert outcome.exactly_once, outcome
