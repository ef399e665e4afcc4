"""What may not be done with a block is refused with what to do instead, and loses nothing."""

import threading
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from eos_client import EosProducer, Outcome
from eos_client.errors import ConfigurationError, TransactionStateError, WrongThreadError
from tests.clients.simulated_stage import GROUP, SINK, SOURCE, SimulatedStage


@pytest.fixture
def stage():
    return SimulatedStage()


def copy(stage, txn, consumer, count=4):
    for record in stage.collect(consumer, count):
        txn.produce(SINK, record.value())


def test_a_block_inside_a_block_is_refused_and_the_outer_one_goes_on(stage):
    producer, consumer = stage.producer(), stage.subscribed()
    with producer.transaction(consumer) as txn:
        copy(stage, txn, consumer, 2)
        with pytest.raises(TransactionStateError, match="block inside a block"):
            producer.transaction(consumer).__enter__()
        assert stage.cluster.committed(GROUP) == {}
        copy(stage, txn, consumer, 2)
    assert txn.outcome is Outcome.COMMITTED
    assert stage.outputs == stage.inputs


def test_a_block_that_was_taken_for_interrupted_writes_nothing_into_the_next_one(stage):
    """Two attempts to nest in a row look like the next block after one whose end was interrupted."""
    producer, consumer = stage.producer(), stage.subscribed()
    outer = producer.transaction(consumer)

    def nests_twice():
        with outer:
            records = stage.collect(consumer, 2)
            with pytest.raises(TransactionStateError, match="block inside a block"):
                producer.transaction(consumer).__enter__()
            with producer.transaction(consumer) as inner:
                with pytest.raises(TransactionStateError, match="was abandoned"):
                    outer.produce(SINK, records[0].value())
                copy(stage, inner, consumer, 2)
            assert inner.outcome is Outcome.COMMITTED

    with pytest.raises(TransactionStateError, match="consumed again"):
        nests_twice()
    assert outer.outcome is Outcome.ABORTED
    stage.copy_the_rest(producer, consumer)
    assert stage.outputs == stage.inputs


def test_the_exception_of_a_block_that_was_given_up_is_raised(stage):
    producer, consumer = stage.producer(), stage.subscribed()

    def nests_twice_and_raises():
        with producer.transaction(consumer):
            with pytest.raises(TransactionStateError, match="block inside a block"):
                producer.transaction(consumer).__enter__()
            with producer.transaction(consumer) as inner:
                copy(stage, inner, consumer)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        nests_twice_and_raises()
    assert stage.outputs == stage.inputs


@pytest.mark.parametrize("which", ["another producer", "another consumer"])
def test_clients_of_an_open_block_are_refused_to_another_one(stage, which):
    producer, consumer = stage.producer(), stage.subscribed()
    other_producer = stage.producer(transactional_id="billing-1")
    with producer.transaction(consumer) as txn:
        copy(stage, txn, consumer)
        other_consumer = stage.subscribed()
        other = (other_producer, consumer) if which == "another producer" else (producer, other_consumer)
        with pytest.raises(TransactionStateError, match="end that one first"):
            other[0].transaction(other[1]).__enter__()
    assert txn.outcome is Outcome.COMMITTED
    assert stage.outputs == stage.inputs


@pytest.mark.parametrize("which", ["another producer", "another consumer"])
def test_clients_of_a_held_transaction_are_refused_to_another_one(stage, which):
    producer, consumer = stage.producer(), stage.subscribed()
    stage.hold(producer, consumer)
    other_producer, other_consumer = stage.producer(transactional_id="billing-1"), stage.subscribed()
    other = (other_producer, consumer) if which == "another producer" else (producer, other_consumer)
    with pytest.raises(TransactionStateError, match="end that one first"):
        other[0].transaction(other[1]).__enter__()


def test_two_producers_may_take_turns_with_one_consumer(stage):
    first, second = stage.producer(), stage.producer(transactional_id="billing-1")
    consumer = stage.subscribed()
    for number in range(4):
        with (first, second)[number % 2].transaction(consumer) as txn:
            copy(stage, txn, consumer, 1)
        assert txn.outcome is Outcome.COMMITTED
        assert consumer.open_work.session is (first, second)[number % 2]._session
    assert stage.outputs == stage.inputs


def test_the_same_block_cannot_be_entered_twice(stage):
    producer, consumer = stage.producer(), stage.subscribed()
    txn = producer.transaction(consumer)
    with txn:
        copy(stage, txn, consumer)
        with pytest.raises(TransactionStateError, match="entered only once"):
            txn.__enter__()
    with pytest.raises(TransactionStateError, match="entered only once"):
        txn.__enter__()
    assert txn.outcome is Outcome.COMMITTED
    assert stage.outputs == stage.inputs


