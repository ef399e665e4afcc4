"""A transactional call that ignores its timeout: the caller goes on within its budget, the handle is left behind."""

import threading
import time
from dataclasses import replace

import pytest
from confluent_kafka import KafkaException, Producer

from eos_client import Outcome
from eos_client.core.model import ProducerLimits
from eos_client.errors import RebuildProducerError, UnknownOutcomeError
from tests.support.interception import intercepting
from tests.support.waiting import WAIT_S, wait_for

BUDGET_S = 0.5  # of tests in which nothing but the stuck call must keep to it
HEALTHY_BUDGET_S = 5.0  # of tests in which what comes before the stuck call must keep to it, too
# What a call may take beyond its own timeout, on a machine with other things to do; a stuck one never ends.
GRACE_S = 10.0
LIMITS = ProducerLimits(commit_timeout_s=BUDGET_S, start_timeout_s=60.0, recovery_timeout_s=60.0)
GOES_ON = replace(LIMITS, commit_timeout_s=HEALTHY_BUDGET_S)
PATIENT = replace(LIMITS, commit_timeout_s=20.0)  # of the transactions after it
LONG = {"transaction_timeout_ms": 60_000}


class StuckCall:
    """Replaces one method of the first raw producer that calls it: stays in it until `release`, then goes on."""

    def __init__(self, name):
        self.name = name
        self.entered, self.released, self.ended = threading.Event(), threading.Event(), threading.Event()
        self.destroyed = []
        self.factory = intercepting(Producer, close=self._close, **{name: self._stay})

    def _stay(self, raw, *arguments):
        if self.entered.is_set():
            return getattr(raw, self.name)(*arguments)
        self.entered.set()
        self.released.wait(2 * WAIT_S)
        try:
            return getattr(raw, self.name)(*arguments)
        finally:
            self.ended.set()

    def _close(self, raw, *arguments):
        self.destroyed.append(raw)
        return raw.close(*arguments)


@pytest.fixture
def stuck_call():
    """A function that makes a StuckCall, released at the latest when the test is over."""
    made = []

    def make(name):
        made.append(StuckCall(name))
        return made[-1]

    yield make
    for stuck in made:
        stuck.released.set()


def handle_threads(producer):
    return [t for t in threading.enumerate() if t.name == f"eos-producer-{producer.transactional_id}"]


def offsets_and_metadata(consumer):
    return consumer.position(consumer.assignment()), consumer.consumer_group_metadata()


def test_a_stuck_send_offsets_lets_its_caller_go_and_init_transactions_gives_a_working_handle(stage, stuck_call):
    stage.load(2)
    stuck = stuck_call("send_offsets_to_transaction")
    producer, consumer = stage.producer(factory=stuck.factory, limits=GOES_ON, **LONG), stage.subscribed()
    stage.collect(consumer, 4)
    producer.begin_transaction()
    producer.produce(stage.sink, b"of the stuck handle")
    producer.flush(WAIT_S)
    began_s = time.monotonic()
    with pytest.raises(RebuildProducerError, match="init_transactions") as late:
        producer.send_offsets_to_transaction(*offsets_and_metadata(consumer), 0.2)
    assert isinstance(late.value, KafkaException)
    # The handle is finished: nothing is tried on it any more, and nothing waits for it.
    for call in (producer.commit_transaction, producer.abort_transaction, lambda: producer.produce(stage.sink, b"")):
        with pytest.raises(RebuildProducerError):
            call()
    assert time.monotonic() - began_s < 0.2 + GRACE_S

    producer.limits = PATIENT
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(stage.sink, b"of the new handle")
    producer.send_offsets_to_transaction(*offsets_and_metadata(consumer))
    producer.commit_transaction()
    assert not stuck.ended.is_set()
    assert stage.outputs() == ["of the new handle"]
    assert stage.committed() == {0: 2, 1: 2}


