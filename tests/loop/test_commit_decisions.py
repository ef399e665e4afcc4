"""Asking the gate when its answer keeps being "serve callbacks first"."""

from types import SimpleNamespace
from typing import Any

import pytest

from eos_client.clients.commit_decisions import CommitDecisions
from eos_client.core.commit_gate import (
    Assigned,
    CommitDecision,
    CommitGate,
    CommitRuling,
    GateRule,
    GateSettings,
    RevocationEnded,
)
from eos_client.core.model import UNJOINED, GroupGeneration, InputPartition, InputPosition
from eos_client.ports import MembershipSnapshot

ORDERS = InputPartition("orders", 0)
LIMIT_S = 5.0


class RestlessConsumer:
    """A member whose generation has moved again at each look."""

    def __init__(self):
        self.gate = CommitGate(GateSettings(hold_limit_s=LIMIT_S))
        self.gate.observe(Assigned(frozenset({ORDERS})))
        self.membership = SimpleNamespace(synced_generation=UNJOINED)
        self.fetching = self
        self.generation_id = 1
        self.served = 0

    def snapshot(self):
        self.generation_id += 1
        return MembershipSnapshot(b"", GroupGeneration(self.generation_id, "m"))

    def serve_callbacks(self, *, drain):
        assert drain
        self.served += 1


def test_a_generation_that_keeps_moving_is_a_skip_and_ends_at_the_hold_limit():
    consumer: Any = RestlessConsumer()
    now = SimpleNamespace(s=0.0)
    decisions = CommitDecisions(consumer, lambda _: None, lambda: now.s)
    positions = {ORDERS: InputPosition(0, 1, GroupGeneration(1, "m"))}

    ruling, snapshot = decisions.decide_after_callbacks(lambda: positions)
    assert ruling.decision is CommitDecision.SERVE_CALLBACKS
    assert consumer.served > 0
    decisions.skipped(ruling, snapshot)

    now.s = LIMIT_S + 0.1
    ruling, _ = decisions.decide_after_callbacks(lambda: positions)
    assert (ruling.decision, ruling.rule) == (CommitDecision.ABORT, GateRule.GENERATION_KEEPS_MOVING)
    counters = consumer.gate.counters
    assert (counters.aborts, counters.held_s) == (1, now.s)
    assert counters.by_rule[GateRule.GENERATION_KEEPS_MOVING] == 1


@pytest.mark.parametrize("ends_at_once", [False, True])
def test_the_end_of_such_a_hold_is_the_end_of_the_last_revocation(ends_at_once):
    consumer: Any = RestlessConsumer()
    closed_at = GroupGeneration(1, "m", is_member_epoch=True)
    consumer.gate.observe(RevocationEnded(frozenset(), closed_at))
    now = SimpleNamespace(s=0.0)
    decisions = CommitDecisions(consumer, lambda _: None, lambda: now.s)
    positions = {ORDERS: InputPosition(0, 1, closed_at)}
    decisions.record(*decisions.decide_after_callbacks(lambda: positions))
    now.s = LIMIT_S + 0.1
    decisions.decide_after_callbacks(lambda: positions, is_still_due=lambda: not ends_at_once)
    assert (consumer.gate.state.revocation is None) is not ends_at_once


@pytest.mark.parametrize("end", [CommitDecision.COMMIT, CommitDecision.ABORT])
@pytest.mark.parametrize("hold", [CommitDecision.SKIP, CommitDecision.SERVE_CALLBACKS])
def test_work_is_held_from_its_first_skip_to_its_end_and_the_next_work_anew(hold, end):
    now = SimpleNamespace(s=10.0)
    consumer: Any = RestlessConsumer()
    decisions = CommitDecisions(consumer, lambda _: None, lambda: now.s)
    for expected_s in (0.0, 1.0, 2.0):
        decisions.record(CommitRuling(hold, GateRule.REVOCATION_GENERATION, "held"), consumer.snapshot())
        assert (decisions.is_held, decisions.held_for_s) == (True, expected_s)
        now.s += 1.0
    decisions.record(CommitRuling(end, GateRule.ALWAYS_OURS, "over"), consumer.snapshot())
    assert (decisions.is_held, decisions.held_for_s) == (False, 0.0)
    decisions.record(CommitRuling(hold, GateRule.REVOCATION_GENERATION, "held"), consumer.snapshot())
    assert decisions.held_for_s == 0.0
