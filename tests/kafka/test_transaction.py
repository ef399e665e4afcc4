"""One `with producer.transaction(consumer)` block on a real broker: committed, aborted, held, and what is visible."""

import contextlib

import pytest
from confluent_kafka import TopicPartition

from eos_client import EosProducer, Outcome
from eos_client.core.commit_gate import GatePolicy, GateSettings, RuleName
from eos_client.errors import FatalClientError, TransactionStateError
from tests.kafka.kafka_support import PATIENT, settle, values
from tests.support.interception import close_the_gate
from tests.support.waiting import WAIT_S, wait_for
from tests.verification.protocols import GroupProtocol


def test_a_committed_block_makes_outputs_and_offsets_visible_together(any_stage):
    stage = any_stage
    written = stage.load(10)
    producer, consumer = stage.producer(), stage.subscribed()
    with producer.transaction(consumer) as txn:
        for message in stage.collect(consumer, 20):
            txn.produce(stage.sink, message.value())
    assert txn.outcome is Outcome.COMMITTED
    assert sorted(stage.outputs()) == sorted(written)
    assert stage.committed() == {0: 10, 1: 10}
    assert [event.records_in for event in stage.named("transaction_committed")] == [20]


def test_a_loop_of_poll_commits_every_transaction(stage):
    written = stage.load(5)
    producer, consumer = stage.producer(), stage.subscribed()

    def one_transaction():
        with producer.transaction(consumer) as txn:
            for message in filter(None, (consumer.poll(0.05) for _ in range(3))):
                txn.produce(stage.sink, message.value())

    wait_for(lambda: stage.committed() == {0: 5, 1: 5}, "all committed", one_transaction)
    assert sorted(stage.outputs()) == sorted(written)
    assert stage.named("transaction_aborted") == []


def test_a_backlog_is_taken_in_batches_of_the_size_that_was_asked_for(stage):
    """What the end of a block fetches while it serves callbacks must not become the whole of the next batch."""
    stage.load(1000)
    producer, consumer = stage.producer(), stage.subscribed()
    taken: list[int] = []
    while sum(taken) < 2000:
        with producer.transaction(consumer):
            taken.append(len(consumer.consume(100, 1.0)))
    # On a busy machine some calls may end before anything has come.
    assert len([each for each in taken if each]) <= 2 * 2000 / 100


def test_nothing_of_an_open_block_is_visible(stage):
    stage.load(3)
    producer, consumer = stage.producer(), stage.subscribed()
    with producer.transaction(consumer) as txn:
        for message in stage.collect(consumer, 6):
            txn.produce(stage.sink, message.value())
        producer.flush(WAIT_S)
        assert stage.visible() == []
        assert stage.committed() == {0: None, 1: None}


def test_an_exception_in_the_block_aborts_and_the_records_come_again(stage):
    written = stage.load(10)
    producer, consumer = stage.producer(), stage.subscribed()
    txn = producer.transaction(consumer)

    def block():
        with txn:
            for _ in stage.collect(consumer, 15):
                txn.produce(stage.sink, b"must not be seen")
            producer.flush(WAIT_S)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        block()
    assert txn.outcome is Outcome.ABORTED
    assert "ZeroDivisionError" in txn.reason
    assert stage.outputs() == []
    assert stage.committed() == {0: None, 1: None}
    with producer.transaction(consumer) as txn:
        again = stage.collect(consumer, 20)
        for message in again:
            txn.produce(stage.sink, message.value())
    assert txn.outcome is Outcome.COMMITTED
    for partition in range(2):
        assert [m.offset() for m in again if m.partition() == partition] == list(range(10))
    assert sorted(stage.outputs()) == sorted(written)


def test_an_abort_goes_back_to_the_first_uncommitted_record_not_further(stage):
    stage.load([10, 10])
    producer, consumer = stage.producer(), stage.subscribed(queued_min_messages=1)
    with producer.transaction(consumer):
        committed = stage.collect(consumer, 7)
    for _ in range(3):
        with contextlib.suppress(ZeroDivisionError), producer.transaction(consumer):
            stage.collect(consumer, 5)
            raise ZeroDivisionError
    with producer.transaction(consumer):
        rest = stage.collect(consumer, 13)
    assert consumer.consume(10, 0.2) == []
    for partition in range(2):
        seen = [m.offset() for m in committed + rest if m.partition() == partition]
        assert seen == list(range(10))


