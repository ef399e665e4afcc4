"""Once a call inside a block has failed, nothing of the block is committed, whatever the application does with it."""

import contextlib
import re
from dataclasses import replace
from typing import Any
from unittest import mock

import pytest

from eos_client import Outcome
from eos_client.clients import transaction_session
from eos_client.core import transaction_lifecycle
from eos_client.core.forced_ends import ForcedEnd
from eos_client.core.model import UnexpectedEventError
from eos_client.core.transaction_lifecycle import TRANSITIONS, Phase, TransactionEvent
from eos_client.errors import (
    AbortableError,
    ClusterUnavailableError,
    ClusterUnfitError,
    EosError,
    FatalClientError,
    OutputRefusedError,
    ProducerFencedError,
)
from eos_client.testing.simulator.brokers.settings import BrokerSettings
from tests.clients.simulated_stage import GROUP, SINK, SOURCE, SimulatedStage
from tests.support.protocols import EAGER, PROTOCOLS

TOO_LARGE = b"x" * 2_000_000
KAFKAS_LIMIT = BrokerSettings(log_message_timestamp_after_max_s=3600)
AHEAD_S = 7200
ATTEMPTS_MAX = 400
"""More attempts to initialise than there is time for."""


@pytest.fixture
def stage():
    return SimulatedStage()


def undelivered(stage, producer):
    """Let an output fail, so that librdkafka takes no more of this transaction and says so at the next one."""
    stage.cluster.refuse("Produce", "INVALID_RECORD")
    producer.produce(SINK, b"undelivered")
    producer.flush(5.0)


def raise_in_a_block_whose_abort_fails(stage, producer, consumer, txn):
    """Write four records, then let the block raise while neither an abort nor another handle is to be had."""
    with txn:
        for record in stage.collect(consumer, 4):
            txn.produce(SINK, record.value())
        producer.flush(5.0)
        stage.cluster.refuse("EndTxn", "UNKNOWN_PRODUCER_ID")
        for _ in range(ATTEMPTS_MAX):
            stage.cluster.refuse("InitProducerId", "COORDINATOR_NOT_AVAILABLE")
        raise ZeroDivisionError("theirs")


def test_a_block_whose_abort_fails_names_both_failures(stage):
    producer, consumer = stage.producer(recovery_timeout_s=2.0), stage.subscribed()
    txn = producer.transaction(consumer)

    with pytest.raises(ClusterUnavailableError, match="COORDINATOR_NOT_AVAILABLE") as raised:
        raise_in_a_block_whose_abort_fails(stage, producer, consumer, txn)
    assert txn.outcome is Outcome.ABORTED
    assert txn.reason == f"the block raised ZeroDivisionError: theirs; and the abort failed: {raised.value}"
    assert stage.outputs == []
    stage.cluster.faults.withdraw()
    stage.copy_the_rest(producer, consumer)
    assert stage.outputs == stage.inputs
    assert [event.records_in for event in stage.named("transaction_aborted")] == [4]


@pytest.mark.parametrize("consumer_first", [True, False])
def test_an_abort_that_failed_is_counted_once_by_the_close(stage, consumer_first):
    producer, consumer = stage.producer(recovery_timeout_s=2.0), stage.subscribed()
    txn = producer.transaction(consumer)

    with pytest.raises(ClusterUnavailableError):
        raise_in_a_block_whose_abort_fails(stage, producer, consumer, txn)
    assert (txn.outcome, producer.counters.aborted) == (Outcome.ABORTED, 0)
    stage.cluster.faults.withdraw()
    for client in (consumer, producer) if consumer_first else (producer, consumer):
        client.close()
    assert [event.records_in for event in stage.named("transaction_aborted")] == [4]
    assert producer.counters.aborted == 1


@pytest.mark.parametrize("plain", [False, True], ids=["txn.produce", "producer.produce"])
def test_a_swallowed_error_of_produce_is_not_committed(stage, plain):
    producer, consumer = stage.producer(), stage.subscribed()
    with producer.transaction(consumer) as txn:
        records = stage.collect(consumer, 4)
        txn.produce(SINK, records[0].value())
        with contextlib.suppress(EosError):
            undelivered(stage, producer)
        for record in records[1:]:
            with pytest.raises(AbortableError):
                (producer if plain else txn).produce(SINK, record.value())
    assert txn.outcome is Outcome.ABORTED
    assert stage.cluster.committed(GROUP) == {}
    assert stage.outputs == []
    stage.copy_the_rest(producer, consumer)
    assert stage.outputs == stage.inputs


