"""The stories of the other tests with one thing missing in the sink: the same judgement must turn red."""

from __future__ import annotations

import pytest

from tests.spark.rig.cluster_query import ClusterQuery
from tests.spark.rig.mutants import Mutant
from tests.spark.rig.stories import CLUSTER, kill_in_each_step, replay, restarts

pytestmark = [pytest.mark.kafka, pytest.mark.soak, pytest.mark.timeout(600)]


def test_without_the_ledger_a_restart_doubles(kafka_broker, tmp_path):
    with ClusterQuery(kafka_broker.bootstrap_servers, tmp_path, mutant=Mutant.NO_LEDGER.name) as stage:
        restarts(stage)
        assert stage.judge().doubled == stage.settings.rows_per_batch


def test_without_the_ledger_a_replay_doubles(kafka_broker, tmp_path):
    with ClusterQuery(kafka_broker.bootstrap_servers, tmp_path, mutant=Mutant.NO_LEDGER.name) as stage:
        replay(stage)
        assert stage.judge().doubled == stage.settings.rows_per_batch


def test_without_the_ledger_an_executor_killed_after_its_commit_doubles(kafka_broker, tmp_path):
    faults = kill_in_each_step("committed")
    mutant = Mutant.NO_LEDGER.name
    with ClusterQuery(
        kafka_broker.bootstrap_servers, tmp_path, master=CLUSTER, faults=faults, mutant=mutant, batches=3
    ) as stage:
        stage.run_to_end()
        assert stage.judge().doubled > 0


def test_with_sparks_partition_as_slot_another_plan_is_refused(kafka_broker, tmp_path):
    mutant = Mutant.SPARK_PARTITION.name
    with (
        ClusterQuery(kafka_broker.bootstrap_servers, tmp_path, mutant=mutant) as stage,
        pytest.raises(AssertionError, match="BatchContentError"),
    ):
        replay(stage)
