"""What a close finishes of the end that was under way, and what it keeps from being committed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any
from unittest import mock

import pytest

from eos_client import EosConfig, EosConsumer, EosProducer, ExactlyOnceLoop, Outcome, OutputRecord
from eos_client.clients.block_state import BlockState
from eos_client.clients.session_close import abort_before_close
from eos_client.clients.transaction_session import TransactionSession
from eos_client.observe import TransactionAborted
from eos_client.testing import SimulatedCluster
from tests.clients.simulated_stage import GROUP, SINK, SOURCE, SimulatedStage
from tests.interruption import BrokenOffError
from tests.support.interception import close_the_gate
from tests.support.protocols import COOPERATIVE, PROTOCOLS, settings_of
from tests.support.waiting import wait_for


@pytest.fixture
def stage() -> SimulatedStage:
    return SimulatedStage(COOPERATIVE)


def copy_and_break_off(stage: Any, producer: Any, consumer: Any, place: tuple[type, str], *, fails: bool) -> Any:
    """A block of four records; an exception strikes at ``place`` while it ends, after the block has failed or not."""
    txn = producer.transaction(consumer)

    def block() -> None:
        with txn:
            for record in stage.collect(consumer, 4):
                txn.produce(SINK, record.value())
            if fails:
                raise ValueError

    with mock.patch.object(*place, side_effect=BrokenOffError), pytest.raises(BrokenOffError):
        block()
    return txn


@pytest.mark.parametrize("closes", ["consumer", "producer"])
@pytest.mark.parametrize("outcome", [Outcome.COMMITTED, Outcome.ABORTED])
def test_an_end_that_was_interrupted_while_it_was_recorded_is_told_by_a_close(stage, closes, outcome):
    producer, consumer = stage.producer(), stage.subscribed()
    fails = outcome is Outcome.ABORTED
    place = (TransactionSession, "rewind" if fails else "_clear_work")
    txn = copy_and_break_off(stage, producer, consumer, place, fails=fails)
    assert txn.outcome is None
    (consumer if closes == "consumer" else producer).close()
    assert txn.outcome is outcome
    assert stage.named("outcome_resolved") == []
    told = stage.named("transaction_aborted" if fails else "transaction_committed")
    assert [event.records_in for event in told] == [4]
    assert stage.outputs == ([] if fails else stage.inputs)


@pytest.mark.parametrize("closes", ["consumer", "producer"])
def test_a_block_whose_exit_was_interrupted_is_told_its_end_by_a_close(stage, closes):
    producer, consumer = stage.producer(), stage.subscribed()
    txn = copy_and_break_off(stage, producer, consumer, (BlockState, "leave"), fails=False)
    if closes == "consumer":
        consumer.close()
        consumer = stage.subscribed()
    else:
        producer.close()
        producer = stage.producer()
    assert txn.outcome is Outcome.ABORTED
    stage.copy_the_rest(producer, consumer)
    assert stage.outputs == stage.inputs


@pytest.mark.parametrize("arrives", [True, False], ids=["answered", "unanswered"])
def test_a_loop_that_is_interrupted_leaves_no_transaction_open_and_commits_no_offsets(stage, arrives):
    """Everything was processed, so the revocation in the close would otherwise commit the offsets."""

    def run(*, breaks_off: bool) -> None:
        loop = ExactlyOnceLoop(
            EosConfig(
                {"bootstrap.servers": "simulated"} | stage.group_settings,
                group_id=GROUP,
                transactional_id="billing-0",
                commit_interval_s=20.0,
            ),
            [SOURCE],
            lambda message: [OutputRecord(SINK, value=message.value())],
            clients=stage.cluster,
            hook=stage.events.append,
        )
        stage.cluster.after(30.0, loop.stop)
        if breaks_off:
            stage.cluster.after(10.0, interrupt)
        loop.run()

    def interrupt() -> None:
        if not arrives:
            stage.cluster.lose_request("EndTxn")
        raise BrokenOffError

    with pytest.raises(BrokenOffError):
        run(breaks_off=True)
    assert stage.cluster.committed(GROUP) == {}
    (aborted,) = [event for event in stage.events if isinstance(event, TransactionAborted)]
    assert aborted.records_in == 4
    assert stage.cluster.brokers.transactions.describe("billing-0").state != "Ongoing" or not arrives
    run(breaks_off=False)
    assert stage.outputs == stage.inputs


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_held_transaction_that_is_aborted_for_a_close_leaves_nothing_for_its_revocation_to_commit(protocol):
    stage = SimulatedStage(protocol)
    producer, consumer = stage.producer(), stage.subscribed()
    with producer.transaction(consumer) as txn:
        for record in stage.collect(consumer, 4):
            txn.produce(SINK, record.value())
        close_the_gate(consumer)
    assert txn.outcome is Outcome.SKIPPED
    abort_before_close(producer.session(consumer), "the loop was closed")
    consumer.close()
    producer.close()
    assert stage.cluster.committed(GROUP) == {}
    stage.copy_the_rest(stage.producer(), stage.subscribed())
    assert stage.outputs == stage.inputs


class OwnError(Exception):
    """What a callback of the application raises."""


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_consumer_leaves_its_group_whatever_callbacks_of_its_last_block_have_raised(protocol):
    cluster, due = SimulatedCluster(seed=1), set[str]()
    cluster.create_topic(SOURCE, 2)
    cluster.create_topic(SINK)

    def raising(client: str) -> Callable[[object], None]:
        def callback(_: object) -> None:
            if client in due:
                due.remove(client)
                raise OwnError(client)

        return callback

    made: dict[str, Any] = {"factory": cluster.consumer, "clock": cluster.clock}
    group = {"bootstrap.servers": "simulated", "group.id": GROUP, **settings_of(protocol)}
    consumer = EosConsumer({**group, "stats_cb": raising("consumer"), "statistics.interval.ms": 500}, **made)
    producer = EosProducer(
        {"bootstrap.servers": "simulated", "client.id": "p", "transactional.id": "t", "error_cb": raising("producer")},
        factory=cluster.producer,
        clock=cluster.clock,
    )
    consumer.subscribe([SOURCE])
    producer.init_transactions()
    with producer.transaction(consumer):
        consumer.consume(10, 1)
    cluster.write(SOURCE, [b"1", b"2"])

    def block() -> None:
        with producer.transaction(consumer) as txn:
            for record in consumer.consume(10, 1):
                txn.produce(SINK, record.value())
            cluster.advance(5)
            cluster.revoke((SOURCE, 1))
            cluster.advance(5)
            cluster.report_error("_TRANSPORT", "p")
            due.update({"producer", "consumer"})

    with pytest.raises(OwnError):
        block()
    with suppress(OwnError):
        consumer.close()
    cluster.give_back()
    with EosConsumer(group, **made) as successor:
        successor.subscribe([SOURCE])
        wait_for(
            lambda: len(successor.assignment()) == 2,
            "both partitions",
            lambda: successor.poll(0.1),
            timeout_s=60.0,
            clock=cluster.clock,
        )
    with suppress(OwnError):
        producer.close()


def test_a_block_without_work_serves_the_events_of_its_producer(stage):
    throttled: list[Any] = []
    producer, consumer = stage.producer(callbacks={"throttle_cb": throttled.append}), stage.subscribed()
    stage.cluster.report_throttle(0.1)
    with producer.transaction(consumer):
        pass
    assert len(throttled) == 1
