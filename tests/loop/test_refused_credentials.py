"""A loop without work whose credentials are not taken any more: it asks, and ends when nobody has taken them."""

import math

import pytest

from eos_client.clients import input_events
from eos_client.errors import AuthenticationError
from eos_client.testing.simulator import SimulatedCluster
from tests.loop.bench import Bench

LIMIT_S = 60.0
REPORTED_AT_S = 5.0
QUESTIONS_MAX = 1_000


@pytest.fixture(autouse=True)
def without_questions_about_topics(monkeypatch):
    monkeypatch.setattr(input_events, "_LOOK_INTERVAL_S", math.inf)


class Idle:
    """A loop without work whose consumer hears of errors, while the cluster answers or does not."""

    def __init__(self, *reported, answers=False):
        self.cluster = SimulatedCluster(seed=1)
        self.bench = Bench(self.cluster, lambda record: [], recovery_timeout_s=LIMIT_S, poll_timeout_s=1.0)
        self._reported, self._answers = reported, answers
        self.cluster.after(REPORTED_AT_S, self._report)
        self.cluster.after(3 * LIMIT_S, self.bench.loop.stop)

    def _report(self):
        for code in self._reported:
            self.cluster.report_error(code, "consumer-1")
        for _ in range(0 if self._answers else QUESTIONS_MAX):
            self.cluster.lose_request("Metadata")

    @property
    def asked(self):
        """How often the cluster was asked since then."""
        answered = [each for each in self.cluster.history if each.request == "Metadata" and each.at_s > REPORTED_AT_S]
        return len(answered) if self._answers else QUESTIONS_MAX - len(self.cluster.faults.waiting)


def test_a_loop_whose_credentials_nobody_takes_ends_when_its_limit_is_over():
    idle = Idle("_AUTHENTICATION", "_ALL_BROKERS_DOWN")
    with pytest.raises(AuthenticationError, match=r"simulated.*_AUTHENTICATION"):
        idle.bench.run()
    assert LIMIT_S <= idle.cluster.clock() - REPORTED_AT_S <= LIMIT_S + 20.0
    assert idle.asked > 1


def test_a_broker_that_takes_them_is_enough_and_nobody_is_asked_again():
    idle = Idle("_AUTHENTICATION", answers=True)
    idle.bench.run()
    assert idle.asked == 1


@pytest.mark.parametrize("reported", [(), ("_ALL_BROKERS_DOWN",), ("_AUTHENTICATION", "_TRANSPORT")])
def test_an_outage_is_waited_out(reported):
    idle = Idle(*reported)
    idle.bench.run()
    assert idle.asked == 0
