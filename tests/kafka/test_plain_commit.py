"""`commit()` without a transaction: what the gate holds back is sent later, what is not ours is never sent."""

import contextlib
from typing import Any

import pytest
from confluent_kafka import KafkaException, TopicPartition

from eos_client.errors import CommitRefusedError, TransactionStateError
from tests.kafka.kafka_support import values
from tests.support.interception import close_the_gate
from tests.support.waiting import wait_for
from tests.verification.protocols import GroupProtocol


def commit_once_accepted(consumer, **what):
    """Commit as soon as the group takes it: one that is in a rebalance refuses."""
    accepted = []

    def is_accepted():
        with contextlib.suppress(CommitRefusedError):
            accepted.append(consumer.commit(asynchronous=False, **what))
        return accepted

    wait_for(is_accepted, "the group to take a commit", consumer.adapter.fetching.serve_callbacks)
    return accepted[0]


def try_to_commit(consumer):
    """Commit, or leave it to the next time where the group is in a rebalance."""
    with contextlib.suppress(CommitRefusedError):
        consumer.commit(asynchronous=False)


def shared(stage, first, second):
    return len(stage.assigned(first)) == 1 and stage.assigned(second)


def share_with_a_newcomer(stage, consumer, seen=None):
    """Let another member take one of the two partitions; returns it."""
    newcomer = stage.raw_consumer()
    wait_for(
        lambda: shared(stage, consumer, newcomer),
        "the rebalance",
        lambda: (seen if seen is not None else []).extend(consumer.consume(100, 0.05)),
        lambda: newcomer.consume(100, 0.05),
    )
    return newcomer


def test_a_closed_gate_sends_nothing_and_the_next_allowed_commit_covers_it(any_stage):
    stage = any_stage
    stage.load(5)
    consumer = stage.subscribed()
    stage.collect(consumer, 10)
    close_the_gate(consumer)
    assert consumer.commit(asynchronous=False) == []
    assert consumer.commit() is None
    assert stage.committed() == {0: None, 1: None}
    (skipped, *_) = stage.named("commit_skipped")
    assert skipped.generation.same_membership(skipped.revocation_generation)
    stage.move_generation(consumer)
    if stage.protocol is not GroupProtocol.EAGER:  # there everything is revoked, and committed, on the way
        commit_once_accepted(consumer)
    assert stage.committed() == {0: 5, 1: 5}


def test_an_allowed_commit_of_one_partition_covers_what_is_pending_for_another(stage):
    stage.load(5)
    consumer = stage.subscribed()
    stage.collect(consumer, 10)
    close_the_gate(consumer)
    assert consumer.commit(offsets=[TopicPartition(stage.source, 0, 2)], asynchronous=False) == []
    stage.move_generation(consumer)
    sent = commit_once_accepted(consumer, offsets=[TopicPartition(stage.source, 1, 3)])
    assert {p.partition: p.offset for p in sent} == {0: 2, 1: 3}
    assert stage.committed() == {0: 2, 1: 3}


def test_pending_offsets_are_committed_inside_the_revoke_callback(any_stage):
    stage = any_stage
    stage.load(5)
    consumer = stage.subscribed()
    stage.collect(consumer, 10)
    close_the_gate(consumer)
    assert consumer.commit(asynchronous=False) == []
    newcomer = share_with_a_newcomer(stage, consumer)
    (left,) = {0, 1} - stage.assigned(consumer)
    assert stage.committed()[left] == 5
    assert values(newcomer.consume(10, 0.2)) == []


def test_a_commit_with_nothing_new_sends_nothing_through_a_closed_gate(stage):
    stage.load(5)
    consumer = stage.subscribed()
    stage.collect(consumer, 10)
    consumer.commit(offsets=[TopicPartition(stage.source, p, 5) for p in range(2)], asynchronous=False)
    consumer.commit(offsets=[TopicPartition(stage.source, p, 1) for p in range(2)], asynchronous=False)
    close_the_gate(consumer)
    consumer.commit()
    consumer.poll(0.2)
    assert stage.committed() == {0: 1, 1: 1}


def test_records_that_wait_to_be_handed_over_are_not_committed(stage):
    stage.load(5)
    consumer = stage.subscribed()
    stage.collect(consumer, 1)
    for _ in range(5):
        consumer.adapter.fetching.serve_callbacks()
    consumer.commit(asynchronous=False)
    with pytest.raises(KafkaException) as nothing:
        consumer.commit(asynchronous=False)
    assert nothing.value.args[0].name() == "_NO_OFFSET"
    assert sorted(offset or 0 for offset in stage.committed().values()) == [0, 1]


