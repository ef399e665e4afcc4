"""A ledger that is gone: what the last run has left beside the checkpoint decides whether the query may go on."""

from __future__ import annotations

import pytest

from eos_client import errors
from eos_client.core.batch_ledger_start import RunRecord
from eos_client.integration.spark import driver_run
from eos_client.integration.spark.checkpoint_folder import RunRecords
from eos_client.observe import ClientReported, SparkRunStarted
from tests.spark.local_query import adoption_token, each_once, refusing_slot_1
from tests.verification.topics import delete_topics


def lose_ledger(local):
    """Delete what every ledger entry hangs on, as ``offsets.retention.minutes`` does to a group without members."""
    delete_topics(local.servers, [f"{local.sink_id}-ledger"])


def close_after(local, batches):
    """Run the query until it has written so many batches in all, and close its sink."""
    sink = local.sink()
    assert local.stream(sink, batches) is None
    sink.close()


def ledgers(local):
    return [event.ledger for event in local.events if isinstance(event, SparkRunStarted)]


def records(local):
    return [path for path in local.record_folder.rglob("*") if path.is_file() and not path.name.startswith(".")]


def test_the_first_batch_is_not_written_again_without_its_ledger(local):
    assert local.stream(local.sink(), 1) is None
    local.spark_log.forget_commit(0)
    lose_ledger(local)
    refusal = local.stream(local.sink(), 1)
    assert "LedgerMissingError" in str(refusal)
    assert local.values() == each_once(0, 40)
    adopting = local.sink(adopt_ledger=adoption_token(refusal))
    assert local.stream(adopting, 1) is None
    assert local.values() == each_once(0, 40) + each_once(0, 40)


def test_a_query_that_was_closed_with_a_whole_batch_goes_on_without_its_ledger(local):
    close_after(local, 2)
    lose_ledger(local)
    assert local.stream(local.sink(slots=3), 4) is None
    assert local.values() == each_once(0, 160)
    assert ledgers(local) == ["initialise", "restore"]
    assert [path.name for path in records(local)] == ["2"]
    assert local.ledger(3) == {0: 4, 1: 4, 2: 4}


def test_a_whole_batch_that_spark_runs_again_is_not_written_again_without_its_ledger(local):
    close_after(local, 2)
    local.spark_log.forget_commit(1)
    lose_ledger(local)
    assert local.stream(local.sink(), 3) is None
    assert local.values() == each_once(0, 120)


@pytest.mark.soak  # a row of a table of the core
def test_a_whole_batch_that_has_other_rows_now_is_refused_without_its_ledger(local):
    close_after(local, 2)
    local.spark_log.forget_commit(1)
    lose_ledger(local)
    refusal = local.stream(local.sink(), 3, change=lambda frame: frame.where("value != '41'"))
    assert "BatchContentError" in str(refusal)
    assert local.values() == each_once(0, 80)


def test_a_ledger_that_was_left_for_another_one_is_not_gone_back_to(local):
    close_after(local, 1)
    other = local.new_topic("other-ledger", 3)
    assert local.stream(local.sink(ledger_topic=other), 2) is None
    local.spark_log.forget_commit(1)
    local.close()
    refusal = local.stream(local.sink(), 3)
    assert "LedgerRegressionError" in str(refusal)
    assert "run 2 of this query has used another ledger" in str(refusal)
    assert local.values() == each_once(0, 80)
    assert local.stream(local.sink(ledger_topic=other), 3) is None
    assert local.values() == each_once(0, 120)


def test_a_query_that_nobody_closed_needs_a_hand_without_its_ledger(local):
    assert local.stream(local.sink(), 2) is None
    lose_ledger(local)
    assert "LedgerMissingError" in str(local.stream(local.sink(), 3))
    assert local.values() == each_once(0, 80)


@pytest.mark.soak  # a row of a table of the core
def test_a_query_that_was_closed_with_a_batch_half_written_needs_a_hand_without_its_ledger(local):
    sink = local.sink(on_step=refusing_slot_1(1))
    assert "stays unwritten" in str(local.stream(sink, 2))
    sink.close()
    lose_ledger(local)
    assert "LedgerMissingError" in str(local.stream(local.sink(), 2))


def test_what_was_closed_once_does_not_stand_for_what_was_written_since(local):
    close_after(local, 1)
    assert local.stream(local.sink(), 2) is None
    local.spark_log.forget_commit(1)
    lose_ledger(local)
    assert "LedgerMissingError" in str(local.stream(local.sink(), 2))
    assert local.values() == each_once(0, 80)


def run_records(local, cluster_id):
    return RunRecords(local.spark, local.checkpoint, local.sink_id, cluster_id)


def test_a_run_that_was_left_behind_changes_nothing_by_its_end(local):
    ours = run_records(local, "cluster-1")
    assert ours.last() is None
    ours.write(RunRecord(5, "q"))
    ours.write(RunRecord(10, "q"))
    run_records(local, "cluster-1").write(RunRecord(5, "q", 7))
    run_records(local, "cluster-1").write(RunRecord(6, "q"))
    assert ours.last() == RunRecord(10, "q")
    ours.write(RunRecord(10, "q", 8))
    assert ours.last() == RunRecord(10, "q", 8)


def test_a_sink_id_on_two_clusters_has_records_for_each(local):
    run_records(local, "cluster-1").write(RunRecord(5, "q"))
    assert run_records(local, "cluster-2").last() is None


def test_the_records_lie_where_the_stage_does(local):
    local.record_folder = local.folder / "elsewhere" / "eos-ledger" / local.sink_id
    assert local.stream(local.sink(stage_dir=str(local.folder / "elsewhere")), 1) is None
    assert [path.name for path in records(local)] == ["1"]


def test_a_start_that_cannot_leave_its_record_gives_the_lease_back_and_begins_no_batch(local, monkeypatch):
    runs = []

    def write(records, record):
        raise OSError("the checkpoint is read-only")

    def close(run):
        runs.append(run)
        run._lease.release()

    monkeypatch.setattr(RunRecords, "write", write)
    monkeypatch.setattr(driver_run.DriverRun, "close", close)
    assert "read-only" in str(local.stream(local.sink(), 1))
    assert [run._lease.ended for run in runs] == ["the lease was released"]
    assert local.values() == {}


def test_no_batch_begins_once_the_end_of_a_run_is_noted(local, monkeypatch):
    sink = local.sink()
    assert local.stream(sink, 1) is None
    run = driver_run.current_run(sink.settings)
    assert run is not None

    def write(records, record):
        with pytest.raises(errors.RunFencedError):
            run.write(local.numbers(40, 80), 1)

    monkeypatch.setattr(RunRecords, "write", write)
    sink.close()
    assert local.values() == each_once(0, 40)


@pytest.mark.soak  # as after the query that goes on without its ledger
def test_one_file_is_left_of_all_runs(local):
    for until in (1, 2, 3):
        close_after(local, until)
    assert [path.name for path in records(local)] == ["3"]


def test_a_close_that_cannot_write_its_record_gives_the_lease_back_and_says_so(local):
    sink = local.sink()
    assert local.stream(sink, 1) is None
    (record,) = records(local)
    folder = record.parent
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    folder.write_text("no folder")
    sink.close()
    (told,) = [event for event in local.events if isinstance(event, ClientReported)]
    assert "ledger" in told.error
    assert sink.progress() is None
