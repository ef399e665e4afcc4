"""One slot of one batch in a database, called as Spark's tasks call it: attempts, zombies, connections that break."""

from __future__ import annotations

import threading
from dataclasses import replace
from functools import partial

import pyarrow as pa
import pytest
import sqlalchemy as sa

from eos_client import errors
from eos_client.core.batch_claims import SlotRow, plan_claim
from eos_client.core.batch_ledger import LedgerEntry, SinkIdentity
from eos_client.core.batch_ledger_start import StartQuestion
from eos_client.integration.spark import database_settings
from eos_client.integration.spark.content_count import FINGERPRINT
from eos_client.integration.spark.database_settings import DatabaseSettings
from eos_client.integration.spark.database_task import DatabaseTask
from eos_client.integration.spark.status import SlotOutcome
from eos_client.integration.spark.table_columns import SLOT
from eos_client.integration.sql.sql_batch_ledger import SlotTransaction
from eos_client.position_store import StoreUnavailableError
from tests.databases.breaking_connections import Driver, Fault, Statement, first
from tests.support.waiting import wait_for
from tests.verification.commit_cutter import CommitCutter

IDENTITY = SinkIdentity("q", 1, 100, "numbers")
WRITTEN, SKIPPED, FENCED = SlotOutcome.WRITTEN, SlotOutcome.SKIPPED, SlotOutcome.RUN_FENCED
SIBLING, REFUSED = SlotOutcome.SIBLING_DONE, SlotOutcome.REFUSED
TIMEOUT_S = 20.0


def arrow(first_number, last, size=100, slot=0):
    """Rows as Spark sends them: a column of the table, a hash, and the slot."""
    for start in range(first_number, last, size):
        numbers = range(start, min(last, start + size))
        yield pa.RecordBatch.from_arrays(
            [
                pa.array(numbers, pa.int64()),
                pa.array([(n * 0x9E3779B97F4A7C15) % 2**63 for n in numbers], pa.int64()),
                pa.array([slot] * len(numbers), pa.int32()),
            ],
            names=["n", FINGERPRINT, SLOT],
        )


class Sink:
    """A ledger and a table on one engine, for tasks that are called here; no Spark."""

    def __init__(self, url, engine, monkeypatch):
        self.engine = engine
        monkeypatch.setattr(database_settings, "engine_of", lambda _: engine)
        database_settings.table_of.cache_clear()
        with engine.begin() as connection:
            connection.execute(sa.text("DROP TABLE IF EXISTS numbers"))
            connection.execute(sa.text("DROP TABLE IF EXISTS eos_batches"))
            connection.execute(sa.text("CREATE TABLE numbers (n bigint)"))
        self.settings = DatabaseSettings(url, "numbers", "s", 1, "eos_batches", timeout_s=TIMEOUT_S)
        self.settings.ledger().prepare()
        self.run = 0

    def claim(self, batch_id=0, held_run=None):
        """What a new driver does first."""
        asked = StartQuestion({}, IDENTITY, batch_id)
        claim = self.settings.ledger().claim(lambda f, m: plan_claim(asked, f, m, "driver", held_run=held_run))
        self.run = claim.run
        return claim

    def task(self, batch_id, **changes):
        return DatabaseTask(self.settings, IDENTITY, batch_id, changes.pop("run", self.run), (0,), **changes)

    def numbers(self):
        with self.engine.connect() as connection:
            return sorted(connection.execute(sa.text("SELECT n FROM numbers")).scalars())

    def next_batch(self):
        row = self.settings.ledger().read(0)
        assert row is not None
        return row.entry.next_batch


@pytest.fixture(params=["postgresql", "mysql"])
def sink(request, monkeypatch):
    server = request.getfixturevalue("postgres_server" if request.param == "postgresql" else "mysql_server")
    engine = sa.create_engine(server.url, poolclass=sa.NullPool)
    made = Sink(server.url, engine, monkeypatch)
    made.claim()
    return made


def in_background(task, batches, until):
    """Run the attempt in a thread; returns once it is ``until`` somewhere, and a function that waits for its end."""
    found = []

    def run():
        try:
            found.append(task.write(0, batches))
        except errors.EosError as error:
            found.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    wait_for(until.is_set, "the attempt", timeout_s=TIMEOUT_S)

    def ended():
        thread.join(TIMEOUT_S)
        return found[0]

    return ended