def test_an_output_after_its_block_or_before_it_opens_no_transaction(stage):
    producer, consumer = stage.producer(), stage.subscribed()
    txn = producer.transaction(consumer)
    with pytest.raises(TransactionStateError, match="before the block"):
        txn.produce(SINK, b"early")
    with txn:
        copy(stage, txn, consumer)
    with pytest.raises(TransactionStateError, match="after the block"):
        txn.produce(SINK, b"late")
    assert not producer._session.state.has_begun
    assert stage.outputs == stage.inputs


def test_an_argument_that_produce_does_not_know_is_named_and_the_block_goes_on(stage):
    producer, consumer = stage.producer(), stage.subscribed()
    with producer.transaction(consumer) as txn:
        with pytest.raises(TypeError, match=r"produce\(\) got an unexpected keyword argument 'on_delivery'"):
            txn.produce(SINK, b"record", on_delivery=print)
        copy(stage, txn, consumer)
    assert txn.outcome is Outcome.COMMITTED
    assert stage.outputs == stage.inputs


def test_a_consumer_that_never_subscribed_is_refused(stage):
    producer = stage.producer()
    with pytest.raises(TransactionStateError, match="has not subscribed"):
        producer.transaction(stage.consumer()).__enter__()


def test_a_producer_whose_transactional_id_is_not_registered_yet_is_told_by_which_call(stage):
    producer = EosProducer(
        {"bootstrap.servers": "simulated", "transactional.id": "new"},
        factory=stage.cluster.producer,
        clock=stage.cluster.clock,
    )

    def copy_all():
        with producer.transaction(consumer) as txn:
            copy(stage, txn, consumer)

    consumer = stage.subscribed()
    with pytest.raises(TransactionStateError, match=r"init_transactions\(\)"):
        copy_all()
    assert stage.cluster.committed(GROUP) == {}


def test_a_consumer_whose_ids_no_transaction_can_name_is_refused_before_anything_is_read(stage):
    with pytest.raises(ConfigurationError, match=r"group\.id='größe'"):
        stage.producer().transaction(stage.subscribed(group_id="größe"))


def test_something_else_than_an_eos_consumer_is_refused(stage):
    with pytest.raises(TypeError, match="EosConsumer"):
        stage.producer().transaction(stage.cluster.consumer({"bootstrap.servers": "simulated", "group.id": "g"}))


def test_a_consumer_that_was_assigned_by_hand_is_refused_until_it_subscribes(stage):
    producer, consumer = stage.producer(), stage.consumer()
    consumer.assign([TopicPartition(SOURCE, 0), TopicPartition(SOURCE, 1)])
    with pytest.raises(TransactionStateError, match="by hand"):
        producer.transaction(consumer).__enter__()
    assert stage.collect(consumer, 4)
    consumer.unassign()
    subscribed = stage.subscribed()
    stage.copy_the_rest(producer, subscribed)
    assert stage.outputs == stage.inputs


def test_an_assignment_that_the_library_refuses_is_none(stage):
    producer, consumer = stage.producer(), stage.subscribed()
    with pytest.raises(TypeError):
        consumer.assign(["orders"])
    stage.copy_the_rest(producer, consumer)
    assert stage.outputs == stage.inputs


BY_HAND = {
    "assign": lambda consumer: consumer.assign([TopicPartition(SOURCE, 0)]),
    "incremental_assign": lambda consumer: consumer.incremental_assign([TopicPartition(SOURCE, 0)]),
    "unassign": lambda consumer: consumer.unassign(),
    "incremental_unassign": lambda consumer: consumer.incremental_unassign([TopicPartition(SOURCE, 0)]),
}


@pytest.mark.parametrize("call", BY_HAND)
def test_an_assignment_by_hand_inside_a_block_is_refused(stage, call):
    producer, consumer = stage.producer(), stage.subscribed()
    with producer.transaction(consumer) as txn:
        copy(stage, txn, consumer)
        with pytest.raises(TransactionStateError, match="outside a rebalance callback"):
            BY_HAND[call](consumer)
    assert txn.outcome is Outcome.COMMITTED
    assert stage.outputs == stage.inputs


