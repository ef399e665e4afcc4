"""A hold that has reached its limit: whose gate opens then."""

from __future__ import annotations

import pytest

from eos_client.core.commit_gate import (
    CommitAttempt,
    CommitDecision,
    CommitGate,
    GateAssigned,
    HoldEnded,
    RevocationEnded,
    RevocationStarted,
)
from tests.core.gate_language import P0, P1, classic, epoch, parts, work


@pytest.mark.parametrize(("now", "opens"), [(classic(5), False), (epoch(5), True)])
def test_the_end_of_a_hold_opens_no_classic_gate(now, opens):
    gate = CommitGate()
    for event in (
        GateAssigned(parts(P0, P1)),
        RevocationStarted(parts(P1)),
        RevocationEnded(parts(P1), now),
        HoldEnded(),
    ):
        gate.tell(event)
    decision = gate.decide(CommitAttempt(work({P0: now}), now, generation_is_synced=True)).decision
    assert decision is (CommitDecision.COMMIT if opens else CommitDecision.SKIP)
