"""Every small situation, ruled twice: by the table of the code, and by an oracle of plain questions.

The oracle shares no code with the gate: it works on strings and numbers and knows nothing of the gate's classes.
"""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass

from eos_client.core.commit_gate import (
    RULES,
    CommitAttempt,
    GateScope,
    GateSettings,
    GateState,
    Question,
    Revocation,
    decide,
)
from eos_client.core.model import GroupGeneration, InputPartition, InputPosition
from tests.core.gate_language import P0, P1

Membership = tuple[int, str]

LIMIT_S = 5.0
MEMBERSHIPS: tuple[Membership, ...] = ((-1, ""), (-1, "m"), (0, "m"), (5, ""), (5, "m"), (6, "m"), (5, "n"))
# What was consumed, and at which membership: of the first partition, of the second.
CONSUMED: tuple[tuple[Membership | None, Membership | None], ...] = (
    (None, None),
    ((5, "m"), None),
    ((6, "m"), None),
    (None, (5, "m")),
    ((5, "m"), (6, "m")),
    ((6, "m"), (6, "m")),
)
REVOCATIONS: tuple[tuple[Membership, str] | None, ...] = (None, ((5, "m"), "a"), ((5, "m"), "b"), ((6, "m"), "ab"))
FATES = ("ours", "foreign", "lost", "lost and ours again", "revoked", "revoked and ours again", "both and ours again")

FACTS = (
    "",
    "b departed meanwhile",
    "bound to this membership",
    "bound to another membership",
    "generation unstable",
    "maybe readmitted",
    "replaced",
)


@dataclass(frozen=True)
class GateSituation:
    """All that a ruling depends on. Partitions are called a and b."""

    consumed: dict[str, Membership]
    now: Membership
    kip848: bool
    fates: dict[str, str]
    revoking: bool
    revocation: tuple[Membership, str] | None
    served: bool
    held_for_s: float
    scope: str
    fact: str


def expected_ruling(situation: GateSituation) -> tuple[str, str]:  # noqa: PLR0911  one return for each rule
    """Decide as the gate must: the rules once more, written down independently, from top to bottom."""
    names = list(situation.consumed)
    generation, member = situation.now
    if situation.fact == "bound to another membership":
        return "ABORT", "membership_moved_on"
    if situation.fact == "b departed meanwhile":
        return "ABORT", "left_while_serving"
    if situation.fact == "replaced":
        return "ABORT", "topic_replaced"
    if not names:
        return "COMMIT", "outputs_only"
    if generation < 0 or member == "" or generation == 0:
        return "ABORT", "not_a_member"
    if any("lost" in situation.fates[name] or "both" in situation.fates[name] for name in names):
        return "ABORT", "lost_work"
    if any("revoked" in situation.fates[name] or situation.fates[name] == "foreign" for name in names):
        return "ABORT", "not_ours"
    return _ruling_of_what_is_ours(situation, names)


def _ruling_of_what_is_ours(  # noqa: PLR0911  one return for each rule
    situation: GateSituation, names: list[str]
) -> tuple[str, str]:
    moved = any(at != situation.now for at in situation.consumed.values())
    if situation.revoking:
        # Callbacks cannot be served inside a callback: where only they could tell, the answer must be a refusal.
        if situation.kip848 and moved and not situation.served:
            return "ABORT", "epoch_moved_before_revoke"
        return "COMMIT", "inside_revoke"
    if situation.revocation is not None and situation.revocation[0] == situation.now:
        touched = any(name in situation.revocation[1] for name in names)
        if situation.scope == "member" or touched:
            return ("ABORT", "held_too_long") if situation.held_for_s > LIMIT_S else ("SKIP", "revocation_generation")
    if moved and not situation.served:
        if situation.fact == "generation unstable" and situation.held_for_s > LIMIT_S:
            return "ABORT", "generation_keeps_moving"
        if situation.fact == "generation unstable":
            return "SKIP", "generation_unstable"
        return "SERVE_CALLBACKS", "callbacks_pending"
    if situation.fact == "maybe readmitted":
        return "ABORT", "may_be_readmitted"
    return "COMMIT", "always_ours"


def ruling_of_the_gate(situation: GateSituation) -> tuple[str, str]:
    """The same situation in the gate's own terms."""

    def named(word: str) -> frozenset[InputPartition]:
        return frozenset(p for name, p in (("a", P0), ("b", P1)) if word in situation.fates[name])

    def membership(at: Membership) -> GroupGeneration:
        return GroupGeneration(*at, "billing", is_member_epoch=situation.kip848)

    state = GateState(
        assigned=named("ours"),
        revoking=situation.revoking,
        revocation=_revocation(situation, membership),
        lost_work=named("lost") | named("both"),
        revoked_work=named("revoked") | named("both"),
    )
    positions = {
        {"a": P0, "b": P1}[name]: InputPosition(1, 2, membership(at)) for name, at in situation.consumed.items()
    }
    facts = {
        "b departed meanwhile": {"departed": frozenset({P1})},
        "bound to this membership": {"required_membership": membership(situation.now)},
        "bound to another membership": {"required_membership": membership((4, "m"))},
        "replaced": {"replaced_topic": "orders"},
        "generation unstable": {"generation_unstable": True},
        "maybe readmitted": {"may_be_readmitted": True},
    }
    now = membership(situation.now)
    attempt = CommitAttempt(
        positions,
        now,
        situation.served,
        situation.held_for_s,
        **facts.get(situation.fact, {}),  # type: ignore[arg-type]
    )
    settings = GateSettings(scope=GateScope(situation.scope), hold_limit_s=LIMIT_S)
    ruling = decide(Question(state, attempt, settings))
    return ruling.decision.name, ruling.rule.value


def _revocation(situation, membership):
    if situation.revocation is None:
        return None
    at, touched = situation.revocation
    return Revocation(membership(at), frozenset(p for name, p in (("a", P0), ("b", P1)) if name in touched))


def all_situations():
    for fact, consumed, now, fate_a, fate_b, revocation, scope in itertools.product(
        FACTS, CONSUMED, MEMBERSHIPS, FATES, FATES[:4], REVOCATIONS, ("member", "partition")
    ):
        if fact and (scope != "member" or fate_b != "ours"):
            continue
        for kip848, revoking, served, held_for_s in itertools.product(
            (False, True), (False, True), (False, True), (0.0, LIMIT_S, LIMIT_S + 0.001)
        ):
            if held_for_s and (revoking or (revocation is None and fact != "generation unstable")):
                continue  # a hold begins with a skip: no rule before that one looks at its length
            if (consumed[0] is None and fate_a != "ours") or (consumed[1] is None and fate_b != "ours"):
                continue  # nobody asks about it
            yield GateSituation(
                {name: at for name, at in zip("ab", consumed, strict=True) if at is not None},
                now,
                kip848,
                {"a": fate_a, "b": fate_b},
                revoking,
                revocation,
                served,
                held_for_s,
                scope,
                fact,
            )


def test_the_gate_rules_as_the_oracle_in_every_small_situation():
    reached: Counter[tuple[str, str]] = Counter()
    for situation in all_situations():
        expected = expected_ruling(situation)
        assert ruling_of_the_gate(situation) == expected, situation
        reached[expected] += 1
    assert set(reached) == {(rule.decision.name, rule.name.value) for rule in RULES}
    assert min(reached.values()) > 50, reached