class Sleeper:
    """An ``on_step`` that sleeps at one step until it is woken."""

    def __init__(self, step):
        self.step = step
        self.is_asleep, self.may_go_on = threading.Event(), threading.Event()

    def __call__(self, step, slot, batch_id):
        if step == self.step:
            self.is_asleep.set()
            assert self.may_go_on.wait(TIMEOUT_S)


def crash_at(wanted):
    def crash(step, *_):
        if step == wanted:
            raise MemoryError(step)

    return crash


STEPS = ("start", "ledger_read", "begun", "inserted", "written", "moved", "committed")


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("step", STEPS)
def test_a_task_that_dies_at_any_step_is_repeated_and_writes_once(sink, step):
    with pytest.raises(MemoryError):
        sink.task(0, on_step=crash_at(step)).write(0, arrow(0, 250))
    repeated = sink.task(0).write(0, arrow(0, 250), first_attempt=False)
    assert repeated.outcome is (SKIPPED if step == "committed" else WRITTEN)
    assert repeated.rows == 250
    assert sink.numbers() == list(range(250))


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("step", ["ledger_read", "begun", "inserted", "written"])
def test_a_zombie_task_that_wakes_after_the_next_claim_writes_nothing(sink, step):
    sleeper = Sleeper(step)
    ended = in_background(sink.task(0, on_step=sleeper), arrow(0, 250), sleeper.is_asleep)
    sink.claim()
    assert sink.task(0).write(0, arrow(0, 250)).outcome is WRITTEN
    assert sink.task(1).write(0, arrow(250, 300)).outcome is WRITTEN
    sleeper.may_go_on.set()
    assert ended().outcome is FENCED
    assert sink.numbers() == list(range(300))
    assert sink.next_batch() == 2


def test_a_zombie_that_wakes_before_the_new_driver_has_written_writes_nothing_either(sink):
    sleeper = Sleeper("written")
    ended = in_background(sink.task(0, on_step=sleeper), arrow(0, 250), sleeper.is_asleep)
    sink.claim()
    sleeper.may_go_on.set()
    assert ended().outcome is FENCED
    assert sink.numbers() == []
    assert sink.task(0, run=1).write(0, arrow(0, 250)).outcome is FENCED
    assert sink.task(0).write(0, arrow(0, 250)).outcome is WRITTEN


def test_a_zombie_between_its_move_and_its_commit_holds_up_the_claim_and_no_longer(sink):
    sink.settings = replace(sink.settings, timeout_s=0.5)
    sleeper = Sleeper("moved")
    ended = in_background(sink.task(0, on_step=sleeper), arrow(0, 250), sleeper.is_asleep)
    with pytest.raises(Exception, match="another transaction holds a row of it"):
        sink.claim()
    sleeper.may_go_on.set()
    assert ended().outcome is WRITTEN
    sink.claim()
    assert sink.task(0).write(0, arrow(0, 250)).outcome is SKIPPED
    assert sink.numbers() == list(range(250))


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("step", ["ledger_read", "begun", "inserted", "written"])
def test_of_two_attempts_side_by_side_one_commits(sink, step):
    sleeper = Sleeper(step)
    ended = in_background(sink.task(0, on_step=sleeper), arrow(0, 250), sleeper.is_asleep)
    assert sink.task(0).write(0, arrow(0, 250), first_attempt=False).outcome is WRITTEN
    sleeper.may_go_on.set()
    assert ended().outcome is SIBLING
    assert sink.numbers() == list(range(250))


def test_an_attempt_waits_for_the_one_that_has_moved_the_row(sink):
    sleeper = Sleeper("moved")
    ended = in_background(sink.task(0, on_step=sleeper), arrow(0, 250), sleeper.is_asleep)
    second = Sleeper("written")
    second.may_go_on.set()
    sibling_ended = in_background(sink.task(0, on_step=second), arrow(0, 250), second.is_asleep)
    sleeper.may_go_on.set()
    assert {ended().outcome, sibling_ended().outcome} == {WRITTEN, SIBLING}
    assert sink.numbers() == list(range(250))


