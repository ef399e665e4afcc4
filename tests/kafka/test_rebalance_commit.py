"""Partitions that leave are committed inside the revoke callback, under all three protocols.

The first tests have all three in each run, the others leave the eager one to soak runs.
"""

from typing import Any

import pytest
from confluent_kafka import TopicPartition

from eos_client import Outcome
from eos_client.core.model import InputPartition
from eos_client.errors import ClusterUnfitError
from tests.kafka.kafka_support import ON_A_BROKER, PATIENT, PROTOCOLS, Stage, settle, values
from tests.support.waiting import wait_for
from tests.verification.protocols import GroupProtocol

EVERY_PROTOCOL = pytest.mark.parametrize("stage", PROTOCOLS, ids=lambda protocol: protocol.value, indirect=True)


@pytest.fixture(params=ON_A_BROKER, ids=lambda protocol: protocol.value)
def stage(kafka_broker, request):
    with Stage(kafka_broker.bootstrap_servers, request.param, partitions=4) as made:
        yield made


def rebalanced(stage, first, second):
    """Whether both members have partitions and all are given out."""
    given = stage.assigned(first) | stage.assigned(second)
    return stage.assigned(second) and stage.assigned(first) and given == set(range(stage.partitions))


@EVERY_PROTOCOL
def test_a_joining_member_finds_outputs_and_offsets_of_its_partitions_committed(stage):
    written = stage.load(5)
    producer = stage.patient_producer()
    at_the_end_of_revoke = []

    def after_ours(event):
        stage.events.append(event)
        if event.name == "partitions_revoked" and event.partitions:
            # The markers of a committed transaction are written a moment after its commit was answered.
            wait_for(lambda: stage.committed() == dict.fromkeys(range(4), 5), "all offsets to be committed")
            wait_for(lambda: sorted(stage.visible()) == sorted(written), "all outputs to be visible")
            at_the_end_of_revoke.append(event)

    consumer = stage.subscribed(hook=after_ours, gate=PATIENT)
    newcomers = []
    stage.hold(producer, consumer, 20)
    newcomer = stage.raw_consumer()
    with producer.transaction(consumer) as txn:
        wait_for(
            lambda: rebalanced(stage, consumer, newcomer),
            "the rebalance",
            lambda: newcomers.extend(newcomer.consume(100, 0.05)),
            lambda: consumer.consume(100, 0.05),
        )
    # One transaction cannot be split: it was committed whole, while all of it was still ours.
    assert at_the_end_of_revoke[0].uncommitted == frozenset()
    assert [event.inside_revoke for event in stage.named("transaction_committed")] == [True]
    assert stage.named("transaction_aborted") == []
    assert txn.outcome is Outcome.COMMITTED
    assert values(newcomers) == []


@EVERY_PROTOCOL
def test_a_rebalance_inside_a_block_aborts_it_and_the_new_owner_gets_its_records(stage):
    """They count as processed when the block ends: nothing of them, and no offset, was committed before."""
    written = stage.load(5)
    producer, consumer = stage.producer(), stage.subscribed()
    second_producer, went_on = stage.producer(), False
    with producer.transaction(consumer) as txn:
        records = stage.collect(consumer, 20)
        second = stage.subscribed(hook=lambda event: None)
        wait_for(
            lambda: rebalanced(stage, consumer, second),
            "the rebalance",
            lambda: second.consume(0, 0.02),
            lambda: consumer.consume(100, 0.05),
        )
        went_on = True
        for message in records:
            txn.produce(stage.sink, message.value())
    assert txn.outcome is Outcome.ABORTED
    assert "a rebalance took" in txn.reason
    assert not went_on
    assert stage.named("transaction_committed") == []
    assert stage.outputs() == []
    stage.copy_until(
        producer,
        consumer,
        lambda: rebalanced(stage, consumer, second) and stage.committed() == stage.ends(),
        lambda: copy_once(stage, second_producer, second),
    )
    assert sorted(stage.outputs()) == sorted(written)


def test_a_misspelt_topic_ends_a_block_with_an_error_and_is_no_record(kafka_broker):
    with Stage(kafka_broker.bootstrap_servers) as stage:
        producer, consumer = stage.producer(), stage.consumer()
        consumer.subscribe([f"{stage.source}-misspelt"])
        txn = producer.transaction(consumer)
        got: list[Any] = []

        def block():
            with txn:
                wait_for(lambda: got, "anything at all", lambda: got.extend(consumer.consume(500, 0.1)))

        with pytest.raises(ClusterUnfitError, match=f"{stage.source}-misspelt"):
            block()
        assert got == []
        assert txn.outcome is Outcome.ABORTED


