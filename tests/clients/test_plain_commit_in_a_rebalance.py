"""commit() serves rebalance callbacks first: what leaves meanwhile is committed in the callback, or refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaException, TopicPartition

from eos_client import EosConsumer
from eos_client.core.commit_gate import RuleName
from eos_client.errors import CommitRefusedError
from eos_client.observe import CommitRefused
from eos_client.testing.simulator.brokers.model import PartitionKey
from tests.clients.simulated_stage import GROUP, SOURCE, SimulatedStage
from tests.support.interception import close_the_gate
from tests.support.protocols import COOPERATIVE, EAGER, PROTOCOLS

Request = Callable[[EosConsumer, list[Any]], dict[str, Any]]

REQUESTS: dict[str, Request] = {
    "all": lambda consumer, records: {},
    "a message": lambda consumer, records: {"message": records[-1]},
    "offsets": lambda consumer, records: {"offsets": [TopicPartition(SOURCE, 0, records[-1].offset() + 1)]},
}


@pytest.fixture(params=PROTOCOLS)
def stage(request: Any) -> SimulatedStage:
    return SimulatedStage(request.param, records=2, partitions=1)


def evicted_while_another_has_committed_more(stage: SimulatedStage) -> None:
    stage.cluster.lose()
    stage.load(3)
    with stage.subscribed() as successor:
        stage.collect(successor, 5)
        successor.commit(asynchronous=False)
    stage.cluster.advance(10.0)


@pytest.mark.parametrize("asynchronous", [False, True], ids=["synchronous", "asynchronous"])
@pytest.mark.parametrize("request_of", REQUESTS.values(), ids=REQUESTS)
def test_a_loss_told_inside_commit_takes_the_group_back_to_nothing(stage, request_of, asynchronous):
    consumer = stage.subscribed()
    records = stage.collect(consumer, 2)
    evicted_while_another_has_committed_more(stage)
    # A classic member shows at once that it is none any more.
    rule = RuleName.LEFT_WHILE_SERVING if consumer.adapter.membership.state.is_member_epoch else RuleName.NOT_A_MEMBER
    refused = len(stage.named("commit_refused"))
    if asynchronous:
        assert consumer.commit(**request_of(consumer, records)) is None
        assert len(stage.named("commit_refused")) > refused
    else:
        with pytest.raises(CommitRefusedError, match=rf"{SOURCE}\[0\].*\(rule {rule}\)"):
            consumer.commit(**request_of(consumer, records), asynchronous=False)
    assert consumer.gate.counters.by_rule[rule] == 1
    assert stage.committed() == 5
    consumer.poll(1.0)
    consumer.close()
    assert stage.committed() == 5


@pytest.mark.parametrize("asynchronous", [False, True], ids=["synchronous", "asynchronous"])
@pytest.mark.parametrize("request_of", REQUESTS.values(), ids=REQUESTS)
def test_a_revocation_served_inside_commit_commits_what_was_asked_for(stage, request_of, asynchronous):
    consumer = stage.subscribed()
    records = stage.collect(consumer, 2)
    stage.cluster.revoke((SOURCE, 0))
    stage.cluster.advance(3.0)
    assert stage.named("partitions_revoked") == []
    sent = consumer.commit(**request_of(consumer, records), asynchronous=asynchronous)
    assert [(place.partition, place.offset) for place in sent or ()] == ([] if asynchronous else [(0, 2)])
    stage.wait_for(lambda: stage.named("partitions_revoked"), lambda: consumer.poll(0.1))
    assert stage.committed() == 2
    assert not [event for event in stage.events if isinstance(event, CommitRefused)]
    consumer.close()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_retained_partitions_are_committed_when_others_are_revoked_inside_commit(protocol):
    stage = SimulatedStage(protocol)
    consumer = stage.subscribed()
    stage.collect(consumer, 4)
    stage.cluster.revoke((SOURCE, 1))
    stage.cluster.advance(3.0)
    consumer.commit(asynchronous=False)
    stage.wait_for(lambda: stage.named("partitions_revoked"), lambda: consumer.poll(0.1))
    consumer.close()
    assert list(stage.cluster.committed(GROUP).values()) == [2, 2]
    assert stage.named("commit_refused") == []


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_refused_commit_of_revoked_partitions_does_not_block_the_next_commit(protocol):
    stage = SimulatedStage(protocol)
    consumer = stage.subscribed()
    stage.collect(consumer, 4)
    consumer.commit(asynchronous=False)
    stage.until_revoked(consumer)
    stage.load(1)
    stage.collect(consumer, 1)
    with pytest.raises(CommitRefusedError, match=rf"{SOURCE}\[1\]"):
        consumer.commit(offsets=[TopicPartition(SOURCE, 1, 2)], asynchronous=False)
    stage.wait_for(
        lambda: consumer.commit(asynchronous=False), lambda: consumer.adapter.fetching.wait_while_paused(0.1)
    )
    assert stage.cluster.committed(GROUP)[PartitionKey(SOURCE, 0)] == 3
    consumer.close()


def test_pending_offsets_are_committed_although_on_revoke_raises(stage):
    def on_revoke(*_: object) -> None:
        raise ZeroDivisionError

    consumer = stage.subscribed(callbacks={"on_revoke": on_revoke})
    stage.collect(consumer, 2)
    close_the_gate(consumer)
    consumer.commit()
    assert stage.committed() is None
    stage.cluster.revoke((SOURCE, 0))
    with pytest.raises(ZeroDivisionError):
        stage.wait_for(lambda: False, lambda: consumer.poll(0.1))
    assert stage.committed() == 2
    assert stage.named("commit_refused") == []


def test_offsets_of_an_interrupted_commit_are_not_committed_later():
    stage = SimulatedStage(COOPERATIVE, records=3, partitions=1)

    def on_revoke(*_: object) -> None:
        raise ZeroDivisionError

    consumer = stage.subscribed(callbacks={"on_revoke": on_revoke})
    first = stage.collect(consumer, 3)[0]
    stage.cluster.refuse("OffsetCommit", "REBALANCE_IN_PROGRESS")
    with pytest.raises(KafkaException):
        consumer.commit(asynchronous=False)
    consumer.seek(TopicPartition(SOURCE, 0, first.offset()))
    with pytest.raises(ZeroDivisionError):
        consumer.close()
    assert stage.committed() is None


@pytest.mark.parametrize("protocol", [EAGER, COOPERATIVE])
def test_a_commit_that_raised_is_not_sent_by_a_later_revocation(protocol):
    stage = SimulatedStage(protocol)
    consumer = stage.subscribed()
    stage.collect(consumer, 4)
    stage.cluster.refuse("OffsetCommit", "GROUP_AUTHORIZATION_FAILED")
    with pytest.raises(KafkaException):
        consumer.commit(asynchronous=False)
    stage.cluster.revoke((SOURCE, 1))
    stage.wait_for(lambda: stage.named("partitions_revoked"), lambda: consumer.poll(0.1))
    assert stage.cluster.committed(GROUP) == {}


def test_what_was_stored_before_a_partition_left_is_not_committed_when_it_is_back():
    stage = SimulatedStage(COOPERATIVE)
    consumer = stage.subscribed(enable_auto_offset_store=False)
    for record in stage.collect(consumer, 4):
        consumer.store_offsets(message=record)
    stage.cluster.revoke((SOURCE, 1))
    stage.wait_for(lambda: stage.named("partitions_revoked"), lambda: consumer.poll(0.1))
    stage.cluster.give_back()
    stage.wait_for(lambda: len(consumer.assignment()) == 2, lambda: consumer.poll(0.1))
    consumer.commit(asynchronous=False)
    assert list(stage.cluster.committed(GROUP)) == [(SOURCE, 0)]