def test_a_sibling_that_meets_a_unique_constraint_finds_the_slot_written(sink):
    with sink.engine.begin() as connection:
        connection.execute(sa.text("ALTER TABLE numbers ADD CONSTRAINT once UNIQUE (n)"))
    sleeper = Sleeper("begun")
    ended = in_background(sink.task(0, on_step=sleeper), arrow(0, 250), sleeper.is_asleep)
    assert sink.task(0).write(0, arrow(0, 250)).outcome is WRITTEN
    sleeper.may_go_on.set()
    assert ended().outcome is SIBLING
    refused = sink.task(1).write(0, arrow(0, 5))
    assert (refused.outcome, refused.error) == (REFUSED, "OutputRefusedError")


def test_a_commit_that_takes_effect_late_is_waited_for(sink, monkeypatch):
    begun = []
    commit = SlotTransaction.commit

    def lose_the_answer(transaction):
        begun.append(threading.Timer(1.0, commit, [transaction]))
        begun[0].start()
        raise StoreUnavailableError("the connection was lost")

    monkeypatch.setattr(SlotTransaction, "commit", lose_the_answer)
    monkeypatch.setattr(SlotTransaction, "close", lambda _: None)
    status = sink.task(0).write(0, arrow(0, 250))
    begun[0].join()
    assert (status.outcome, status.resolved) == (WRITTEN, True)
    assert sink.numbers() == list(range(250))


def test_what_goes_wrong_before_the_rows_come_is_not_the_databases(sink):
    def broken():
        yield from arrow(0, 100)
        raise ArithmeticError("upstream")

    with pytest.raises(ArithmeticError, match="upstream"):
        sink.task(0).write(0, broken())
    assert sink.numbers() == []
    assert sink.task(0).write(0, arrow(0, 250)).outcome is WRITTEN


def test_rows_of_another_slot_are_refused(sink):
    refused = sink.task(0).write(0, (batch for n in (0, 1) for batch in arrow(n, n + 1, slot=n)))
    assert (refused.outcome, refused.error) == (REFUSED, "BatchContentError")
    assert "rows of slots 1 came to slot 0" in refused.message
    assert sink.numbers() == []


def test_a_ledger_that_went_back_behind_its_run_is_refused(sink):
    sink.claim()
    with sink.engine.begin() as connection:
        connection.execute(sa.text("UPDATE eos_batches SET run = 1"))
    refused = sink.task(0).write(0, arrow(0, 5))
    assert (refused.outcome, refused.error) == (REFUSED, "LedgerRegressionError")
    with sink.engine.begin() as connection:
        connection.execute(sa.text("DELETE FROM eos_batches"))
    refused = sink.task(0).write(0, arrow(0, 5))
    assert (refused.outcome, refused.error) == (REFUSED, "LedgerMissingError")
    assert sink.numbers() == []


def test_an_older_drivers_marker_stays_where_it_is(sink):
    sink.claim()
    ledger = sink.settings.ledger()
    assert ledger.move_marker(SlotRow(LedgerEntry(1, IDENTITY, None, 2))) is None
    shown = ledger.move_marker(SlotRow(LedgerEntry(5, IDENTITY, None, 1)))
    assert shown is not None
    assert (shown.entry.run, shown.entry.next_batch) == (2, 1)


def test_commits_that_are_cut_neither_lose_nor_double_a_row(postgres_server, monkeypatch):
    url = sa.make_url(postgres_server.url)
    with CommitCutter(url.port or 0, seed=5) as cutter:
        proxied = url.set(port=cutter.port)
        sink = Sink(str(proxied), sa.create_engine(proxied, poolclass=sa.NullPool), monkeypatch)
        sink.claim()

        def cut(step, *_):
            if step == "moved":
                cutter.cut_next(1)

        statuses = [
            until_written(sink, batch_id, partial(arrow, 50 * batch_id, 50 * batch_id + 50), on_step=cut)
            for batch_id in range(20)
        ]
        assert cutter.cuts >= 20
        assert 0 < sum(status.resolved for status in statuses) < cutter.cuts
        assert sink.numbers() == list(range(1000))