def test_assign_inside_on_assign_is_no_manual_assignment(stage):
    starts = []

    def on_assign(consumer, partitions):
        starts.append(partitions)
        consumer.assign(partitions)

    stage = SimulatedStage("range")
    producer, consumer = stage.producer(), stage.subscribed(callbacks={"on_assign": on_assign})
    with producer.transaction(consumer) as txn:
        copy(stage, txn, consumer)
    assert starts
    assert txn.outcome is Outcome.COMMITTED
    assert stage.outputs == stage.inputs


TRANSACTIONAL = {
    "init_transactions": lambda producer, consumer: producer.init_transactions(5.0),
    "begin_transaction": lambda producer, consumer: producer.begin_transaction(),
    "send_offsets_to_transaction": lambda producer, consumer: producer.send_offsets_to_transaction(
        [TopicPartition(SOURCE, 0, 2)], consumer.adapter.snapshot().group_metadata, 5.0
    ),
    "commit_transaction": lambda producer, consumer: producer.commit_transaction(5.0),
    "abort_transaction": lambda producer, consumer: producer.abort_transaction(5.0),
    "commit": lambda producer, consumer: consumer.commit(asynchronous=False),
}


@pytest.mark.parametrize("call", TRANSACTIONAL)
@pytest.mark.parametrize("written", [False, True], ids=["before the first output", "after it"])
def test_transactional_calls_of_the_application_inside_a_block_are_refused(stage, call, written):
    producer, consumer = stage.producer(), stage.subscribed()
    with producer.transaction(consumer) as txn:
        records = stage.collect(consumer, 4)
        if written:
            txn.produce(SINK, records.pop(0).value())
        with pytest.raises(TransactionStateError):
            TRANSACTIONAL[call](producer, consumer)
        for record in records:
            txn.produce(SINK, record.value())
    assert txn.outcome is Outcome.COMMITTED
    assert stage.outputs == stage.inputs


@pytest.mark.parametrize("call", TRANSACTIONAL)
def test_transactional_calls_of_the_application_beside_a_held_transaction_are_refused(stage, call):
    producer, consumer = stage.producer(), stage.subscribed()
    stage.hold(producer, consumer)
    with pytest.raises(TransactionStateError):
        TRANSACTIONAL[call](producer, consumer)
    stage.cluster.rebalance()
    stage.copy_the_rest(producer, consumer)
    assert stage.outputs == stage.inputs


@pytest.mark.parametrize(
    "write",
    [
        lambda producer: producer.produce(SINK, b"beside"),
        lambda producer: producer.produce_batch(SINK, [{"value": b"beside"}]),
    ],
    ids=["produce", "produce_batch"],
)
def test_an_output_of_no_block_is_not_written_into_a_held_transaction(stage, write):
    """It would be gone if that is aborted, and its records would not come again."""
    producer, consumer = stage.producer(), stage.subscribed()
    stage.hold(producer, consumer)
    with pytest.raises(TransactionStateError, match="outside a block"):
        write(producer)
    stage.cluster.rebalance()
    stage.copy_the_rest(producer, consumer)
    assert stage.outputs == stage.inputs


def test_a_callback_may_write_into_a_held_transaction(stage):
    producer, consumer = stage.producer(), stage.consumer()
    consumer.subscribe([SOURCE], on_revoke=lambda *_: producer.produce(SINK, b"by the callback"))
    stage.hold(producer, consumer)
    stage.cluster.revoke((SOURCE, 1))
    stage.wait_for(lambda: len(stage.outputs) == 5, lambda: consumer.poll(0.1))
    assert b"by the callback" in stage.outputs


def test_plain_transactions_between_blocks_are_as_before(stage):
    producer, consumer = stage.producer(), stage.subscribed()
    with producer.transaction(consumer) as txn:
        copy(stage, txn, consumer)
    producer.begin_transaction()
    producer.produce(SINK, b"plain")
    producer.commit_transaction(5.0)
    assert stage.outputs == sorted([*stage.inputs, b"plain"])


def test_a_block_inside_a_rebalance_callback_is_refused(stage):
    refusals: list[Any] = []

    def on_revoke(consumer, partitions):
        if partitions and not refusals:
            with pytest.raises(TransactionStateError, match="inside a rebalance callback") as refused:
                producer.transaction(consumer).__enter__()
            refusals.append(refused.value)

    producer, consumer = stage.producer(), stage.subscribed(callbacks={"on_revoke": on_revoke})
    with producer.transaction(consumer) as txn:
        copy(stage, txn, consumer)
    assert txn.outcome is Outcome.COMMITTED
    stage.until_revoked(consumer)
    assert refusals
    stage.cluster.give_back()
    stage.copy_the_rest(producer, consumer)
    assert stage.outputs == stage.inputs