def test_a_commit_for_a_partition_of_somebody_else_is_refused(any_stage):
    stage = any_stage
    stage.load(5)
    consumer = stage.subscribed()
    messages = stage.collect(consumer, 10)
    newcomer = share_with_a_newcomer(stage, consumer)
    (left,) = {0, 1} - stage.assigned(consumer)
    theirs = next(m for m in messages if m.partition() == left)
    if stage.protocol is not GroupProtocol.EAGER:  # there it has moved, and a bystander would shuffle the partitions
        stage.move_generation(consumer, lambda: newcomer.poll(0.02))
    with pytest.raises(CommitRefusedError, match=str(left)):
        consumer.commit(message=theirs, asynchronous=False)
    assert consumer.commit(message=theirs) is None
    assert stage.named("commit_refused")
    assert stage.committed()[left] is None


def test_a_refused_commit_is_a_kafka_exception(stage):
    stage.load(5)
    consumer = stage.subscribed()
    messages = stage.collect(consumer, 10)
    share_with_a_newcomer(stage, consumer)
    (left,) = {0, 1} - stage.assigned(consumer)
    with pytest.raises(KafkaException):
        consumer.commit(message=next(m for m in messages if m.partition() == left), asynchronous=False)


def test_offsets_stored_before_a_partition_left_do_not_stop_later_commits(any_stage):
    stage = any_stage
    stage.load(5)
    consumer = stage.subscribed(enable_auto_offset_store=False)
    for message in stage.collect(consumer, 10):
        consumer.store_offsets(message=message)
    again: list[Any] = []
    share_with_a_newcomer(stage, consumer, again)
    (kept,) = stage.assigned(consumer)
    if stage.protocol is GroupProtocol.EAGER:  # all of it left, and what came back begins anew
        again = [m for m in again if m.partition() == kept]
        again += stage.collect(consumer, 5 - len(again)) if len(again) < 5 else []
        consumer.store_offsets(message=again[-1])
    wait_for(
        lambda: stage.committed()[kept] == 5,
        "the offsets of what is still ours to be committed",
        lambda: try_to_commit(consumer),
        lambda: consumer.poll(0.05),
    )
    assert stage.committed() == {kept: 5, 1 - kept: None}


def test_an_application_that_commits_in_its_own_on_revoke_still_does(any_stage):
    stage = any_stage
    stage.load(5)

    def on_revoke(consumer, partitions):
        if partitions:
            consumer.commit(asynchronous=False)

    consumer = stage.subscribed(callbacks={"on_revoke": on_revoke})
    stage.collect(consumer, 10)
    newcomer = share_with_a_newcomer(stage, consumer)
    assert stage.committed() == {0: 5, 1: 5}
    assert values(newcomer.consume(10, 0.2)) == []


def test_a_consumer_that_commits_plainly_enters_no_block_and_another_one_goes_on(any_stage):
    stage = any_stage
    written = stage.load(5)
    producer, consumer = stage.producer(), stage.subscribed()
    (first,) = stage.collect(consumer, 1)
    consumer.commit(first, asynchronous=False)
    with pytest.raises(TransactionStateError, match=r"has called commit\(\).*Build another consumer"):
        producer.transaction(consumer)
    stage.collect(consumer, 1)
    consumer.close()
    stage.copy_until(producer, stage.subscribed(), lambda: stage.committed() == {0: 5, 1: 5})
    assert sorted(stage.outputs()) == sorted(set(written) - {first.value().decode()})


def test_a_consumer_whose_metadata_was_handed_out_enters_no_block(stage):
    producer, consumer = stage.producer(), stage.subscribed()
    consumer.consumer_group_metadata()
    with pytest.raises(TransactionStateError, match=r"has handed out consumer_group_metadata\(\)"):
        producer.transaction(consumer)


def test_a_consumer_whose_commit_is_held_back_enters_no_block(stage):
    stage.load(5)
    producer, consumer = stage.producer(), stage.subscribed()
    stage.collect(consumer, 10)
    close_the_gate(consumer)
    assert consumer.commit(asynchronous=False) == []
    with pytest.raises(TransactionStateError, match=r"has offsets of a commit\(\) pending"):
        producer.transaction(consumer)


def test_with_latest_a_consumer_that_has_polled_first_enters_no_block(stage):
    stage.load(5)
    producer, consumer = stage.producer(), stage.subscribed(auto_offset_reset="latest")
    wait_for(lambda: stage.committed() == {0: 5, 1: 5}, "the starts to be committed", lambda: consumer.poll(0.05))
    with pytest.raises(TransactionStateError, match=r"call producer\.transaction\(consumer\) before its first poll"):
        producer.transaction(consumer)


def test_with_latest_a_consumer_polls_after_transaction_and_enters_its_block(any_stage):
    stage = any_stage
    stage.load(5)
    producer, consumer = stage.producer(), stage.subscribed(auto_offset_reset="latest")
    producer.transaction(consumer)
    wait_for(lambda: stage.committed() == {0: 5, 1: 5}, "the starts to be committed", lambda: consumer.poll(0.05))
    written = stage.load(2, start=5)
    stage.copy_until(producer, consumer, lambda: stage.committed() == {0: 7, 1: 7})
    assert sorted(stage.outputs()) == sorted(written)
