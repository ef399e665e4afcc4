"""Plain commits that are served late, on a real broker: none moves the committed offsets backwards."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from eos_client import Outcome
from tests.kafka.kafka_support import Stage
from tests.support.waiting import wait_for
from tests.verification.protocols import GroupProtocol
from tests.verification.proxy import KafkaProxy
from tests.verification.wire import Api, RequestFields

TOO_EARLY_S, SESSION_S = 1.0, 30.0
# A heartbeat that waits behind the held commit breaks the connection when its time is over. librdkafka then sends the
# commit again on another one, and the answer that comes says nothing of the first copy.
HEARTBEAT_S = 10.0


def of_group(group: str) -> Callable[[RequestFields], bool]:
    return lambda request: request.group == group


@pytest.mark.parametrize("protocol", GroupProtocol, ids=lambda protocol: protocol.value)
def test_a_block_commits_after_an_asynchronous_commit_that_was_sent_before_it(
    proxy: KafkaProxy, protocol: GroupProtocol
) -> None:
    place = f"127.0.0.1:{proxy.port}"
    with Stage(place, protocol, partitions=1, session_s=SESSION_S, heartbeat_s=HEARTBEAT_S) as stage:
        producer, consumer = stage.producer(), stage.subscribed()
        stage.load(1)
        stage.collect(consumer, 1)
        held = proxy.hold_next(Api.OFFSET_COMMIT, of_group(stage.group))
        consumer.commit()
        held.wait_until_caught()
        stage.load(5, start=1)
        ended = threading.Event()

        def deliver() -> None:
            ended.wait(TOO_EARLY_S)
            held.deliver()

        threading.Thread(target=deliver).start()
        with producer.transaction(consumer) as txn:
            for message in stage.collect(consumer, 5):
                txn.produce(stage.sink, message.value())
        ended.set()
        assert txn.outcome is Outcome.COMMITTED
        held.wait_for_answer()
        assert stage.committed() == {0: 6}


@pytest.mark.parametrize(
    ("asynchronous", "membership"),
    [(False, {}), (True, {}), (False, {"group_instance_id": "one"})],
    ids=["synchronous", "asynchronous", "static member"],
)
@pytest.mark.parametrize("protocol", GroupProtocol, ids=lambda protocol: protocol.value)
def test_the_first_copy_of_a_commit_that_was_sent_twice_is_refused_after_a_block(
    proxy: KafkaProxy, protocol: GroupProtocol, asynchronous: bool, membership: dict[str, Any]
) -> None:
    place = f"127.0.0.1:{proxy.port}"
    with Stage(place, protocol, partitions=1, session_s=SESSION_S, heartbeat_s=HEARTBEAT_S) as stage:
        answered: list[Any] = []
        consumer = stage.subscribed(on_commit=lambda error, places: answered.append(error), **membership)
        producer = stage.producer()
        stage.load(1)
        stage.collect(consumer, 1)
        held = proxy.hold_next(Api.OFFSET_COMMIT, of_group(stage.group), cuts_off=True)
        consumer.commit(asynchronous=asynchronous)
        held.wait_until_caught()
        if asynchronous:
            wait_for(lambda: answered == [None], "the second copy's answer", lambda: consumer.poll(0.05))
        stage.load(5, start=1)

        def one_block() -> None:
            with producer.transaction(consumer) as txn:
                for message in consumer.consume(5, 0.2):
                    txn.produce(stage.sink, message.value())

        wait_for(lambda: stage.committed() == {0: 6}, "the blocks to commit", one_block)
        held.deliver()
        held.wait_for_answer()
        assert stage.committed() == {0: 6}
