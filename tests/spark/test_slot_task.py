"""One slot of one batch, called as Spark's tasks call it: two attempts, zombies, lost answers, leftovers."""

from __future__ import annotations

import re
import threading
import time
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer, TopicPartition

from eos_client.confluent.admin.cluster_admin import ClusterAdmin
from eos_client.confluent.ledger.ledger_topic import LedgerTopic
from eos_client.confluent.ledger.slot_producer import SlotProducer
from eos_client.confluent.producer.registration import Registration
from eos_client.core.batch_ledger import LedgerEntry, SinkIdentity, SlotContent
from eos_client.errors import AbortableError, BatchLedgerError, EosError, RetriableError, UnknownOutcomeError
from eos_client.integration.spark.content_count import FINGERPRINT
from eos_client.integration.spark.lease import Lease
from eos_client.integration.spark.rows import slot_of
from eos_client.integration.spark.settings import SinkSettings
from eos_client.integration.spark.status import SlotOutcome
from eos_client.integration.spark.task import SlotAttempt, SlotTask
from eos_client.integration.spark.worker_clients import (
    SLOTS,
    IdleSlot,
    cluster_key,
)
from tests.spark.local_query import each_once
from tests.support.manual_clock import ManualClock
from tests.support.waiting import wait_for

IDENTITY = SinkIdentity("q", 1, 1, "out")


WRITTEN, SKIPPED, FENCED = SlotOutcome.WRITTEN, SlotOutcome.SKIPPED, SlotOutcome.RUN_FENCED


def arrow(first, last, size=1000):
    """Rows as Spark sends them: value and key as bytes, and a hash."""
    for start in range(first, last, size):
        numbers = range(start, min(last, start + size))
        yield pa.RecordBatch.from_arrays(
            [
                pa.array([str(n).encode() for n in numbers], pa.binary()),
                pa.array([b"k"] * len(numbers), pa.binary()),
                pa.array([(n * 0x9E3779B97F4A7C15) % 2**63 for n in numbers], pa.int64()),
            ],
            names=["value", "key", FINGERPRINT],
        )


class Driver:
    """A lease and an initialised ledger, without Spark."""

    def __init__(self, local, run=1, **options):
        self.settings = SinkSettings(
            local.servers, local.topic, local.sink_id, 1, f"{local.sink_id}-ledger", sibling_timeout_s=20.0, **options
        )
        with ClusterAdmin(local.servers, timeout_s=20) as admin:
            LedgerTopic(admin, self.settings.ledger_topic).ensure(1)
        self.lease = Lease(self.settings)
        self.lease.acquire()
        self.run = run
        self.announce(run)

    def announce(self, run):
        self.lease.commit({0: LedgerEntry(0, IDENTITY, run=run)})

    def initialise(self):
        self.end_other_handles()  # so that the broker serves transactions, and no handle finds it busy with that
        self.lease.commit({1: LedgerEntry(0, IDENTITY)})

    def task(self, batch_id, **changes):
        """`holder`: whom the driver names; by default the handle that this process has kept."""
        metadata = changes.pop("group_metadata", None) or self.lease.require_membership().group_metadata
        holder = changes.pop("holder", None)
        if holder is None:
            holder = kept_name(self)
        return SlotTask(self.settings, IDENTITY, batch_id, self.run, metadata, (0,), (holder,), **changes)

    def end_other_handles(self):
        """What a new driver does first."""
        producer = SlotProducer(self.settings.producer, self.settings.transactional_id(0), limits=self.settings.limits)
        producer.init_transactions()
        producer.close()


@pytest.fixture
def local(sparkless):
    return sparkless


@pytest.fixture
def driver(local):
    made = Driver(local)
    made.initialise()
    yield made
    made.lease.release()


@pytest.fixture
def impatient_driver(driver):
    """For tests in which an attempt waits in vain for its sibling."""
    driver.settings = replace(driver.settings, sibling_timeout_s=3.0)
    return driver


class Handle:
    def __init__(self, name):
        self.name = name
        self.closed = False

    def close(self):
        self.closed = True


def held_slot(name, run, batch_id):
    handle: Any = Handle(name)
    return IdleSlot(handle, run, batch_id, None)


def kept_name(driver):
    held = SLOTS.take((cluster_key(driver.settings), 0))
    if held is None:
        return ""
    keep(driver, held)
    return held.producer.name


def keep(driver, held):
    SLOTS.put((cluster_key(driver.settings), 0), held, driver.settings.kept_producers, lambda *_: False)


def drop_kept(driver):
    """What a new Python worker starts with."""
    held = SLOTS.take((cluster_key(driver.settings), 0))
    if held is not None:
        held.close()