def test_an_error_of_the_plain_produce_ends_the_block_quietly(stage):
    producer, consumer = stage.producer(), stage.subscribed()
    with producer.transaction(consumer) as txn:
        txn.produce(SINK, stage.collect(consumer, 4)[0].value())
        undelivered(stage, producer)
        producer.produce(SINK, b"one more")
    assert txn.outcome is Outcome.ABORTED
    stage.copy_the_rest(producer, consumer)
    assert stage.outputs == stage.inputs


def test_a_queue_that_stayed_full_aborts_the_block_although_the_client_library_would_commit(stage):
    """The library knows nothing of an output that found no room."""
    producer, consumer = stage.producer(queue_buffering_max_messages=1), stage.subscribed()
    with producer.transaction(consumer) as txn:
        records = stage.collect(consumer, 4)
        txn.produce(SINK, records[0].value())
        stage.cluster.delay("Produce", 3.0)
        with pytest.raises(AbortableError, match="queue stayed full"):
            txn.produce(SINK, records[1].value())
    assert txn.outcome is Outcome.ABORTED
    assert stage.outputs == []
    stage.copy_the_rest(producer, consumer)
    assert stage.outputs == stage.inputs


@pytest.mark.parametrize("callback", [[].append, lambda *_: int("x")], ids=["of C", "of Python"])
def test_what_a_delivery_callback_raises_while_a_write_waits_is_no_refusal_of_its_output(stage, callback):
    """An application may skip an output that is refused with TypeError or ValueError."""
    producer = stage.producer(queue_buffering_max_messages=1, callbacks={"on_delivery": callback})
    consumer = stage.subscribed()

    def block() -> None:
        with producer.transaction(consumer) as txn:
            for record in stage.collect(consumer, 4):
                with contextlib.suppress(TypeError, ValueError):
                    txn.produce(SINK, record.value())

    with pytest.raises((TypeError, ValueError)):
        block()
    assert stage.outputs == stage.inputs[:4]


def test_a_block_under_a_client_quota_says_what_helps_and_smaller_blocks_get_through(stage):
    producer, consumer = stage.producer(batch_num_messages=1), stage.subscribed()
    stage.cluster.brokers.settings = replace(stage.cluster.brokers.settings, producer_byte_rate=100.0)
    with producer.transaction(consumer) as txn:
        for record in stage.collect(consumer, 4):
            txn.produce(SINK, record.value() + b"x" * 80)
    assert txn.outcome is Outcome.ABORTED
    assert re.search("client quota .* smaller transactions .* longer `commit_timeout_s`", txn.reason)
    while sum(stage.cluster.committed(GROUP).values()) < 4:
        with producer.transaction(consumer) as txn:
            for record in consumer.consume(1, 0.2):
                txn.produce(SINK, record.value())
    assert stage.outputs == stage.inputs


def test_a_failed_transaction_is_not_committed_by_plain_calls_either(stage):
    producer = stage.producer(queue_buffering_max_messages=1)
    producer.begin_transaction()
    producer.produce(SINK, b"first")
    stage.cluster.delay("Produce", 3.0)
    with pytest.raises(AbortableError, match="queue stayed full") as full:
        producer.adapter.await_room(1.0, producer.produce, SINK, b"second")
    with pytest.raises(AbortableError) as refused:
        producer.commit_transaction(5.0)
    assert refused.value is full.value
    producer.abort_transaction(5.0)
    producer.begin_transaction()
    producer.produce(SINK, b"again")
    producer.commit_transaction(5.0)
    assert stage.outputs == [b"again"]


def test_a_caught_refusal_of_one_output_is_the_applications_decision_to_go_without_it(stage):
    producer, consumer = stage.producer(), stage.subscribed()
    with producer.transaction(consumer) as txn:
        first, *others = stage.collect(consumer, 4)
        with pytest.raises(OutputRefusedError):
            txn.produce(SINK, first.value() + TOO_LARGE)
        for record in others:
            txn.produce(SINK, record.value())
    assert txn.outcome is Outcome.COMMITTED
    assert len(stage.outputs) == 3
    assert sum(stage.cluster.committed(GROUP).values()) == 4