def test_outputs_only_commit(stage):
    producer, consumer = stage.producer(), stage.subscribed()
    with producer.transaction(consumer) as txn:
        txn.produce(stage.sink, b"alone")
    assert txn.outcome is Outcome.COMMITTED
    assert stage.outputs() == ["alone"]


def test_inputs_only_commit_their_offsets(stage):
    stage.load(4)
    producer, consumer = stage.producer(), stage.subscribed()
    with producer.transaction(consumer) as txn:
        stage.collect(consumer, 8)
    assert txn.outcome is Outcome.COMMITTED
    assert stage.committed() == {0: 4, 1: 4}


def test_an_empty_block_commits_nothing(stage):
    producer, consumer = stage.producer(), stage.subscribed()
    with producer.transaction(consumer) as txn:
        pass
    assert txn.outcome is Outcome.COMMITTED
    assert stage.named("transaction_committed") == []


def test_a_closed_gate_skips_and_the_same_transaction_commits_once_the_generation_moves(any_stage):
    stage = any_stage
    written = stage.load(5)
    producer, consumer = stage.patient_producer(), stage.subscribed(gate=PATIENT)
    with producer.transaction(consumer) as txn:
        for message in stage.collect(consumer, 10):
            txn.produce(stage.sink, message.value())
        close_the_gate(consumer)
    assert txn.outcome is Outcome.SKIPPED
    assert "KAFKA-19779" in txn.reason
    written += stage.load(1, start=5)
    with producer.transaction(consumer) as txn:
        for message in stage.collect(consumer, 2):
            txn.produce(stage.sink, message.value())
    assert txn.outcome is Outcome.SKIPPED
    assert stage.visible() == []
    assert stage.committed() == {0: None, 1: None}
    stage.move_generation(consumer)
    with producer.transaction(consumer) as txn:
        pass
    assert txn.outcome is Outcome.COMMITTED
    assert [event.records_out for event in stage.named("transaction_committed")] == [12]
    assert sorted(stage.outputs()) == sorted(written)
    assert stage.committed() == {0: 6, 1: 6}
    assert stage.named("commit_skipped")[0].generation == stage.named("commit_skipped")[0].revocation_generation


def test_a_hold_ends_with_an_abort_at_its_limit(stage):
    written = stage.load(3)
    producer = stage.producer()
    consumer = stage.subscribed(gate=GateSettings(hold_limit_s=0.3))
    with producer.transaction(consumer) as txn:
        for message in stage.collect(consumer, 6):
            txn.produce(stage.sink, message.value())
        close_the_gate(consumer)
    outcomes = [txn.outcome]

    def try_again():
        with producer.transaction(consumer) as again:
            consumer.adapter.fetching.wait_while_paused(0.05)
        outcomes.append(again.outcome)

    wait_for(lambda: outcomes[-1] is not Outcome.SKIPPED, "the hold to end", try_again)
    assert outcomes[-1] is Outcome.ABORTED
    assert stage.named("transaction_aborted")[0].rule is RuleName.HELD_TOO_LONG
    assert stage.outputs() == []
    assert sorted(values(stage.collect(consumer, 6))) == sorted(written)


def test_the_block_policy_stays_in_poll_until_the_generation_moves_and_then_commits(stage):
    written = stage.load(3)
    producer = stage.patient_producer()
    consumer = stage.subscribed(gate=GateSettings(policy=GatePolicy.BLOCK, hold_limit_s=WAIT_S))
    with producer.transaction(consumer) as txn:
        for message in stage.collect(consumer, 6):
            txn.produce(stage.sink, message.value())
        close_the_gate(consumer)
        stage.raw_consumer()
    assert txn.outcome is Outcome.COMMITTED
    assert sorted(stage.outputs()) == sorted(written)
    assert len(stage.named("commit_skipped")) == 1


