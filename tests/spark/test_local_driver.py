"""Drivers that overlap: the older one is stopped at the gate, in its tasks, or at the latest by its marker."""

from __future__ import annotations

import struct
import time
from concurrent.futures import Future
from contextlib import closing, nullcontext
from dataclasses import replace

import pytest
from confluent_kafka import KafkaException, Producer

from eos_client.confluent.admin.cluster_admin import ClusterAdmin
from eos_client.confluent.ledger.ledger_topic import LedgerTopic
from eos_client.core.batch_ledger import LedgerEntry
from eos_client.core.commit_gate import GateLost
from eos_client.errors import LedgerRegressionError, RunFencedError
from eos_client.integration.spark import driver_run, preflight
from eos_client.integration.spark.driver_run import DriverRun
from eos_client.integration.spark.lease import Lease
from eos_client.integration.spark.progress import StepClock
from eos_client.integration.spark.spark_query import RunningQuery
from eos_client.observe import SparkBatchWritten, SparkLeaseRenewed, SparkRunFenced, SparkRunStarted
from tests.interruption import BrokenOffError
from tests.spark.local_query import each_once
from tests.spark.rig.mutants import Mutant, take_out_of_driver
from tests.support.waiting import wait_for


@pytest.fixture
def driver(local):
    """A function that makes drivers of one sink, as processes of their own would be."""
    made = []

    def make(name, **options):
        run = DriverRun(
            local.direct().settings,
            RunningQuery("q", name),
            hook=local.events.append,
            on_step=None,
            on_driver_step=options.get("on_driver_step"),
        )
        made.append(run)
        return run

    yield make
    for run in made:
        run.close()


def start(run, frame, batch_id):
    with preflight.new_admin(run.settings) as admin:
        run.emit_started(run.start(run.prepare(admin, frame, batch_id), batch_id), batch_id)


def names_of(events, kind):
    return [event for event in events if isinstance(event, kind)]


@pytest.mark.parametrize("at", ["job_done", "lease_held"])
def test_a_driver_that_was_overtaken_does_not_finish_its_batch(local, driver, at):
    successors: list[DriverRun] = []

    def overtake(step, batch_id):
        if step == at and batch_id == 0 and not successors:
            successors.append(driver("b"))
            start(successors[0], local.numbers(0, 20), 0)

    older = driver("a", on_driver_step=overtake)
    start(older, local.numbers(0, 20), 0)
    with pytest.raises(RunFencedError):
        older.write(local.numbers(0, 20), 0)
    (fenced,) = names_of(local.events, SparkRunFenced)
    assert fenced.run == 1
    assert [e.run for e in names_of(local.events, SparkRunStarted)] == [1, 2]
    successors[0].write(local.numbers(0, 20), 0)
    successors[0].write(local.numbers(20, 40), 1)
    with pytest.raises(RunFencedError):
        older.write(local.numbers(20, 40), 1)
    successors[0].write(local.numbers(40, 60), 2)
    assert local.values() == each_once(0, 60)


def started_with_the_gate_closed_at(step, local, run, monkeypatch):
    """What the ledger holds after a start whose gate, and nothing else, learns at ``step`` that the lease is lost."""
    as_it_is = getattr(run, step)

    def learn_then_go_on(*args):
        gate = run._lease.gate
        gate.tell(GateLost(gate.state.assigned, uncommitted=gate.state.assigned))
        return as_it_is(*args)

    monkeypatch.setattr(run, step, learn_then_go_on)
    try:
        start(run, local.numbers(0, 20), 0)
    except RunFencedError as error:
        assert "commit gate is closed (rule lost_work)" in str(error)  # noqa: PT017  # a mutant raises nothing
    with closing(local.reader()) as reader:
        return reader.marker(30), reader.slots(range(2), 30)


BEFORE_A_COMMIT = pytest.mark.parametrize(
    ("step", "is_announced"), [("_present_marker", False), ("_fence_slot", True)], ids=["announcement", "entries"]
)


@BEFORE_A_COMMIT
def test_a_closed_gate_lets_no_entry_of_a_start_into_the_ledger(local, driver, monkeypatch, step, is_announced):
    run = driver("a")
    marker, entries = started_with_the_gate_closed_at(step, local, run, monkeypatch)
    assert (marker is not None, entries) == (is_announced, {})
    assert run._lease.has_ended()


