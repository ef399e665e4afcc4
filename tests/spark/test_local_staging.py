"""Where staged batches lie, which attempt at a stage counts, and who may delete it."""

from __future__ import annotations

import pytest
from pyspark.sql import functions as F  # noqa: N812  # Spark's own name for it

from eos_client.integration.spark.spark_query import RunningQuery
from eos_client.integration.spark.staging import Stage


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "eos-stage" / "s"


@pytest.fixture
def stage(tmp_path):
    return Stage("s", RunningQuery("q", "r"), str(tmp_path))


def random_rows(spark):
    return spark.range(20).withColumn("value", F.rand())


def rows(frame):
    return sorted((row["id"], row["value"]) for row in frame.collect())


@pytest.mark.parametrize("marks", ["true", "false"], ids=["with _SUCCESS", "without _SUCCESS"])
def test_a_batch_keeps_the_rows_that_it_was_first_seen_with(spark, stage, marks):
    name = "mapreduce.fileoutputcommitter.marksuccessfuljobs"
    spark.conf.set(name, marks)
    try:
        first = rows(stage.stable(random_rows(spark), 0))
        assert rows(stage.stable(random_rows(spark), 0)) == first
    finally:
        spark.conf.unset(name)


def test_a_driver_left_behind_at_an_earlier_batch_does_not_delete_the_one_at_work(spark, stage, folder):
    at_work = stage.stable(random_rows(spark), 1)
    first = rows(at_work)
    stage.stable(random_rows(spark), 0)
    assert rows(at_work) == first
    assert rows(stage.stable(random_rows(spark), 1)) == first
    assert sorted(path.name for path in folder.iterdir()) == ["1"]


def test_of_two_drivers_that_stage_a_batch_at_once_the_first_to_be_through_counts(spark, stage):
    first: list[object] = []

    class Slow:
        """A frame whose writing takes longer than all that the other driver does."""

        def __init__(self, frame):
            self._frame = frame

        def __getattr__(self, name):
            if name == "write" and not first:
                first.append(None)
                first[0] = rows(stage.stable(random_rows(spark), 0))
            return getattr(self._frame, name)

    late = rows(stage.stable(Slow(random_rows(spark)), 0))
    assert late == first[0]


def test_an_attempt_that_was_interrupted_counts_for_nothing(spark, stage, folder):
    half = folder / "0" / "0123"
    half.mkdir(parents=True)
    (half / "part-0.parquet").write_bytes(b"half")
    (folder / "0" / "CHOSEN").touch()
    first = rows(stage.stable(random_rows(spark), 0))
    assert len(first) == 20
    assert rows(stage.stable(random_rows(spark), 0)) == first