def test_a_plain_commit_with_an_open_transaction_is_refused(stage):
    stage.load(1)
    producer, consumer = stage.producer(), stage.subscribed()
    with producer.transaction(consumer) as txn:
        for message in stage.collect(consumer, 2):
            txn.produce(stage.sink, message.value())
        with pytest.raises(TransactionStateError):
            consumer.commit(asynchronous=False)
        with pytest.raises(TransactionStateError):
            stage.producer().transaction(consumer)
    assert txn.outcome is Outcome.COMMITTED


def test_a_plain_commit_stays_refused_when_the_producer_is_closed(stage):
    stage.load(1)
    producer, consumer = stage.producer(), stage.subscribed()
    with producer.transaction(consumer):
        stage.collect(consumer, 2)
    stage.load(2, start=1)
    stage.collect(consumer, 4)
    for closes in (lambda: None, producer.close):
        closes()
        for call in (lambda: consumer.commit(asynchronous=False), consumer.commit, consumer.consumer_group_metadata):
            with pytest.raises(TransactionStateError, match="another consumer"):
                call()
    assert stage.committed() == {0: 1, 1: 1}
    with stage.producer().transaction(consumer):
        pass
    assert stage.committed() == {0: 3, 1: 3}


def test_producing_before_init_transactions_says_what_to_do(stage):
    consumer = stage.subscribed()
    producer = EosProducer({"bootstrap.servers": stage.bootstrap})
    with producer, pytest.raises(TransactionStateError), producer.transaction(consumer) as txn:
        txn.produce(stage.sink, b"")


def test_a_producer_may_serve_another_consumer_once_its_transaction_is_over(stage):
    written = stage.load(2)
    producer = stage.producer()
    with stage.subscribed() as first, producer.transaction(first):
        stage.collect(first, 4)
    written = stage.load(1, start=2)
    second = stage.subscribed()
    with producer.transaction(second) as txn:
        for message in stage.collect(second, 2):
            txn.produce(stage.sink, message.value())
    settle(stage, producer, second)
    assert sorted(stage.outputs()) == sorted(written)


def test_an_abort_after_going_back_by_hand_goes_to_the_first_record_taken_since(stage):
    stage.load([20, 0])
    producer, consumer = stage.producer(), stage.subscribed()
    with producer.transaction(consumer):
        stage.collect(consumer, 10)
    with contextlib.suppress(ZeroDivisionError), producer.transaction(consumer):
        stage.collect(consumer, 5)
        consumer.seek(TopicPartition(stage.source, 0, 3))
        assert [m.offset() for m in stage.collect(consumer, 2)] == [3, 4]
        raise ZeroDivisionError
    with producer.transaction(consumer) as txn:
        again = stage.collect(consumer, 17)
        assert consumer.consume(10, 0.2) == []
    assert [m.offset() for m in again] == list(range(3, 20))
    assert txn.outcome is Outcome.COMMITTED
    assert stage.committed()[0] == 20


def test_a_seek_after_an_abort_wins_over_the_rewind(stage):
    stage.load([20, 0])
    producer, consumer = stage.producer(), stage.subscribed()
    with contextlib.suppress(ZeroDivisionError), producer.transaction(consumer):
        stage.collect(consumer, 5)
        raise ZeroDivisionError
    consumer.seek(TopicPartition(stage.source, 0, 15))
    assert [m.offset() for m in stage.collect(consumer, 5)] == [15, 16, 17, 18, 19]
    consumer.seek(TopicPartition(stage.source, 0, 2))
    assert [m.offset() for m in stage.collect(consumer, 18)] == list(range(2, 20))


def test_a_consumer_that_the_library_has_given_up_says_so_in_each_block(any_stage):
    stage, producer = any_stage, any_stage.producer()
    first = stage.subscribed(group_instance_id="desk-1")
    wait_for(first.assignment, "an assignment", lambda: first.consume(1, 0.1))
    second = stage.subscribed(group_instance_id="desk-1")
    fenced = second if stage.protocol is GroupProtocol.KIP_848 else first
    if fenced is first:
        wait_for(second.assignment, "an assignment", lambda: second.consume(1, 0.1))

    def one_block():
        with producer.transaction(fenced):
            fenced.consume(10, 0.2)

    for _ in range(2):
        with pytest.raises(FatalClientError, match="the consumer cannot go on"):
            wait_for(lambda: False, "the fatal error", one_block)
    fenced.close()
