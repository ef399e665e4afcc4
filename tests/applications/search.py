"""Runs many generated applications and says what they did and which broke a rule."""

from __future__ import annotations

import gc
import logging
import multiprocessing
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

from tests.applications.environment import Verdict
from tests.applications.generator import INGREDIENTS, draw
from tests.applications.program import Program
from tests.applications.real_environment import compared
from tests.applications.shrinker import shrink
from tests.applications.simulated_environment import run
from tests.verification.brokers import proxied_broker
from tests.verification.protocols import LATEST_VERSION

REAL_S_MAX = 300
"""An application of a few simulated seconds that takes a minute of real time does not end at all."""
REAL_BROKER_S_MAX = 600
CHUNK = 25
REAL_INGREDIENTS = INGREDIENTS - {"unknown_topics", "wrong_clocks"}
"""No client of a real broker has a clock of its own, or hears of a topic that is not missing."""


@dataclass
class Failure:
    """One application that broke a rule."""

    seed: int
    program: str
    rule: str
    violations: list[str]


@dataclass
class Summary:
    """What a search has seen. ``contained``: in how many applications each part was; ``happened``: how often."""

    count: int = 0
    simulated_s: float = 0.0
    contained: Counter[str] = field(default_factory=Counter)
    happened: Counter[str] = field(default_factory=Counter)
    failures: list[Failure] = field(default_factory=list)
    failures_said: int = 0

    @property
    def failures_unsaid(self) -> list[Failure]:
        """What has broken a rule since somebody was told of it."""
        return self.failures[self.failures_said :]

    def add(self, verdict: Verdict) -> None:
        """Count one application."""
        self.count += 1
        self.simulated_s += verdict.took_s
        self.contained.update(parts_of(verdict.program))
        self.happened.update(verdict.counts)
        if verdict.violations:
            self.failures.append(Failure(verdict.program.seed, repr(verdict.program), verdict.rule, verdict.violations))

    def join(self, other: Summary) -> None:
        """Count what ``other`` has counted."""
        self.count += other.count
        self.simulated_s += other.simulated_s
        self.contained.update(other.contained)
        self.happened.update(other.happened)
        self.failures += other.failures


def parts_of(program: Program) -> set[str]:
    """Return the names of everything that is in ``program``."""
    setting = program.setting
    protocol = "KIP-848" if setting.protocol == "consumer" else f"classic {setting.assignor}"
    parts = {f"style {program.style}", f"protocol {protocol}", f"reset {setting.reset}", f"members {program.members}"}
    parts |= {f"policy {setting.policy}", f"scope {setting.scope}"}
    if program.style == "loop":
        parts.add(f"on_error {setting.on_error}")
    if program.batches:
        parts.add("batches")
    parts |= {f"record {odd.kind}" for odd in program.odds}
    parts |= {f"{callback.where} {callback.does}" for callback in program.callbacks}
    parts |= {f"event {event.name}" for event in program.events}
    parts |= {f"act {act.name}" for turn in program.turns for act in turn.acts}
    parts |= {f"then {turn.then}" for turn in program.turns if turn.then}
    if any(sum(act.name in ("poll", "consume") for act in turn.acts) > 1 for turn in program.turns):
        parts.add("several polls in one turn")
    parts |= {f"topic {setting.topic_kind}"}
    if setting.generated_id:
        parts.add("generated transactional.id")
    if program.replaces:
        parts.add("replaces its producer")
    if program.commits_first:
        parts.add("another consumer after commit()")
    if setting.stores:
        parts.add(f"stores {setting.stores}")
    if setting.static:
        parts.add("static membership")
    return parts


def judged(program: Program, execute: Callable[[Program], Verdict] = run, limit_s: int = REAL_S_MAX) -> Verdict:
    """Run ``program``; a simulation that fails itself, or does not end, is a verdict too."""
    before = logging.root.manager.disable
    logging.disable()  # the client logs each hook that raises; here many do
    try:
        with _real_time_limit(limit_s):
            return execute(program)
    except Exception as error:  # noqa: BLE001  # the search goes on, and the seed is kept
        return Verdict(program, [f"CRASHED: {type(error).__name__}: {error}"], Counter())
    finally:
        logging.disable(before)


@contextmanager
def _real_time_limit(limit_s: int) -> Iterator[None]:
    def over(*_: object) -> None:
        raise TimeoutError(f"more than {limit_s} s of real time")

    before = signal.signal(signal.SIGALRM, over)
    signal.alarm(limit_s)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def search(
    first: int,
    count: int,
    *,
    jobs: int = 1,
    ingredients: frozenset[str] = INGREDIENTS,
    told: Callable[[Summary], None] = lambda _: None,
) -> Summary:
    """Run the applications with the seeds from ``first`` on; ``told`` hears of the progress."""
    summary = Summary()
    chunks = [(seed, min(CHUNK, first + count - seed), ingredients) for seed in range(first, first + count, CHUNK)]
    if jobs == 1:
        for chunk in chunks:
            summary.join(_chunk(chunk))
            told(summary)
        return summary
    with multiprocessing.get_context("fork").Pool(jobs, _collect_rarely, maxtasksperchild=40) as pool:
        for part in pool.imap_unordered(_chunk, chunks):
            summary.join(part)
            told(summary)
    return summary


def _collect_rarely() -> None:
    """What a short-lived process was forked with is not looked through for garbage: a tenth of the time."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


def _chunk(chunk: tuple[int, int, frozenset[str]]) -> Summary:
    first, count, ingredients = chunk
    summary = Summary()
    for seed in range(first, first + count):
        summary.add(judged(draw(seed, ingredients)))
    return summary


def search_for_real(first: int, count: int, told: Callable[[Summary], None] = lambda _: None) -> Summary:
    """Run the applications on one real broker behind a proxy, one after the other, and compare each with its twin."""
    summary = Summary()
    with proxied_broker(LATEST_VERSION, added_rtt_s=0.0) as broker:
        for seed in range(first, first + count):
            summary.add(judged(draw(seed, REAL_INGREDIENTS), partial(compared, broker=broker), REAL_BROKER_S_MAX))
            told(summary)
    return summary


def smallest(program: Program) -> Verdict:
    """Shrink ``program``, which breaks a rule, and return the verdict of what is left."""
    rule = judged(program).rule
    return judged(shrink(program, lambda smaller: judged(smaller).rule == rule))
