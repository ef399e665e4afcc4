"""Every small world, asked twice: the table of the code, and the page written out as plain questions.

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


@dataclass(frozen=True)
class World:
    """All that the page speaks of. Partitions are called a and b."""

    consumed: dict[str, Membership]
    now: Membership
    kip848: bool
    fates: dict[str, str]
    revoking: bool
    revocation: tuple[Membership, str] | None
    served: bool
    held_for_s: float
    scope: str


def as_the_page_says(world: World) -> tuple[str, str]:  # noqa: PLR0911  one return for each rule
    """Decide as the gate must: the rules once more, written down independently, from top to bottom."""
    names = list(world.consumed)
    generation, member = world.now
    moved = any(at != world.now for at in world.consumed.values())
    if not names:
        return "COMMIT", "outputs_only"
    if generation < 0 or member == "" or generation == 0:
        return "ABORT", "not_a_member"
    if any("lost" in world.fates[name] or "both" in world.fates[name] for name in names):
        return "ABORT", "lost_work"
    if any("revoked" in world.fates[name] or world.fates[name] == "foreign" for name in names):
        return "ABORT", "not_ours"
    if world.revoking:
        # Callbacks cannot be served inside a callback: where only they could tell, the answer must be a refusal.
        if world.kip848 and moved and not world.served:
            return "ABORT", "epoch_moved_before_revoke"
        return "COMMIT", "inside_revoke"
    if world.revocation is not None and world.revocation[0] == world.now:
        touched = any(name in world.revocation[1] for name in names)
        if world.scope == "member" or touched:
            return ("ABORT", "held_too_long") if world.held_for_s > LIMIT_S else ("SKIP", "revocation_generation")
    if moved and not world.served:
        return "SERVE_CALLBACKS", "callbacks_pending"
    return "COMMIT", "always_ours"


def as_the_gate_says(world: World) -> tuple[str, str]:
    """The same world in the gate's own terms."""

    def named(word: str) -> frozenset[InputPartition]:
        return frozenset(p for name, p in (("a", P0), ("b", P1)) if word in world.fates[name])

    def membership(at: Membership) -> GroupGeneration:
        return GroupGeneration(*at, "billing", is_member_epoch=world.kip848)

    state = GateState(
        assigned=named("ours"),
        revoking=world.revoking,
        revocation=_revocation(world, membership),
        lost_work=named("lost") | named("both"),
        revoked_work=named("revoked") | named("both"),
    )
    positions = {{"a": P0, "b": P1}[name]: InputPosition(1, 2, membership(at)) for name, at in world.consumed.items()}
    attempt = CommitAttempt(positions, membership(world.now), world.served, world.held_for_s)
    settings = GateSettings(scope=GateScope(world.scope), hold_limit_s=LIMIT_S)
    ruling = decide(Question(state, attempt, settings))
    return ruling.decision.name, ruling.rule.value


def _revocation(world, membership):
    if world.revocation is None:
        return None
    at, touched = world.revocation
    return Revocation(membership(at), frozenset(p for name, p in (("a", P0), ("b", P1)) if name in touched))


def all_worlds():
    for consumed, now, fate_a, fate_b, revocation, scope in itertools.product(
        CONSUMED, MEMBERSHIPS, FATES, FATES[:4], REVOCATIONS, ("member", "partition")
    ):
        for kip848, revoking, served, held_for_s in itertools.product(
            (False, True), (False, True), (False, True), (0.0, LIMIT_S, LIMIT_S + 0.001)
        ):
            if held_for_s and (revocation is None or revoking):
                continue  # a hold begins with a skip: no rule before that one looks at its length
            if (consumed[0] is None and fate_a != "ours") or (consumed[1] is None and fate_b != "ours"):
                continue  # nobody asks about it
            yield World(
                {name: at for name, at in zip("ab", consumed, strict=True) if at is not None},
                now,
                kip848,
                {"a": fate_a, "b": fate_b},
                revoking,
                revocation,
                served,
                held_for_s,
                scope,
            )


def test_in_every_small_world_the_gate_answers_as_the_page_does():
    reached: Counter[tuple[str, str]] = Counter()
    for world in all_worlds():
        expected = as_the_page_says(world)
        assert as_the_gate_says(world) == expected, world
        reached[expected] += 1
    assert set(reached) == {(rule.decision.name, rule.name.value) for rule in RULES}
    assert min(reached.values()) > 50, reached
