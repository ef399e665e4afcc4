"""Applications that write into a table while their processes are killed or frozen, or their commits lose the answer."""

from __future__ import annotations

import contextlib

import pytest
import sqlalchemy as sa

from tests.spark.rig.database_query import DatabaseQuery
from tests.spark.rig.settings import Action, Fault
from tests.spark.rig.stories import (
    CLUSTER,
    SIGNAL_TIMEOUT_S,
    SOON_LOST,
    ZOMBIE_TIMEOUT_S,
    orphaned_workers,
    restarts,
    zombie_driver,
    zombie_executor,
)
from tests.verification.commit_cutter import CommitCutter

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]

CUTS = 8


@pytest.fixture
def database(postgres_server, tmp_path):
    """A function that makes the query of a test; its table has no unique constraint."""
    with contextlib.ExitStack() as queries:

        def make(url=None, **settings):
            query = DatabaseQuery(url or postgres_server.url, tmp_path, postgres_server.url, **settings)
            return queries.enter_context(query)

        yield make


def assert_exact(stage):
    outcome = stage.judge()
    assert outcome.exactly_once, outcome
    assert outcome.reordered == 0, outcome


@pytest.mark.soak  # without Spark: test_database_task.py; with Kafka: test_cluster_driver.py
def test_a_driver_killed_between_its_slots_repeats_no_row(database):
    stage = database()
    fault = Fault("committed", 1, Action.FREEZE, slot=0)
    dying = stage.start(faults=(fault,))
    stage.await_strike(dying, fault)
    dying.kill()
    dying.wait(SIGNAL_TIMEOUT_S)
    stage.run_to_end(faults=(), repartition=5, adaptive=False, shuffle_partitions=7)
    assert_exact(stage)


@pytest.mark.soak  # without Spark: test_database_task.py
def test_tasks_that_die_at_their_commit_are_repeated_and_write_once(database):
    faults = [Fault(step, batch, Action.KILL_WORKER) for batch, step in enumerate(("written", "moved", "committed"), 1)]
    stage = database(faults=tuple(faults))
    stage.run_to_end()
    assert all(map(stage.has_struck, faults))
    assert_exact(stage)


@pytest.mark.soak
def test_a_zombie_driver_adds_no_row_and_ends_as_fenced(database):
    """Where the freeze meets a slot between its move and its COMMIT, the successor is refused until that has ended."""
    stage = database(batches=8, pace_s=0.3)
    zombie, successor = zombie_driver(stage, "written")
    assert zombie.wait(ZOMBIE_TIMEOUT_S) == 1
    assert "RunFencedError" in zombie.failure()
    stage.await_end(successor)
    assert_exact(stage)


@pytest.mark.soak  # the same
def test_commits_that_lose_their_answer_neither_lose_nor_double_a_row(database, postgres_server):
    url = sa.make_url(postgres_server.url)
    with CommitCutter(url.port or 0, seed=5) as cutter:
        proxied = url.set(port=cutter.port).render_as_string(hide_password=False)
        stage = database(proxied, batches=CUTS + 2, pace_s=0.3)
        application = stage.start()
        for number in range(CUTS):
            stage.await_batches(application, number + 1)
            cutter.cut_next(1)
        stage.await_end(application)
        assert cutter.cuts >= CUTS - 1
    assert_exact(stage)


@pytest.mark.soak
def test_restarts_under_another_plan_repeat_no_row(database):
    stage = database()
    restarts(stage)
    assert_exact(stage)


@pytest.mark.soak
def test_workers_that_outlive_their_driver_add_no_row(database):
    stage = database(batches=8, pace_s=0.3)
    orphaned_workers(stage, "written")
    assert_exact(stage)


@pytest.mark.soak
@pytest.mark.parametrize("step", ["begun", "written", "moved"])
def test_an_executor_that_comes_back_adds_no_row(database, step):
    fault = Fault(step, 1, Action.FREEZE_EXECUTOR)
    stage = database(master=CLUSTER, spark=SOON_LOST, faults=(fault,), batches=6, pace_s=0.3)
    if step == "moved":
        # Its transaction holds the row until the server ends it; see the page on databases.
        limit = "options=-c%20idle_in_transaction_session_timeout%3D2000"
        stage.settings = stage.settings.changed(bootstrap=f"{stage.settings.bootstrap}?{limit}")
    zombie_executor(stage, fault)
    assert_exact(stage)
