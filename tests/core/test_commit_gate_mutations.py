"""Every rule and every transition earns its place: take one away, or change their order, and a story ends otherwise."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import pytest

from eos_client.core.commit_gate import (
    RULES,
    GateAssigned,
    GateEvent,
    GateLost,
    GateRule,
    GateScope,
    GateState,
    HoldEnded,
    Question,
    RevocationEnded,
    RevocationStarted,
    RuleName,
    WorkEnded,
    next_state,
)
from eos_client.core.model import InputPartition
from tests.core.gate_language import Advance, Contradiction, Scenario, VariantGate, contradictions
from tests.core.gate_scenarios import SCENARIOS

ARMS: dict[type, tuple[str, ...]] = {
    GateAssigned: ("assigned", "revoking", "revocation"),
    RevocationStarted: ("revoking",),
    RevocationEnded: ("assigned", "revoking", "revocation", "revoked_work"),
    GateLost: ("assigned", "revoking", "revocation", "lost_work"),
    WorkEnded: ("lost_work", "revoked_work"),
    HoldEnded: ("revocation",),
}


@dataclass(frozen=True)
class Mutant:
    """The gate with one thing changed. ``needs_decision``: a changed reason is not enough, the answer must change."""

    name: str
    rules: tuple[GateRule, ...] = RULES
    advance: Advance = next_state
    needs_decision: bool = True

    def gate(self, scenario: Scenario) -> VariantGate:
        return VariantGate(scenario.settings, self.rules, self.advance)


def without_rule(index: int) -> Mutant:
    return Mutant(f"{RULES[index].name} removed", RULES[:index] + RULES[index + 1 :])


def swapped(index: int) -> Mutant:
    """Two rules that both abort differ in the reason they give; that counts, a wrong reason sends people astray."""
    first, second = RULES[index], RULES[index + 1]
    rules = (*RULES[:index], second, first, *RULES[index + 2 :])
    differ = first.decision is not second.decision
    return Mutant(f"{first.name} and {second.name} swapped", rules, needs_decision=differ)


def neutral(arm: type) -> Mutant:
    def advance(state: GateState, event: GateEvent) -> GateState:
        return state if isinstance(event, arm) else next_state(state, event)

    return Mutant(f"{arm.__name__} ignored", advance=advance)


def leaving(arm: type, field: str) -> Mutant:
    def advance(state: GateState, event: GateEvent) -> GateState:
        after = next_state(state, event)
        return replace(after, **{field: getattr(state, field)}) if isinstance(event, arm) else after

    return Mutant(f"{arm.__name__} leaves {field}", advance=advance)


def transition(name: str, change: Callable[[GateState, GateState, GateEvent], GateState]) -> Mutant:
    """``change`` gets the state before, the state after and the event."""
    return Mutant(name, advance=lambda state, event: change(state, next_state(state, event), event))


def predicate(does: str, name: RuleName, applies: Callable[[Question], bool]) -> Mutant:
    (index,) = (i for i, rule in enumerate(RULES) if rule.name is name)
    return Mutant(f"{name} {does}", (*RULES[:index], replace(RULES[index], applies=applies), *RULES[index + 1 :]))


def _tainting_all(state: GateState, after: GateState, event: GateEvent) -> GateState:
    if isinstance(event, RevocationEnded):
        return replace(after, revoked_work=state.revoked_work | event.uncommitted)
    return replace(after, lost_work=state.lost_work | event.uncommitted) if isinstance(event, GateLost) else after


def _tainting_last(_: GateState, after: GateState, event: GateEvent) -> GateState:
    if isinstance(event, RevocationEnded):
        return replace(after, revoked_work=event.uncommitted & event.partitions)
    return replace(after, lost_work=event.uncommitted & event.partitions) if isinstance(event, GateLost) else after


def _assigning_only(_: GateState, after: GateState, event: GateEvent) -> GateState:
    return replace(after, assigned=event.partitions) if isinstance(event, GateAssigned) else after


def _undone_by_any(_: GateState, after: GateState, event: GateEvent) -> GateState:
    return replace(after, revocation=None) if isinstance(event, GateAssigned) else after


def _undone_by_part(_: GateState, after: GateState, event: GateEvent) -> GateState:
    revocation = after.revocation
    if revocation is None or revocation.generation.is_member_epoch or not isinstance(event, GateAssigned):
        return after
    return replace(after, revocation=None) if revocation.partitions & event.partitions else after


def _undone_at_an_epoch(_: GateState, after: GateState, event: GateEvent) -> GateState:
    is_back = after.revocation is not None and after.revocation.partitions <= after.assigned
    return replace(after, revocation=None) if is_back and isinstance(event, GateAssigned) else after


def _closed_by_number(question: Question) -> bool:
    revocation, now = question.state.revocation, question.attempt.snapshot
    return revocation is not None and now.generation_id == revocation.generation.generation_id


def _held(question: Question) -> bool:
    return question.attempt.held_for_s <= question.settings.hold_limit_s


def _names(question: Question) -> Iterable[InputPartition]:
    return question.attempt.positions


def _moved(question: Question) -> bool:
    now = question.attempt.snapshot
    return not all(p.generation.same_membership(now) for p in question.attempt.positions.values())


def _all_moved(question: Question) -> bool:
    now = question.attempt.snapshot
    return not any(p.generation.same_membership(now) for p in question.attempt.positions.values())


def _is_epoch(question: Question) -> bool:
    return question.attempt.snapshot.is_member_epoch


def _at_limit(question: Question) -> bool:
    return question.attempt.held_for_s >= question.settings.hold_limit_s


def _closed(question: Question, scope: GateScope) -> bool:
    return replace(question, settings=replace(question.settings, scope=scope)).on_revocation_generation


MUTANTS = (
    *(without_rule(index) for index in range(len(RULES))),
    *(swapped(index) for index in range(len(RULES) - 1)),
    *(neutral(arm) for arm in ARMS),
    *(leaving(arm, field) for arm, fields in ARMS.items() for field in fields),
    transition("what stayed is tainted with what left", _tainting_all),
    transition("a second loss or revocation forgets the first", _tainting_last),
    transition("an assignment replaces the one before", _assigning_only),
    transition("any assignment undoes a revocation", _undone_by_any),
    transition("a part of its partitions undoes a revocation", _undone_by_part),
    transition("a KIP-848 group undoes a revocation", _undone_at_an_epoch),
    predicate("lets an empty member id pass", RuleName.NOT_A_MEMBER, lambda q: q.attempt.snapshot.generation_id <= 0),
    predicate("lets epoch 0 pass", RuleName.NOT_A_MEMBER, lambda q: q.attempt.snapshot.generation_id < 0),
    predicate("asks for a member id only", RuleName.NOT_A_MEMBER, lambda q: not q.attempt.snapshot.member_id),
    predicate("forgets failed revocations", RuleName.NOT_OURS, lambda q: not q.state.assigned.issuperset(_names(q))),
    predicate("forgets what was never ours", RuleName.NOT_OURS, lambda q: q.names_any(q.state.revoked_work)),
    predicate(
        "aborts in classic callbacks too",
        RuleName.EPOCH_MOVED_BEFORE_REVOKE,
        lambda q: q.state.revoking and q.may_have_pending_callback,
    ),
    predicate(
        "aborts outside callbacks too",
        RuleName.EPOCH_MOVED_BEFORE_REVOKE,
        lambda q: _is_epoch(q) and q.may_have_pending_callback,
    ),
    predicate(
        "aborts though all is served",
        RuleName.EPOCH_MOVED_BEFORE_REVOKE,
        lambda q: q.state.revoking and _moved(q) and _is_epoch(q),
    ),
    predicate("compares numbers only", RuleName.REVOCATION_GENERATION, lambda q: _closed_by_number(q) and _held(q)),
    predicate("has no limit", RuleName.REVOCATION_GENERATION, lambda q: q.on_revocation_generation),
    predicate(
        "ends at the limit", RuleName.REVOCATION_GENERATION, lambda q: q.on_revocation_generation and not _at_limit(q)
    ),
    predicate(
        "ignores scope partition", RuleName.REVOCATION_GENERATION, lambda q: _closed(q, GateScope.MEMBER) and _held(q)
    ),
    predicate(
        "ignores scope member", RuleName.REVOCATION_GENERATION, lambda q: _closed(q, GateScope.PARTITION) and _held(q)
    ),
    predicate(
        "looks for one fresh record",
        RuleName.CALLBACKS_PENDING,
        lambda q: _all_moved(q) and not q.attempt.generation_is_synced,
    ),
    predicate("holds what callbacks could clear", RuleName.GENERATION_UNSTABLE, lambda q: q.may_have_pending_callback),
    predicate("holds what is synced", RuleName.GENERATION_UNSTABLE, lambda q: q.attempt.generation_unstable),
    predicate("serves for ever", RuleName.CALLBACKS_PENDING, _moved),
)


def killers(mutant: Mutant) -> list[Contradiction]:
    """Return what the stories have against ``mutant``."""
    found = [each for scenario in SCENARIOS for each in contradictions(scenario, mutant.gate(scenario))]
    return [each for each in found if each.changes_decision or not mutant.needs_decision]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_some_scenario_catches_the_gate_mutant(mutant):
    assert killers(mutant), f"no story notices that {mutant.name}"


def test_every_mutant_of_the_gate_is_caught(capsys):
    verdicts = [(mutant, killers(mutant)) for mutant in MUTANTS]
    caught = sum(bool(found) for _, found in verdicts)
    for mutant, found in verdicts:
        first = found[0] if found else None
        what = f"{first.answered}, not {first.expected} | {first.scenario}, step {first.step}" if first else "MISSED"
        print(f"{mutant.name:<60} {len(found):>3} x | {what}")
    with capsys.disabled():
        print(f"\nmutants of the commit gate caught: {caught} of {len(MUTANTS)} (pytest -rP shows the table)")
    assert caught == len(MUTANTS)


def test_no_scenario_rejects_the_unchanged_gate():
    assert killers(Mutant("unchanged", needs_decision=False)) == []
