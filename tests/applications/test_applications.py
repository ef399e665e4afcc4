"""Generated applications on the simulated cluster: nothing lost, doubled, out of order or told wrongly."""

from __future__ import annotations

from collections import Counter
from functools import partial

import pytest

from tests.applications.environment import Verdict
from tests.applications.generator import ENDS_MAX, draw
from tests.applications.mutants import APPLICATIONS, MUTANTS, hunt
from tests.applications.oracle import Ends, Events, Oracle, Seen
from tests.applications.program import Act, Callback, Event, Odd, Program, Setting, Turn, Write, parse
from tests.applications.real_environment import compared, differences
from tests.applications.search import REAL_BROKER_S_MAX, judged, parts_of
from tests.applications.shrinker import shrink
from tests.support.brokers import SharedBrokers
from tests.verification.brokers import PATIENT_PROPERTIES, RunningBroker

FIRST_SEED, GROUPS = 501_000, 4
SEEDS = (
    *(501_013, 501_015, 501_017, 501_020, 501_022, 501_025, 501_028),
    *(501_032, 501_035, 501_040, 501_048, 501_059, 501_061, 501_062),
    *(501_080, 501_101, 501_103, 501_129, 501_233),
)
"""They contain every part that the first 250 have: some are in the last ones only."""
REAL_AND_SIMULATED = (
    {
        "nested": {"nested: KafkaException"},
        "what is refusable of 0:3": {"refused OutputRefusedError"},
        "what is refusable of 1:4": {"accepted"},
    },
    {"nested": {"accepted"}, "what is refusable of 1:4": {"refused OverflowError"}},
)
QUICKLY_FOUND = (
    "error events pass as records",
    "a consumer that has committed plainly may enter a block",
    "commit() of a consumer with blocks is sent",
    "a number beyond C's breaks through",
    "a skip is told before it is committed",
)
WRITES = (Write(0.0, 0, 10), Write(0.5, 1, 5))
ON_A_REAL_BROKER = (
    Program(
        seed=1,
        style="loop",
        setting=Setting(on_error="dead_letter", commit_timeout_s=4.0),
        writes=WRITES,
        odds=(Odd("two", 0, 1), Odd("raises", 0, 3), Odd("too_large", 1, 2)),
        events=(Event(0.7, "lose_request", "Produce"),),
        until_s=1.5,
    ),
    Program(
        seed=2,
        style="block",
        setting=Setting(assignor="cooperative-sticky", commit_timeout_s=4.0, topic_kind="pattern", generated_id=True),
        writes=WRITES,
        odds=(Odd("none", 0, 1), Odd("too_large", 1, 2)),
        turns=(Turn((Act("consume", 3, 0.3),)), Turn((Act("consume", 3, 0.3), Act("raise")))),
        callbacks=(Callback("on_assign", 0, "go_to_committed"), Callback("on_delivery", 3, "raise")),
        events=(Event(1.0, "rebalance"),),
        until_s=1.5,
    ),
    Program(
        seed=3,
        style="plain",
        setting=Setting(protocol="consumer", stores="messages"),
        writes=WRITES,
        turns=(
            Turn((Act("consume", 3, 0.3), Act("commit_async"))),
            Turn((Act("consume", 3, 0.3), Act("commit_offsets"))),
        ),
        callbacks=(Callback("on_commit", 1, "raise"),),
        until_s=1.5,
    ),
)


@pytest.mark.parametrize("group", range(GROUPS))
def test_no_generated_application_breaks_a_rule(group: int) -> None:
    """Run one again: ``python -m tests.applications --program "Program(...)"``; ``--shrink 1`` makes it smaller."""
    for seed in SEEDS[group::GROUPS]:
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
    for seed in SEEDS:
        contained |= parts_of(draw(seed))
    for part in (
        *("style loop", "style block", "style plain", "protocol KIP-848", "protocol classic range"),
        *("protocol classic cooperative-sticky", "reset latest", "members 3", "several polls in one turn"),
        *("on_error stop", "on_error skip", "on_error dead_letter", "event interrupt", "event kill", "act nested"),
        *("record too_large", "record raises", "record slow", "hook raise", "on_delivery raise", "act stall"),
        *("record broker_refuses", "record huge_partition", "record large_and_raises", "event refuse", "event delay"),
        *("reset error", "event set_offset", "then commit", "then commit_message_async", "topic pattern"),
        *("on_assign go_to_committed", "on_commit raise", "logger raise", "event throttle", "event producer_error_cb"),
        *("producer_stats_cb raise", "generated transactional.id", "act commit_offsets", "act commit_offsets_async"),
        *("stores messages", "stores offsets", "batches", "event wrong_clock", "record stamped", "record bad_time"),
        *("event unknown_topic", "replaces its producer", "another consumer after commit()"),
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


@pytest.mark.parametrize("name", QUICKLY_FOUND)
def test_a_repair_that_is_undone_is_found_by_an_application(name: str) -> None:
    (mutant,) = (each for each in MUTANTS if each.name == name)
    assert hunt(mutant, APPLICATIONS) is not None


def test_events_that_differ_from_the_logs_are_untrue() -> None:
    written = [Seen((0, 0), attempt=0, part=0)]
    ends = Ends({0: 3}, written={0: 3}, first={0: 0}, outputs=written, letters=[(0, 1)])
    true = Events(outputs=[1, 1], letters=[(0, 1)], skipped=[(0, 2)])
    assert said_of(true, ends) == []
    untrue = Events(outputs=[1], skipped=[(0, 0)])
    assert said_of(untrue, ends) == [
        "TOLD: events of committed transactions tell of 1 outputs and dead letters, and 2 are visible",
        "TOLD: 0:1 has 1 dead letters, and 0 events tell of one",
        "TOLD: 0:0 was not passed over, and 1 events tell that it was skipped",
        "TOLD: 0:2 was passed over, and no event tells of it",
    ]


def said_of(events: Events, ends: Ends) -> list[str]:
    oracle = Oracle(transactional=True, events=events)
    oracle.judge_events(ends, visible=len(ends.outputs) + len(ends.letters), may_be_skipped=[(0, 2)])
    return oracle.violations


@pytest.fixture(scope="module")
def broker(brokers: SharedBrokers) -> RunningBroker:
    return brokers.proxied(properties=PATIENT_PROPERTIES)


@pytest.mark.kafka
@pytest.mark.timeout(REAL_BROKER_S_MAX)
@pytest.mark.parametrize("program", ON_A_REAL_BROKER, ids=lambda program: program.style)
def test_an_application_breaks_no_rule_on_a_real_broker_either(broker: RunningBroker, program: Program) -> None:
    verdict = judged(program, partial(compared, broker=broker), REAL_BROKER_S_MAX)
    assert verdict.violations == [], f"{program!r}\nbroke {verdict.violations[:5]}"
