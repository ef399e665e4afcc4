"""Plain commits that are served late, on a real broker: none moves the committed offsets backwards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

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


WAYS: dict[str, tuple[bool, dict[str, Any]]] = {
    "synchronous": (False, {}),
    "asynchronous": (True, {}),
    "static member": (False, {"group_instance_id": "one"}),
}
# One protocol for each way; soak tests have the others.
IN_TURN = list(zip(GroupProtocol, WAYS, strict=True))
CASES = [
    pytest.param(
        protocol,
        *WAYS[way],
        id=f"{protocol.value}-{way}",
        marks=() if (protocol, way) in IN_TURN else pytest.mark.soak,
    )
    for protocol in GroupProtocol
    for way in WAYS
]


@pytest.mark.parametrize(("protocol", "asynchronous", "membership"), CASES)
def test_the_first_copy_of_a_commit_that_was_sent_twice_is_refused_after_another_consumers_block(
    proxy: KafkaProxy, protocol: GroupProtocol, asynchronous: bool, membership: dict[str, Any]
) -> None:
    place = f"127.0.0.1:{proxy.port}"
    with Stage(place, protocol, partitions=1, session_s=SESSION_S, heartbeat_s=HEARTBEAT_S) as stage:
        answered: list[Any] = []
        first = stage.subscribed(on_commit=lambda error, places: answered.append(error), **membership)
        stage.load(1)
        stage.collect(first, 1)
        held = proxy.hold_next(Api.OFFSET_COMMIT, of_group(stage.group), cuts_off=True)
        first.commit(asynchronous=asynchronous)
        held.wait_until_caught()
        if asynchronous:
            wait_for(lambda: answered == [None], "the second copy's answer", lambda: first.poll(0.05))
        first.close()
        producer, consumer = stage.producer(), stage.subscribed(**membership)
        stage.load(5, start=1)

        def one_block() -> None:
            with producer.transaction(consumer) as txn:
                for message in consumer.consume(5, 0.2):
                    txn.produce(stage.sink, message.value())

        wait_for(lambda: stage.committed() == {0: 6}, "the blocks to commit", one_block)
        held.deliver()
        held.wait_for_answer()
        assert stage.committed() == {0: 6}
