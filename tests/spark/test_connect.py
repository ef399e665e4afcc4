"""The sink on Spark Connect, where the function runs in a process of its own and sees no driver."""

from __future__ import annotations

import sys

import pytest

from tests.spark.local_stage import each_once
from tests.spark.rig.connect_query import ROWS
from tests.spark.rig.launching import SparkProcess

WAIT_S = 120.0


@pytest.fixture
def connect(local, tmp_path, monkeypatch):
    """A function that starts the query as an application of its own."""
    monkeypatch.setenv("SPARK_TESTING", "1")  # the server takes a free port

    def start(*query_id):
        where = local.servers, local.topic, local.sink_id, local.checkpoint
        return SparkProcess(
            [sys.executable, "-m", "tests.spark.rig.connect_query", *where, *query_id], tmp_path / "connect.log"
        )

    return start


def written(process):
    """The batches that the query has finished, over all its starts."""
    return [int(line.split()[1]) for line in process.log.read_text().splitlines() if line.startswith("written ")]


def test_each_value_arrives_once_when_the_query_is_killed_and_started_again(connect, local):
    with connect("q") as first:
        first.until(lambda: written(first)[-1:] >= [2], "three batches", WAIT_S)
    reached = local.last_commit()
    local.forget_commit(reached)
    with connect("q") as second:
        second.until(lambda: written(second)[-1] >= reached + 3, "three more batches", WAIT_S)
    assert "slots_skipped=2" in second.log.read_text()  # the batch that Spark had forgotten
    found = local.values()
    assert found == each_once(0, len(found))
    assert len(found) >= (reached + 4) * ROWS


def test_a_sink_that_cannot_see_its_query_asks_for_its_id(connect, local):
    with connect() as query:
        assert query.wait(WAIT_S) == 0
        assert "this is Spark Connect, where a sink cannot see its query's id: pass query_id=" in query.log.read_text()
    assert local.values() == {}
