"""The sink on Spark Connect, where the function runs in a process of its own and sees no driver."""

from __future__ import annotations

import re
import sys

import pytest

from tests.spark.local_query import each_once
from tests.spark.rig.connect_query import ROWS
from tests.spark.rig.launching import SparkProcess

# Spark's own limit of 10 s for the process of the function leaves no room for other tests beside these.
pytestmark = [pytest.mark.soak, pytest.mark.timeout(1200)]

WAIT_S = 400.0


@pytest.fixture
def connect(local, tmp_path, monkeypatch):
    """A function that starts the query as an application of its own, which stops to write after so many batches."""
    monkeypatch.setenv("SPARK_TESTING", "1")  # the server takes a free port

    def start(batches, *query_id):
        told = local.servers, local.topic, local.sink_id, local.checkpoint, str(batches), *query_id
        return SparkProcess([sys.executable, "-m", "tests.spark.rig.connect_query", *told], tmp_path / "connect.log")

    return start


def written(process):
    """The batches that the query has finished, over all its starts."""
    return [int(batch_id) for batch_id in re.findall(r"written (\d+)\n", process.log.read_text())]


def test_each_value_arrives_once_when_the_query_is_killed_and_started_again(connect, local):
    with connect(3, "q") as first:
        first.until(lambda: written(first)[-1:] == [2], "three batches", WAIT_S)
    assert local.spark_log.last_commit() == 2
    assert "slots_skipped=2" not in first.log.read_text()
    local.spark_log.forget_commit(2)
    with connect(6, "q") as second:
        second.until(lambda: written(second)[-1] == 5, "three more batches", WAIT_S)
    assert "slots_skipped=2" in second.log.read_text()  # the batch that Spark had forgotten
    assert local.values() == each_once(0, 6 * ROWS)


def test_a_sink_that_cannot_see_its_query_asks_for_its_id(connect, local):
    with connect(1) as query:
        assert query.wait(WAIT_S) == 0, query.tail()
        assert "this is Spark Connect, where a sink cannot see its query's id: pass query_id=" in query.log.read_text()
    assert local.values() == {}
