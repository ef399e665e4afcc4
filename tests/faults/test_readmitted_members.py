"""A group of members of both protocols on a real broker, which readmits an evicted classic member under its old id."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import Consumer

from eos_client import Outcome
from tests.kafka.kafka_support import Stage
from tests.support.waiting import wait_for
from tests.verification.leaving import leave
from tests.verification.protocols import GroupProtocol
from tests.verification.proxy import KafkaProxy
from tests.verification.topics import read_all
from tests.verification.wire import Api

SESSION_S = 1.5
OF_CLASSIC_MEMBERS = {"partition.assignment.strategy", "session.timeout.ms", "heartbeat.interval.ms"}


@pytest.mark.parametrize("is_synced", [True, False])
def test_records_that_another_owner_has_committed_are_not_committed_again(proxy: KafkaProxy, is_synced: bool) -> None:
    """Its JoinGroup is on the way when the session ends: it is never told that it has lost its partitions.

    Without ``is_synced`` it commits before the SyncGroup response, and so before a rebalance callback can run.
    """
    with Stage(f"127.0.0.1:{proxy.port}", GroupProtocol.COOPERATIVE, session_s=SESSION_S) as stage:
        producer, consumer = stage.producer(), stage.subscribed()
        stage.load(1)
        membership = consumer.adapter.membership
        with producer.transaction(consumer) as txn:
            for record in stage.collect(consumer, 2):
                txn.produce(stage.sink, record.value())
            before = membership.snapshot().generation
            held = proxy.hold_next(Api.JOIN_GROUP, lambda request: request.member_id == before.member_id)
            settings = stage.consumer_settings(enable_auto_commit=False) | dict(GroupProtocol.KIP_848.consumer_config)
            other = Consumer({name: settings[name] for name in settings.keys() - OF_CLASSIC_MEMBERS})
            other.subscribe([stage.source])
            seen: list[Any] = []

            def poll_other() -> None:
                message = other.poll(0.05)
                if message is not None and message.error() is None:
                    seen.append(message)

            wait_for(lambda: len(seen) == 2, "the other member to own everything", poll_other)
            other.commit(asynchronous=False)
            synced = None if is_synced else proxy.hold_next(Api.SYNC_GROUP)
            held.deliver()
            wait_for(lambda: membership.snapshot().generation.generation_id > before.generation_id, "to be readmitted")
            assert membership.snapshot().generation.member_id == before.member_id
        assert txn.outcome is Outcome.ABORTED
        if synced is not None:
            synced.deliver()
        assert read_all(stage.bootstrap, stage.sink, 1) == []
        leave(other)
