"""Whole queries on local Spark: every number of the source arrives once, whatever is restarted or run again."""

from __future__ import annotations

from contextlib import suppress
from functools import partial

import pytest
from pyspark.sql import functions as F  # noqa: N812

from eos_client.integration.spark import SinkProgress
from eos_client.observe import SparkBatchWritten, SparkRunStarted
from tests.benchmarks.worker_load import LoadClock, load_of, loads
from tests.spark.local_query import adoption_token, each_once
from tests.support.waiting import wait_for

THREADS_OF_A_CLIENT, CONNECTIONS_OF_A_CLIENT = 5, 2
BARE_THREADS, BARE_CONNECTIONS = 8, 5
"""Of a worker with a reader of the ledger."""


def test_each_value_arrives_once_over_several_batches_and_a_restart(local):
    sink = local.sink(slots=3)
    assert local.stream(sink, 3) is None
    assert local.values() == each_once(0, 120)
    assert local.stream(sink, 5) is None
    assert local.values() == each_once(0, 200)
    assert local.ledger(3) == {0: 5, 1: 5, 2: 5}


def test_a_batch_that_is_run_again_with_another_partitioning_is_skipped(local):
    sink = local.sink(slots=3)
    assert local.stream(sink, 3, change=lambda frame: frame.repartition(3)) is None
    local.spark_log.forget_commit(2)
    assert local.stream(sink, 4, change=lambda frame: frame.repartition(5)) is None
    assert local.values() == each_once(0, 160)
    written = [event for event in local.events if isinstance(event, SparkBatchWritten)]
    assert [(e.batch_id, e.slots_written, e.slots_skipped) for e in written] == [
        (0, 3, 0),
        (1, 3, 0),
        (2, 3, 0),
        (2, 0, 3),
        (3, 3, 0),
    ]


def test_a_deleted_checkpoint_is_noticed_before_anything_is_skipped_or_doubled(local, tmp_path):
    assert local.stream(local.sink(), 2) is None
    local.checkpoint = str(tmp_path / "another")
    error = local.stream(local.sink(), 2)
    assert "LedgerForeignError" in str(error)
    assert adoption_token(error)
    assert local.values() == each_once(0, 80)


def test_an_adopted_ledger_starts_anew_and_is_not_adopted_twice(local, tmp_path):
    assert local.stream(local.sink(), 2) is None
    local.checkpoint = str(tmp_path / "another")
    token = adoption_token(local.stream(local.sink(), 1))
    assert local.stream(local.sink(adopt_ledger=token), 1) is None
    assert local.stream(local.sink(adopt_ledger=token), 2) is None
    assert local.values() == each_once(0, 80) + each_once(0, 80)
    assert [e.ledger for e in local.events if isinstance(e, SparkRunStarted)] == ["initialise", "adopt", "ready"]


def test_one_slot_makes_a_batch_one_transaction(local):
    assert local.stream(local.sink(slots=1), 2) is None
    assert local.values() == each_once(0, 80)
    written = [event for event in local.events if isinstance(event, SparkBatchWritten)]
    assert [(e.rows, e.slots_written) for e in written] == [(40, 1), (40, 1)]


def salted(frame):
    return frame.withColumn("value", F.concat("value", F.lit("-"), F.rand().cast("string")))


def test_a_query_that_is_not_deterministic_is_refused_when_a_batch_is_run_again(local):
    assert local.stream(local.sink(), 2, change=salted) is None
    before = local.values()
    local.spark_log.forget_commit(1)
    error = local.stream(local.sink(), 3, change=salted)
    assert "BatchContentError" in str(error)
    assert 'stable_input="stage"' in str(error)
    assert local.values() == before


def test_staged_batches_may_be_run_again_though_they_are_not_deterministic(local, tmp_path):
    sink = local.sink(stable_input="stage")
    assert local.stream(sink, 2, change=salted) is None
    before = local.values()
    staged = tmp_path / "checkpoint" / "eos-stage" / local.sink_id
    assert [path.name for path in staged.iterdir()] == ["1"]
    local.spark_log.forget_commit(1)
    assert local.stream(sink, 3, change=salted) is None
    after = local.values()
    assert before <= after
    assert sum(after.values()) == 120
    assert {value.split("-")[0] for value in after} == {str(n) for n in range(120)}
    assert [path.name for path in staged.iterdir()] == ["2"]