# -- connections that break, on SQLite ---------------------------------------------------------------------------------

LOST = (Fault.LOST, Fault.LOST_AFTER)
ASKED = (Statement.CONNECT, Statement.BEGIN, Statement.READ, Statement.INSERT, Statement.MOVE, Statement.COMMIT)


class Numbers(Sink):
    def __init__(self, folder, monkeypatch):
        self.driver = Driver()
        path = folder / "numbers.db"
        super().__init__(f"sqlite:///{path}", self.driver.engine(path, poolclass=sa.NullPool), monkeypatch)
        self.claim()


@pytest.fixture
def breaking(tmp_path, monkeypatch):
    return Numbers(tmp_path, monkeypatch)


def until_written(sink, batch_id, batches, attempts_max=10, **options):
    """As Spark repeats a task that failed."""
    for _ in range(attempts_max):
        try:
            return sink.task(batch_id, **options).write(0, batches())
        except errors.EosError as error:  # noqa: PERF203  # a few times
            failed = error
    raise failed


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("fault", [*LOST, Fault.BUSY, Fault.DEADLOCK, Fault.SERIALISATION])
@pytest.mark.parametrize("after", range(4))
@pytest.mark.parametrize("statement", ASKED, ids=lambda statement: statement.name)
def test_whatever_statement_breaks_the_slot_is_written_once(breaking, statement, after, fault):
    breaking.driver.plan = first(statement, fault, after=after)
    assert until_written(breaking, 0, partial(arrow, 0, 250)).outcome in {WRITTEN, SKIPPED}
    breaking.driver.plan = lambda _: None
    assert breaking.driver.struck or after
    assert breaking.numbers() == list(range(250))
    assert until_written(breaking, 1, partial(arrow, 250, 300)).outcome is WRITTEN
    assert breaking.numbers() == list(range(300))


@pytest.mark.parametrize("fault", LOST, ids=lambda fault: fault.name)
def test_a_commit_without_an_answer_is_looked_up(breaking, fault):
    # The first COMMIT is that of the ledger's read.
    breaking.driver.plan = first(Statement.COMMIT, fault, after=1)
    if fault is Fault.LOST_AFTER:
        status = breaking.task(0).write(0, arrow(0, 250))
        assert (status.outcome, status.resolved) == (WRITTEN, True)
    else:
        with pytest.raises(errors.RetriableError, match="slot 0 of batch 0 was not written"):
            breaking.task(0).write(0, arrow(0, 250))
    breaking.driver.plan = lambda _: None
    assert breaking.numbers() == (list(range(250)) if fault is Fault.LOST_AFTER else [])


def test_a_commit_whose_outcome_cannot_be_looked_up_is_not_claimed(breaking):
    breaking.settings = replace(breaking.settings, timeout_s=0.2)

    def cut_for_good(statement):
        if statement is Statement.COMMIT and (Statement.MOVE in breaking.driver.statements):
            breaking.driver.plan = lambda _: Fault.LOST
            return Fault.LOST_AFTER
        return None

    breaking.driver.statements.clear()
    breaking.driver.plan = cut_for_good
    with pytest.raises(errors.UnknownOutcomeError, match=r"cannot be said.*The repeated task asks it"):
        breaking.task(0).write(0, arrow(0, 250))
    breaking.driver.plan = lambda _: None
    assert breaking.task(0).write(0, arrow(0, 250)).outcome is SKIPPED
    assert breaking.numbers() == list(range(250))


@pytest.mark.parametrize("fault", [*LOST, Fault.BUSY])
@pytest.mark.parametrize("statement", [Statement.MOVE, Statement.READ, Statement.COMMIT], ids=lambda each: each.name)
def test_a_claim_that_breaks_is_made_again(breaking, statement, fault):
    breaking.driver.plan = first(statement, fault)
    claim = breaking.claim()
    breaking.driver.plan = lambda _: None
    row = breaking.settings.ledger().read(0)
    assert row is not None
    assert row.entry.run == claim.run
    assert breaking.task(0).write(0, arrow(0, 5)).outcome is WRITTEN
