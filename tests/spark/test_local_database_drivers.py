"""Drivers of a database's sink that overlap: the older one writes nothing more, wherever it was overtaken."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from eos_client.errors import RunFencedError
from eos_client.integration.spark.database_run import DatabaseRun
from eos_client.integration.spark.spark_query import RunningQuery
from eos_client.observe import SparkBatchWritten, SparkRunFenced, SparkRunStarted
from tests.spark.local_query import each_once
from tests.spark.table_query import TableQuery
from tests.support.waiting import wait_for

WAIT_S = 60.0


@pytest.fixture
def query(spark, postgres_server, tmp_path):
    made = TableQuery(spark, postgres_server.url, tmp_path)
    yield made
    made.close()


@pytest.fixture
def driver(query):
    """A function that makes drivers of one sink, as processes of their own would be."""

    def make(name, *, on_step=None, on_driver_step=None):
        settings = query.direct().settings
        hook = query.events.append
        return DatabaseRun(settings, RunningQuery("q", name), hook=hook, on_step=on_step, on_driver_step=on_driver_step)

    return make


def start(run, frame, batch_id):
    run.emit_started(run.start(frame, batch_id), batch_id)


@pytest.mark.parametrize("at", ["job_done", "claimed"])
def test_a_driver_that_was_overtaken_does_not_finish_its_batch(query, driver, at):
    successors: list[DatabaseRun] = []

    def overtake(step, _):
        if step == at and not successors:
            successors.append(driver("b"))
            start(successors[0], query.numbers(0, 20), 0)

    older = driver("a", on_driver_step=overtake)
    start(older, query.numbers(0, 20), 0)
    for _ in range(2):
        with pytest.raises(RunFencedError, match="run 2 has taken over from run 1"):
            older.write(query.numbers(0, 20), 0)
    successors[0].write(query.numbers(0, 20), 0)
    successors[0].write(query.numbers(20, 40), 1)
    with pytest.raises(RunFencedError):
        older.write(query.numbers(20, 40), 1)
    assert query.values() == each_once(0, 40)
    assert [event.run for event in query.of_kind(SparkRunStarted)] == [1, 2]
    assert [event.run for event in query.of_kind(SparkRunFenced)] == [1]
    assert query.of_kind(SparkBatchWritten)[0].slots_skipped == (2 if at == "job_done" else 0)


def test_a_driver_whose_batch_failed_takes_nothing_from_a_newer_one(query, driver):
    older = driver("a", on_step=refuse)
    start(older, query.numbers(0, 20), 0)
    with pytest.raises(Exception, match="no row today"):
        older.write(query.numbers(0, 20), 0)
    newer = driver("b")
    start(newer, query.numbers(0, 20), 0)
    with pytest.raises(RunFencedError, match="run 2 has taken over from run 1"):
        older.write(query.numbers(0, 20), 0)
    newer.write(query.numbers(0, 20), 0)
    assert query.values() == each_once(0, 20)


def refuse(*_):
    raise ArithmeticError("no row today")


@dataclass(frozen=True)
class Asleep:
    """An ``on_step`` that sleeps in one slot's step until its file is there."""

    folder: Path
    at: tuple[str, int]

    def __call__(self, step, slot, _):
        if (step, slot) == self.at:
            (self.folder / "asleep").touch()
            while not (self.folder / "awake").exists():
                time.sleep(0.01)


@pytest.mark.soak  # without Spark: test_database_task.py
@pytest.mark.parametrize("step", ["begun", "written"])
def test_a_task_that_wakes_after_the_next_drivers_claim_writes_nothing(query, driver, tmp_path, step):
    zombie = driver("a", on_step=Asleep(tmp_path, (step, 1)))
    start(zombie, query.numbers(0, 20), 0)
    raised = []

    def write():
        try:
            zombie.write(query.numbers(0, 20), 0)
        except RunFencedError as error:
            raised.append(error)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        wait_for((tmp_path / "asleep").exists, "the zombie", timeout_s=WAIT_S)
        wait_for(lambda: query.ledger() == {0: 1, 1: 0}, "the other slot", timeout_s=WAIT_S)
        successor = driver("b")
        start(successor, query.numbers(0, 20), 0)
        successor.write(query.numbers(0, 20), 0)
        successor.write(query.numbers(20, 40), 1)
    finally:
        (tmp_path / "awake").touch()
        thread.join(WAIT_S)
    assert "run 2 has taken over from run 1" in str(raised[0])
    assert query.values() == each_once(0, 40)
    assert query.of_kind(SparkBatchWritten)[0].slots_skipped == 1
