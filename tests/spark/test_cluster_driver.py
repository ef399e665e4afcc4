"""Drivers that die between the tasks' commits and Spark's commit log, or come back as zombies; real broker."""

from __future__ import annotations

import pytest

from tests.spark.rig.cluster_query import ClusterQuery
from tests.spark.rig.settings import Action, Fault, Sink
from tests.spark.rig.stories import ZOMBIE_TIMEOUT_S, die_at, orphaned_workers, replay, restarts, zombie_driver

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]

TAKEOVER_MAX_S = 5.0
SESSION_S = 45.0


def test_a_driver_killed_before_sparks_commit_log_repeats_nothing(kafka_broker, tmp_path):
    with ClusterQuery(kafka_broker.bootstrap_servers, tmp_path) as stage:
        restarts(stage)
        outcome = stage.judge()
    assert outcome.exactly_once, outcome
    assert outcome.reordered == 0, outcome


@pytest.mark.soak
def test_the_same_restarts_make_sparks_own_sink_double(kafka_broker, tmp_path):
    with ClusterQuery(kafka_broker.bootstrap_servers, tmp_path, Sink.PLAIN) as stage:
        restarts(stage)
        outcome = stage.judge()
    assert outcome.doubled == stage.settings.rows_per_batch, outcome


@pytest.mark.soak
def test_a_driver_killed_at_any_of_its_steps_repeats_nothing_under_the_same_plan(kafka_broker, tmp_path):
    with ClusterQuery(kafka_broker.bootstrap_servers, tmp_path) as stage:
        die_at(stage, Fault("job_done", 0, Action.FREEZE))
        die_at(stage, Fault("marker_committed", 1, Action.FREEZE))
        die_at(stage, Fault("lease_held", 1, Action.FREEZE))
        stage.run_to_end(driver_faults=())
        outcome = stage.judge()
    assert outcome.exactly_once, outcome


@pytest.mark.soak
def test_a_deleted_commit_log_entry_repeats_nothing(kafka_broker, tmp_path):
    with ClusterQuery(kafka_broker.bootstrap_servers, tmp_path) as stage:
        replay(stage)
        outcome = stage.judge()
    assert outcome.exactly_once, outcome


@pytest.mark.soak
def test_the_same_deletion_makes_sparks_own_sink_double(kafka_broker, tmp_path):
    with ClusterQuery(kafka_broker.bootstrap_servers, tmp_path, Sink.PLAIN) as stage:
        replay(stage)
        outcome = stage.judge()
    assert outcome.doubled == stage.settings.rows_per_batch, outcome


@pytest.mark.soak
def test_a_zombie_driver_adds_nothing_and_ends_as_fenced(kafka_broker, tmp_path):
    with ClusterQuery(kafka_broker.bootstrap_servers, tmp_path, batches=8, pace_s=0.3) as stage:
        zombie, successor = zombie_driver(stage, "produced")
        assert zombie.wait(ZOMBIE_TIMEOUT_S) == 1
        assert "RunFencedError" in zombie.failure()
        stage.await_end(successor)
        outcome = stage.judge()
    assert outcome.exactly_once, outcome


@pytest.mark.soak
def test_a_new_driver_takes_over_a_stalled_one_within_5_s(kafka_broker, tmp_path):
    with ClusterQuery(kafka_broker.bootstrap_servers, tmp_path) as stage:
        _zombie, successor = zombie_driver(stage, "produced")
        stage.await_end(successor)
        assert stage.judge().exactly_once
    first = successor.progress()[0]
    print(f"from foreachBatch's first call to its end: {first['ended_s'] - first['began_s']:.2f} s")
    assert first["ended_s"] - first["began_s"] <= TAKEOVER_MAX_S


@pytest.mark.soak
@pytest.mark.parametrize("step", ["start", "ledger_read", "begun", "flushed", "offsets_sent", "committed"])
def test_a_zombie_driver_adds_nothing_whatever_it_was_doing(kafka_broker, tmp_path, step):
    with ClusterQuery(kafka_broker.bootstrap_servers, tmp_path, batches=8, pace_s=0.3) as stage:
        zombie, successor = zombie_driver(stage, step)
        assert zombie.wait(ZOMBIE_TIMEOUT_S) == 1
        stage.await_end(successor)
        outcome = stage.judge()
    assert outcome.exactly_once, outcome


@pytest.mark.soak
def test_a_zombie_driver_that_wakes_after_its_session_does_not_take_the_lease_back(kafka_broker, tmp_path):
    with ClusterQuery(kafka_broker.bootstrap_servers, tmp_path, batches=40, pace_s=2.0) as stage:
        zombie, successor = zombie_driver(stage, "produced", asleep_s=SESSION_S + 10.0)
        assert successor.exit_code() is None
        assert zombie.wait(ZOMBIE_TIMEOUT_S) == 1
        stage.await_end(successor)
        outcome = stage.judge()
    assert outcome.exactly_once, outcome


@pytest.mark.soak
def test_a_zombie_driver_makes_sparks_own_sink_double(kafka_broker, tmp_path):
    with ClusterQuery(kafka_broker.bootstrap_servers, tmp_path, Sink.PLAIN, batches=8, pace_s=0.3) as stage:
        zombie_driver(stage, "produced")
        ends = [application.wait(ZOMBIE_TIMEOUT_S) for application in stage.applications]
        if 0 not in ends:
            stage.run_to_end()  # the two of them fought over the checkpoint
        outcome = stage.judge()
    assert outcome.doubled > 0, outcome


@pytest.mark.soak
@pytest.mark.parametrize("step", ["initialised", "begun", "produced", "offsets_sent"])
def test_orphaned_python_workers_that_wake_add_nothing(kafka_broker, tmp_path, step):
    with ClusterQuery(kafka_broker.bootstrap_servers, tmp_path, batches=8, pace_s=0.3) as stage:
        assert orphaned_workers(stage, step)
        outcome = stage.judge()
    assert outcome.exactly_once, outcome