def test_a_stage_that_was_not_finished_is_written_again(local, tmp_path):
    sink = local.sink(stable_input="stage")
    assert local.stream(sink, 1) is None
    half = tmp_path / "checkpoint" / "eos-stage" / local.sink_id / "1"
    half.mkdir()
    (half / "part-0.parquet").write_bytes(b"half")
    assert local.stream(sink, 2) is None
    assert local.values() == each_once(0, 80)


def test_the_driver_tells_how_the_sink_fares(local):
    sink = local.sink()
    assert sink.progress() is None
    assert local.stream(sink, 3) is None
    progress = sink.progress()
    assert isinstance(progress, SinkProgress)
    totals = progress.as_dict()
    assert (totals["batches"], totals["rows"], totals["slots_written"], totals["slots_skipped"]) == (3, 120, 6, 0)
    assert totals["last_batch_id"] == 2
    assert set(totals["seconds"]) > {"gate", "job", "marker", "task_initialised", "task_committed"}
    started = [event for event in local.events if isinstance(event, SparkRunStarted)]
    assert [(e.run, e.slots, e.ledger) for e in started] == [(1, 2, "initialise")]
    assert progress.query_id == started[0].query_id
    assert [e.name for e in local.events] == ["spark_run_started", *["spark_batch_written"] * 3]


@pytest.fixture
def own_workers(local, monkeypatch):
    """Python workers of this test alone: Spark shares them among tasks of one environment, the longest idle first."""
    monkeypatch.setitem(local.spark.sparkContext.environment, "EOS_CLIENT_TEST_WORKERS", local.mark)


@pytest.mark.usefixtures("own_workers")
def test_a_slot_that_stays_in_its_worker_starts_its_producer_once(local):
    sink = local.sink(slots=1)
    assert local.stream(sink, 4) is None
    progress = sink.progress()
    assert (progress.slots_written, progress.handles_started) == (4, 1)
    assert local.values() == each_once(0, 160)


def test_asynchronous_progress_is_refused(local):
    with pytest.raises(Exception, match="async progress"):  # Spark itself, since 3.5; preflight would be next
        local.stream(local.sink(), 2, asyncProgressTrackingEnabled="true")
    assert local.values() == {}


@pytest.mark.parametrize("again", [pytest.param(2, marks=pytest.mark.soak), 5])
def test_the_number_of_slots_may_change_between_whole_batches(local, again):
    assert local.stream(local.sink(slots=3), 2) is None
    assert local.stream(local.sink(slots=again), 4) is None
    assert local.values() == each_once(0, 160)
    local.spark_log.forget_commit(3)
    assert local.stream(local.sink(slots=3), 5) is None
    assert local.values() == each_once(0, 200)


@pytest.mark.usefixtures("own_workers")
@pytest.mark.parametrize("kept", [pytest.param(0, marks=pytest.mark.soak), 2])
def test_a_worker_that_writes_many_slots_keeps_threads_and_connections_of_few(local, tmp_path, kept):
    noted = tmp_path / "loads"
    noted.mkdir()
    sink = local.sink(slots=12, kept_producers=kept, on_step=LoadClock(str(noted)))
    assert local.stream(sink, 4) is None
    assert len(loads(noted)) == 48, "each slot of four batches"
    assert 48 - 6 * kept <= sink.progress().handles_started <= 48
    for worker in noted.iterdir():
        wait_for(partial(is_bounded, int(worker.name), kept), f"a worker that keeps {kept}")


def is_bounded(worker, kept):
    """Whether the worker has what a reader of the ledger and the producers that it may keep need, or has ended."""
    with suppress(FileNotFoundError):
        load = load_of(worker)
        return (
            load.threads <= BARE_THREADS + kept * THREADS_OF_A_CLIENT
            and load.connections <= BARE_CONNECTIONS + kept * CONNECTIONS_OF_A_CLIENT
        )
    return True