def test_the_steps_come_in_the_order_of_the_protocol(driver):
    seen = []
    task = driver.task(0, on_step=lambda *step: seen.append(step))
    assert task.write(0, arrow(0, 2500)).outcome is WRITTEN
    names = ["start", "initialised", "ledger_read", "begun", *["produced"] * 3, "flushed", "offsets_sent", "committed"]
    assert seen == [(name, 0, 0) for name in names]
    seen.clear()
    assert task.write(0, arrow(0, 2500)).outcome is SKIPPED
    assert [name for name, _, _ in seen] == ["start", "initialised", "ledger_read"]


def test_a_kept_handle_is_used_again_only_when_it_wrote_last(driver, local):
    first = driver.task(0).write(0, arrow(0, 10))
    second = driver.task(1).write(0, arrow(10, 20))
    assert (first.reused, second.reused) == (False, True)
    assert first.holder == second.holder == kept_name(driver)
    stale = SLOTS.take((cluster_key(driver.settings), 0))
    elsewhere = driver.task(2).write(0, arrow(20, 30))
    assert elsewhere.reused is False
    assert elsewhere.holder not in {"", first.holder}
    drop_kept(driver)
    keep(driver, stale)
    third = driver.task(3, holder=elsewhere.holder).write(0, arrow(30, 40))
    assert (third.outcome, third.reused) == (WRITTEN, False)
    assert local.values() == each_once(0, 40)


def test_a_handle_whose_requests_may_have_been_sent_twice_is_neither_kept_nor_renewed(driver, local, monkeypatch):
    """A late copy must meet another epoch; a renewal could take the slot from a newer attempt."""
    monkeypatch.setattr(Registration, "may_have_sent_twice", property(lambda _: True))
    monkeypatch.setattr(Registration, "rebuild", lambda _: pytest.fail("it took the slot again"))
    first = driver.task(0).write(0, arrow(0, 10))
    assert (first.outcome, first.holder, kept_name(driver)) == (WRITTEN, "", "")
    monkeypatch.undo()
    second = driver.task(1).write(0, arrow(10, 20))
    assert (second.outcome, second.reused) == (WRITTEN, False)
    assert local.values() == each_once(0, 20)


def test_a_kept_handle_that_the_driver_wrongly_vouches_for_is_fenced_and_writes_nothing(driver, local):
    """The driver may have heard of an attempt before another one took its slot: the broker has the last word."""
    first = driver.task(0).write(0, arrow(0, 10))
    stale = SLOTS.take((cluster_key(driver.settings), 0))
    assert driver.task(1).write(0, arrow(10, 20)).outcome is WRITTEN
    drop_kept(driver)
    keep(driver, stale)
    late = driver.task(1, holder=first.holder).write(0, arrow(10, 20))
    assert (late.outcome, late.holder) == (SlotOutcome.SIBLING_DONE, "")
    assert driver.task(2, holder="").write(0, arrow(20, 30)).outcome is WRITTEN
    assert local.values() == each_once(0, 30)


def test_an_attempt_that_skipped_holds_the_slot_for_the_next_batch(driver, local):
    driver.task(0).write(0, arrow(0, 10))
    drop_kept(driver)
    again = driver.task(0).write(0, arrow(0, 10))
    following = driver.task(1).write(0, arrow(10, 20))
    assert (again.outcome, again.reused, following.reused) == (SKIPPED, False, True)
    assert local.values() == each_once(0, 20)


def test_a_task_lets_go_of_the_handles_that_the_driver_does_not_vouch_for(driver):
    """They can never be used again: other processes hold those slots now. Threads and connections would pile up."""
    driver.settings = replace(driver.settings, kept_producers=10)
    driver.task(4).write(0, arrow(0, 10))
    key, run = cluster_key(driver.settings), (IDENTITY.query_id, driver.run)
    kept = {
        (key, 1): held_slot("vouched for", run, 4),
        (key, 2): held_slot("new", run, 5),
        ("another sink", 3): held_slot("another sink's", run, 4),
    }
    useless = {
        (key, 3): held_slot("replaced", run, 4),
        (key, 4): held_slot("of an older run", (IDENTITY.query_id, driver.run - 1), 5),
        (key, 5): held_slot("of a slot that is gone", run, 4),
    }
    for place, held in {**kept, **useless}.items():
        SLOTS.put(place, held, 10, lambda *_: False)
    others = ("vouched for", "older", "somebody else", "of an older run")
    task = replace(driver.task(5), holders=(kept_name(driver), *others))
    assert task.write(0, arrow(10, 20)).reused
    assert [held.producer.closed for held in useless.values()] == [True] * len(useless)
    assert [SLOTS.take(place) for place in kept] == [*kept.values()]
    assert not any(held.producer.closed for held in kept.values())