# -- other threads ---------------------------------------------------------------------------------------------------


def in_another_thread(call):
    """Make ``call`` in a thread of its own, and return what it raised."""
    raised: list[BaseException] = []

    def run():
        try:
            call()
        except BaseException as error:  # noqa: BLE001  # whatever it is, the test looks at it
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return raised[0] if raised else None


@pytest.mark.parametrize(
    "call",
    [
        lambda txn, _producer, _consumer, _record: txn.produce(SINK, b"foreign"),
        lambda txn, _producer, _consumer, record: txn.dead_letter(record, ValueError("foreign"), topic=SINK),
        lambda _txn, producer, _consumer, _record: producer.produce(SINK, b"foreign"),
        lambda _txn, producer, _consumer, _record: producer.produce_batch(SINK, [{"value": b"foreign"}]),
    ],
    ids=["txn.produce", "dead_letter", "produce", "produce_batch"],
)
def test_a_block_one_of_whose_outputs_was_refused_by_thread_commits_nothing_and_says_why(stage, call):
    """A thread pool keeps the error of a call, and perhaps nobody asks for it."""
    producer, consumer = stage.producer(), stage.subscribed()
    refused: list[Any] = []

    def block() -> None:
        with producer.transaction(consumer) as txn:
            blocks.append(txn)
            for record in stage.collect(consumer, 2):
                refused.append(in_another_thread(lambda: call(txn, producer, consumer, record)))  # noqa: B023
                txn.produce(SINK, record.value())

    blocks: list[Any] = []
    with pytest.raises(WrongThreadError) as raised:
        block()
    assert [type(error) for error in refused] == [WrongThreadError] * 2
    assert raised.value is refused[-1]
    assert blocks[0].outcome is Outcome.ABORTED
    assert "WrongThreadError" in blocks[0].reason
    stage.copy_the_rest(producer, consumer)
    assert stage.outputs == stage.inputs


def test_an_error_of_the_application_comes_before_that_of_a_refused_write(stage):
    producer, consumer = stage.producer(), stage.subscribed()

    def block() -> None:
        with producer.transaction(consumer) as txn:
            in_another_thread(lambda: txn.produce(SINK, b"foreign"))
            stage.collect(consumer, 2)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        block()
    stage.copy_the_rest(producer, consumer)
    assert stage.outputs == stage.inputs


@pytest.mark.parametrize(
    "call",
    [
        lambda producer, consumer: producer.transaction(consumer).__enter__(),
        lambda producer, _consumer: producer.flush(),
        lambda _producer, consumer: consumer.consume(1, 0.0),
    ],
    ids=["another block", "flush", "consume"],
)
def test_a_call_of_another_thread_that_writes_nothing_leaves_the_block_as_it_is(stage, call):
    producer, consumer = stage.producer(), stage.subscribed()
    for _ in range(2):
        with producer.transaction(consumer) as txn:
            for record in stage.collect(consumer, 2):
                error = in_another_thread(lambda: call(producer, consumer))
                assert isinstance(error, WrongThreadError), error
                txn.produce(SINK, record.value())
        assert txn.outcome is Outcome.COMMITTED
        assert isinstance(in_another_thread(lambda: producer.produce(SINK, b"between blocks")), WrongThreadError)
    assert sorted(stage.outputs) == stage.inputs


def test_a_block_that_another_thread_ends_is_aborted_and_not_committed_without_its_records(stage):
    producer, consumer = stage.producer(), stage.subscribed()

    def ended_by_another_thread():
        with producer.transaction(consumer) as txn:
            blocks.append(txn)
            error = in_another_thread(lambda: txn.__exit__(None, None, None))
            assert isinstance(error, WrongThreadError), error
            copy(stage, txn, consumer, 4)

    blocks: list[Any] = []
    with pytest.raises(TransactionStateError):
        ended_by_another_thread()
    assert [block.outcome for block in blocks] == [Outcome.ABORTED]
    stage.copy_the_rest(producer, consumer)
    assert stage.outputs == stage.inputs


def test_an_inner_block_is_refused_again_once_the_outer_one_was_used(stage):
    producer, consumer = stage.producer(), stage.subscribed()
    with producer.transaction(consumer) as outer:
        for _ in range(2):
            with pytest.raises(TransactionStateError):
                producer.transaction(consumer).__enter__()
            outer.produce(SINK, b"used")
    assert outer.outcome is Outcome.COMMITTED
    assert stage.outputs == [b"used", b"used"]
