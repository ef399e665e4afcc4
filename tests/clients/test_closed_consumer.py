"""What was under way with a consumer that is closed comes to an end, and nothing is handed over by it any more."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from eos_client import EosConfig, EosConsumer, ExactlyOnceLoop, Outcome
from eos_client.errors import AbortableError, ClientClosedError
from eos_client.observe import LoopStopped
from tests.clients.simulated_stage import SINK, SOURCE, SimulatedStage
from tests.clients.struck_steps import StepStrike, StrikeError, strides, struck_runs
from tests.clients.test_transaction_session_unknown_commit import (
    BOTH_WAYS,
    RECOVERY_S,
    REQUEST_S,
    next_commit_is_unanswered,
    resolved,
)
from tests.interruption import BrokenOffError
from tests.support.protocols import COOPERATIVE, EAGER, PROTOCOLS

CLOSED = "Consumer closed"
EVERY_STEP = 37
"""One step of close() in so many is struck."""


@pytest.fixture(params=PROTOCOLS)
def stage(request):
    return SimulatedStage(request.param, request_timeout_s=REQUEST_S)


def goes_on_with_another_consumer(stage: Any, producer: Any) -> bool:
    with stage.subscribed() as successor:
        stage.copy_the_rest(producer, successor)
    return bool(stage.outputs == stage.inputs)


@pytest.mark.parametrize("call", ["poll", "consume"])
def test_a_call_after_close_inside_a_block_leaves_it_aborted(stage, call):
    producer, consumer = stage.producer(), stage.subscribed()
    with producer.transaction(consumer) as txn:
        for record in stage.collect(consumer, 2):
            txn.produce(SINK, record.value())
        consumer.close()
        getattr(consumer, call)(timeout=0.1)
    assert txn.outcome is Outcome.ABORTED
    assert "the consumer was closed inside the block" in txn.reason
    consumer.close()
    assert goes_on_with_another_consumer(stage, producer)


def test_a_block_whose_swallowed_failure_is_followed_by_close_is_aborted(stage):
    producer, consumer = stage.producer(), stage.subscribed()
    with producer.transaction(consumer) as txn:
        stage.collect(consumer, 4)
        with pytest.raises(AbortableError):
            stage.until_revoked(consumer)
        consumer.close()
    assert txn.outcome is Outcome.ABORTED
    consumer.close()
    assert stage.outputs == []


def test_a_block_whose_poll_a_signal_has_interrupted_before_close_is_aborted(stage):
    def interrupt() -> None:
        raise BrokenOffError

    producer, consumer = stage.producer(), stage.subscribed()
    with producer.transaction(consumer) as txn:
        stage.collect(consumer, 4)
        stage.cluster.after(0.05, interrupt)
        with pytest.raises(BrokenOffError):
            consumer.poll(1.0)
        consumer.close()
    assert txn.outcome is Outcome.ABORTED
    consumer.close()
    assert goes_on_with_another_consumer(stage, producer)


@pytest.mark.parametrize("closes", ["before the block", "inside the block"])
def test_an_output_beside_a_closed_consumer_is_refused_and_leaves_nothing_open(stage, closes):
    producer, consumer = stage.producer(), stage.subscribed()
    if closes == "before the block":
        consumer.close()
    txn = producer.transaction(consumer)

    def block() -> None:
        with txn:
            consumer.close()  # which does nothing the second time
            txn.produce(SINK, b"stray")

    with pytest.raises(ClientClosedError, match=CLOSED):
        block()
    assert txn.outcome is Outcome.ABORTED
    assert CLOSED in txn.reason
    assert goes_on_with_another_consumer(stage, producer)


@BOTH_WAYS
def test_a_commit_that_close_itself_leaves_unanswered_stays_unknown_and_its_producer_goes_on(stage, arrives):
    producer, consumer = stage.producer(recovery_timeout_s=RECOVERY_S), stage.subscribed()
    stage.hold(producer, consumer)
    next_commit_is_unanswered(stage, arrives=arrives)
    consumer.close()
    assert resolved(stage) == ["unknown"]
    assert goes_on_with_another_consumer(stage, producer)


def test_records_that_were_put_back_are_not_handed_over_after_close(stage):
    consumer = stage.consumer()
    consumer.assign([TopicPartition(SOURCE, 0, 0)])
    consumer.adapter.put_back(stage.collect(consumer, 2))
    consumer.close()
    with pytest.raises(RuntimeError, match=CLOSED):
        consumer.consume(2, 0.1)


@pytest.mark.in_turn(2)
@strides(EVERY_STEP)
@pytest.mark.parametrize("static", [False, True], ids=["dynamic", "static"])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_wherever_a_signal_breaks_close_off_the_second_one_leaves_the_group(protocol, static, first):
    settings: dict[str, Any] = {"group_instance_id": "one"} if static else {}

    def interrupted(strike: StepStrike, steps: StepStrike | None = None) -> Any:
        stage = SimulatedStage(protocol)
        consumer = stage.subscribed(**settings)
        stage.collect(consumer, 2)
        with strike.armed(steps), suppress(StrikeError):
            consumer.close()
        return consumer

    kept = []
    for consumer, strike in struck_runs(interrupted, EVERY_STEP, first=first):
        assert strike.struck
        consumer.close()
        if not consumer._library.raw._closed:
            kept.append(strike.struck)
    assert kept == []


@pytest.mark.parametrize("protocol", [EAGER, COOPERATIVE])  # close() polls before the library's own close()
@pytest.mark.parametrize("call", ["poll", "consume"])
def test_a_consumer_whose_close_was_interrupted_reads_nothing_more(protocol, call):
    def interrupt() -> None:
        raise BrokenOffError

    stage = SimulatedStage(protocol)
    producer, consumer = stage.producer(), stage.subscribed()
    stage.collect(consumer, 2)
    stage.cluster.after(0.0, interrupt)
    with pytest.raises(BrokenOffError):
        consumer.close()
    with pytest.raises(ClientClosedError, match=r"may have left its group: call close\(\) again, and build another"):
        getattr(consumer, call)(timeout=0.1)
    consumer.close()
    with pytest.raises(RuntimeError, match=CLOSED):
        getattr(consumer, call)(timeout=0.1)
    assert goes_on_with_another_consumer(stage, producer)


def test_the_clients_of_a_loop_whose_close_a_signal_broke_off_are_closed_when_its_block_is_left(stage, monkeypatch):
    def interrupted(consumer: Any, limit_s: float) -> bool:
        monkeypatch.undo()
        raise BrokenOffError

    events: list[Any] = []
    settings = EosConfig({"bootstrap.servers": "simulated"}, group_id="orders")
    loop = ExactlyOnceLoop(settings, [SOURCE], lambda _: None, clients=stage.cluster, hook=events.append)
    monkeypatch.setattr(EosConsumer, "close_within", interrupted)
    stage.cluster.after(1, loop.stop)
    with pytest.raises(BrokenOffError), loop:
        loop.run()
    assert loop._consumer._library.raw._closed
    assert [event.reason for event in events if isinstance(event, LoopStopped)][-1] == "stop() was called"


@pytest.mark.parametrize("protocol", [EAGER, COOPERATIVE])
def test_a_static_member_is_told_of_its_revocation_once_before_the_library_closes_in_a_thread_of_its_own(protocol):
    def revoked(own: Any, partitions: Any) -> None:
        told.append((threading.get_ident(), len(partitions), len(own.assignment()), consumer._library.raw._closed))

    told: list[tuple[int, int, int, bool]] = []
    stage = SimulatedStage(protocol)
    consumer = stage.subscribed(group_instance_id="one", callbacks={"on_revoke": revoked})
    stage.collect(consumer, 2)
    consumer.close()
    assert told == [(threading.get_ident(), stage.partitions, stage.partitions, False)]
    assert consumer._library.raw._closed


@pytest.mark.parametrize("protocol", [EAGER, COOPERATIVE])
def test_a_static_member_that_was_evicted_unheard_commits_nothing_when_it_closes(protocol):
    stage = SimulatedStage(protocol)
    consumer, producer = stage.subscribed(group_instance_id="one"), stage.producer()
    txn = producer.transaction(consumer)
    with txn:
        for record in stage.collect(consumer, 2):
            txn.produce(SINK, record.value())
        stage.cluster.lose()
        consumer.close()
    assert txn.outcome is Outcome.ABORTED
    assert stage.committed() is None
    assert goes_on_with_another_consumer(stage, producer)


@strides(EVERY_STEP)
def test_wherever_a_signal_breaks_a_read_off_close_within_leaves_the_group(first):
    """It closes in a thread of its own, which a lock that the first call has kept would shut out."""

    def interrupted(strike: StepStrike, steps: StepStrike | None = None) -> Any:
        stage = SimulatedStage()
        consumer = stage.subscribed()
        with strike.armed(steps), suppress(StrikeError):
            consumer.consume(1, 0.0)
        return consumer

    for consumer, strike in struck_runs(interrupted, EVERY_STEP, first=first):
        assert consumer.close_within(60.0), strike.struck
        assert consumer._library.raw._closed


@pytest.mark.parametrize("call", ["poll", "consume"])
def test_a_closed_consumer_belongs_to_no_thread_that_calls_it(stage, call):
    producer, consumer = stage.producer(), stage.subscribed()
    raised = []

    def on_delivery(*_: Any) -> None:
        try:
            getattr(consumer, call)(timeout=0.1)
        except RuntimeError as error:
            raised.append(error)

    with producer.transaction(consumer) as txn:
        for record in stage.collect(consumer, 2):
            producer.produce(SINK, record.value(), on_delivery=on_delivery)
        consumer.close()
    assert txn.outcome is Outcome.ABORTED
    assert raised
    consumer.close()
    assert goes_on_with_another_consumer(stage, producer)


@strides(EVERY_STEP)
def test_wherever_a_signal_breaks_close_off_nothing_is_read_in_silence(first):
    def interrupted(strike: StepStrike, steps: StepStrike | None = None) -> Any:
        stage = SimulatedStage()
        consumer = stage.subscribed()
        stage.collect(consumer, 2)
        with strike.armed(steps), suppress(StrikeError):
            consumer.close()
        return stage, consumer

    for (stage, consumer), strike in struck_runs(interrupted, EVERY_STEP, first=first):
        with suppress(ClientClosedError, RuntimeError):
            assert stage.collect(consumer, 1), strike.struck


@pytest.mark.parametrize("call", ["poll", "consume"])
def test_a_closed_consumer_of_a_pattern_without_topics_is_told_closed_however_late(call):
    stage = SimulatedStage()
    consumer = stage.consumer()
    consumer.subscribe(["^nothing.*"])
    consumer.poll(0.1)
    stage.cluster.advance(60.0)
    consumer.close()
    with pytest.raises(ClientClosedError):
        getattr(consumer, call)(timeout=0.1)
