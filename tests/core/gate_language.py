"""The words in which the gate's stories are told, and a gate whose rules can be changed to see who notices."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from eos_client.core.commit_gate import (
    RULES,
    CommitAttempt,
    CommitDecision,
    CommitRuling,
    GateEvent,
    GateRule,
    GateSettings,
    GateState,
    Question,
    RuleName,
    decide,
    next_state,
)
from eos_client.core.model import UNJOINED, GroupGeneration, InputPartition, InputPosition, InputPositions

P0, P1, P2 = (InputPartition("orders", number) for number in range(3))
HOLD_LIMIT_S = GateSettings().hold_limit_s

Advance = Callable[[GateState, GateEvent], GateState]


def classic(generation_id: int, member_id: str = "m1") -> GroupGeneration:
    """A generation of the classic protocols."""
    return GroupGeneration(generation_id, member_id, "billing")


def epoch(member_epoch: int, member_id: str = "m1") -> GroupGeneration:
    """A member epoch of KIP-848."""
    return GroupGeneration(member_epoch, member_id, "billing", is_member_epoch=True)


def parts(*partitions: InputPartition) -> frozenset[InputPartition]:
    """A set of partitions."""
    return frozenset(partitions)


def work(consumed: Mapping[InputPartition, GroupGeneration]) -> InputPositions:
    """Ten uncommitted records of each partition, consumed at the given generation."""
    return {partition: InputPosition(100, 110, generation) for partition, generation in consumed.items()}


@dataclass(frozen=True)
class Ask:
    """One question to the gate, and the answer that the page gives. ``facts``: further fields of the attempt."""

    expect: CommitDecision
    rule: RuleName
    consumed: Mapping[InputPartition, GroupGeneration] = field(default_factory=dict)
    now: GroupGeneration = UNJOINED
    served: bool = False
    held_for_s: float = 0.0
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def attempt(self) -> CommitAttempt:
        """The question itself."""
        return CommitAttempt(work(self.consumed), self.now, self.served, self.held_for_s, **self.facts)


@dataclass(frozen=True)
class Scenario:
    """Events and questions in the order in which one member meets them."""

    name: str
    steps: tuple[GateEvent | Ask, ...]
    settings: GateSettings = field(default_factory=GateSettings)


class VariantGate:
    """A gate made of any rules and any transitions; with the defaults, the true ones."""

    def __init__(
        self, settings: GateSettings, rules: Iterable[GateRule] = RULES, advance: Advance = next_state
    ) -> None:
        self.state = GateState()
        self._settings = settings
        self._rules = tuple(rules)
        self._advance = advance

    def tell(self, event: GateEvent) -> None:
        self.state = self._advance(self.state, event)

    def decide(self, attempt: CommitAttempt) -> CommitRuling:
        return decide(Question(self.state, attempt, self._settings), self._rules)


@dataclass(frozen=True)
class Contradiction:
    """A question that was answered otherwise than the page does. ``step`` counts from 1."""

    scenario: str
    step: int
    expected: str
    answered: str

    @property
    def changes_decision(self) -> bool:
        """Whether more than the reason is different."""
        return self.expected.split()[0] != self.answered.split()[0]


def contradictions(scenario: Scenario, gate: VariantGate) -> list[Contradiction]:
    """Tell ``scenario`` to ``gate`` and return where its answers differ from the page's."""
    found = []
    for step, each in enumerate(scenario.steps, start=1):
        if not isinstance(each, Ask):
            gate.tell(each)
            continue
        expected = f"{each.expect.name} by {each.rule}"
        answered = _answer(gate, each.attempt)
        if answered != expected:
            found.append(Contradiction(scenario.name, step, expected, answered))
    return found


def _answer(gate: VariantGate, attempt: CommitAttempt) -> str:
    try:
        ruling = gate.decide(attempt)
    except StopIteration:
        return "NOTHING by no rule"
    return f"{ruling.decision.name} by {ruling.rule}"