def test_a_worker_keeps_no_more_producers_than_the_sink_allows_and_closes_the_others(driver, monkeypatch):
    closed, close = [], SlotProducer.close

    def noting(producer):
        closed.append(producer.name)
        return close(producer)

    monkeypatch.setattr(SlotProducer, "close", noting)
    driver.settings = replace(driver.settings, kept_producers=1)
    other = held_slot("another sink's", ("q", 1), 4)
    SLOTS.put(("another sink", 0), other, 1, lambda *_: False)
    first = driver.task(0).write(0, arrow(0, 10))
    assert other.producer.closed
    assert (closed, kept_name(driver)) == ([], first.holder)
    assert driver.task(1).write(0, arrow(10, 20)).reused
    none_kept = replace(driver.task(2), settings=replace(driver.settings, kept_producers=0))
    assert none_kept.write(0, arrow(20, 30)).reused, "what was kept is used once more"
    assert (closed, kept_name(driver)) == ([first.holder], "")
    assert not driver.task(3).write(0, arrow(30, 40)).reused


def test_a_producer_of_a_slot_that_another_worker_has_begun_makes_room(driver):
    task = driver.task(5)
    attempt, ours, run = SlotAttempt(task, 3, first_attempt=True), cluster_key(driver.settings), (IDENTITY.query_id, 1)
    try:
        assert attempt._makes_room((ours, 2), held_slot("passed", run, 4))
        assert attempt._makes_room(("another sink", 7), held_slot("another sink's", run, 5))
        assert not attempt._makes_room((ours, 2), held_slot("of this batch", run, 5))
        assert not attempt._makes_room((ours, 4), held_slot("to come", run, 4))
    finally:
        attempt.leave()


def test_a_kept_handle_of_an_older_run_is_never_used_again(driver, local):
    driver.task(0).write(0, arrow(0, 10))
    driver.end_other_handles()
    driver.run = 2
    driver.announce(2)
    status = driver.task(1).write(0, arrow(10, 20))
    assert (status.outcome, status.reused) == (WRITTEN, False)
    assert local.values() == each_once(0, 20)


