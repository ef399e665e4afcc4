"""The application's callbacks around ours, on a real broker: their order, and what becomes of an exception in them."""

import contextlib
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from eos_client import Outcome
from eos_client.core.record_runs import message_count
from tests.kafka.kafka_support import ON_A_BROKER, PATIENT, Stage, values
from tests.support.waiting import wait_for

NUMBER = 300


@pytest.fixture(params=ON_A_BROKER, ids=lambda protocol: protocol.value)
def stage(kafka_broker, request):
    with Stage(kafka_broker.bootstrap_servers, request.param) as made:
        yield made


class OwnTroubleError(Exception):
    """What the application raises in its callback."""


def fails_once(failures):
    """An on_revoke that raises at its first partitions."""

    def on_revoke(_, partitions):
        if partitions and not failures:
            failures.append(sorted(p.partition for p in partitions))
            raise OwnTroubleError

    return on_revoke


def shared(stage, first, second):
    return len(stage.assigned(first)) == 1 and len(stage.assigned(second)) == 1


def copy_once(stage, producer, consumer):
    with producer.transaction(consumer) as txn:
        for message in consumer.consume(100, 0.05):
            txn.produce(stage.sink, message.value())


def test_ours_come_before_on_assign_and_around_on_revoke(stage):
    stage.load(2)
    steps = []

    def hook(event):
        if getattr(event, "partitions", True):
            steps.append(event.name)

    def theirs(name):
        return lambda consumer, partitions: steps.append(name) if partitions else None

    callbacks = {n: theirs(n) for n in ("on_assign", "on_revoke")}
    consumer, producer = (
        stage.subscribed(hook=hook, gate=PATIENT, callbacks=callbacks),
        stage.patient_producer(),
    )
    stage.hold(producer, consumer, 4)
    producer._session.endings._hook = hook
    newcomer = stage.raw_consumer()
    wait_for(
        lambda: "partitions_revoked" in steps,
        "a revocation",
        consumer.adapter.fetching.serve_callbacks,
        lambda: newcomer.poll(0.02),
    )
    assert steps[:5] == ["partitions_assigned", "on_assign", "on_revoke", "transaction_committed", "partitions_revoked"]


def test_an_exception_in_on_revoke_comes_out_of_consume_and_no_record_is_lost_or_doubled(stage):
    written = stage.load(NUMBER)
    failures: list[list[int]] = []
    consumer = stage.subscribed(callbacks={"on_revoke": fails_once(failures)})
    producer, second_producer = stage.producer(), stage.producer()
    with producer.transaction(consumer) as txn:
        for message in stage.collect(consumer, 100):
            txn.produce(stage.sink, message.value())
    assert txn.outcome is Outcome.COMMITTED
    second = stage.subscribed(hook=lambda event: None)

    def block():
        with producer.transaction(consumer) as txn:
            for _ in range(50):
                for message in consumer.consume(10, 0.02):
                    txn.produce(stage.sink, message.value())
                second.consume(0, 0)
                second.adapter.fetching.serve_callbacks()

    with pytest.raises(OwnTroubleError):
        wait_for(lambda: failures and not block(), "on_revoke to raise", block)
    # The revocation was completed all the same: for the gate, and, below, for the group.
    (departed,) = failures
    assert sorted(p.partition for p in stage.named("partitions_revoked")[0].partitions) == departed
    assert consumer.gate.state.revocation is not None
    assert not consumer.gate.state.revoking
    stage.copy_until(
        producer,
        consumer,
        lambda: shared(stage, consumer, second) and stage.committed() == stage.ends(),
        lambda: copy_once(stage, second_producer, second),
    )
    assert sorted(stage.outputs()) == sorted(written)


def test_after_an_abort_because_of_on_revoke_the_records_come_again_from_the_first_uncommitted_one(stage):
    """The call in which it happens has collected records from before the rewind: they are not handed over."""
    stage.load(10)
    failures: list[list[int]] = []
    theirs: list[Any] = []
    again: list[Any] = []
    consumer, producer = stage.subscribed(callbacks={"on_revoke": fails_once(failures)}), stage.producer()
    with producer.transaction(consumer) as txn:
        stage.collect(consumer, 20)
    assert txn.outcome is Outcome.COMMITTED
    stage.load(NUMBER, start=10)
    ends = [10 + NUMBER]
    with producer.transaction(consumer) as txn:
        stage.collect(consumer, NUMBER + 20)  # more than one partition has: the departing one is in the transaction
        newcomer = stage.raw_consumer()

        def collect_through_the_revocation():
            # It asks for more than there is: the revocation comes while it holds all the rest.
            stage.load(10, start=ends[-1])
            ends.append(ends[-1] + 10)
            with contextlib.suppress(OwnTroubleError):
                consumer.consume(10 * NUMBER, 1.0)

        wait_for(lambda: failures, "the abort", collect_through_the_revocation)
    assert txn.outcome is Outcome.ABORTED
    with producer.transaction(consumer):
        wait_for(
            lambda: shared(stage, consumer, newcomer),
            "the rebalance",
            lambda: again.extend(consumer.consume(7, 0.05)),
            lambda: theirs.extend(newcomer.consume(100, 0.02)),
        )
        (kept,) = stage.assigned(consumer)
        mine = [m for m in again if m.partition() == kept]
        expected = list(range(10, ends[-1]))
        mine += stage.collect(consumer, len(expected) - len(mine))
        assert consumer.consume(10, 0.2) == []
    assert stage.named("transaction_aborted")[0].records_in >= NUMBER + 20
    assert [m.offset() for m in mine] == expected
    wait_for(
        lambda: len([m for m in theirs if m.partition() != kept]) >= len(expected),
        "the newcomer's records",
        lambda: theirs.extend(newcomer.consume(100, 0.05)),
    )
    assert [m.offset() for m in theirs if m.partition() != kept] == expected


def test_records_that_wait_to_be_handed_over_leave_with_their_partition(stage):
    """They were fetched, not handed over: their new owner gets them, and when it comes back, only what is left."""
    written = stage.load(10)
    consumer = stage.subscribed()
    wait_for(
        lambda: message_count(consumer.adapter.state.waiting) == len(written),
        "the records to wait",
        consumer.adapter.fetching.prefetch,
    )
    newcomer = stage.raw_consumer()
    theirs: list[Any] = []
    wait_for(
        lambda: shared(stage, consumer, newcomer) and len(theirs) >= 10,
        "the rebalance",
        lambda: theirs.extend(m for m in newcomer.consume(10 - len(theirs), 0.05) if m.error() is None),
        consumer.adapter.fetching.prefetch,
    )
    (kept,) = stage.assigned(consumer)
    assert [m.offset() for m in stage.collect(consumer, 10)] == list(range(10))
    assert consumer.consume(10, 0.3) == []
    newcomer.commit(offsets=[TopicPartition(stage.source, 1 - kept, 7)], asynchronous=False)
    newcomer.unsubscribe()
    back: list[Any] = []
    wait_for(
        lambda: len(back) >= 3,
        "the rest of the partition that came back",
        lambda: back.extend(m for m in consumer.consume(10, 0.05) if m.partition() != kept),
        lambda: newcomer.poll(0),
    )
    assert values(back) == [f"{1 - kept}-{n}" for n in (7, 8, 9)]
