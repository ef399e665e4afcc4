"""Whichever statement breaks, and however: each record's row is there once, and what is told is true."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from random import Random

import pytest
from sqlalchemy import text

from eos_client.errors import ClusterUnavailableError, EosError
from eos_client.observe import ClientReported, OutcomeResolved
from tests.databases.breaking_connections import Fault, Statement, at, at_random, first
from tests.databases.stage import Stage, write_rows

LOOPS_MAX = 20


def runs_on(stage, *, seconds=30, **options):
    """Run loop after loop until one ends without an error; returns the errors of those before."""
    errors = []
    for _ in range(LOOPS_MAX):
        try:
            stage.run(seconds=seconds, **options)
        except EosError as error:  # noqa: PERF203
            errors.append(error)
        else:
            return errors
    raise AssertionError(f"no loop came to its end: {errors}")


def assert_nothing_of_brokers(errors):
    for error in errors:
        assert not any(word in str(error) for word in ("transactional.id", "bootstrap", "KIP-", "broker", "epoch")), (
            error
        )


def statements_of_a_run(tmp_path):
    stage = Stage(tmp_path, seed=1000)
    stage.driver.statements.clear()
    story(stage)
    return len(stage.driver.statements)


def story(stage, **options):
    stage.write(5)
    stage.cluster.after(1, lambda: stage.write(3, 1))
    stage.cluster.after(2, lambda: stage.cluster.revoke(("orders", 1)))
    stage.cluster.after(3, stage.cluster.give_back)
    stage.cluster.after(4, lambda: stage.write(2, 1))
    return runs_on(stage, seconds=8, **options)


@pytest.mark.parametrize("stride", [7, pytest.param(1, marks=pytest.mark.soak)])
@pytest.mark.parametrize("fault", Fault)
def test_whichever_statement_is_struck(tmp_path, fault, stride):
    count = statements_of_a_run(tmp_path)
    assert count > 40
    for number in range(1 + [*Fault].index(fault) % stride, count + 1, stride):
        stage = Stage(tmp_path, seed=number)
        stage.driver.plan = at(number, fault)
        errors = story(stage)
        where = f"statement {number}: {stage.driver.struck}"
        assert stage.wrong_rows() == [], where
        assert errors == [], where
        (tmp_path / f"database-{number}.db").unlink()


@pytest.mark.parametrize("seed", range(4))
def test_connections_that_break_at_random(tmp_path, seed):
    stage = Stage(tmp_path, seed=seed)
    stage.driver.plan = at_random(Random(seed), 0.04)
    stage.writes_for(10, every_s=0.1)
    for second in (3, 6):
        stage.cluster.after(second, partial(stage.cluster.revoke, ("orders", second % 2)))
        stage.cluster.after(second + 1.5, stage.cluster.give_back)
    errors = runs_on(stage, on_error="skip")
    assert stage.driver.struck
    stage.assert_exact()
    assert_nothing_of_brokers(errors)
    if not errors:
        stage.assert_told_the_truth()


# -- what the loop makes of it -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", [Fault.LOST, Fault.LOST_AFTER])
def test_a_commit_whose_answer_is_lost_is_looked_up(stage, fault):
    stage.write(5)
    stage.driver.plan = first(Statement.COMMIT, fault, after=4)
    loop = stage.run()
    assert stage.driver.struck == [(Statement.COMMIT, fault)]
    (resolved,) = stage.of_kind(OutcomeResolved)
    assert resolved.outcome == ("committed" if fault is Fault.LOST_AFTER else "aborted")
    stage.assert_exact()
    stage.assert_told_the_truth()
    assert loop.counters.outcomes_resolved == 1
    assert stage.kafkas_offsets() == {("orders", 0): 5}


@pytest.mark.parametrize("fault", [Fault.SERIALISATION, Fault.DEADLOCK, Fault.BUSY])
def test_a_commit_that_is_refused_is_done_again(stage, fault):
    """Several times in a row, which is no other process that writes the same rows."""
    stage.write(5)
    stage.driver.plan = first(Statement.COMMIT, fault, after=4, times=1)
    stage.run()
    stage.driver.plan = first(Statement.COMMIT, fault, after=4, times=3)
    stage.write(5)
    stage.run()
    stage.assert_exact()
    stage.assert_told_the_truth()


@pytest.mark.parametrize("fault", [Fault.SERIALISATION, Fault.DEADLOCK, Fault.BUSY, Fault.LOST])
def test_moves_that_fail_again_and_again_are_no_rival(stage, fault):
    stage.write(5)
    loop = stage.loop()
    stage.cluster.after(0.5, lambda: setattr(stage.driver, "plan", first(Statement.MOVE, fault, times=5)))
    stage.cluster.after(1, lambda: stage.write(5, 1))
    stage.cluster.after(20, loop.stop)
    loop.run()
    assert len(stage.driver.struck) == 5
    stage.assert_exact()
    stage.assert_told_the_truth()


@pytest.mark.parametrize("fault", [Fault.LOST, Fault.DEADLOCK, Fault.SERIALISATION, Fault.BUSY])
@pytest.mark.parametrize("options", [{"on_error": "skip"}, {"on_error": "stop"}, {"transform_attempts_max": 3}])
def test_a_connection_that_breaks_inside_the_handler_is_no_failure_of_a_record(stage, options, fault):
    stage.write(5)
    stage.driver.plan = first(Statement.ROW, fault, times=3)
    loop = stage.run(**options)
    stage.assert_exact()
    assert loop.counters.records_failed == 0
    assert loop.counters.aborted == 3


def test_an_error_that_the_handler_catches_loses_no_row(stage):
    """After a deadlock MySQL goes on without a transaction, and what was written before it is gone."""

    def handler(connection, records):
        write_rows(connection, records)
        with suppress(Exception):
            connection.execute(text("insert into rows (p, o, v) values (9, 9, '')"))

    stage.write(5)
    stage.driver.plan = first(Statement.ROW, Fault.DEADLOCK, after=1)
    with pytest.raises(EosError, match="ended inside the handler"):
        stage.run(handler)
    assert stage.rows() == []
    assert stage.offsets() == {}


# -- a database that is down -------------------------------------------------------------------------------------------


def test_down_at_the_start(stage):
    stage.driver.is_down = True
    with pytest.raises(ClusterUnavailableError, match="the database does not answer as it should") as raised:
        stage.run()
    assert "unable to connect to server" in str(raised.value)
    assert "10 s" in str(raised.value)
    assert_nothing_of_brokers([raised.value])


def test_back_in_time_at_the_start(stage):
    stage.write(4)
    stage.driver.is_down = True
    stage.cluster.after(6, lambda: setattr(stage.driver, "is_down", False))
    stage.run()
    stage.assert_exact()


@pytest.mark.parametrize("from_s", [1.0, 1.2, 1.4, 1.6])
def test_down_for_a_while(stage, from_s):
    stage.writes_for(20, every_s=0.1)
    stage.cluster.after(from_s, lambda: setattr(stage.driver, "is_down", True))
    stage.cluster.after(from_s + 10, lambda: setattr(stage.driver, "is_down", False))
    stage.run(seconds=40)
    stage.assert_exact()
    stage.assert_told_the_truth()


def test_down_for_longer_than_the_loop_waits(stage):
    stage.writes_for(5, every_s=0.1)
    stage.cluster.after(2, lambda: setattr(stage.driver, "is_down", True))
    with pytest.raises(ClusterUnavailableError) as raised:
        stage.run(seconds=200, recovery_timeout_s=20)
    assert stage.cluster.clock() < 60
    assert "recovery_timeout_s=20" in str(raised.value)
    assert_nothing_of_brokers([raised.value])
    stage.driver.is_down = False
    stage.run()
    stage.assert_exact()


def test_down_while_an_outcome_is_unknown(stage):
    stage.write(5)

    def lost_for_good(statement, seen=[]):  # noqa: B006
        if statement is Statement.COMMIT:
            seen.append(statement)
            if len(seen) == 5:
                stage.driver.is_down = True
                return Fault.LOST_AFTER
        return None

    stage.driver.plan = lost_for_good
    with pytest.raises(ClusterUnavailableError, match="outcome of the last commit is unknown") as raised:
        stage.run(recovery_timeout_s=10, seconds=100)
    assert_nothing_of_brokers([raised.value])
    stage.driver.is_down = False
    stage.run()
    stage.assert_exact()


def test_an_idle_loop_outlives_an_outage(stage):
    stage.write(3)
    stage.cluster.after(2, lambda: setattr(stage.driver, "is_down", True))
    stage.cluster.after(200, lambda: setattr(stage.driver, "is_down", False))
    stage.cluster.after(205, lambda: stage.write(3))
    stage.run(seconds=220)
    stage.assert_exact()


def test_down_when_partitions_are_assigned(stage):
    stage.write(3)
    stage.cluster.after(0.3, stage.cluster.rebalance)
    stage.cluster.after(0.2, lambda: setattr(stage.driver, "is_down", True))
    stage.cluster.after(40, lambda: setattr(stage.driver, "is_down", False))
    stage.cluster.after(1, lambda: stage.write(3, 1))
    stage.run(seconds=80)
    stage.assert_exact()
    told = [event.error for event in stage.of_kind(ClientReported) if "handed over" in event.error]
    assert told
    assert all("unable to connect" in error for error in told)
