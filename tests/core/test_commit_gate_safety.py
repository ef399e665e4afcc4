"""Whatever happens to a member, in whatever order: what the gate lets pass is ours, fenced and not stale."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from eos_client.core.commit_gate import RULES, GateRule, GateScope, RuleName
from tests.core.gate_game import ALL, HOLD_LIMIT_S, Game, Partitions, Protocol

HOLDS_S = (0.0, 0.5, HOLD_LIMIT_S, HOLD_LIMIT_S + 0.1)
COMMITTING = {RuleName.OUTPUTS_ONLY, RuleName.INSIDE_REVOKE, RuleName.ALWAYS_OURS}
# The game has one membership and one topic, no commit() of the application, and generations that come to rest.
NOT_PLAYED = {
    RuleName.MEMBERSHIP_MOVED_ON,
    RuleName.LEFT_WHILE_SERVING,
    RuleName.TOPIC_REPLACED,
    RuleName.GENERATION_KEEPS_MOVING,
    RuleName.GENERATION_UNSTABLE,
    RuleName.MAY_BE_READMITTED,
}
PROTECTIVE = [each for each in RULES if each.name not in COMMITTING | NOT_PLAYED]


class GateGameMachine(RuleBasedStateMachine):
    """Hypothesis looks for a losing game, and for the shortest one."""

    @initialize(protocol=st.sampled_from(Protocol), scope=st.sampled_from(GateScope))
    def join(self, protocol: Protocol, scope: GateScope) -> None:
        self.game = Game(protocol, scope)

    @rule(data=st.data(), chosen=st.frozensets(st.sampled_from(sorted(ALL)), min_size=1), held=st.sampled_from(HOLDS_S))
    def turn(self, data: st.DataObject, chosen: Partitions, held: float) -> None:
        data.draw(st.sampled_from(self.game.possible()))(chosen, held)

    @invariant()
    def the_gate_knows_what_its_member_knows(self) -> None:
        self.game.check()


def test_no_commit_passes_that_is_not_ours_unfenced_or_stale():
    options = settings(
        derandomize=True,
        database=None,
        deadline=None,
        max_examples=40,
        stateful_step_count=40,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(GateGameMachine, settings=options)


def play(seed: int, rules: Iterable[GateRule] = RULES) -> int:
    """Play one long random game and return how many commits passed; raises AssertionError naming ``seed``."""
    dice = random.Random(seed)
    game = Game(dice.choice(list(Protocol)), dice.choice(list(GateScope)), rules)
    try:
        for _ in range(200):
            chosen = frozenset(dice.sample(sorted(ALL), dice.randint(1, len(ALL))))
            dice.choice(game.possible())(chosen, dice.choice(HOLDS_S))
            game.check()
    except AssertionError as error:
        raise AssertionError(f"seed {seed}, {game.protocol.name}, scope {game.scope.value}: {error}") from error
    return game.commits


def play_many(games: int, rules: Iterable[GateRule] = RULES) -> int:
    return sum(play(seed, rules) for seed in range(games))


def test_long_random_games_break_no_promise_and_let_commits_pass():
    assert play_many(200) > 1000


@pytest.mark.parametrize("removed", PROTECTIVE, ids=lambda each: f"{each.name}")
def test_random_games_fail_without_any_protective_rule(removed):
    gone = {removed.name}
    if removed.name is RuleName.REVOCATION_GENERATION:
        gone.add(RuleName.HELD_TOO_LONG)  # which would abort what is no longer skipped
    rules = [each for each in RULES if each.name not in gone]
    with pytest.raises(AssertionError, match="seed"):
        play_many(500, rules)
