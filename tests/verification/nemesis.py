"""What is done to the workers, and when: a schedule that is a pure function of its seed, and its execution."""

from __future__ import annotations

import enum
import random
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.verification.worker_pool import WorkerPool

STEADY_SLOTS = (0, 1)
GUEST_SLOT = 2
TICK_S = 0.02


class Action(enum.Enum):
    """One thing done to one worker; the value is the word in a printed schedule."""

    KILL = "kill"
    START = "start"
    FREEZE = "freeze"
    THAW = "thaw"
    JOIN = "join"
    LEAVE = "leave"


@dataclass(frozen=True, slots=True)
class Step:
    """`at_s` counts from the start of the fault phase."""

    at_s: float
    action: Action
    slot: int

    def __str__(self) -> str:
        return f"{self.at_s:.1f}s {self.action.value} {self.slot}"


@dataclass(frozen=True, slots=True)
class FaultPlan:
    """How often and how long; ranges are (min, max) seconds, drawn uniformly."""

    seconds: float
    session_timeout_s: float
    kill_every_s: tuple[float, float] = (3.0, 5.0)
    down_for_s: tuple[float, float] = (0.2, 1.2)
    first_freeze_at_s: tuple[float, float] = (1.5, 3.0)
    freeze_every_s: tuple[float, float] = (14.0, 20.0)
    frozen_beyond_session_s: tuple[float, float] = (1.0, 2.5)
    guest_stays_s: tuple[float, float] = (3.0, 6.0)
    guest_away_s: tuple[float, float] = (1.0, 2.5)


def schedule(plan: FaultPlan, seed: int) -> list[Step]:
    """The steps in order of time. A frozen worker is neither killed nor restarted before it is thawed."""
    rng = random.Random(seed)
    freezes = _freezes(plan, rng)
    steps = [step for pair in freezes for step in pair]
    steps += _kills(plan, rng, freezes)
    steps += _visits(plan, rng)
    return sorted(steps, key=lambda step: step.at_s)


def _freezes(plan: FaultPlan, rng: random.Random) -> list[tuple[Step, Step]]:
    freezes: list[tuple[Step, Step]] = []
    at_s = rng.uniform(*plan.first_freeze_at_s)
    while True:
        until_s = at_s + plan.session_timeout_s + rng.uniform(*plan.frozen_beyond_session_s)
        if until_s > plan.seconds:
            return freezes
        slot = rng.choice(STEADY_SLOTS)
        freezes.append((Step(at_s, Action.FREEZE, slot), Step(until_s, Action.THAW, slot)))
        at_s = max(at_s + rng.uniform(*plan.freeze_every_s), until_s + 1.0)


def _kills(plan: FaultPlan, rng: random.Random, freezes: list[tuple[Step, Step]]) -> list[Step]:
    steps = []
    at_s = rng.uniform(*plan.kill_every_s)
    while at_s < plan.seconds:
        back_s = min(at_s + rng.uniform(*plan.down_for_s), plan.seconds)
        frozen = {freeze.slot for freeze, thaw in freezes if freeze.at_s <= back_s and at_s <= thaw.at_s}
        slot = rng.choice([slot for slot in STEADY_SLOTS if slot not in frozen])
        steps += [Step(at_s, Action.KILL, slot), Step(back_s, Action.START, slot)]
        at_s = back_s + rng.uniform(*plan.kill_every_s)
    return steps


def _visits(plan: FaultPlan, rng: random.Random) -> list[Step]:
    steps = []
    at_s = rng.uniform(*plan.guest_away_s)
    while at_s + plan.guest_stays_s[0] <= plan.seconds:
        until_s = min(at_s + rng.uniform(*plan.guest_stays_s), plan.seconds)
        steps += [Step(at_s, Action.JOIN, GUEST_SLOT), Step(until_s, Action.LEAVE, GUEST_SLOT)]
        at_s = until_s + rng.uniform(*plan.guest_away_s)
    return steps


def perform(step: Step, pool: WorkerPool) -> None:
    """Do one step."""
    actions: dict[Action, Callable[[int], None]] = {
        Action.KILL: pool.kill,
        Action.START: pool.start,
        Action.FREEZE: pool.freeze,
        Action.THAW: pool.thaw,
        Action.JOIN: pool.start,
        Action.LEAVE: pool.ask_to_leave,
    }
    actions[step.action](step.slot)


def execute(steps: Sequence[Step], pool: WorkerPool, seconds: float) -> None:
    """Perform the steps in real time and supervise the workers in between; afterwards all steady ones run."""
    started_s = time.monotonic()
    waiting = list(steps)
    while (now_s := time.monotonic() - started_s) < seconds or waiting:
        while waiting and waiting[0].at_s <= now_s:
            perform(waiting.pop(0), pool)
        pool.supervise()
        time.sleep(TICK_S)
    for slot in STEADY_SLOTS:
        pool.thaw(slot)
        pool.start(slot)