def test_of_two_attempts_at_the_same_time_one_commits(impatient_driver, local):
    """Sixteen rounds of two threads that do the same slot of the same batch."""
    driver = impatient_driver
    for batch_id in range(16):
        drop_kept(driver)
        start = threading.Barrier(2)
        ends: list[object] = []

        def attempt(batch_id=batch_id, start=start, ends=ends):
            task = driver.task(batch_id, on_step=lambda step, *_: start.wait() if step == "start" else None)
            try:
                ends.append(task.write(0, arrow(batch_id * 50, batch_id * 50 + 50, 10)).outcome)
            except EosError as error:  # Spark would repeat it
                ends.append(error)

        threads = [threading.Thread(target=attempt) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if WRITTEN not in ends:  # each has taken the slot from the other: Spark repeats such a task
            assert [each for each in ends if not isinstance(each, RetriableError)] == []
            ends.append(driver.task(batch_id).write(0, arrow(batch_id * 50, batch_id * 50 + 50, 10)).outcome)
        assert WRITTEN in ends  # both where one whose commit was not answered has found the slot done by the other
        others = [end for end in ends if end is not WRITTEN]
        assert [each for each in others if isinstance(each, BatchLedgerError)] == []
    assert local.values() == each_once(0, 800)


@pytest.mark.parametrize("step", ["initialised", "ledger_read", "begun", "produced", "flushed", "offsets_sent"])
@pytest.mark.parametrize("kept", [False, True], ids=["new handle", "kept handle"])
def test_an_attempt_that_was_overtaken_finds_its_sibling_done(driver, local, step, kept):
    if kept:
        driver.task(0).write(0, arrow(0, 10))
    batch_id = int(kept)
    rows = (10 * batch_id, 10 * batch_id + 10)
    overtaken: list[object] = []

    def overtake(at, *_):
        if at == step and not overtaken:
            overtaken.append(at)
            overtaken.append(driver.task(batch_id).write(0, arrow(*rows)).outcome)

    outcome = driver.task(batch_id, on_step=overtake).write(0, arrow(*rows)).outcome
    assert overtaken == [step, WRITTEN]
    assert outcome in {SlotOutcome.SIBLING_DONE, SKIPPED}
    assert local.values() == each_once(0, rows[1])


def test_a_fence_that_produce_reports_as_a_fatal_error_only_is_recognised(driver, local, monkeypatch):
    driver.task(0).write(0, arrow(0, 10))
    producers: list[SlotProducer] = []
    begin = SlotProducer.begin_transaction

    def begun(producer):
        producers.append(producer)
        begin(producer)

    def produces(producer):
        try:
            producer.produce(local.topic, b"fenced, so nobody reads it")
        except AbortableError as error:
            return "_FATAL" in str(error.__cause__)
        producer.poll(0.01)
        return False

    def overtake(at, *_):
        if at == "begun" and len(producers) == 1:
            assert driver.task(1).write(0, arrow(10, 20)).outcome is WRITTEN
            wait_for(lambda: produces(producers[0]), "produce to report the fatal error")

    monkeypatch.setattr(SlotProducer, "begin_transaction", begun)
    assert driver.task(1, on_step=overtake).write(0, arrow(10, 20)).outcome is SlotOutcome.SIBLING_DONE
    assert local.values() == each_once(0, 20)


def test_an_attempt_whose_sibling_died_asks_to_be_repeated_instead_of_taking_turns(driver, local):
    clock = ManualClock()
    took: list[str] = []

    def take_and_die(step, *_):
        if step == "produced" and not took:
            took.append(step)
            driver.end_other_handles()

    attempt = SlotAttempt(driver.task(0, on_step=take_and_die), 0, first_attempt=True, clock=clock)
    with pytest.raises(RetriableError, match="taken by another attempt"):
        attempt.run(arrow(0, 10))
    attempt.leave()
    assert clock.now_s > driver.settings.sibling_timeout_s
    assert driver.task(0).write(0, arrow(0, 10)).outcome is WRITTEN
    assert local.values() == each_once(0, 10)


@pytest.mark.parametrize("step", ["begun", "produced", "flushed", "offsets_sent"])
def test_what_an_attempt_that_died_has_left_open_is_ended_by_the_next(driver, local, step):
    """The dead one cannot abort: its handle is left as it stands, with the ledger entry pending in its transaction."""
    settings = driver.settings
    dead = Producer({**settings.kafka, "transactional.id": settings.transactional_id(0), "linger.ms": 0})
    dead.init_transactions(60)
    dead.begin_transaction()
    order = ["begun", "produced", "flushed", "offsets_sent"]
    reached = order.index(step)
    if reached >= 1:
        dead.produce(local.topic, "never", "k")
    if reached >= 2:
        dead.flush()
    if reached >= 3:
        entry = LedgerEntry(1, IDENTITY, SlotContent(1, 1), 1)
        at = TopicPartition(settings.ledger_topic, 1, 1, metadata=entry.encode())
        dead.send_offsets_to_transaction([at], driver.lease.require_membership().group_metadata, 60)
    began_at = time.monotonic()
    assert driver.task(0).write(0, arrow(0, 10)).outcome is WRITTEN
    assert time.monotonic() - began_at < 30
    assert local.values() == each_once(0, 10)


def test_a_row_that_its_topic_refuses_is_reported_with_the_place_and_the_brokers_reason(driver, local):
    compacted = local.new_topic("compacted", 1, **{"cleanup.policy": "compact"})
    columns = {"value": [b"v"], "key": pa.array([None], pa.binary()), "topic": [compacted], FINGERPRINT: [1]}
    status = driver.task(0).write(0, iter([pa.RecordBatch.from_pydict(columns)]))
    assert status.outcome is SlotOutcome.REFUSED
    refused = rf"a row of batch 0 cannot be written, to {compacted}\[0\]: INVALID_RECORD: .*\. Correct that row, or the"
    assert re.match(refused, status.message)


def test_a_task_of_a_run_that_was_taken_over_does_not_touch_the_slot(driver, local):
    driver.task(0).write(0, arrow(0, 10))
    old = driver.task(1)
    successor = Driver(local, run=2)
    try:
        assert successor.task(1).write(0, arrow(10, 20)).outcome is WRITTEN
        drop = replace(old, run=1)
        status = drop.write(0, arrow(10, 20))
        assert status.outcome is FENCED
        assert "run 2 has taken over from run 1" in status.message
        assert successor.task(2).write(0, arrow(20, 30)).outcome is WRITTEN
        assert local.values() == each_once(0, 30)
    finally:
        successor.lease.release()


def test_a_zombie_that_reaches_its_commit_is_refused_by_the_group_and_not_repeated(driver, local):
    successors: list[Driver] = []

    def take_over(step, *_):
        if step == "flushed" and not successors:
            successors.append(Driver(local, run=2))

    status = driver.task(0, on_step=take_over).write(0, arrow(0, 10))
    try:
        assert status.outcome is FENCED
        assert "FENCED_INSTANCE_ID" in status.message
        assert local.values() == {}
        assert successors[0].task(0).write(0, arrow(0, 10)).outcome is WRITTEN
        assert local.values() == each_once(0, 10)
    finally:
        successors[0].lease.release()


def test_a_kept_handle_that_a_new_driver_has_fenced_says_so(driver, local):
    driver.task(0).write(0, arrow(0, 10))
    successors: list[Driver] = []

    def take_over(step, *_):
        if step == "begun" and not successors:
            successors.append(Driver(local, run=2))
            successors[0].end_other_handles()

    status = driver.task(1, on_step=take_over).write(0, arrow(10, 20))
    try:
        assert status.outcome is FENCED
        assert local.values() == each_once(0, 10)
    finally:
        successors[0].lease.release()


def test_anonymous_metadata_is_refused_before_it_leaves_the_executor(driver, local):
    anonymous = b"CGMDv2:" + (-1).to_bytes(4, "little", signed=True) + f"{local.sink_id}-ledger".encode() + b"\0\0\1"
    with pytest.raises(AbortableError, match="names no member"):
        driver.task(0, group_metadata=anonymous).write(0, arrow(0, 10))
    assert local.values() == {}


@pytest.mark.parametrize("took_effect", [True, False])
def test_a_commit_without_an_answer_is_resolved_by_the_ledger(driver, local, monkeypatch, took_effect):
    commit = SlotProducer.commit_transaction

    def unanswered(self, timeout=-1):
        if took_effect:
            commit(self, timeout)
        raise UnknownOutcomeError("no answer")

    monkeypatch.setattr(SlotProducer, "commit_transaction", unanswered)
    if took_effect:
        status = driver.task(0).write(0, arrow(0, 10))
        assert (status.outcome, status.resolved, status.repeated) == (WRITTEN, True, False)
    else:
        with pytest.raises(RetriableError, match="did not take effect"):
            driver.task(0).write(0, arrow(0, 10))
        monkeypatch.undo()
        status = driver.task(0).write(0, arrow(0, 10), first_attempt=False)
        assert (status.outcome, status.resolved, status.repeated) == (WRITTEN, False, True)
    assert local.values() == each_once(0, 10)


def test_a_ledger_that_goes_back_under_a_running_query_is_refused(driver, local):
    driver.task(0).write(0, arrow(0, 10))
    driver.initialise()
    status = replace(driver.task(1, holder=""), floors=(1,)).write(0, arrow(10, 20))
    assert (status.outcome, status.error) == (SlotOutcome.REFUSED, "LedgerRegressionError")
    assert local.values() == each_once(0, 10)


def test_rows_of_another_slot_are_refused(driver, local):
    task = replace(driver.task(0), settings=replace(driver.settings, slots=2))
    assert slot_of(b"k", None, 2) == 1
    status = task.write(0, arrow(0, 10))
    assert (status.outcome, status.error) == (SlotOutcome.REFUSED, "BatchContentError")
    assert local.values() == {}


def test_rows_that_come_while_the_producer_starts_are_written_before_those_that_come_later(driver, local):
    def slowly():
        for batch in arrow(0, 3000, size=100):
            time.sleep(0.01)
            yield batch

    assert driver.task(0).write(0, slowly()).rows == 3000
    assert [m.value() for m in local.read()] == [b"%d" % n for n in range(3000)]


@pytest.fixture
def hurried_driver(local):
    """One whose transactions may last a second."""
    made = Driver(local, config={"transaction.timeout.ms": 1000})
    made.initialise()
    yield made
    made.lease.release()


@pytest.mark.parametrize("slow_at", ["produced", "flushed", "offsets_sent"])
def test_a_transaction_that_outlives_its_time_is_named_with_what_to_do(hurried_driver, local, slow_at):
    def slow(step, *_):
        if step == slow_at:
            time.sleep(3.0)

    task = hurried_driver.task(0, on_step=slow)
    with pytest.raises(RetriableError) as told:
        task.write(0, arrow(0, 20))
    found = re.search(r"open for ([\d.]+) s, with 20 rows.*slots=(\d+) or more", str(told.value))
    assert found is not None, told.value
    open_s, enough = found.groups()
    assert "transaction.timeout.ms=1000" in str(told.value)
    assert 6 <= int(enough) <= 2 * float(open_s) + 1
    assert local.values() == {}
    assert hurried_driver.task(0).write(0, arrow(0, 20)).outcome is WRITTEN
    assert local.values() == each_once(0, 20)
