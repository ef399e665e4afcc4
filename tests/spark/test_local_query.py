"""What the running query is asked, and how its own micro-batch is planned."""

from __future__ import annotations

import pytest

from eos_client.integration.spark.spark_query import RunningQuery, running_query, tuned_session
from tests.spark.rig.settings import NOTICES_OTHER_ROWS

ADAPTIVE = "spark.sql.adaptive.enabled"
ARROW_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
ARROW_BYTES_DEFAULT, ARROW_BYTES_ANY = "67108864b", str(2**31 - 1)


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
    local.spark_log.forget_commit(1)
    assert looked(look) == [(1, False)]
    assert known[0].query_id == known[2].query_id
    assert known[0].run_id != known[2].run_id
    assert known[2].checkpoint == f"file:{local.checkpoint}"


def setting_of(frame, query, name=ADAPTIVE, row_bytes=0.0):
    session = frame.sparkSession
    with tuned_session(frame, query, row_bytes):
        inside = session.conf.get(name)
    return inside, session.conf.get(name)


def test_a_micro_batch_as_its_query_made_it_is_planned_at_once(looked):
    assert looked(lambda frame, _: setting_of(frame, running_query(frame, None))) == [("false", "true")] * 2


@pytest.mark.parametrize("name", NOTICES_OTHER_ROWS)
@pytest.mark.parametrize("joined", [False, True], ids=["as the query made it", "changed by the application"])
def test_spark_is_told_to_notice_rows_that_are_others_when_they_are_made_again(looked, name, joined):
    def look(frame, _):
        frame.sparkSession.conf.set(name, "false")
        rows = frame.join(frame.sparkSession.range(3), frame.value == "1") if joined else frame
        return setting_of(rows, running_query(frame, None), name)

    assert looked(look) == [("true", "false")] * 2


def test_the_session_is_restored_when_the_job_fails(looked):
    def fail(frame, _):
        with pytest.raises(LookupError), tuned_session(frame, running_query(frame, None), 1.0):
            raise LookupError
        return frame.sparkSession.conf.get(ADAPTIVE), frame.sparkSession.conf.get(ARROW_BYTES)

    assert looked(fail) == [("true", ARROW_BYTES_DEFAULT)] * 2


def test_what_the_application_has_put_into_the_plan_is_planned_as_it_wants(looked):
    def join(frame, _):
        return setting_of(frame.join(frame.sparkSession.range(3), frame.value == "1"), running_query(frame, None))

    assert looked(join) == [("true", "true")] * 2


def test_a_frame_of_the_applications_own_session_leaves_it_alone(local, looked):
    def own(frame, _):
        rows = local.spark.sparkContext.parallelize([("v",)])
        return setting_of(local.spark.createDataFrame(rows, "value string"), running_query(frame, None))

    assert looked(own) == [("true", "true")] * 2


def test_a_session_that_was_told_otherwise_stays_so(looked):
    def told(frame, _):
        frame.sparkSession.conf.set(ADAPTIVE, "false")
        return setting_of(frame, running_query(frame, None))

    assert looked(told) == [("false", "false")] * 2


def test_outside_a_stream_the_session_is_left_alone(local):
    frame = local.frame([("k", "v")])
    assert setting_of(frame, running_query(frame, "q")) == ("true", "true")


@pytest.mark.parametrize(("row_bytes", "limit"), [(0.0, "default"), (100.0, "any"), (640.0, "any"), (641.0, "default")])
def test_rows_are_weighed_one_by_one_unless_they_were_small(looked, row_bytes, limit):
    during = ARROW_BYTES_ANY if limit == "any" else ARROW_BYTES_DEFAULT
    seen = looked(lambda frame, _: setting_of(frame, running_query(frame, None), ARROW_BYTES, row_bytes))
    assert seen == [(during, ARROW_BYTES_DEFAULT)] * 2


def test_a_limit_that_the_user_set_stays(looked):
    def limited(frame, _):
        frame.sparkSession.conf.set(ARROW_BYTES, "1m")
        return setting_of(frame, running_query(frame, None), ARROW_BYTES, 100.0)

    assert looked(limited) == [("1m", "1m")] * 2
