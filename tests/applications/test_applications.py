"""Generated applications on the simulated cluster: nothing lost, doubled, out of order or told wrongly."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.applications.generator import ENDS_MAX, draw
from tests.applications.program import Event, Odd, Program, Setting, Write, parse
from tests.applications.real_world import differences
from tests.applications.search import judged, parts_of
from tests.applications.shrinker import shrink
from tests.applications.world import Verdict

FIRST_SEED, GROUPS, IN_A_GROUP = 501_000, 10, 25
REAL_AND_SIMULATED = (
    {
        "nested": {"nested: KafkaException"},
        "what is refusable of 0:3": {"refused OutputRefusedError"},
        "what is refusable of 1:4": {"accepted"},
    },
    {"nested": {"accepted"}, "what is refusable of 1:4": {"refused OverflowError"}},
)


@pytest.mark.parametrize("group", range(GROUPS))
def test_no_generated_application_breaks_a_rule(group: int) -> None:
    """Run one again: ``python -m tests.applications --program "Program(...)"``; ``--shrink 1`` makes it smaller."""
    for seed in range(FIRST_SEED + group * IN_A_GROUP, FIRST_SEED + (group + 1) * IN_A_GROUP):
        verdict = judged(draw(seed))
        assert verdict.violations == [], f"seed {seed}:\n{verdict.program!r}\nbroke {verdict.violations[:5]}"


def test_a_program_is_read_again_from_what_it_prints() -> None:
    for seed in range(200):
        assert parse(repr(draw(seed))) == draw(seed)


def test_one_seed_gives_one_run() -> None:
    first, second = judged(draw(FIRST_SEED + 3)), judged(draw(FIRST_SEED + 3))
    assert first.counts == second.counts
    assert first.took_s == second.took_s


def test_the_sample_contains_every_style_and_every_kind_of_end() -> None:
    contained: set[str] = set()
    for seed in range(FIRST_SEED, FIRST_SEED + GROUPS * IN_A_GROUP):
        contained |= parts_of(draw(seed))
    for part in (
        *("style loop", "style block", "style plain", "protocol KIP-848", "protocol classic range"),
        *("protocol classic cooperative-sticky", "reset latest", "members 3", "several polls in one turn"),
        *("on_error stop", "on_error skip", "on_error dead_letter", "event interrupt", "event kill", "act nested"),
        *("record too_large", "record raises", "record slow", "hook raise", "on_delivery raise", "act stall"),
        *("record broker_refuses", "record huge_partition", "record large_and_raises", "event refuse", "event delay"),
        *("reset error", "event set_offset", "then commit", "then commit_message_async"),
    ):
        assert part in contained


def test_no_more_processes_end_after_long_transforms_than_the_world_waits_for() -> None:
    for seed in range(FIRST_SEED, FIRST_SEED + 2_000):
        program = draw(seed)
        if program.setting.on_error == "stop" and program.setting.transaction_timeout_ms is not None:
            assert all(odd.count <= ENDS_MAX for odd in program.odds), f"seed {seed}"


def test_only_what_an_application_tried_in_both_worlds_is_compared() -> None:
    program = draw(FIRST_SEED)
    real, simulated = (Verdict(program, [], Counter(), answers=answers) for answers in REAL_AND_SIMULATED)
    assert differences(real, simulated) == ["nested: nested: KafkaException"]
    assert differences(simulated, real) == ["what is refusable of 1:4: refused OverflowError"]


def test_what_a_failing_program_does_not_need_is_deleted() -> None:
    program = Program(
        seed=1,
        style="loop",
        setting=Setting(protocol="consumer", on_error="skip"),
        writes=(Write(0.0, 0, 8), Write(1.0, 1, 2)),
        odds=(Odd("slow", 0, 1), Odd("none", 0, 3, 2)),
        events=(Event(0.5, "rebalance"), Event(0.7, "interrupt")),
        members=3,
    )
    smallest = shrink(program, lambda each: any(odd.kind == "none" for odd in each.odds))
    assert smallest == Program(seed=1, style="loop", odds=(Odd("none", 0, 3, 2),))
