"""One fault run: load, disturb by a seeded schedule, drain, read back, judge."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from tests.verification.brokers import RunningBroker
from tests.verification.cluster_faults import GROUPS_TOPIC, TRANSACTIONS_TOPIC, BrokerKiller, LeaderMover, acting
from tests.verification.commands import Contender, Transform
from tests.verification.nemesis import Action, FaultPlan, Step, execute, schedule
from tests.verification.protocols import SESSION_TIMEOUT_S, GroupProtocol
from tests.verification.rig import Judgement, Load, Rig

LOAD = Load(partitions=4, rate_per_s=1500)
MOVING_LOAD = Load(partitions=4, rate_per_s=500)


@dataclass(frozen=True, slots=True)
class FaultRun:
    """What to run; the seed decides every fault.

    Where leaders move, those of the input, the output, the group and the transactions do, every second. Where brokers
    are killed, their logs are cut off. Both take a `replicated_broker`, and the workers write what it refuses now and
    then.
    """

    contender: Contender
    protocol: GroupProtocol
    seconds: float
    seed: int
    pinned_ids: bool = True
    load: Load = LOAD
    strikes_workers: bool = True
    moves_leaders: bool = False
    kills_brokers: bool = False

    @property
    def is_of_a_cluster(self) -> bool:
        """Whether it disturbs the brokers themselves."""
        return self.moves_leaders or self.kills_brokers


@dataclass(frozen=True, slots=True)
class FaultOutcome:
    """What came of it."""

    run: FaultRun
    version: str
    judgement: Judgement
    steps: list[Step]
    worker_logs: Path
    leader_moves: int = 0
    broker_kills: int = 0

    def faults(self) -> str:
        counts = Counter(step.action for step in self.steps)
        told = f"{counts[Action.KILL]} killed, {counts[Action.FREEZE]} frozen, {counts[Action.JOIN]} guests"
        if not self.run.is_of_a_cluster:
            return told
        return f"{told}, {self.leader_moves} moves, {self.broker_kills} brokers killed"

    def explain(self) -> str:
        """All one needs to run it again and to look into it."""
        run = self.run
        return "\n".join(
            [
                f"{run.contender.value} on {self.version}, {run.protocol.value}, seed {run.seed}, {run.seconds:g} s",
                f"transactional ids: {'pinned' if run.pinned_ids else 'generated'}",
                *self.judgement.explain(),
                f"faults: {self.faults()}: {', '.join(map(str, self.steps))}",
                f"worker logs: {self.worker_logs}",
            ]
        )


def perform(run: FaultRun, broker: RunningBroker, directory: Path) -> FaultOutcome:
    """Carry out one run on a broker; worker logs go to `directory`. Raises TimeoutError if the work never starts."""
    steps = schedule(FaultPlan(run.seconds, SESSION_TIMEOUT_S), run.seed) if run.strikes_workers else []
    transform = Transform.HALVES if run.is_of_a_cluster else Transform.COPY
    with Rig(
        broker, run.contender, run.protocol, run.load, directory, pinned_ids=run.pinned_ids, transform=transform
    ) as rig:
        rig.await_outputs()
        mover = LeaderMover(broker.bootstrap, (rig.source, rig.sink, GROUPS_TOPIC, TRANSACTIONS_TOPIC))
        killer = BrokerKiller(broker.cluster, run.seed)
        with acting(*[mover] * run.moves_leaders, *[killer] * run.kills_brokers):
            execute(steps, rig.pool, run.seconds)
        judgement = rig.judge()
    return FaultOutcome(run, broker.version, judgement, steps, directory, mover.moves, killer.kills)
