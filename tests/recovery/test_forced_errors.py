"""Errors that a real broker is made to give: ids and state that expire, time-outs, restarts during the commit."""

import time

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public by its documentation, not by __all__
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from eos_client import Outcome
from eos_client.clients import producer as clients_producer
from eos_client.core.model import ProducerLimits
from eos_client.errors import ProducerFencedError, RebuildProducerError
from eos_client.observe import ProducerRebuilt, ProducerRecovered, TransactionAborted
from tests.kafka.kafka_support import Stage
from tests.kafka.loop_support import Job
from tests.recovery.forced_support import InterruptedCommit, await_state, coordinator
from tests.support.interception import intercepting
from tests.support.waiting import WAIT_S, wait_for
from tests.verification.conclusive import conclusive

pytestmark = pytest.mark.kafka

HASTY = {
    "transactional.id.expiration.ms": "5000",  # from one transaction to the next of a busy machine, joining included
    "transaction.remove.expired.transaction.cleanup.interval.ms": "200",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
    "producer.id.expiration.check.interval.ms": "200",
}
EXPIRED = "INVALID_PRODUCER_ID_MAPPING"
PINNED = "pinned"
OUTAGE_LIMITS = ProducerLimits(commit_timeout_s=2.0, start_timeout_s=15.0, recovery_timeout_s=25.0)


@pytest.fixture(scope="module")
def broker(brokers):
    return brokers.chosen(HASTY)


@pytest.fixture
def line(broker):
    with coordinator(broker) as made:
        yield made


@pytest.fixture
def stage(broker):
    with Stage(broker.bootstrap_servers) as made:
        yield made


def joined(stage):
    """A consumer that has its partitions. A producer that is made after it need not be idle while it joins."""
    consumer = stage.subscribed()
    wait_for(consumer.assignment, "an assignment", consumer.adapter.fetching.serve_callbacks)
    return consumer


def copy_block(stage, producer, consumer, count, *, writes=True):
    """One transaction over `count` records; with `writes` off it sends their offsets only."""
    with producer.transaction(consumer) as txn:
        for message in stage.collect(consumer, count):
            if writes:
                txn.produce(stage.sink, message.value())
    return txn


def assert_each_once(stage, written):
    assert sorted(stage.outputs()) == sorted(written)
    assert stage.committed() == stage.ends()


# -- the transactional.id expires ------------------------------------------------------------------------------------


class First:
    """Copies the first records only: from then on a transaction has nothing but offsets."""

    def __init__(self, count):
        self.count = count

    def __call__(self, record):
        return [record.value()] if int(record.value()) < self.count else []


@pytest.mark.parametrize(
    "transactional_id",
    [pytest.param(None, id="generated"), pytest.param(PINNED, id="pinned", marks=pytest.mark.soak)],
)
def test_an_idle_loop_whose_id_expired_commits_offsets_only_without_a_restart(broker, line, transactional_id):
    with Job(broker) as job:
        pinned = transactional_id and f"{transactional_id}-{job.group}"
        first = job.load(10)
        running = job.start(First(10), transactional_id=pinned)
        job.await_committed()
        running.events.forget()  # a busy machine may have been that slow before, while the loop joined its group
        await_state(line, running.loop._producer.transactional_id, None)
        assert not running.events.of(TransactionAborted)
        job.load(10)
        job.await_committed()
        running.stop()
        assert EXPIRED in running.events.of(TransactionAborted)[0].reason
        assert EXPIRED in running.events.of(ProducerRebuilt)[0].reason
        assert [EXPIRED in event.reason for event in running.events.of(ProducerRecovered)] == [True]
        assert job.values() == first


def test_an_idle_loop_whose_id_expired_goes_on_with_outputs(broker, line):
    expired: list[str] = []
    with Job(broker) as job:
        running = job.start()
        for _ in range(2):
            job.load(10)
            job.await_committed()
            if not expired:
                running.events.forget()
            await_state(line, running.loop._producer.transactional_id, None)
            expired.append(running.loop._producer.transactional_id)
        job.load(10)
        job.await_committed()
        running.stop()
        assert len(running.events.of(ProducerRecovered)) == 2
        job.assert_exactly_once()


