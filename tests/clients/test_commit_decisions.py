"""Asking the gate when its answer keeps being "serve callbacks first"."""

from contextlib import nullcontext
from typing import Any
from unittest.mock import Mock, call

import pytest

from eos_client import EosConsumer
from eos_client.clients.commit_decisions import CommitDecisions
from eos_client.clients.long_steps import EndedMeanwhileError
from eos_client.core.commit_gate import CommitDecision, CommitRuling, GateSettings, RevocationEnded, RuleName
from eos_client.testing.simulator import BrokerSettings
from tests.loop.bench import BROKERS
from tests.support.interception import intercepting
from tests.support.waiting import wait_for

LIMIT_S = 5.0
HEARTBEAT_S = 0.01


class Restless:
    """A KIP-848 member with one record read, whose epoch moves again whenever somebody looks at it."""

    def __init__(self, make_cluster):
        self.cluster = make_cluster(settings=BrokerSettings(group_consumer_heartbeat_interval_s=HEARTBEAT_S))
        self.cluster.create_topic("orders")
        self.cluster.write("orders", [b"1"])
        consumer = EosConsumer(
            {**BROKERS, "group.id": "billing", "group.protocol": "consumer", "auto.offset.reset": "earliest"},
            gate=GateSettings(hold_limit_s=LIMIT_S),
            factory=intercepting(self.cluster.consumer, consumer_group_metadata=self._moved),
            clock=self.cluster.clock,
        )
        consumer.subscribe(["orders"])
        wait_for(lambda: consumer.poll(1.0), "the record", timeout_s=60.0, clock=self.cluster.clock)
        self.adapter, self.gate = consumer.adapter, consumer.gate
        self.positions = self.adapter.positions
        self.attempts = CommitDecisions(self.adapter, lambda _: None, self.cluster.clock)

    def _moved(self, raw: Any) -> Any:
        if raw.memberid():
            self.cluster.rebalance()
            self.cluster.advance(3 * HEARTBEAT_S)
        return raw.consumer_group_metadata()

    def decide(self, **options: Any) -> Any:
        return self.attempts.decide_after_callbacks(lambda: self.positions, **options)


@pytest.fixture
def restless(make_simulated_cluster):
    return Restless(make_simulated_cluster)


def test_a_generation_that_keeps_moving_is_a_skip_and_ends_at_the_hold_limit(restless, monkeypatch):
    serve = Mock(wraps=restless.adapter.fetching.serve_callbacks)
    monkeypatch.setattr(restless.adapter.fetching, "serve_callbacks", serve)
    ruling, snapshot = restless.decide()
    assert (ruling.decision, ruling.rule) == (CommitDecision.SKIP, RuleName.GENERATION_UNSTABLE)
    assert restless.gate.counters.skips_unjudged == 1
    assert serve.call_args_list == [call(drain=True)] * 3
    restless.attempts.record_skip(ruling, snapshot)

    restless.cluster.advance(LIMIT_S)
    ruling, _ = restless.decide()
    assert (ruling.decision, ruling.rule) == (CommitDecision.ABORT, RuleName.GENERATION_KEEPS_MOVING)
    counters = restless.gate.counters
    assert (counters.aborts, counters.held_s) == (1, pytest.approx(LIMIT_S, abs=0.5))
    assert counters.by_rule[RuleName.GENERATION_KEEPS_MOVING] == 1


@pytest.mark.parametrize("ends_at_once", [False, True])
def test_the_end_of_such_a_hold_is_the_end_of_the_last_revocation(restless, ends_at_once):
    restless.gate.tell(RevocationEnded(frozenset(), restless.adapter.snapshot().generation))
    restless.attempts.record(*restless.decide())
    restless.cluster.advance(LIMIT_S)
    with pytest.raises(EndedMeanwhileError) if ends_at_once else nullcontext():
        restless.decide(is_still_due=lambda: not ends_at_once)
    assert (restless.gate.state.revocation is None) is not ends_at_once


@pytest.mark.parametrize("end", [CommitDecision.COMMIT, CommitDecision.ABORT])
def test_work_is_held_from_its_first_skip_to_its_end_and_the_next_work_anew(restless, end):
    attempts, snapshot = restless.attempts, restless.adapter.snapshot()
    held = CommitRuling(CommitDecision.SKIP, RuleName.REVOCATION_GENERATION, "held")
    for expected_s in (0.0, 1.0, 2.0):
        attempts.record(held, snapshot)
        assert (attempts.is_held, attempts.held_for_s) == (True, pytest.approx(expected_s))
        restless.cluster.advance(1.0)
    attempts.record(CommitRuling(end, RuleName.ALWAYS_OURS, "over"), snapshot)
    assert (attempts.is_held, attempts.held_for_s) == (False, 0.0)
    attempts.record(held, snapshot)
    assert attempts.held_for_s == 0.0
