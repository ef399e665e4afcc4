"""A commit without an answer: the log is asked what became of it, and nothing is doubled or lost either way."""

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

from eos_client import Outcome
from eos_client.errors import UnknownOutcomeError
from tests.kafka.kafka_support import PATIENT, values
from tests.support.interception import intercepting
from tests.support.waiting import WAIT_S, wait_for


class UnansweredCommit:
    """The commit that follows `next_is(...)` is sent or not, and answered with a time-out in any case."""

    def __init__(self):
        self._sends = None
        self.factory = intercepting(Producer, commit_transaction=self._commit)

    def next_is(self, *, sent):
        self._sends = sent

    def _commit(self, raw, *arguments):
        sends, self._sends = self._sends, None
        if sends is not False:
            raw.commit_transaction(*arguments)
        if sends is not None:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "no answer to EndTxn", retriable=True))


@pytest.fixture
def unanswered():
    return UnansweredCommit()


def resolved(stage):
    return [event.outcome for event in stage.named("outcome_resolved")]


@pytest.mark.parametrize("sent", [True, False], ids=["that took effect", "that was never sent"])
def test_an_unanswered_commit_is_resolved_from_the_log(stage, unanswered, sent):
    written = stage.load(5)
    producer, consumer = stage.producer(factory=unanswered.factory), stage.subscribed()
    with producer.transaction(consumer) as txn:
        for message in stage.collect(consumer, 4):
            txn.produce(stage.sink, message.value())
    assert txn.outcome is Outcome.COMMITTED
    unanswered.next_is(sent=sent)
    with producer.transaction(consumer) as txn:
        for message in stage.collect(consumer, 4):
            txn.produce(stage.sink, message.value())
    assert txn.outcome is (Outcome.COMMITTED if sent else Outcome.ABORTED)
    assert resolved(stage) == ["committed" if sent else "aborted"]
    assert len(stage.outputs()) == (8 if sent else 4)
    with producer.transaction(consumer) as txn:
        rest = stage.collect(consumer, 2 if sent else 6)
        for message in rest:
            txn.produce(stage.sink, message.value())
        assert values(consumer.consume(10, 0.2)) == []
    assert txn.outcome is Outcome.COMMITTED
    assert sorted(stage.outputs()) == sorted(written)
    assert stage.committed() == {0: 5, 1: 5}


@pytest.mark.parametrize("sent", [True, False], ids=["that took effect", "that was never sent"])
def test_an_unanswered_commit_inside_revoke_leaves_every_record_written_once(stage, unanswered, sent):
    written = stage.load(5)
    producer, consumer = stage.patient_producer(factory=unanswered.factory), stage.subscribed(gate=PATIENT)
    second_producer = stage.producer()
    stage.hold(producer, consumer, 10)
    unanswered.next_is(sent=sent)
    second = stage.subscribed(hook=lambda event: None)
    wait_for(
        lambda: resolved(stage),
        "the commit in revoke",
        consumer.adapter.fetching.serve_callbacks,
        lambda: second.consume(0, 0.02),
    )
    assert resolved(stage) == ["committed" if sent else "aborted"]

    def copy_by_the_second():
        with second_producer.transaction(second) as txn:
            for message in second.consume(100, 0.05):
                txn.produce(stage.sink, message.value())

    stage.copy_until(producer, consumer, lambda: stage.committed() == {0: 5, 1: 5}, copy_by_the_second)
    assert sorted(stage.outputs()) == sorted(written)


def test_an_unanswered_commit_without_inputs_cannot_be_resolved_and_says_so(stage, unanswered):
    producer, consumer = stage.producer(factory=unanswered.factory), stage.subscribed()
    unanswered.next_is(sent=False)
    with pytest.raises(UnknownOutcomeError, match="consumed nothing"), producer.transaction(consumer) as txn:
        txn.produce(stage.sink, b"lost or not")
    assert resolved(stage) == ["unknown"]
    with producer.transaction(consumer) as txn:
        txn.produce(stage.sink, b"afterwards")
    assert txn.outcome is Outcome.COMMITTED
    assert stage.outputs() == ["afterwards"]
    assert [event.outcome for event in stage.named("producer_recovered")] == ["unknown"]


def test_after_an_unanswered_commit_of_ones_own_the_committed_offsets_tell(stage, unanswered):
    stage.load(1)
    producer, consumer = stage.producer(factory=unanswered.factory), stage.subscribed()
    for sent in (False, True):
        stage.collect(consumer, 2)
        offsets = consumer.position(consumer.assignment())
        producer.begin_transaction()
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata())
        unanswered.next_is(sent=sent)
        with pytest.raises(UnknownOutcomeError) as unknown:
            producer.commit_transaction(WAIT_S)
        assert isinstance(unknown.value, KafkaException)
        producer.init_transactions()
        answered = consumer.committed(offsets, WAIT_S)
        assert {p.offset for p in answered} == ({1} if sent else {-1001})
        consumer.adapter.fetching.rewind()