@pytest.mark.parametrize(
    "writes",
    [pytest.param(False, id="offsets only", marks=pytest.mark.soak), pytest.param(True, id="outputs first")],
)
def test_a_block_after_the_id_expired_is_aborted_and_the_next_one_commits(stage, line, writes):
    written = stage.load(3)
    consumer = joined(stage)
    producer = stage.producer()
    assert copy_block(stage, producer, consumer, 6).outcome is Outcome.COMMITTED
    await_state(line, producer.transactional_id, None)
    more = stage.load(2, start=3)
    txn = copy_block(stage, producer, consumer, 4, writes=writes)
    assert txn.outcome is Outcome.ABORTED
    assert EXPIRED in txn.reason
    assert EXPIRED in stage.named("transaction_aborted")[0].reason
    assert copy_block(stage, producer, consumer, 4, writes=writes).outcome is Outcome.COMMITTED
    assert [EXPIRED in event.reason for event in stage.named("producer_recovered")] == [True]
    assert_each_once(stage, written + more if writes else written)


@pytest.fixture
def overtaken(stage, line):
    """An idle instance whose id has expired, and the newer one that has taken it."""
    pinned = f"{PINNED}-{stage.group}"
    consumer = joined(stage)
    older = stage.producer(transactional_id=pinned)
    stage.load(3)
    copy_block(stage, older, consumer, 6)
    await_state(line, pinned, None)
    return older, consumer, stage.producer(transactional_id=pinned)


def test_an_idle_instance_whose_id_expired_and_was_taken_by_a_newer_one_stops(stage, line, overtaken):
    """The id is the newer's now: what looks like an expiry is a fence, and the older must not take the id back."""
    older, consumer, newer = overtaken
    identity = line.transaction(newer.transactional_id)
    more = stage.load(2, start=3)

    def tries():
        for _ in range(3):
            assert copy_block(stage, older, consumer, len(more)).outcome is Outcome.ABORTED

    with pytest.raises(ProducerFencedError, match=newer.transactional_id):
        tries()
    assert line.transaction(newer.transactional_id) == identity


def test_where_only_offsets_are_sent_nobody_can_tell_and_exactly_one_goes_on(stage, overtaken):
    """librdkafka bumps no epoch for them, so nothing tells the expiry from the fence: the older takes the id back."""
    older, consumer, newer = overtaken
    more = stage.load(2, start=3)
    outcomes = [copy_block(stage, older, consumer, len(more), writes=False).outcome for _ in range(3)]
    assert outcomes == [Outcome.ABORTED, Outcome.ABORTED, Outcome.COMMITTED]
    newer.begin_transaction()
    newer.produce(stage.sink, b"too late")
    with pytest.raises(ProducerFencedError, match=newer.transactional_id):
        newer.commit_transaction()
    assert stage.committed() == stage.ends()


def set_producer_expiration(stage, milliseconds):
    entry = ConfigEntry("producer.id.expiration.ms", str(milliseconds), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.BROKER, "1", incremental_configs=[entry])
    stage.admin.incremental_alter_configs([resource])[resource].result(WAIT_S)


def await_forgotten_producers(stage, line):
    """Let the sink's partition forget its producers; short expiration ends before the next transaction begins."""
    set_producer_expiration(stage, 200)
    try:
        wait_for(lambda: not line.producers(stage.sink), "the producer's state to expire")
    finally:
        set_producer_expiration(stage, 86_400_000)


def test_a_producer_that_the_partition_has_forgotten_together_with_its_records_goes_on_writing(stage, line):
    consumer = joined(stage)
    producer = stage.producer(transactional_id=f"{PINNED}-{stage.group}")
    stage.load(3)
    copy_block(stage, producer, consumer, 6)
    identity = line.transaction(producer.transactional_id)
    assert identity is not None
    assert line.producers(stage.sink) == {identity.producer_id}
    await_forgotten_producers(stage, line)
    end = [TopicPartition(stage.sink, 0, -1)]
    for future in stage.admin.delete_records(end).values():
        future.result(WAIT_S)
    assert stage.outputs() == []
    written = []
    for start in (3, 5, 7):
        written += stage.load(2, start=start)
        block = copy_block(stage, producer, consumer, 4)
        assert block.outcome is Outcome.COMMITTED, block.reason
        await_forgotten_producers(stage, line)
    assert_each_once(stage, written)
    assert stage.named("transaction_aborted") == []
    assert stage.named("producer_rebuilt") == []


