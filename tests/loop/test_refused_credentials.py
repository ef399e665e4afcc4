"""A loop without work whose credentials are not taken any more: it asks, and ends when nobody has taken them."""

import math

import pytest

from eos_client.clients import input_events
from eos_client.errors import AuthenticationError
from eos_client.observe import LoopStarted
from eos_client.testing.simulator import SimulatedCluster
from tests.loop.bench import Bench

LIMIT_S = 60.0
START_LIMIT_S = 30.0
REPORTED_AT_S = 5.0
QUESTIONS_MAX = 1_000


@pytest.fixture(autouse=True)
def without_questions_about_topics(monkeypatch):
    monkeypatch.setattr(input_events, "_LOOK_INTERVAL_S", math.inf)


class Starting:
    """A loop that starts while its first questions are `lost` and the credentials are refused, at once and again."""

    def __init__(self, lost):
        self.cluster = SimulatedCluster(seed=1)
        self.bench = Bench(self.cluster, lambda record: [], start_timeout_s=START_LIMIT_S)
        for at_s in (0.1, 0.6):
            self.cluster.after(at_s, lambda: self.cluster.report_error("_AUTHENTICATION", "consumer-1"))
        for _ in range(lost):
            self.cluster.lose_request("Metadata")
        self.cluster.after(LIMIT_S, self.bench.loop.stop)


def test_a_start_whose_credentials_are_refused_ends_long_before_its_limit():
    starting = Starting(lost=QUESTIONS_MAX)
    with pytest.raises(AuthenticationError, match=r"within [23]\S* s; the client last reported _AUTHENTICATION"):
        starting.bench.run()
    assert starting.cluster.clock() < START_LIMIT_S / 5


def test_a_start_goes_on_where_the_credentials_are_taken_a_moment_later():
    starting = Starting(lost=1)
    starting.bench.run()
    assert starting.bench.events(LoopStarted)


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