def test_a_refusal_that_leaves_the_block_aborts_it_and_goes_up(stage):
    producer, consumer = stage.producer(), stage.subscribed()
    txn = producer.transaction(consumer)

    def block():
        with txn:
            stage.collect(consumer, 4)
            txn.produce(SINK, TOO_LARGE)

    with pytest.raises(OutputRefusedError):
        block()
    assert txn.outcome is Outcome.ABORTED
    assert stage.cluster.committed(GROUP) == {}


def test_a_caught_full_queue_of_the_plain_produce_is_the_applications_to_repeat(stage):
    producer, consumer = stage.producer(queue_buffering_max_messages=1), stage.subscribed()
    with producer.transaction(consumer) as txn:
        for record in stage.collect(consumer, 4):
            while True:
                try:
                    producer.produce(SINK, record.value())
                    break
                except BufferError:
                    producer.poll(0.1)
    assert txn.outcome is Outcome.COMMITTED
    assert stage.outputs == stage.inputs


def test_the_plain_produce_may_write_the_first_output_of_a_block(stage):
    producer, consumer = stage.producer(), stage.subscribed()
    with producer.transaction(consumer) as txn:
        for record in stage.collect(consumer, 4):
            producer.produce(SINK, record.value())
    assert txn.outcome is Outcome.COMMITTED
    assert stage.outputs == stage.inputs


def test_a_swallowed_exception_out_of_consume_is_not_committed(stage):
    """The application cannot know what consume had in its hands."""

    def on_assign(consumer, partitions):
        if partitions and len(assigned) < 2:
            assigned.append(partitions)
            if len(assigned) == 2:
                raise ZeroDivisionError

    assigned: list[object] = []
    stage.cluster.create_topic("refunds", 1)
    producer, consumer = stage.producer(), stage.subscribed(callbacks={"on_assign": on_assign})
    with producer.transaction(consumer) as txn:
        for record in stage.collect(consumer, 4):
            txn.produce(SINK, record.value())
        consumer.subscribe([SOURCE, "refunds"], on_assign=on_assign)
        with pytest.raises(ZeroDivisionError):
            stage.wait_for(lambda: False, lambda: consumer.consume(10, 0.1))
    assert txn.outcome is Outcome.ABORTED
    assert stage.outputs == []


def test_a_fenced_producer_goes_up_and_commits_nothing(stage):
    producer, consumer = stage.producer(), stage.subscribed()

    def block():
        with producer.transaction(consumer) as txn:
            for record in stage.collect(consumer, 4):
                txn.produce(SINK, record.value())
            stage.cluster.fence_producer()
            with contextlib.suppress(EosError):
                producer.flush(5.0)
                for _ in range(10):
                    producer.poll(0.1)

    with pytest.raises(ProducerFencedError):
        block()
    assert stage.outputs == []


# -- error events -----------------------------------------------------------------------------------------------------


def records(consumer, call, timeout_s):
    """What the call hands over; the truth of a message is the length of its value, which an event has none of."""
    got = [consumer.poll(timeout_s)] if call == "poll" else consumer.consume(10, timeout_s)
    return [message for message in got if message is not None]


@pytest.mark.parametrize("topics", [["ordres"], [SOURCE, "ordres"]], ids=["alone", "beside another"])
@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("call", ["poll", "consume"])
def test_a_misspelt_topic_ends_the_block_with_an_error_and_commits_nothing(call, protocol, topics):
    stage = SimulatedStage(protocol, records=0)
    producer, consumer = stage.producer(), stage.consumer()
    consumer.subscribe(topics)
    seen: list[Any] = []
    txn = producer.transaction(consumer)

    def block():
        with txn:
            stage.wait_for(lambda: seen, lambda: seen.extend(read()))

    def read():
        return records(consumer, call, 0.1)

    with pytest.raises(ClusterUnfitError, match="ordres"):
        block()
    assert seen == []
    assert txn.outcome is Outcome.ABORTED
    assert stage.outputs == []


def test_a_swallowed_error_event_is_not_committed():
    stage = SimulatedStage(EAGER)
    producer, consumer = stage.producer(), stage.consumer()
    consumer.subscribe([SOURCE, "ordres"])
    with producer.transaction(consumer) as txn:
        txn.produce(SINK, b"written before")
        with contextlib.suppress(ClusterUnfitError):
            stage.wait_for(lambda: False, lambda: consumer.consume(10, 0.1))
    assert txn.outcome is Outcome.ABORTED
    assert "UNKNOWN_TOPIC_OR_PART" in txn.reason
    assert stage.outputs == []


