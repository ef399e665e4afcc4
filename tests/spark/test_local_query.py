"""What the running query is asked, and how its own micro-batch is planned."""

from __future__ import annotations

import pytest

from eos_client.integration.spark.spark_query import RunningQuery, planned_at_once, running_query

ADAPTIVE = "spark.sql.adaptive.enabled"


@pytest.fixture
def looked(local):
    """A function that runs one query for two batches and returns what ``look`` saw in each."""

    def run(look):
        seen = []
        assert local.stream(lambda frame, batch_id: seen.append(look(frame, batch_id)), 2) is None
        return seen

    return run


def test_a_query_is_described_once_and_again_after_a_restart(local, looked):
    known: list[RunningQuery] = []

    def look(frame, batch_id):
        query = running_query(frame, None, known[-1] if known else None)
        same = bool(known) and query is known[-1]
        known.append(query)
        return batch_id, same

    assert looked(look) == [(0, False), (1, True)]
    local.forget_commit(1)
    assert looked(look) == [(1, False)]
    assert known[0].query_id == known[2].query_id
    assert known[0].run_id != known[2].run_id
    assert known[2].checkpoint == f"file:{local.checkpoint}"


def plan_of(frame, query):
    session = frame.sparkSession
    with planned_at_once(frame, query):
        inside = session.conf.get(ADAPTIVE)
    return inside, session.conf.get(ADAPTIVE)


def test_a_micro_batch_as_its_query_made_it_is_planned_at_once(looked):
    assert looked(lambda frame, _: plan_of(frame, running_query(frame, None))) == [("false", "true")] * 2


def test_the_session_is_restored_when_the_job_fails(looked):
    def fail(frame, _):
        with pytest.raises(LookupError), planned_at_once(frame, running_query(frame, None)):
            raise LookupError
        return frame.sparkSession.conf.get(ADAPTIVE)

    assert looked(fail) == ["true", "true"]


def test_what_the_application_has_put_into_the_plan_is_planned_as_it_wants(looked):
    def join(frame, _):
        return plan_of(frame.join(frame.sparkSession.range(3), frame.value == "1"), running_query(frame, None))

    assert looked(join) == [("true", "true")] * 2


def test_a_frame_of_the_applications_own_session_leaves_it_alone(local, looked):
    def own(frame, _):
        rows = local.spark.sparkContext.parallelize([("v",)])
        return plan_of(local.spark.createDataFrame(rows, "value string"), running_query(frame, None))

    assert looked(own) == [("true", "true")] * 2


def test_a_session_that_was_told_otherwise_stays_so(looked):
    def told(frame, _):
        frame.sparkSession.conf.set(ADAPTIVE, "false")
        return plan_of(frame, running_query(frame, None))

    assert looked(told) == [("false", "false")] * 2


def test_outside_a_stream_the_session_is_left_alone(local):
    frame = local.frame([("k", "v")])
    assert plan_of(frame, running_query(frame, "q")) == ("true", "true")
