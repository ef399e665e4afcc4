"""A call that serves callbacks is refused inside a callback of the same client, where confluent_kafka ends the process.

``CallState_get: Assertion`` comes when the outer call serves its next callback, so each test waits for some more.
"""

from contextlib import suppress
from typing import Any

import pytest
from confluent_kafka import KafkaException

from eos_client import EosConsumer, EosProducer
from eos_client.errors import TransactionStateError
from tests.support.waiting import wait_for

NOWHERE = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0, "statistics.interval.ms": 10}
CONSUMER = {
    "poll": lambda consumer: consumer.poll(0),
    "consume": lambda consumer: consumer.consume(5, 0),
    "list_topics": lambda consumer: consumer.list_topics(timeout=0.01),
    "cluster_id": lambda consumer: consumer.cluster_id(0.01),
    "close": lambda consumer: consumer.close(),
}
PRODUCER = {
    "poll": lambda producer: producer.poll(0),
    "flush": lambda producer: producer.flush(0),
    "list_topics": lambda producer: producer.list_topics(timeout=0.01),
    "cluster_id": lambda producer: producer.cluster_id(0.01),
    "close": lambda producer: producer.close(),
    "init_transactions": lambda producer: producer.init_transactions(0.01),
    "begin_transaction": lambda producer: producer.begin_transaction(),
}


class Application:
    """Calls its client from a callback, and catches what that raises."""

    def __init__(self, call):
        self.call = call
        self.client: Any = None
        self.refusals = []
        self.callbacks = 0

    def callback(self, *_):
        self.callbacks += 1
        try:
            self.call(self.client)
        except TransactionStateError as error:
            self.refusals.append(error)
        except KafkaException:
            pass

    def goes_on(self):
        """Until there were several callbacks, after each of which the client library looks at its state."""
        wait_for(lambda: self.callbacks >= 10, "ten callbacks", lambda: self.client.poll(0.2))
        assert len(self.refusals) == self.callbacks
        self.client.close()


@pytest.mark.parametrize("kind", ["stats_cb", "error_cb"])
@pytest.mark.parametrize("name", CONSUMER)
def test_a_consumer_call_inside_a_client_callback_is_refused(name, kind):
    application = Application(CONSUMER[name])
    application.client = EosConsumer({**NOWHERE, "group.id": "g", kind: application.callback})
    application.client.subscribe(["in"])
    application.goes_on()


@pytest.mark.parametrize("id_", ["", "t"], ids=["idempotent", "transactional"])
@pytest.mark.parametrize("name", PRODUCER)
def test_a_producer_call_inside_a_client_callback_is_refused(name, id_):
    application = Application(PRODUCER[name])
    settings = {"transactional.id": id_} if id_ else {}
    application.client = EosProducer({**NOWHERE, **settings, "stats_cb": application.callback})
    application.goes_on()


def test_a_delivery_callback_that_flushes_is_refused_and_the_outer_flush_goes_on():
    producer = EosProducer({**NOWHERE, "message.timeout.ms": 20})
    application = Application(PRODUCER["flush"])
    application.client = producer
    for number in range(10):
        producer.produce("out", str(number), on_delivery=application.callback)
    with suppress(TransactionStateError):
        assert producer.flush(30) == 0
    assert len(application.refusals) == application.callbacks == 10
    producer.close()