@BEFORE_A_COMMIT
def test_without_the_gate_a_lost_lease_is_written_to(local, driver, monkeypatch, step, is_announced):
    monkeypatch.setattr(Lease, "_decide", Lease._decide)  # put back after the test
    take_out_of_driver(Mutant.NO_GATE)
    marker, entries = started_with_the_gate_closed_at(step, local, driver("a"), monkeypatch)
    assert marker is not None
    assert len(entries) == 2


def losing_its_lease(times):
    """Lets the group take the driver's lease at the end of a job, that often, and gives it to nobody."""
    left = [times]

    def lose(step, _):
        if step == "job_done" and left[0]:
            left[0] -= 1
            gate = losers[0]._lease.gate
            gate.tell(GateLost(gate.state.assigned, uncommitted=gate.state.assigned))

    losers: list[DriverRun] = []
    return losers, lose


def test_a_driver_whose_lease_ended_takes_it_again_where_no_newer_one_has_come(local, driver):
    losers, lose = losing_its_lease(2)
    losers.append(driver("a", on_driver_step=lose))
    start(losers[0], local.numbers(0, 20), 0)
    losers[0].write(local.numbers(0, 20), 0)
    losers[0].write(local.numbers(20, 40), 1)
    renewals = names_of(local.events, SparkLeaseRenewed)
    assert [(event.run, event.batch_id) for event in renewals] == [(2, 0), (3, 0)]
    assert losers[0].progress.leases_renewed == 2
    assert "lost_work" in renewals[0].reason
    assert [event.slots_skipped for event in names_of(local.events, SparkBatchWritten)] == [2, 0]
    assert not names_of(local.events, SparkRunFenced)
    assert local.values() == each_once(0, 40)


def test_the_seconds_of_a_step_are_those_of_all_attempts(monkeypatch):
    monkeypatch.setattr(time, "perf_counter", iter([0.0, 3.0, 4.0, 6.0]).__next__)
    clock = StepClock()
    for step in ("job", "renewal", "job"):
        clock.lap(step)
    assert clock.seconds == {"job": 5.0, "renewal": 1.0}


def test_a_run_that_has_started_is_kept_where_a_signal_comes_while_its_admin_client_ends(local, driver, monkeypatch):
    class Interrupted(ClusterAdmin):
        def __exit__(self, *raised):
            super().__exit__(*raised)
            raise BrokenOffError

    monkeypatch.setattr(preflight, "ClusterAdmin", Interrupted)
    run = driver("r")
    with pytest.raises(BrokenOffError):
        driver_run.enter_run(run, local.numbers(0, 10), 0)
    settings = run.settings
    assert driver_run.current_run(settings) is run
    driver_run.leave_run(settings)


def test_a_driver_whose_ledger_topic_was_extended_takes_its_lease_again(local):
    """More partitions rebalance the group: a newcomer that ended after it had made them has taken nothing over."""
    ours = local.direct(config={"topic.metadata.refresh.interval.ms": 500})
    ours(local.numbers(0, 20), 0)
    with ClusterAdmin(local.servers, timeout_s=60) as admin:
        LedgerTopic(admin, ours.settings.ledger_topic).ensure(5)
    run = driver_run.current_run(ours.settings)
    assert run is not None
    wait_for(lambda: run._lease.ended is not None, "the group revokes the lease")
    for batch_id in (1, 2):
        ours(local.numbers(20 * batch_id, 20 * batch_id + 20), batch_id)
    assert [event.batch_id for event in names_of(local.events, SparkLeaseRenewed)] == [1]
    assert local.values() == each_once(0, 60)


def test_a_driver_whose_lease_ends_again_and_again_ends(local, driver):
    losers, lose = losing_its_lease(100)
    losers.append(driver("a", on_driver_step=lose))
    start(losers[0], local.numbers(0, 20), 0)
    with pytest.raises(RunFencedError, match="lost_work"):
        losers[0].write(local.numbers(0, 20), 0)
    assert len(names_of(local.events, SparkLeaseRenewed)) == 3
    assert len(names_of(local.events, SparkRunFenced)) == 1


