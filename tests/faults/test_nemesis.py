"""The fault schedule is a function of its seed and keeps its own promises."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.waiting import wait_for
from tests.verification.nemesis import GUEST_SLOT, STEADY_SLOTS, Action, FaultPlan, Step, execute, schedule
from tests.verification.worker_pool import REPOSITORY, WorkerPool

PLAN = FaultPlan(seconds=60, session_timeout_s=3)
SEEDS = range(40)


def times(steps: list[Step], action: Action) -> list[Step]:
    return [step for step in steps if step.action is action]


def test_the_same_seed_gives_the_same_faults() -> None:
    assert schedule(PLAN, 7) == schedule(PLAN, 7)
    assert schedule(PLAN, 7) != schedule(PLAN, 8)


@pytest.mark.parametrize("seed", SEEDS)
def test_every_kind_of_fault_happens_within_the_run(seed: int) -> None:
    steps = schedule(PLAN, seed)
    assert all(0 < step.at_s <= PLAN.seconds for step in steps)
    assert len(times(steps, Action.KILL)) >= 8
    assert len(times(steps, Action.FREEZE)) >= 3
    assert len(times(steps, Action.JOIN)) >= 6
    assert {step.slot for step in times(steps, Action.JOIN)} == {GUEST_SLOT}


@pytest.mark.parametrize("seed", SEEDS)
def test_a_freeze_outlasts_the_session_and_nobody_kills_the_frozen(seed: int) -> None:
    frozen: dict[int, float] = {}
    for step in schedule(PLAN, seed):
        if step.action is Action.FREEZE:
            frozen[step.slot] = step.at_s
        elif step.action is Action.THAW:
            assert step.at_s - frozen.pop(step.slot) > PLAN.session_timeout_s
        elif step.action in (Action.KILL, Action.START):
            assert step.slot not in frozen
    assert not frozen


@pytest.mark.parametrize("seed", SEEDS)
def test_every_killed_worker_comes_back_and_every_guest_leaves(seed: int) -> None:
    steps = schedule(PLAN, seed)
    assert len(times(steps, Action.KILL)) == len(times(steps, Action.START))
    visits = list(zip(times(steps, Action.JOIN), times(steps, Action.LEAVE), strict=True))
    assert all(leave.at_s - join.at_s >= PLAN.guest_stays_s[0] for join, leave in visits)


def sleeper(_: int) -> list[str]:
    return [sys.executable, "-c", "import signal, time; signal.signal(15, lambda *_: exit(0)); time.sleep(60)"]


def test_executes_a_schedule_on_real_processes(tmp_path: Path) -> None:
    steps = [
        Step(0.3, Action.FREEZE, 0),
        Step(0.4, Action.JOIN, GUEST_SLOT),
        Step(0.5, Action.KILL, 1),
        Step(0.6, Action.START, 1),
        Step(0.8, Action.THAW, 0),
        Step(1.0, Action.LEAVE, GUEST_SLOT),
    ]
    with WorkerPool(sleeper, tmp_path) as pool:
        for slot in STEADY_SLOTS:
            pool.start(slot)
        time.sleep(0.3)
        execute(steps, pool, 1.2)
        assert [pool.running(slot) for slot in (*STEADY_SLOTS, GUEST_SLOT)] == [True, True, False]
        pool.leave_all()
    assert pool.own_exits == []
    assert pool.starts == 4


def test_a_worker_that_dies_by_itself_is_on_record_and_restarted(tmp_path: Path) -> None:
    with WorkerPool(lambda _: [sys.executable, "-c", "print('why'); exit(3)"], tmp_path) as pool:
        pool.start(0)
        wait_for(lambda: len(pool.own_exits) >= 2, "two exits", pool.supervise, lambda: time.sleep(0.01))
    assert [(own.slot, own.status) for own in pool.own_exits[:2]] == [(0, 3), (0, 3)]
    assert "why" in str(pool.own_exits[0])


def test_a_worker_that_answers_sigterm_with_an_error_is_on_record(tmp_path: Path) -> None:
    code = "import signal, time; signal.signal(15, lambda *_: exit(4)); print('up', flush=True); time.sleep(60)"
    with WorkerPool(lambda _: [sys.executable, "-c", code], tmp_path) as pool:
        pool.start(0)
        wait_for(lambda: "up" in pool.log_tail(0), "the worker to be up")
        pool.leave_all()
    assert [own.status for own in pool.own_exits] == [4]


@pytest.mark.parametrize(("says", "statuses"), [("", []), ("print('up', flush=True)", [-15])])
def test_sigterm_may_end_only_a_worker_that_has_not_said_a_word(tmp_path: Path, says: str, statuses: list[int]) -> None:
    code = f"import time; {says or 'pass'}; time.sleep(60)"
    with WorkerPool(lambda _: [sys.executable, "-c", code], tmp_path) as pool:
        pool.start(0)
        wait_for(lambda: not says or "up" in pool.log_tail(0), "the worker to be up")
        pool.leave_all()
    assert [own.status for own in pool.own_exits] == statuses


def test_no_worker_outlives_a_harness_that_is_killed(tmp_path: Path) -> None:
    harness = f"""
import sys, time
from pathlib import Path
from tests.verification.worker_pool import WorkerPool
pool = WorkerPool(lambda _: [sys.executable, "-c", "import time; time.sleep(60)"], Path({str(tmp_path)!r}))
pool.start(0)
print(pool._running[0].pid, flush=True)
time.sleep(60)
"""
    command = [sys.executable, "-c", harness]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY) as process:
        assert process.stdout is not None
        worker = Path(f"/proc/{int(process.stdout.readline())}")
        assert worker.exists()
        process.kill()
    wait_for(lambda: not worker.exists(), "the worker to end with its harness", timeout_s=30.0)
