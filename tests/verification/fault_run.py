"""One fault run: load, disturb by a seeded schedule, drain, read back, judge."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from tests.verification.brokers import RunningBroker
from tests.verification.commands import Contender
from tests.verification.nemesis import Action, FaultPlan, Step, execute, schedule
from tests.verification.protocols import SESSION_TIMEOUT_S, GroupProtocol
from tests.verification.rig import Judgement, Load, Rig

LOAD = Load(partitions=4, rate_per_s=1500)


@dataclass(frozen=True, slots=True)
class FaultRun:
    """What to run; the seed decides every fault."""

    contender: Contender
    protocol: GroupProtocol
    seconds: float
    seed: int
    pinned_ids: bool = True
    load: Load = LOAD


@dataclass(frozen=True, slots=True)
class FaultOutcome:
    """What came of it."""

    run: FaultRun
    version: str
    judgement: Judgement
    steps: list[Step]
    worker_logs: Path

    def faults(self) -> str:
        counts = Counter(step.action for step in self.steps)
        return f"{counts[Action.KILL]} killed, {counts[Action.FREEZE]} frozen, {counts[Action.JOIN]} guests"

    def explain(self) -> str:
        """All one needs to run it again and to look into it."""
        run = self.run
        return "\n".join(
            [
                f"{run.contender.value} on {self.version}, {run.protocol.value}, seed {run.seed}, {run.seconds:g} s",
                f"transactional ids: {'pinned' if run.pinned_ids else 'generated'}",
                *self.judgement.explain(),
                f"faults: {', '.join(map(str, self.steps))}",
                f"worker logs: {self.worker_logs}",
            ]
        )


def perform(run: FaultRun, broker: RunningBroker, directory: Path) -> FaultOutcome:
    """Carry out one run on a broker; worker logs go to `directory`. Raises TimeoutError if the work never starts."""
    steps = schedule(FaultPlan(run.seconds, SESSION_TIMEOUT_S), run.seed)
    with Rig(broker, run.contender, run.protocol, run.load, directory, pinned_ids=run.pinned_ids) as rig:
        rig.await_outputs()
        execute(steps, rig.pool, run.seconds)
        judgement = rig.judge()
    return FaultOutcome(run, broker.version, judgement, steps, directory)
