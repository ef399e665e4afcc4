"""The job of a batch: its function is made once, and each batch's tasks are told of that batch."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import pytest

from eos_client.core.batch_ledger import SinkIdentity
from eos_client.integration.spark import slot_job
from eos_client.integration.spark.settings import SinkSettings
from eos_client.integration.spark.slot_job import BATCH_PROPERTY, batch_part, with_batch_part
from eos_client.integration.spark.task import SlotTask
from tests.spark.local_query import each_once

SETTINGS = SinkSettings("nowhere:9", "output", "sink-1", 2, "ledger-1", {"sasl.password": "hush", "acks": "all"})
TASK = SlotTask(SETTINGS, SinkIdentity("q", 2, 1, "out"), 7, 3, b"CGMDv2:\x00\xff", (7, 6), ("handle-0", ""))


@pytest.fixture
def made(monkeypatch):
    """The columns of each function that was made."""
    seen = []
    make = slot_job._prepared_function

    def noting(function, columns):
        seen.append(columns)
        return make(function, columns)

    monkeypatch.setattr(slot_job, "_prepared_function", noting)
    return seen


@pytest.fixture
def told(monkeypatch):
    """The batches whose tasks were told by a property."""
    seen = []

    def noting(task):
        seen.append(task.batch_id)
        return batch_part(task)

    monkeypatch.setattr(slot_job, "batch_part", noting)
    return seen


def test_a_task_gets_everything_of_its_own_batch_and_keeps_what_stays_the_same():
    made_with = replace(TASK, batch_id=0, run=0, group_metadata=b"", floors=(), holders=())
    assert with_batch_part(made_with, batch_part(TASK)) == TASK


def test_a_task_that_is_told_of_no_batch_writes_none():
    with pytest.raises(LookupError, match="do not know their batch"):
        with_batch_part(TASK, None)


def test_what_is_told_holds_no_setting():
    """Spark writes the properties of a job to its event log."""
    assert "hush" not in batch_part(TASK)


def test_the_function_is_made_once_for_all_batches_of_a_run(local, made, told):
    assert local.stream(local.sink(), 4) is None
    assert local.values() == each_once(0, 160)
    assert made == [("value", "key", "eos_fingerprint")]
    assert told == [0, 1, 2, 3]


def test_frames_with_other_columns_get_a_function_of_their_own(local, made):
    sink = local.direct()
    frames = [local.frame([("k", "a")]), local.frame([("k", "b")]).selectExpr("*", "0 as partition")]
    for batch_id, frame in enumerate([*frames, *frames]):
        sink(frame, batch_id)
    assert local.values() == {"a": 2, "b": 2}
    assert made == [("value", "key", "eos_fingerprint"), ("value", "key", "partition", "eos_fingerprint")]


def test_a_spark_that_works_otherwise_inside_is_used_the_public_way(local, told, monkeypatch):
    asked = []

    def gone(*_):
        asked.append(True)
        raise AttributeError("_jc")

    monkeypatch.setattr(slot_job, "_prepared_function", gone)
    assert local.stream(local.sink(), 3) is None
    assert local.values() == each_once(0, 120)
    assert (asked, told) == ([True], [])


def test_nothing_is_left_in_the_thread_when_a_job_has_failed(spark):
    context = spark.sparkContext
    with suppress(ZeroDivisionError), slot_job._batch_property(spark.range(1), TASK):
        assert context.getLocalProperty(BATCH_PROPERTY) == batch_part(TASK)
        raise ZeroDivisionError
    assert context.getLocalProperty(BATCH_PROPERTY) is None


def test_the_settings_of_a_sink_show_no_secret():
    assert "hush" not in repr(SETTINGS)
