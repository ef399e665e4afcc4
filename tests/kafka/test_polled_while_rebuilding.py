"""A member whose handle cannot be replaced yet lets its group rebalance: it is polled meanwhile."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest

from eos_client import Outcome
from tests.kafka.kafka_support import LIMITS, ON_A_BROKER, Stage
from tests.support.waiting import wait_for
from tests.verification.brokers import RunningBroker
from tests.verification.late_end_txn import abort_of, commit_of, sent_by
from tests.verification.protocols import LONG_SESSION_S
from tests.verification.proxy import KafkaProxy
from tests.verification.wire import Api

IMPATIENT = replace(LIMITS, commit_timeout_s=1.0)
PROTOCOLS = pytest.mark.parametrize("stage", ON_A_BROKER, indirect=True, ids=lambda each: each.value)


@pytest.fixture
def stage(proxied_broker: RunningBroker, request: pytest.FixtureRequest) -> Iterator[Stage]:
    with Stage(proxied_broker.bootstrap, request.param, session_s=LONG_SESSION_S) as made:
        made.load(4)
        yield made


class Newcomer:
    """Another member of the group, which joins once a request of ours is held back, and then lets that go on."""

    def __init__(self, stage: Stage, proxy: KafkaProxy, transactional_id: str) -> None:
        self.partitions: set[int] = set()
        self._stage = stage
        self._held = proxy.hold_next(Api.INIT_PRODUCER_ID, sent_by(transactional_id))
        self._thread = threading.Thread(target=self._join)
        self._thread.start()

    def _join(self) -> None:
        self._held.wait_until_caught()
        member = self._stage.raw_consumer()
        try:
            wait_for(member.assignment, "an assignment of the newcomer", lambda: member.poll(0.05))
            self.partitions = self._stage.assigned(member)
        finally:
            self._held.deliver()

    def has_joined_meanwhile(self) -> bool:
        self._thread.join()
        return bool(self.partitions)


@PROTOCOLS
def test_another_member_gets_its_partition_while_an_abort_waits_for_the_coordinator(
    stage: Stage, proxy: KafkaProxy
) -> None:
    producer, consumer = stage.producer(limits=IMPATIENT, transactional_id=stage.group), stage.subscribed()
    txn = producer.transaction(consumer)
    silence = proxy.hold_next(Api.END_TXN, abort_of(stage.group))
    newcomer = Newcomer(stage, proxy, stage.group)
    with contextlib.suppress(ArithmeticError), txn:
        for record in stage.collect(consumer, 8):
            txn.produce(stage.sink, record.value())
        producer.flush()
        raise ArithmeticError
    assert newcomer.has_joined_meanwhile()
    assert txn.outcome is Outcome.ABORTED
    silence.discard()
    assert stage.outputs() == []


@PROTOCOLS
def test_another_member_gets_its_partition_while_a_handle_that_lost_a_connection_is_replaced(
    stage: Stage, proxy: KafkaProxy
) -> None:
    producer, consumer = stage.producer(transactional_id=stage.group), stage.subscribed()
    with producer.transaction(consumer) as txn:
        for record in stage.collect(consumer, 8):
            txn.produce(stage.sink, record.value())
        producer.flush()
        lost = proxy.hold_next(Api.END_TXN, commit_of(stage.group), cuts_off=True)
        newcomer = Newcomer(stage, proxy, stage.group)
    assert newcomer.has_joined_meanwhile()
    assert txn.outcome is Outcome.COMMITTED
    lost.discard()
    assert sorted(stage.outputs()) == sorted(f"{partition}-{number}" for partition in (0, 1) for number in range(4))
