"""A consumer is not closed from its own callbacks: the client library's call below would go on with nothing."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest

from eos_client import EosConsumer
from eos_client.errors import TransactionStateError

SETTINGS = {"bootstrap.servers": "simulated", "group.id": "billing", "auto.offset.reset": "earliest"}


def consumer_of(cluster: Any, **settings: Any) -> EosConsumer:
    cluster.create_topic("orders")
    return EosConsumer({**SETTINGS, **settings}, factory=cluster.consumer, clock=cluster.clock, hook=lambda _: None)


@pytest.mark.parametrize("callback", ["error_cb", "throttle_cb", "on_assign"])
def test_a_close_inside_a_callback_is_refused_and_the_consumer_goes_on(callback: str, simulated_cluster: Any) -> None:
    def close(*_: Any) -> None:
        consumer.close()

    settings = {} if callback == "on_assign" else {callback: close}
    consumer = consumer_of(simulated_cluster, **settings)
    consumer.subscribe(["orders"], on_assign=close if callback == "on_assign" else None)
    refused = pytest.raises(TransactionStateError, match=r"close\(\) inside another call of the same client")
    simulated_cluster.report_error("_TRANSPORT")
    simulated_cluster.report_throttle(1)
    with refused:
        consumer.poll(6.0)
    simulated_cluster.write("orders", [b"1"])
    assert [message.value() for message in consumer.consume(1, 10.0)] == [b"1"]
    consumer.close()
    with pytest.raises(RuntimeError, match="closed"):
        consumer.poll(0)


@pytest.mark.parametrize("settings", [{}, {"group.instance.id": "one"}], ids=["dynamic", "static"])
def test_a_close_inside_the_callbacks_of_a_close_is_that_same_close(
    simulated_cluster: Any, settings: dict[str, str]
) -> None:
    told: list[str] = []

    def close(*_: Any) -> None:
        told.append("revoked")
        consumer.close()

    consumer = consumer_of(simulated_cluster, **settings)
    consumer.subscribe(["orders"], on_revoke=close)
    consumer.poll(6.0)
    closes = mock.patch.object(consumer._library.raw, "close", wraps=consumer._library.raw.close)
    with closes as library_close:
        consumer.close()
    assert library_close.call_count == 1
    assert told == ["revoked"]


def test_an_exception_out_of_a_callback_leaves_nothing_behind_that_refuses_a_close(simulated_cluster: Any) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    consumer = consumer_of(simulated_cluster)
    consumer.subscribe(["orders"], on_assign=interrupted)
    with pytest.raises(KeyboardInterrupt):
        consumer.poll(6.0)
    consumer.close()