# -- the broker ends a transaction that takes too long ---------------------------------------------------------------


UNHURRIED_MS = 3000
"""The time-out where all the outputs come before it."""


@pytest.fixture(autouse=True)
def any_time_out_is_taken(monkeypatch):
    """The coordinators are to end transactions soon: time-outs as short as these are refused otherwise."""
    monkeypatch.setattr(clients_producer, "check_transaction_timeout", lambda *_, **__: None)


class TimedOut:
    """A producer of its own id with a short time-out, and the wait for the coordinator to act on it."""

    def __init__(self, stage, line, *, timeout_ms=1000, **intercepted):
        self._line = line
        self._stage = stage
        replacements = {name: self._late(name) for name in intercepted}
        self.waits = 0
        self.producer = stage.producer(
            factory=intercepting(Producer, **replacements),
            transactional_id=f"{PINNED}-{stage.group}",
            transaction_timeout_ms=timeout_ms,
        )

    def _late(self, name):
        def call(raw, *arguments):
            if not self.waits:
                self.wait()
            return getattr(raw, name)(*arguments)

        return call

    def wait(self):
        """Return when the coordinator has aborted the open transaction."""
        self.waits += 1
        await_state(self._line, self.producer.transactional_id, "CompleteAbort")

    def write(self, txn, *messages):
        """Write and wait until the transaction is open at the broker."""
        for message in messages:
            txn.produce(self._stage.sink, message.value())
        assert self.producer.flush(WAIT_S) == 0
        await_state(self._line, self.producer.transactional_id, "Ongoing", "CompleteAbort")


def assert_goes_on(stage, producer, consumer, written):
    """The same records come again, and the producer, another handle by now, commits them."""
    assert [event.transactional_id for event in stage.named("producer_rebuilt")] == [producer.transactional_id]
    assert copy_block(stage, producer, consumer, len(written)).outcome is Outcome.COMMITTED
    assert_each_once(stage, written)
    assert len(stage.named("producer_rebuilt")) == 1


def write_on(stage, slow, consumer, act):
    """Open a transaction, let it time out and write into it, then `act(txn, message)` over and over."""
    with slow.producer.transaction(consumer) as txn:
        first, second, *_ = stage.collect(consumer, 6)
        slow.write(txn, first)
        slow.wait()
        txn.produce(stage.sink, second.value())
        wait_for(lambda: False, "an error", lambda: act(txn, second))
    return txn


def test_a_time_out_found_by_a_produce_call_ends_in_an_abort_and_the_next_block_goes_on(stage, line):
    written = stage.load(3)
    consumer = joined(stage)
    slow = TimedOut(stage, line)

    def produce(txn, message):
        time.sleep(0.02)
        txn.produce(stage.sink, message.value())

    assert write_on(stage, slow, consumer, produce).outcome is Outcome.ABORTED
    assert_goes_on(stage, slow.producer, consumer, written)


@pytest.mark.soak  # test_recovery_matrix.py has each request with each error
def test_a_time_out_found_by_a_poll_is_named_and_the_next_block_goes_on(stage, line):
    written = stage.load(3)
    consumer = joined(stage)
    slow = TimedOut(stage, line)
    with pytest.raises(RebuildProducerError):
        write_on(stage, slow, consumer, lambda *_: slow.producer.poll(0.02))
    assert_goes_on(stage, slow.producer, consumer, written)