def test_the_partitions_that_stay_go_on_after_a_commit_inside_revoke(stage):
    written = stage.load(5)
    producer, consumer = stage.patient_producer(), stage.subscribed(gate=PATIENT)
    stage.hold(producer, consumer, 20)
    newcomer = stage.raw_consumer()
    theirs, ours = [], []

    def both():
        theirs.extend(newcomer.consume(100, 0.05))
        with producer.transaction(consumer) as txn:
            batch = consumer.consume(100, 0.05)
            for message in batch:
                txn.produce(stage.sink, message.value())
        if txn.outcome is not Outcome.ABORTED:
            ours.extend(batch)

    wait_for(lambda: rebalanced(stage, consumer, newcomer), "the rebalance", both)
    late = stage.load(3, start=5)
    wait_for(lambda: len(ours) + len(theirs) >= 12, "the late records", both)
    settle(stage, producer, consumer)
    assert sorted(values(ours) + values(theirs)) == sorted(late)
    assert sorted(stage.outputs()) == sorted(written + values(ours))
    assert {p: stage.committed()[p] for p in stage.assigned(consumer)} == dict.fromkeys(stage.assigned(consumer), 8)


def test_two_members_that_copy_through_joins_and_leaves_write_every_record_once(stage):
    written = stage.load(50)
    producer, consumer = stage.producer(), stage.subscribed()
    second_producer = stage.producer()
    for round_number in range(1, 3):
        with stage.subscribed() as second:
            stage.copy_until(
                producer,
                consumer,
                lambda second=second: rebalanced(stage, consumer, second),
                lambda second=second: copy_once(stage, second_producer, second),
            )
            settle(stage, second_producer, second)
        written += stage.load(50, start=50 * round_number)
    stage.copy_until(producer, consumer, lambda: stage.committed() == stage.ends())
    assert sorted(stage.outputs()) == sorted(written)


def copy_once(stage, producer, consumer):
    with producer.transaction(consumer) as txn:
        for message in consumer.consume(20, 0.05):
            txn.produce(stage.sink, message.value())


def test_closing_the_consumer_commits_the_held_transaction_on_the_way_out(stage):
    written = stage.load(5)
    producer = stage.patient_producer()
    with stage.subscribed(gate=PATIENT) as consumer:
        stage.hold(producer, consumer, 20)
    assert sorted(stage.outputs()) == sorted(written)
    assert stage.committed() == dict.fromkeys(range(4), 5)


def test_unsubscribing_commits_what_was_processed(stage):
    written = stage.load(5)
    producer, consumer = stage.patient_producer(), stage.subscribed(gate=PATIENT)
    stage.hold(producer, consumer, 20)
    consumer.unsubscribe()
    wait_for(lambda: stage.named("partitions_revoked"), "the revocation", lambda: consumer.poll(0.05))
    assert sorted(stage.outputs()) == sorted(written)
    assert stage.committed() == dict.fromkeys(range(4), 5)


@EVERY_PROTOCOL
def test_after_a_revocation_nothing_is_committed_on_its_generation(stage):
    stage.load(5)
    producer, consumer = stage.patient_producer(), stage.subscribed(gate=PATIENT)
    wait_for(lambda: stage.assigned(consumer) == set(range(4)), "all partitions", lambda: consumer.poll(0.05))
    newcomer = stage.raw_consumer()
    stage.copy_until(
        producer,
        consumer,
        lambda: rebalanced(stage, consumer, newcomer) and stage.committed()[min(stage.assigned(consumer))] == 5,
        lambda: newcomer.consume(100, 0.02),
    )
    revoked = next(i for i, event in enumerate(stage.events) if event.name == "partitions_revoked")
    closed_on = stage.events[revoked].generation
    afterwards = stage.events[revoked + 1 :]
    committed = [event for event in afterwards if event.name == "transaction_committed" and event.records_in]
    assert not any(event.generation.same_membership(closed_on) for event in committed)
    for event in stage.named("commit_skipped"):
        assert event.generation.same_membership(event.revocation_generation)
    for event in stage.named("transaction_aborted"):
        # Never by the gate; the broker may refuse a commit whose generation moved while it was on its way.
        assert (event.rule, event.reason.partition(" ")[0]) == (None, "send_offsets_to_transaction")


def test_offsets_of_partitions_that_left_unassigned_are_never_dropped(stage):
    """A block that took records outside any transaction before the revocation is aborted, not committed in part."""
    written = stage.load(5)
    producer, consumer = stage.producer(), stage.subscribed()
    producer.session(consumer)
    early = stage.collect(consumer, 20)
    newcomer = stage.raw_consumer()
    theirs = []
    wait_for(
        lambda: rebalanced(stage, consumer, newcomer),
        "the rebalance",
        lambda: consumer.adapter.fetching.serve_callbacks(drain=True),
        lambda: theirs.extend(newcomer.consume(100, 0.05)),
    )
    with producer.transaction(consumer) as txn:
        for message in early:
            txn.produce(stage.sink, message.value())
    assert txn.outcome is Outcome.ABORTED
    assert stage.outputs() == []
    assert set(stage.committed().values()) == {None}
    mine = stage.assigned(consumer)
    stage.copy_until(producer, consumer, lambda: all(stage.committed()[p] == 5 for p in mine))
    assert sorted(stage.outputs()) == sorted(v for v in written if int(v.split("-")[0]) in mine)