@pytest.mark.parametrize("ends", ["closed", "superseded"])
def test_a_driver_that_was_closed_or_that_knows_of_a_newer_one_never_takes_the_lease_again(local, driver, ends):
    def end(step, _):
        if step == "job_done" and ends == "closed":
            run.close()
        elif step == "job_done":  # it holds the lease, and has not announced its run yet
            newer.acquire()

    run = driver("a", on_driver_step=end)
    newer = Lease(run.settings)
    start(run, local.numbers(0, 20), 0)
    try:
        with pytest.raises(RunFencedError):
            run.write(local.numbers(0, 20), 0)
        assert not names_of(local.events, SparkLeaseRenewed)
        if ends == "superseded":
            newer.require_membership()
    finally:
        newer.release()


def test_a_batch_whose_tasks_were_refused_under_a_lease_that_is_over_is_written_under_the_next_one(local, driver):
    run = driver("a")
    start(run, local.numbers(0, 20), 0)
    require_membership = run._lease.require_membership

    def with_a_stale_generation():
        snapshot, gate = require_membership(), run._lease.gate
        held = gate.state.assigned
        gate.tell(GateLost(held, uncommitted=held))
        run._lease._calls.put((Future(), decide_in_its_thread))
        metadata = snapshot.group_metadata
        known = struct.pack("=i", snapshot.generation.generation_id)
        return replace(snapshot, group_metadata=metadata.replace(known, struct.pack("=i", 999), 1))

    decide_in_its_thread = run._lease._decide
    run._lease.require_membership = with_a_stale_generation
    run.write(local.numbers(0, 20), 0)
    assert [event.run for event in names_of(local.events, SparkLeaseRenewed)] == [2]
    assert local.values() == each_once(0, 20)


def test_a_zombie_whose_tasks_all_found_their_slots_written_is_stopped_by_the_marker(local, driver):
    """Tasks that skip send no offsets, so nothing else could stop it (facts: correction 3)."""
    first = driver("a")
    start(first, local.numbers(0, 20), 0)
    first.write(local.numbers(0, 20), 0)
    successors: list[DriverRun] = []

    def overtake(step, batch_id):
        if step == "job_done" and not successors:
            successors.append(driver("c"))
            start(successors[0], local.numbers(20, 40), 1)

    zombie = driver("b", on_driver_step=overtake)
    start(zombie, local.numbers(0, 20), 0)
    with pytest.raises(RunFencedError):
        zombie.write(local.numbers(0, 20), 0)
    successors[0].write(local.numbers(20, 40), 1)
    assert [e.slots_skipped for e in names_of(local.events, SparkBatchWritten)] == [0, 0]
    assert local.values() == each_once(0, 40)


def test_a_starting_driver_ends_what_an_older_one_has_left_open_in_every_slot(local, driver):
    orphans = []
    for slot in (0, 1):
        orphan = Producer({"bootstrap.servers": local.servers, "transactional.id": f"{local.sink_id}-{slot}"})
        orphan.init_transactions(60)
        orphan.begin_transaction()
        orphan.produce(local.topic, "never", partition=slot)
        orphan.flush(60)
        orphans.append(orphan)
    start(driver("a"), local.numbers(0, 0), 0)
    for orphan in orphans:
        with pytest.raises(KafkaException):
            orphan.commit_transaction(10)
    assert local.values() == {}


def test_a_slot_behind_the_marker_is_a_lost_ledger_and_nothing_is_written_again(local, driver):
    first = driver("a")
    start(first, local.numbers(0, 20), 0)
    first.write(local.numbers(0, 20), 0)
    reader = local.reader()
    before = reader.slots(range(2), 30)
    reader.close()
    first._lease.commit({2: LedgerEntry(0, before[1].identity)})
    half = local.values()
    again = driver("b")
    with pytest.raises(LedgerRegressionError):
        start(again, local.numbers(0, 20), 0)
    assert local.values() == half


def test_a_job_is_told_what_the_rows_of_the_batch_before_weighed(local, driver, monkeypatch):
    weighed: list[float] = []

    def tuned_session(_frame, _query, row_bytes):
        weighed.append(row_bytes)
        return nullcontext()

    monkeypatch.setattr(driver_run, "tuned_session", tuned_session)
    run = driver("a")
    start(run, local.numbers(0, 20), 0)
    for batch_id, value in enumerate(("x" * 1000, "y")):
        run.write(local.frame([("k", value)] * 20), batch_id)
    run.write(local.frame([("k", "z")]), 2)
    first, after_large, after_small = weighed
    assert first == 0
    assert 0 < after_small < 100
    assert 1000 < after_large < 1100