@pytest.mark.soak  # test_recovery_matrix.py has each request with each error
def test_a_time_out_found_while_the_outputs_are_flushed_ends_in_an_abort_and_the_next_block_goes_on(stage, line):
    written = stage.load(3)
    consumer = joined(stage)
    slow = TimedOut(stage, line)
    with slow.producer.transaction(consumer) as txn:
        first, *rest = stage.collect(consumer, 6)
        slow.write(txn, first)
        slow.wait()
        for message in rest:
            txn.produce(stage.sink, message.value())
    assert txn.outcome is Outcome.ABORTED
    assert_goes_on(stage, slow.producer, consumer, written)


def test_a_time_out_found_when_the_offsets_are_sent_ends_in_an_abort_and_the_next_block_goes_on(stage, line):
    written = stage.load(3)
    consumer = joined(stage)
    slow = TimedOut(stage, line, timeout_ms=UNHURRIED_MS)
    with slow.producer.transaction(consumer) as txn:
        slow.write(txn, *stage.collect(consumer, 6))
        slow.wait()
    assert txn.outcome is Outcome.ABORTED
    assert "send_offsets_to_transaction" in txn.reason
    assert_goes_on(stage, slow.producer, consumer, written)


def test_a_time_out_found_at_the_commit_is_looked_up_and_the_next_block_goes_on(stage, line):
    written = stage.load(3)
    consumer = joined(stage)
    slow = TimedOut(stage, line, timeout_ms=UNHURRIED_MS, commit_transaction=True)
    assert copy_block(stage, slow.producer, consumer, 6).outcome is Outcome.ABORTED
    assert slow.waits == 1
    assert [event.outcome for event in stage.named("outcome_resolved")] == ["aborted"]
    assert_goes_on(stage, slow.producer, consumer, written)


@pytest.mark.soak  # test_recovery_matrix.py has each request with each error
def test_a_time_out_found_at_the_abort_keeps_the_blocks_own_error_and_the_next_block_goes_on(stage, line):
    written = stage.load(3)
    consumer = joined(stage)
    slow = TimedOut(stage, line, timeout_ms=UNHURRIED_MS, abort_transaction=True)

    def block():
        with slow.producer.transaction(consumer) as txn:
            slow.write(txn, *stage.collect(consumer, 6))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        block()
    assert slow.waits == 1
    assert_goes_on(stage, slow.producer, consumer, written)


# -- the broker goes away during a commit ----------------------------------------------------------------------------


def interrupted(brokers, *, kills, after):
    def story(broker):
        with Stage(broker.bootstrap_servers) as stage:
            written = stage.load(3)
            moment = InterruptedCommit(broker, kills=kills, after=after)
            producer = stage.producer(factory=moment.factory, limits=OUTAGE_LIMITS)
            moment.transactional_id = producer.transactional_id
            consumer = stage.subscribed()
            copy_block(stage, producer, consumer, 6)
            written += stage.load(4, start=3)
            moment.next()
            txn = copy_block(stage, producer, consumer, 8)
            moment.returned()
            outcomes = [event.outcome for event in stage.named("outcome_resolved")]
            written += stage.load(2, start=7)
            stage.copy_until(producer, consumer, lambda: stage.committed() == stage.ends())
            assert_each_once(stage, written)
            return txn.outcome, outcomes

    return conclusive(story, brokers.mortal)


@pytest.mark.parametrize(
    "kills", [True, pytest.param(False, marks=pytest.mark.soak)], ids=["killed", "restarted cleanly"]
)
def test_a_commit_that_never_reached_a_broker_that_was(brokers, kills):
    """Whether EndTxn got through after all, or the look-up ended the transaction: the outcome is known."""
    outcome, outcomes = interrupted(brokers, kills=kills, after=False)
    assert outcome in {Outcome.COMMITTED, Outcome.ABORTED}
    assert outcomes in ([], [outcome.value])


@pytest.mark.soak
@pytest.mark.parametrize("kills", [True, False], ids=["killed", "restarted cleanly"])
def test_a_commit_whose_answer_was_lost_by_a_broker_that_was(brokers, kills):
    outcome, outcomes = interrupted(brokers, kills=kills, after=True)
    assert outcome is Outcome.COMMITTED
    assert outcomes == ["committed"]
