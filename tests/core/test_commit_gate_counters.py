"""The counters say what the gate has cost and saved."""

from __future__ import annotations

import pytest

from eos_client.core.commit_gate import (
    CommitAttempt,
    CommitGate,
    CommitValidation,
    GateAssigned,
    GateCounters,
    GatePolicy,
    GateScope,
    GateSettings,
    RevocationEnded,
    RevocationStarted,
    RuleName,
)
from eos_client.core.model import GroupGeneration
from tests.core.gate_language import P0, P1, classic, parts, work

NOW, NEXT = classic(5), classic(6)


def closed_gate(validation: CommitValidation = CommitValidation.UNKNOWN) -> CommitGate:
    gate = CommitGate(GateSettings(validation=validation, hold_limit_s=5.0))
    gate.tell(GateAssigned(parts(P0, P1)))
    gate.tell(RevocationStarted(parts(P1)))
    gate.tell(RevocationEnded(parts(P1), NOW))
    return gate


def ask(gate: CommitGate, now: GroupGeneration = NOW, held_for_s: float = 0.0, *, served: bool = True) -> None:
    gate.decide(CommitAttempt(work({P0: NOW}), now, served, held_for_s))


@pytest.mark.parametrize(
    ("validation", "needed", "false", "unjudged"),
    [
        (CommitValidation.EXACT, 2, 0, 0),
        (CommitValidation.CLASSIC, 0, 2, 0),
        (CommitValidation.ASSIGNMENT_EPOCH, 0, 2, 0),
        (CommitValidation.UNKNOWN, 0, 0, 2),
    ],
)
def test_a_skip_counts_as_needed_false_or_unjudged_by_the_commit_validation(validation, needed, false, unjudged):
    gate = closed_gate(validation)
    ask(gate)
    ask(gate)
    counters = gate.counters
    assert (counters.skips_needed, counters.skips_false, counters.skips_unjudged) == (needed, false, unjudged)
    assert counters.skips == 2


def test_every_validation_has_an_answer():
    for validation in CommitValidation:
        gate = closed_gate(validation)
        ask(gate)
        assert gate.counters.skips == 1, validation


def test_one_hold_is_counted_once_and_with_its_whole_length_when_it_ends_in_a_commit():
    gate = closed_gate()
    for held_for_s in (0.0, 0.5, 1.0):
        ask(gate, held_for_s=held_for_s)
    assert (gate.counters.holds, gate.counters.held_s) == (1, 0.0)
    ask(gate, NEXT, held_for_s=1.5)
    assert (gate.counters.holds, gate.counters.held_s) == (1, 1.5)
    assert (gate.counters.commits, gate.counters.aborts, gate.counters.skips) == (1, 0, 3)


def test_a_hold_that_ends_in_an_abort_is_counted_with_its_length_too():
    gate = closed_gate()
    ask(gate)
    ask(gate, held_for_s=5.5)
    assert (gate.counters.aborts, gate.counters.commits, gate.counters.held_s) == (1, 0, 5.5)


def test_held_time_adds_up_over_two_holds():
    gate = closed_gate()
    for _ in range(2):
        ask(gate)
        ask(gate, NEXT, held_for_s=0.25)
    assert (gate.counters.holds, gate.counters.held_s, gate.counters.commits) == (2, 0.5, 2)


def test_being_sent_to_serve_callbacks_is_neither_a_commit_nor_a_skip_nor_the_end_of_a_hold():
    gate = closed_gate()
    ask(gate, NEXT, held_for_s=2.0, served=False)
    counters = gate.counters
    assert (counters.commits, counters.aborts, counters.skips, counters.holds, counters.held_s) == (0, 0, 0, 0, 0.0)
    assert counters.by_rule == {RuleName.CALLBACKS_PENDING: 1}


def test_every_ruling_is_counted_under_its_rule():
    gate = closed_gate()
    gate.decide(CommitAttempt({}))
    ask(gate, classic(-1))
    ask(gate)
    ask(gate)
    ask(gate, held_for_s=6.0)
    ask(gate, NEXT)
    assert gate.counters.by_rule == {
        RuleName.OUTPUTS_ONLY: 1,
        RuleName.NOT_A_MEMBER: 1,
        RuleName.REVOCATION_GENERATION: 2,
        RuleName.HELD_TOO_LONG: 1,
        RuleName.ALWAYS_OURS: 1,
    }
    assert (gate.counters.commits, gate.counters.aborts, gate.counters.skips) == (2, 2, 2)


def test_a_new_gate_has_zero_counters_and_default_settings():
    gate = CommitGate()
    assert gate.counters == GateCounters()
    assert gate.settings == GateSettings(GateScope.MEMBER, GatePolicy.SKIP, 5.0, CommitValidation.UNKNOWN)


def test_two_gates_count_apart():
    first, second = CommitGate(), CommitGate()
    first.decide(CommitAttempt({}))
    assert (first.counters.commits, second.counters.commits) == (1, 0)
    assert second.counters.by_rule == {}
