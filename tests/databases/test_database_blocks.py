"""Blocks of a DatabaseConsumer: how they end, what they say, and workers that overtake each other."""

from __future__ import annotations

import pytest
from sqlalchemy import text

from eos_client import Outcome
from eos_client.errors import ClusterUnavailableError, ConfigurationError, EosError, TransactionStateError
from eos_client.integration.sql import DatabaseConsumer
from tests.databases.breaking_connections import Driver, Fault, Statement, first
from tests.databases.stage import write_rows
from tests.support.protocols import PROTOCOLS, settings_of


class Worker:
    """Blocks of one consumer, which writes what it gets."""

    def __init__(self, stage, name="a", *, engine=None, **settings):
        self.stage = stage
        self.name = name
        self.consumer = stage.consumer(engine, client_id=name, **settings)
        self.between = lambda: None
        self.block = None

    def step(self, max_records=500, timeout_s=0.5):
        self.block = self.consumer.database_transaction(max_records, timeout_s)
        with self.block as (connection, records):
            write_rows(connection, records)
            self.between()
        return self.block.outcome

    def steps_until(self, done, limit=400):
        for _ in range(limit):
            if done():
                return
            self.step()
        raise AssertionError("it did not come to that")


def has_all(stage):
    return lambda: not stage.wrong_rows()


@pytest.fixture
def worker(stage):
    return Worker(stage)


def test_a_block_commits_rows_and_positions(stage, worker):
    stage.write(5)
    stage.write(5, 1)
    worker.steps_until(has_all(stage))
    assert worker.block.outcome is Outcome.COMMITTED
    worker.consumer.close()
    stage.assert_exact()
    stage.assert_undisturbed()


def test_a_block_says_what_is_not_known_yet(stage, worker):
    block = worker.consumer.database_transaction()
    assert (block.outcome, block.reason) == (None, "not entered yet")
    with block:
        assert block.outcome is None
    assert block.outcome is Outcome.COMMITTED


def test_an_exception_leaves_and_its_records_come_again(stage, worker):
    stage.write(5)
    block = worker.consumer.database_transaction(timeout_s=5)
    with pytest.raises(ZeroDivisionError), block as (connection, records):  # noqa: PT012
        write_rows(connection, records)
        assert len(records) == 5
        raise ZeroDivisionError
    assert block.outcome is Outcome.ABORTED
    assert "ZeroDivisionError" in block.reason
    assert stage.rows() == []
    worker.steps_until(has_all(stage))
    stage.assert_exact()


@pytest.mark.parametrize("fault", Fault)
@pytest.mark.parametrize("statement", [Statement.ROW, Statement.MOVE, Statement.RELEASE, Statement.COMMIT])
def test_a_fault_of_the_database_ends_the_block_quietly(stage, worker, statement, fault):
    worker.step()
    stage.write(5)
    stage.driver.plan = first(statement, fault)
    worker.steps_until(has_all(stage))
    assert stage.driver.struck == [(statement, fault)]
    assert worker.consumer.counters.committed >= 2
    worker.consumer.close()
    stage.assert_exact()
    stage.assert_told_the_truth()


@pytest.mark.parametrize("fault", Fault)
@pytest.mark.parametrize("statement", [Statement.BEGIN, Statement.SAVEPOINT])
def test_a_block_that_cannot_begin_is_begun_again(stage, worker, statement, fault):
    worker.step()
    stage.write(5)
    stage.driver.plan = first(statement, fault, times=3)
    worker.steps_until(has_all(stage))
    stage.assert_exact()


def test_a_database_that_stays_away_is_named(stage, worker):
    worker.step()
    stage.driver.is_down = True
    with pytest.raises(ClusterUnavailableError, match="no block could begin within 60 s"):
        worker.step()
    stage.driver.is_down = False
    stage.write(3)
    worker.steps_until(has_all(stage))


def test_a_block_that_the_gate_holds_is_finished_by_the_next(stage):
    worker = Worker(stage, **settings_of("cooperative-sticky"))
    stage.writes_for(20, every_s=0.1)
    outcomes = set()
    for second in (3, 6, 9):
        stage.cluster.after(second, lambda: stage.cluster.revoke(("orders", 1)))
        stage.cluster.after(second + 1, stage.cluster.give_back)
    while stage.cluster.clock() < 25:
        outcomes.add(worker.step(max_records=3, timeout_s=0.05))
    worker.consumer.close()
    assert outcomes <= {Outcome.COMMITTED, Outcome.SKIPPED, Outcome.ABORTED}
    stage.assert_exact()
    stage.assert_told_the_truth()


# -- misuse ------------------------------------------------------------------------------------------------------------


def test_a_block_inside_a_block_is_refused(stage, worker):
    stage.write(3)
    with worker.consumer.database_transaction() as (connection, records):
        write_rows(connection, records)
        with pytest.raises(TransactionStateError, match="inside a block"), worker.consumer.database_transaction():
            pass
    worker.steps_until(has_all(stage))
    stage.assert_exact()


def test_a_block_is_entered_once(stage, worker):
    block = worker.consumer.database_transaction()
    with block:
        pass
    with pytest.raises(TransactionStateError), block:
        pass
    worker.step()