@pytest.mark.parametrize("call", ["poll", "consume"])
def test_ends_of_partitions_are_withheld_inside_a_block_and_given_outside(stage, call):
    producer, consumer = stage.producer(), stage.subscribed(enable_partition_eof=True)

    def read():
        return records(consumer, call, 0.5)

    got: list[Any] = []
    with producer.transaction(consumer) as txn:
        stage.wait_for(lambda: len(got) >= 4, lambda: got.extend(read()))
        got += read()
        got += read()
    assert all(message.error() is None for message in got)
    assert txn.outcome is Outcome.COMMITTED
    stage.load(1)
    outside: list[Any] = []
    stage.wait_for(lambda: any(m.error() for m in outside), lambda: outside.extend(read()))


def test_a_poll_that_meets_only_events_waits_for_a_record_until_its_time_is_over(stage):
    producer, consumer = stage.producer(), stage.subscribed(enable_partition_eof=True)
    with producer.transaction(consumer):
        stage.collect(consumer, 4)
        stage.cluster.after(2.0, lambda: stage.load(1))
        assert consumer.poll(20.0) is not None
        began_at = stage.cluster.clock()
        assert len(consumer.consume(1, -1)) == 1
        assert consumer.poll(3.0) is None
        assert stage.cluster.clock() - began_at >= 3.0


def test_a_pattern_that_matches_nothing_yet_is_waited_for():
    stage = SimulatedStage(EAGER)
    producer, consumer = stage.producer(), stage.consumer()
    consumer.subscribe(["^nothing-.*"])
    with producer.transaction(consumer) as txn:
        for _ in range(20):
            assert consumer.consume(10, 0.5) == []
    assert txn.outcome is Outcome.COMMITTED


def test_a_block_whose_callback_raises_without_a_message_names_the_exception(stage):
    def failing(*_):
        raise AssertionError

    producer, consumer = stage.producer(), stage.consumer()
    consumer.subscribe([SOURCE], on_assign=failing)
    with pytest.raises(AssertionError), producer.transaction(consumer) as txn:
        stage.collect(consumer, 4)
    assert txn.outcome is Outcome.ABORTED
    assert txn.reason.startswith("the block raised AssertionError")


def as_outputs(txn, producer, records):
    for record in records:
        txn.produce(SINK, record.value())


def by_plain_calls_and_slowly(txn, producer, records):
    for record in records:
        producer.produce(SINK, record.value())
        producer.flush(1.0)


def as_letters_beside_a_time_of_its_own(txn, producer, records):
    txn.produce(SINK, records[0].value(), timestamp_ms=1)
    for record in records:
        txn.dead_letter(record, ValueError("no price"), topic="dead")


@pytest.mark.parametrize("watched", [True, False], ids=["reports of failures", "no reports"])
@pytest.mark.parametrize("write", [as_outputs, by_plain_calls_and_slowly, as_letters_beside_a_time_of_its_own])
def test_a_clock_that_is_wrong_ends_the_block_with_its_name_and_a_later_block_goes_on(write, watched):
    stage = SimulatedStage(settings=KAFKAS_LIMIT)
    stage.cluster.create_topic("dead")
    producer, consumer = stage.producer(delivery_report_only_error=watched), stage.subscribed()
    stage.cluster.set_clock_ahead(AHEAD_S)

    def one_block():
        with producer.transaction(consumer) as txn:
            write(txn, producer, stage.collect(consumer, 4))

    for _ in range(2):
        with pytest.raises(ClusterUnfitError, match="this host's clock"):
            stage.wait_for(lambda: False, one_block)
    stage.cluster.set_clock_ahead(0)
    stage.wait_for(lambda: sum(stage.cluster.committed(GROUP).values()) == 4, one_block)
    written = (
        stage.cluster.values("dead") if write is as_letters_beside_a_time_of_its_own else stage.cluster.values(SINK)
    )
    assert sorted(written) == stage.inputs