def test_an_abort_does_not_go_back_to_what_a_new_owner_has_processed_meanwhile(stage):
    """What was taken before a partition left is its new owner's, also when it has come back."""
    stage.load(5)
    producer, consumer = stage.producer(), stage.subscribed()
    producer.session(consumer)
    stage.collect(consumer, 20)
    newcomer = stage.raw_consumer()
    theirs: list[Any] = []
    wait_for(
        lambda: rebalanced(stage, consumer, newcomer) and len(theirs) >= 10,
        "the new owner to have taken its share",
        lambda: consumer.adapter.fetching.serve_callbacks(drain=True),
        lambda: theirs.extend(newcomer.consume(100, 0.05)),
    )
    left = stage.assigned(newcomer)
    newcomer.commit(asynchronous=False)
    newcomer.unsubscribe()
    stage.load(2, start=5)
    wait_for(
        lambda: stage.assigned(consumer) == set(range(4)),
        "all partitions to be back",
        lambda: consumer.adapter.fetching.serve_callbacks(drain=True),
        lambda: newcomer.poll(0),
    )
    with producer.transaction(consumer) as txn:
        stage.collect(consumer, 2 * 2 + 2 * 2)
    assert txn.outcome is Outcome.ABORTED
    with producer.transaction(consumer):
        again = stage.collect(consumer, 2 * 7 + 2 * 2)
        assert consumer.consume(10, 0.2) == []
    for partition in range(4):
        expected = [5, 6] if partition in left else list(range(7))
        assert [m.offset() for m in again if m.partition() == partition] == expected


@EVERY_PROTOCOL
def test_in_revoke_the_generation_is_the_one_that_the_protocol_says(stage):
    """KIP-848 and classic eager still show the old one, classic cooperative already the new one."""
    seen: dict[str, int] = {}

    def on_revoke(consumer, partitions):
        if partitions:
            seen.setdefault("inside", consumer.adapter.snapshot().generation.generation_id)

    consumer = stage.subscribed(callbacks={"on_revoke": on_revoke})
    wait_for(lambda: stage.assigned(consumer) == set(range(4)), "all partitions", lambda: consumer.poll(0.05))
    before = consumer.adapter.snapshot().generation.generation_id
    newcomer = stage.raw_consumer()
    wait_for(
        lambda: rebalanced(stage, consumer, newcomer),
        "the rebalance",
        lambda: consumer.consume(1, 0.05),
        lambda: newcomer.consume(1, 0.05),
    )
    assert (seen["inside"] > before) is (stage.protocol is GroupProtocol.COOPERATIVE)
    assert seen["inside"] == consumer.gate.state.revocation.generation.generation_id
    wait_for(
        lambda: consumer.adapter.snapshot().generation.generation_id > seen["inside"],
        "a move",
        lambda: consumer.poll(0.05),
    )


def test_a_paused_partition_that_leaves_and_comes_back_delivers_again(stage):
    stage.load(1)
    consumer = stage.subscribed()
    stage.collect(consumer, 4)
    consumer.commit(asynchronous=False)
    consumer.pause([TopicPartition(stage.source, p) for p in range(4)])
    newcomer = stage.raw_consumer()
    wait_for(
        lambda: rebalanced(stage, consumer, newcomer),
        "the rebalance",
        lambda: consumer.consume(1, 0.05),
        lambda: newcomer.consume(1, 0.05),
    )
    kept = stage.assigned(consumer)
    newcomer.unsubscribe()
    wait_for(
        lambda: stage.assigned(consumer) == set(range(4)),
        "all partitions to be back",
        lambda: consumer.consume(1, 0.05),
        lambda: newcomer.poll(0),
    )
    left = set(range(4)) if stage.protocol is GroupProtocol.EAGER else set(range(4)) - kept
    stage.load(1, start=1)
    assert {m.partition() for m in stage.collect(consumer, len(left))} == left
    assert consumer.consume(10, 0.3) == []
    consumer.resume([TopicPartition(stage.source, p) for p in range(4)])
    stage.collect(consumer, 4 - len(left)) if len(left) < 4 else None
    assert consumer.adapter.positions[InputPartition(stage.source, 0)].next_offset == 2
