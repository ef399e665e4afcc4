"""Executors that die or freeze in every step of the task protocol, as processes of their own; real broker."""

from __future__ import annotations

import os
import signal

import pytest

from tests.spark.rig.cluster_query import RUN_TIMEOUT_S, ClusterQuery
from tests.spark.rig.faults import Striker
from tests.spark.rig.settings import NOTICES_OTHER_ROWS, Action, Fault, Sink
from tests.spark.rig.stories import CLUSTER, SOON_LOST, kill_in_each_step, zombie_executor

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]

STEPS = ("start", "begun", "produced", "offsets_sent", "committed")


@pytest.mark.parametrize("steps", [("committed",), pytest.param(STEPS, marks=pytest.mark.soak)])
def test_an_executor_killed_in_any_step_loses_and_doubles_nothing(kafka_broker, tmp_path, steps):
    faults = kill_in_each_step(*steps)
    with ClusterQuery(
        kafka_broker.bootstrap_servers, tmp_path, master=CLUSTER, faults=faults, batches=len(steps) + 2
    ) as stage:
        stage.run_to_end()
        assert [fault.step for fault in faults if not stage.has_struck(fault)] == []
        outcome = stage.judge()
    assert outcome.exactly_once, outcome
    assert outcome.reordered == 0, outcome


@pytest.mark.soak
def test_rows_that_are_others_when_they_are_made_again_are_not_mixed_with_those_before(kafka_broker, tmp_path):
    fault = Fault("start", 1, Action.KILL_EXECUTOR, slot=6)
    servers, unnoticed = kafka_broker.bootstrap_servers, dict.fromkeys(NOTICES_OTHER_ROWS, "false")
    with ClusterQuery(
        servers, tmp_path, master=CLUSTER, faults=(fault,), random_keys=True, slots=8, spark=unnoticed
    ) as stage:
        ended = [stage.start().wait(RUN_TIMEOUT_S), stage.start().wait(RUN_TIMEOUT_S)]
        assert stage.has_struck(fault)
        outcome = stage.judge()
        assert ended == [1, 1], outcome
        assert "BatchContentError" in stage.applications[-1].failure()
    assert outcome.doubled == 0, outcome


@pytest.mark.soak
def test_the_same_kills_make_sparks_own_sink_double(kafka_broker, tmp_path):
    faults = kill_in_each_step("produced", "committed")
    with ClusterQuery(kafka_broker.bootstrap_servers, tmp_path, Sink.PLAIN, master=CLUSTER, faults=faults) as stage:
        stage.run_to_end()
        outcome = stage.judge()
    assert all(stage.has_struck(fault) for fault in faults)
    assert outcome.doubled > 0, outcome


@pytest.mark.soak
@pytest.mark.parametrize("step", ["start", "begun", "produced", "offsets_sent"])
def test_a_zombie_executor_that_wakes_adds_nothing(kafka_broker, tmp_path, step):
    fault = Fault(step, 1, Action.FREEZE_EXECUTOR)
    with ClusterQuery(
        kafka_broker.bootstrap_servers, tmp_path, master=CLUSTER, faults=(fault,), batches=6, spark=SOON_LOST
    ) as stage:
        zombie_executor(stage, fault)
        outcome = stage.judge()
    assert outcome.exactly_once, outcome


@pytest.mark.soak
def test_a_zombie_executor_makes_sparks_own_sink_double(kafka_broker, tmp_path):
    fault = Fault("produced", 1, Action.FREEZE_EXECUTOR)
    with ClusterQuery(
        kafka_broker.bootstrap_servers, tmp_path, Sink.PLAIN, master=CLUSTER, faults=(fault,), batches=6,
        spark=SOON_LOST,
    ) as stage:  # fmt: skip
        zombie_executor(stage, fault)
        outcome = stage.judge()
    assert outcome.doubled > 0, outcome


@pytest.mark.soak
def test_a_python_worker_killed_in_any_step_loses_and_doubles_nothing(kafka_broker, tmp_path):
    faults = tuple(Fault(step, batch_id, Action.KILL_WORKER) for batch_id, step in enumerate(STEPS))
    with ClusterQuery(kafka_broker.bootstrap_servers, tmp_path, faults=faults, batches=len(STEPS) + 1) as stage:
        stage.run_to_end()
        assert all(stage.has_struck(fault) for fault in faults)
        outcome = stage.judge()
    assert outcome.exactly_once, outcome


def test_a_fault_strikes_once(tmp_path):
    fault = Fault("begun", 1, Action.KILL_WORKER)
    for expected in (signal.SIGKILL, 0):
        if (child := os.fork()) == 0:
            Striker((fault,), tmp_path)("begun", 0, 1)
            os._exit(0)
        assert os.WTERMSIG(status := os.waitpid(child, 0)[1]) == expected, status