def test_the_consumer_is_closed_inside_a_block(stage, worker):
    stage.write(3)
    block = worker.consumer.database_transaction(timeout_s=5)
    try:
        with block as (connection, records):
            write_rows(connection, records)
            worker.consumer.close()
    except EosError:
        pass
    assert block.outcome is Outcome.ABORTED
    assert stage.rows() == []
    Worker(stage, "b").steps_until(has_all(stage))
    stage.assert_exact()


@pytest.mark.parametrize("swallows", [False, True])
def test_a_commit_inside_the_block_is_refused(stage, worker, swallows):
    stage.write(3)
    block = worker.consumer.database_transaction(timeout_s=5)
    refused = pytest.raises(TransactionStateError, match="ended inside the handler")
    with refused, block as (connection, records):
        write_rows(connection, records)
        try:
            connection.commit()
        except EosError:
            if not swallows:
                raise
    assert stage.rows() == []
    worker.consumer.close()
    Worker(stage, "b").steps_until(has_all(stage))
    stage.assert_exact()


@pytest.mark.parametrize("fault", [Fault.BUSY, Fault.SERIALISATION])
def test_a_connection_whose_commit_was_refused_takes_no_rows_back_to_its_pool(stage, worker, fault):
    worker.step()
    stage.write(3)
    stage.driver.plan = first(Statement.COMMIT, fault)
    while worker.step() is not Outcome.ABORTED:
        pass
    for _ in range(3):
        with stage.engine.connect() as connection:  # as any other part of the application does
            assert connection.execute(text("select count(*) from rows")).scalar() == 0
            connection.commit()


def test_blocks_before_subscribe_and_without_a_group_are_refused(stage):
    consumer = DatabaseConsumer(
        {"bootstrap.servers": "simulated", "group.id": "g"}, engine=stage.engine, clients=stage.cluster
    )
    with pytest.raises(TransactionStateError, match="has not subscribed"), consumer.database_transaction():
        pass
    with pytest.raises(ConfigurationError, match=r"group\.id"):
        DatabaseConsumer({"bootstrap.servers": "simulated"}, engine=stage.engine, clients=stage.cluster)


# -- workers that overtake each other ----------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_worker_that_slept_before_its_transaction_commits_nothing(stage, protocol):
    """It wakes inside its block, with records that another worker has written meanwhile."""
    engine = (driver := Driver()).engine(stage.path)
    zombie = Worker(stage, "zombie", engine=engine, **settings_of(protocol))
    zombie.step()
    zombie.step()
    stage.write(5)
    stage.write(5, 1)
    new_owners: list[Worker] = []

    def sleeps(statement):
        if statement is Statement.BEGIN and not new_owners:
            new_owners.append(Worker(stage, "new owner", **settings_of(protocol)))
            with stage.cluster.zombie("zombie"):
                stage.cluster.advance(60)
                new_owners[0].steps_until(has_all(stage))

    driver.plan = sleeps
    block = zombie.consumer.database_transaction(timeout_s=5)
    with block as (connection, records):
        assert records
        write_rows(connection, records)
    assert new_owners
    assert block.outcome is Outcome.ABORTED
    stage.write(5)
    for _ in range(40):
        zombie.step(timeout_s=0.1)
        new_owners[0].step(timeout_s=0.1)
    stage.assert_exact()
    stage.assert_told_the_truth()


def test_the_fence_alone_keeps_a_worker_out_that_the_group_still_knows(stage, worker):
    """Another process with a cluster of its own, that is, a group of the same name: twice, and the worker ends."""
    worker.step()
    stage.write(4)
    worker.steps_until(has_all(stage))
    stage.write(4)
    for _ in range(2):
        with stage.engine.begin() as connection:
            connection.execute(text("update eos_offsets set fence = fence + 1, owner = 'rival'"))
        try:
            assert worker.step(timeout_s=5) is Outcome.ABORTED
            assert "rival" in worker.block.reason
        except EosError as error:
            assert "another process writes the same rows" in str(error)  # noqa: PT017
            break
    else:
        raise AssertionError("it goes on for ever")
    assert len(stage.rows()) == 4
    worker.consumer.close()
    Worker(stage, "b").steps_until(has_all(stage))
    stage.assert_exact()


def test_an_offset_that_was_set_by_hand_is_not_overwritten(stage, worker):
    stage.write(4)
    worker.steps_until(has_all(stage))
    stage.write(4)
    with stage.engine.begin() as connection:
        connection.execute(text("update eos_offsets set next_offset = 2 where partition_id = 0"))
    while worker.step(timeout_s=5) is not Outcome.ABORTED:
        assert len(stage.rows()) == 4
    assert "shows offset 2, and not 4" in worker.block.reason
    assert stage.offsets() == {0: 2}


@pytest.mark.parametrize("fault", [Fault.LOST, Fault.LOST_AFTER])
def test_an_idle_worker_lives_on_where_a_commit_is_not_answered(stage, worker, fault):
    stage.write(5)
    worker.steps_until(has_all(stage))
    stage.driver.plan = first(Statement.COMMIT, fault)
    worker.step()
    assert stage.driver.struck == [(Statement.COMMIT, fault)]
    assert worker.block.outcome is None
    assert "without records" in worker.block.reason
    stage.write(5, 1)
    worker.steps_until(has_all(stage))
    assert worker.block.outcome is Outcome.COMMITTED
    stage.assert_exact()
