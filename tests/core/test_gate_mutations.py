"""Every row and every transition earns its place: take one away, or change their order, and a story ends otherwise."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import pytest

from eos_client.core.commit_gate import (
    RULES,
    Assigned,
    CommitDecision,
    GateEvent,
    GateScope,
    GateState,
    HoldEnded,
    Lost,
    Question,
    RevocationEnded,
    RevocationStarted,
    Rule,
    WorkSettled,
    next_state,
)
from eos_client.core.model import InputPartition
from tests.core.gate_language import Advance, Contradiction, Scenario, VariantGate, contradictions
from tests.core.gate_scenarios import SCENARIOS

ABORT, SKIP, SERVE = CommitDecision.ABORT, CommitDecision.SKIP, CommitDecision.SERVE_CALLBACKS

ARMS: dict[type, tuple[str, ...]] = {
    Assigned: ("assigned", "revocation"),
    RevocationStarted: ("revoking",),
    RevocationEnded: ("assigned", "revoking", "revocation", "revoked_work"),
    Lost: ("assigned", "revocation", "lost_work"),
    WorkSettled: ("lost_work", "revoked_work"),
    HoldEnded: ("revocation",),
}


@dataclass(frozen=True)
class Mutant:
    """The gate with one thing changed. ``needs_decision``: a changed reason is not enough, the answer must change."""

    name: str
    rules: tuple[Rule, ...] = RULES
    advance: Advance = next_state
    needs_decision: bool = True

    def gate(self, scenario: Scenario) -> VariantGate:
        return VariantGate(scenario.settings, self.rules, self.advance)


def without_row(index: int) -> Mutant:
    rule = RULES[index]
    name = f"row {rule.row} ({rule.decision.name}) removed"
    return Mutant(name, RULES[:index] + RULES[index + 1 :])


def swapped(index: int) -> Mutant:
    """Two rows that both abort differ in the reason they give; that counts, a wrong reason sends people astray."""
    first, second = RULES[index], RULES[index + 1]
    rules = (*RULES[:index], second, first, *RULES[index + 2 :])
    differ = first.decision is not second.decision
    return Mutant(f"rows {first.row} and {second.row} swapped", rules, needs_decision=differ)


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


def predicate(name: str, row: int, decision: CommitDecision, applies: Callable[[Question], bool]) -> Mutant:
    (index,) = (i for i, rule in enumerate(RULES) if (rule.row, rule.decision) == (row, decision))
    return Mutant(name, (*RULES[:index], replace(RULES[index], applies=applies), *RULES[index + 1 :]))


def _tainting_all(state: GateState, after: GateState, event: GateEvent) -> GateState:
    if isinstance(event, RevocationEnded):
        return replace(after, revoked_work=state.revoked_work | event.uncommitted)
    return replace(after, lost_work=state.lost_work | event.uncommitted) if isinstance(event, Lost) else after


def _tainting_last(_: GateState, after: GateState, event: GateEvent) -> GateState:
    if isinstance(event, RevocationEnded):
        return replace(after, revoked_work=event.uncommitted & event.partitions)
    return replace(after, lost_work=event.uncommitted & event.partitions) if isinstance(event, Lost) else after


def _assigning_only(_: GateState, after: GateState, event: GateEvent) -> GateState:
    return replace(after, assigned=event.partitions) if isinstance(event, Assigned) else after


def _undone_by_any(_: GateState, after: GateState, event: GateEvent) -> GateState:
    return replace(after, revocation=None) if isinstance(event, Assigned) else after


def _undone_by_part(_: GateState, after: GateState, event: GateEvent) -> GateState:
    revocation = after.revocation
    if revocation is None or revocation.generation.is_member_epoch or not isinstance(event, Assigned):
        return after
    return replace(after, revocation=None) if revocation.partitions & event.partitions else after


def _undone_at_an_epoch(_: GateState, after: GateState, event: GateEvent) -> GateState:
    is_back = after.revocation is not None and after.revocation.partitions <= after.assigned
    return replace(after, revocation=None) if is_back and isinstance(event, Assigned) else after


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
    *(without_row(index) for index in range(len(RULES))),
    *(swapped(index) for index in range(len(RULES) - 1)),
    *(neutral(arm) for arm in ARMS),
    *(leaving(arm, field) for arm, fields in ARMS.items() for field in fields),
    transition("what stayed is tainted with what left", _tainting_all),
    transition("a second loss or revocation forgets the first", _tainting_last),
    transition("an assignment replaces the one before", _assigning_only),
    transition("any assignment undoes a revocation", _undone_by_any),
    transition("a part of its partitions undoes a revocation", _undone_by_part),
    transition("a KIP-848 group undoes a revocation", _undone_at_an_epoch),
    predicate("row 2 lets an empty member id pass", 2, ABORT, lambda q: q.attempt.snapshot.generation_id <= 0),
    predicate("row 2 lets epoch 0 pass", 2, ABORT, lambda q: q.attempt.snapshot.generation_id < 0),
    predicate("row 2 asks for a member id only", 2, ABORT, lambda q: not q.attempt.snapshot.member_id),
    predicate("row 4 forgets failed revocations", 4, ABORT, lambda q: not q.state.assigned.issuperset(_names(q))),
    predicate("row 4 forgets what was never ours", 4, ABORT, lambda q: q.names_any(q.state.revoked_work)),
    predicate("row 8 aborts in classic callbacks too", 8, ABORT, lambda q: q.state.revoking and q.moved_unserved),
    predicate("row 8 aborts outside callbacks too", 8, ABORT, lambda q: _is_epoch(q) and q.moved_unserved),
    predicate("row 8 aborts though all is served", 8, ABORT, lambda q: q.state.revoking and _moved(q) and _is_epoch(q)),
    predicate("row 6 compares numbers only", 6, SKIP, lambda q: _closed_by_number(q) and _held(q)),
    predicate("row 6 has no limit", 6, SKIP, lambda q: q.on_revocation_generation),
    predicate("row 6 ends at the limit", 6, SKIP, lambda q: q.on_revocation_generation and not _at_limit(q)),
    predicate("row 6 ignores scope partition", 6, SKIP, lambda q: _closed(q, GateScope.MEMBER) and _held(q)),
    predicate("row 6 ignores scope member", 6, SKIP, lambda q: _closed(q, GateScope.PARTITION) and _held(q)),
    predicate("row 8 looks for one fresh record", 8, SERVE, lambda q: _all_moved(q) and not q.attempt.callbacks_served),
    predicate("row 8 serves for ever", 8, SERVE, _moved),
)


def killers(mutant: Mutant) -> list[Contradiction]:
    """Return what the stories have against ``mutant``."""
    found = [each for scenario in SCENARIOS for each in contradictions(scenario, mutant.gate(scenario))]
    return [each for each in found if each.changes_decision or not mutant.needs_decision]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_story_ends_otherwise_for(mutant):
    assert killers(mutant), f"no story notices that {mutant.name}"


def test_every_mutant_of_the_gate_is_caught(capsys):
    verdicts = [(mutant, killers(mutant)) for mutant in MUTANTS]
    caught = sum(bool(found) for _, found in verdicts)
    for mutant, found in verdicts:
        first = found[0] if found else None
        what = f"{first.answered}, not {first.expected} | {first.scenario}, step {first.step}" if first else "MISSED"
        print(f"{mutant.name:<46} {len(found):>3} x | {what}")
    with capsys.disabled():
        print(f"\nmutants of the commit gate caught: {caught} of {len(MUTANTS)} (pytest -rP shows the table)")
    assert caught == len(MUTANTS)


def test_the_unchanged_gate_passes_for_no_mutant():
    assert killers(Mutant("unchanged", needs_decision=False)) == []