def test_a_letter_that_was_refused_before_is_not_made_smaller_for_a_wrong_clock():
    stage = SimulatedStage(settings=KAFKAS_LIMIT, partitions=1, records=1)
    producer, consumer = stage.producer(), stage.subscribed()

    def one_block():
        with producer.transaction(consumer) as txn:
            for record in stage.collect(consumer, 1):
                txn.dead_letter(record, ValueError("no price"), topic=SINK)

    stage.cluster.refuse("Produce", "INVALID_RECORD")
    one_block()
    stage.cluster.set_clock_ahead(AHEAD_S)
    for _ in range(5):
        with pytest.raises(ClusterUnfitError, match="this host's clock"):
            stage.wait_for(lambda: False, one_block)
    stage.cluster.set_clock_ahead(0)
    stage.wait_for(lambda: stage.committed() == 1, one_block)
    assert stage.outputs == stage.inputs


def test_a_time_of_the_applications_that_is_refused_aborts_the_block_as_any_output():
    stage = SimulatedStage(settings=KAFKAS_LIMIT)
    producer, consumer = stage.producer(), stage.subscribed()
    txn, stamp_ms = producer.transaction(consumer), AHEAD_S * 1000

    def one_block():
        nonlocal txn
        with producer.transaction(consumer) as txn:
            for record in stage.collect(consumer, 4):
                txn.produce(SINK, record.value(), timestamp_ms=stamp_ms)

    one_block()
    assert txn.outcome is Outcome.ABORTED
    assert "INVALID_TIMESTAMP" in txn.reason
    stamp_ms = 1
    stage.wait_for(lambda: txn.outcome is Outcome.COMMITTED, one_block)
    assert stage.outputs == stage.inputs


@pytest.mark.parametrize("watched", [True, False], ids=["reports of failures", "no reports"])
def test_a_write_of_a_callback_after_a_failed_delivery_names_the_failure(stage, watched):
    raised: list[EosError] = []

    def write_again(error, _):
        with pytest.raises(EosError) as failed:
            producer.produce(SINK, b"another")
        raised.append(failed.value)

    producer, consumer = stage.producer(**({"delivery_report_only_error": True} if watched else {})), stage.subscribed()
    with contextlib.suppress(AbortableError), producer.transaction(consumer) as txn:
        stage.cluster.refuse("Produce", "INVALID_RECORD")
        producer.produce(SINK, b"refused", on_delivery=write_again)
        stage.wait_for(lambda: raised, lambda: producer.poll(0.1))
    assert isinstance(raised[0], AbortableError), raised
    assert txn.outcome is Outcome.ABORTED


@pytest.mark.parametrize("call", ["poll", "consume"])
def test_a_read_that_fails_before_it_fetches_fails_its_block(stage, monkeypatch, call):
    producer, consumer = stage.producer(), stage.subscribed()
    with producer.transaction(consumer) as txn:
        for record in stage.collect(consumer, 4):
            txn.produce(SINK, record.value())
        with monkeypatch.context() as patched, contextlib.suppress(FatalClientError):
            patched.setattr(consumer.adapter.fetching, "begin_call", mock.Mock(side_effect=FatalClientError("no seek")))
            getattr(consumer, call)(timeout=0.1)
    assert txn.outcome is Outcome.ABORTED
    assert stage.outputs == []


def test_an_event_without_a_row_ends_the_block_with_an_error_of_its_own_and_commits_nothing(stage):
    producer, consumer = stage.producer(), stage.subscribed()
    txn = producer.transaction(consumer)
    lacking = {row: to for row, to in TRANSITIONS.items() if row != (Phase.SERVING, TransactionEvent.SERVED)}

    def block():
        with txn:
            for record in stage.collect(consumer, 4):
                txn.produce(SINK, record.value())

    is_told = pytest.raises(
        UnexpectedEventError, match=r"serving cannot meet 'served'\. This is a mistake of eos-client"
    )
    with mock.patch.object(transaction_lifecycle, "TRANSITIONS", lacking), is_told:
        block()
    assert stage.outputs == []
    assert txn.outcome is not Outcome.COMMITTED


def test_a_rebalance_ends_work_only_by_an_end_that_it_knows(stage):
    session = stage.producer().session(stage.subscribed())
    with (
        mock.patch.object(transaction_session, "end_at_revocation", return_value=ForcedEnd.LEAVE_UNKNOWN),
        pytest.raises(UnexpectedEventError, match="a rebalance cannot end work by 'leave unknown'"),
    ):
        session.commit_before_revoke(frozenset())
