"""A loop without work whose credentials are not taken any more: it asks, and ends when nobody has taken them."""

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from eos_client.clients.input_events import RefusedCredentials
from eos_client.confluent.last_errors import LastErrors
from eos_client.errors import AuthenticationError
from eos_client.testing.simulator import SimulatedClock

LIMIT_S = 60.0
REFUSED = KafkaError(KafkaError._AUTHENTICATION, "Invalid username or password")
LOST = KafkaError(KafkaError._TRANSPORT, "Connection refused")
DOWN = KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down")


class Consumer:
    """Answers while `answers`; counts how often it was asked."""

    def __init__(self, *reported):
        self.settings = {"bootstrap.servers": "broker:9092"}
        self.library = SimpleNamespace(last_errors=LastErrors(None))
        self.asked, self.answers = 0, False
        for error in reported:
            self.library.last_errors(error)

    def list_topics(self, timeout):
        self.asked += 1
        if not self.answers:
            raise KafkaException(LOST)


def waits(consumer: Any, clock: SimulatedClock, for_s: float) -> None:
    credentials = RefusedCredentials(consumer, LIMIT_S, clock)
    until = clock.now_s + for_s
    while clock.now_s < until:
        credentials.require_none()
        clock.now_s += 1.0


def test_a_loop_whose_credentials_nobody_takes_ends_when_its_limit_is_over():
    clock = SimulatedClock()
    began_at = clock.now_s
    with pytest.raises(AuthenticationError, match=r"broker:9092.*Invalid username or password"):
        waits(Consumer(REFUSED, DOWN), clock, 1000.0)
    assert LIMIT_S <= clock.now_s - began_at <= LIMIT_S + 10.0


def test_a_broker_that_takes_them_is_enough_and_nobody_is_asked_again():
    consumer, clock = Consumer(REFUSED), SimulatedClock()
    consumer.answers = True
    waits(consumer, clock, 1000.0)
    assert consumer.asked == 1


@pytest.mark.parametrize("reported", [(), (DOWN,), (REFUSED, LOST)])
def test_an_outage_is_waited_out(reported):
    consumer, clock = Consumer(*reported), SimulatedClock()
    waits(consumer, clock, 1000.0)
    assert consumer.asked == 0