def test_the_abandoned_handle_is_destroyed_when_its_call_returns_and_no_thread_stays(stage, stuck_call):
    stage.load(1)
    stuck = stuck_call("send_offsets_to_transaction")
    pinned = {"transactional_id": f"pinned-{stage.group}"}  # the producer's first handle is a transactional one then
    producer, consumer = stage.producer(factory=stuck.factory, limits=LIMITS, **pinned), stage.subscribed()
    stage.collect(consumer, 2)
    producer.begin_transaction()
    producer.produce(stage.sink, b"never")
    with pytest.raises(RebuildProducerError):
        producer.send_offsets_to_transaction(*offsets_and_metadata(consumer))
    producer.init_transactions()
    assert stuck.destroyed == []
    assert len(handle_threads(producer)) == 2
    stuck.released.set()
    wait_for(lambda: len(handle_threads(producer)) == 1, "the thread of the abandoned handle to end")
    assert len(stuck.destroyed) == 1
    producer.close()
    wait_for(lambda: not handle_threads(producer), "the thread of the closed producer to end")
    assert len(stuck.destroyed) == 2
    assert stage.outputs() == []


def test_a_block_whose_send_offsets_is_stuck_is_aborted_and_its_records_come_again(stage, stuck_call):
    written = stage.load(3)
    stuck = stuck_call("send_offsets_to_transaction")
    producer, consumer = stage.producer(factory=stuck.factory, limits=GOES_ON, **LONG), stage.subscribed()
    with producer.transaction(consumer) as txn:
        for message in stage.collect(consumer, 6):
            txn.produce(stage.sink, message.value())
    assert stuck.entered.is_set()
    assert txn.outcome is Outcome.ABORTED
    assert len(stage.named("producer_rebuilt")) == 1
    producer.limits = PATIENT
    with producer.transaction(consumer) as txn:
        for message in stage.collect(consumer, 6):
            txn.produce(stage.sink, message.value())
        stuck.released.set()  # the late request meets a newer epoch
        assert stuck.ended.wait(WAIT_S)
    assert txn.outcome is Outcome.COMMITTED
    assert sorted(stage.outputs()) == sorted(written)
    assert stage.committed() == {0: 3, 1: 3}


def test_a_late_end_of_a_stuck_commit_does_not_end_the_transaction_after_it(stage, stuck_call):
    """KAFKA-17754: the abandoned handle sends its EndTxn when the next transaction is open already."""
    written = stage.load(3)
    stuck = stuck_call("commit_transaction")
    producer, consumer = stage.producer(factory=stuck.factory, limits=GOES_ON, **LONG), stage.subscribed()
    with producer.transaction(consumer) as txn:
        for message in stage.collect(consumer, 6):
            txn.produce(stage.sink, message.value())
    assert txn.outcome is Outcome.ABORTED
    assert [event.outcome for event in stage.named("outcome_resolved")] == ["aborted"]
    producer.limits = PATIENT
    with producer.transaction(consumer) as txn:
        for message in stage.collect(consumer, 6):
            txn.produce(stage.sink, message.value())
        producer.flush(WAIT_S)
        stuck.released.set()
        assert stuck.ended.wait(WAIT_S)
        assert stage.visible() == []
    assert txn.outcome is Outcome.COMMITTED
    assert sorted(stage.outputs()) == sorted(written)


def test_a_stuck_commit_of_ones_own_is_an_unknown_outcome_within_the_budget(stage, stuck_call):
    stuck = stuck_call("commit_transaction")
    producer = stage.producer(factory=stuck.factory, limits=LIMITS)
    producer.begin_transaction()
    producer.produce(stage.sink, b"never")
    began_s = time.monotonic()
    with pytest.raises(UnknownOutcomeError):
        producer.commit_transaction()
    assert time.monotonic() - began_s < BUDGET_S + GRACE_S
    with pytest.raises(UnknownOutcomeError):  # to abort now might hit the next transaction
        producer.abort_transaction()
    producer.init_transactions()
    assert stage.outputs() == []
