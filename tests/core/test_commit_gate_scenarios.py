"""Every story of gate_scenarios.py ends with the answers that it expects."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eos_client.core.commit_gate import (
    RULES,
    CommitAttempt,
    CommitGate,
    GatePolicy,
    GateState,
    RuleName,
    WorkEnded,
    decide,
    next_state,
)
from tests.core.gate_language import Ask, VariantGate, classic, contradictions
from tests.core.gate_scenarios import SCENARIOS

NAMED = pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)


@NAMED
def test_each_scenario_gets_the_expected_ruling_at_every_step(scenario):
    gate = CommitGate(scenario.settings)
    for step in scenario.steps:
        if not isinstance(step, Ask):
            gate.tell(step)
            continue
        ruling = gate.decide(step.attempt)
        assert (ruling.decision, ruling.rule) == (step.expect, step.rule), f"at {step}"


@NAMED
def test_the_gate_is_its_table_and_its_transitions_and_nothing_else(scenario):
    assert contradictions(scenario, VariantGate(scenario.settings, RULES, next_state)) == []


@NAMED
@pytest.mark.parametrize("policy", GatePolicy)
def test_a_policy_changes_what_the_application_does_not_what_is_safe(scenario, policy):
    assert contradictions(scenario, VariantGate(replace(scenario.settings, policy=policy))) == []


@NAMED
def test_a_decision_does_not_change_the_gates_state(scenario):
    gate = CommitGate(scenario.settings)
    for step in scenario.steps:
        if isinstance(step, Ask):
            before = gate.state
            first, second = gate.decide(step.attempt), gate.decide(step.attempt)
            assert (gate.state, first) == (before, second)
        else:
            gate.tell(step)


def test_the_scenarios_reach_every_rule():
    told = {(step.expect, step.rule) for scenario in SCENARIOS for step in scenario.steps if isinstance(step, Ask)}
    assert told == {(rule.decision, rule.name) for rule in RULES}


def test_every_reason_is_a_sentence_of_its_own():
    assert len({rule.reason for rule in RULES}) == len(RULES)


def test_a_reason_names_what_it_is_about():
    gate = CommitGate()
    moved = gate.decide(CommitAttempt({}, classic(6), required_membership=classic(5)))
    assert moved.reason == f"the membership moved on from {classic(5)} to {classic(6)}"


def test_each_rule_has_a_name_of_its_own_and_the_names_stand_in_the_order_of_the_rules():
    assert [rule.name for rule in RULES] == list(RuleName)


def test_an_event_without_a_transition_is_an_error():
    with pytest.raises(TypeError, match="'rebalanced' is not a gate event"):
        next_state(GateState(), "rebalanced")  # type: ignore[arg-type]


def test_a_gate_table_must_end_with_a_rule_that_always_applies():
    gate = VariantGate(SCENARIOS[0].settings)
    gate.tell(WorkEnded())
    question = Ask(SCENARIOS[0].steps[1].expect, RuleName.ALWAYS_OURS).attempt  # type: ignore[union-attr]
    with pytest.raises(StopIteration):
        decide(question, ())  # type: ignore[arg-type]
