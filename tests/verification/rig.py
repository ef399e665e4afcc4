"""What every run on a real broker shares: topics, a loader, a watcher, two steady workers, and the judgement."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.waiting import TICK_S, wait_for
from tests.verification.brokers import RunningBroker
from tests.verification.checker import Status, Verdict, check
from tests.verification.commands import Contender, Job, Transform
from tests.verification.nemesis import STEADY_SLOTS
from tests.verification.protocols import GroupProtocol
from tests.verification.topics import Loader, Watcher, create_topics, read_history, wait_until_drained
from tests.verification.worker_pool import OwnExit, WorkerPool

if TYPE_CHECKING:
    from typing_extensions import Self

FIRST_OUTPUT_TIMEOUT_S = 90.0
DRAIN_TIMEOUT_S = 120.0
# A batch is never what is too large for the topic of halves, only the output that is meant to be.
TRANSFORM_CONFIG: Mapping[Transform, Mapping[str, str]] = {
    Transform.COPY: {},
    Transform.HALVES: {"batch.size": "500000"},
}
SINKS: Mapping[Transform, Mapping[str, str]] = {
    Transform.COPY: {},
    Transform.HALVES: {"max.message.bytes": "800000"},
}


@dataclass(frozen=True, slots=True)
class Load:
    """How much input there is while a run goes on."""

    partitions: int
    rate_per_s: int


@dataclass(frozen=True, slots=True)
class Judgement:
    """How a run ended; `drained_s` is None where the workers did not reach the end of the input."""

    verdict: Verdict
    drained_s: float | None
    own_exits: list[OwnExit]
    longest_gap_s: float = 0.0

    @property
    def passed(self) -> bool:
        """Holds, drained, and no worker ended unasked."""
        return self.verdict.status is Status.HOLDS and self.drained_s is not None and not self.own_exits

    @property
    def inconclusive(self) -> bool:
        return self.verdict.status is Status.INCONCLUSIVE

    def explain(self) -> list[str]:
        drained = "no" if self.drained_s is None else f"in {self.drained_s:.1f} s"
        return [
            f"verdict: {self.verdict}",
            f"drained: {drained}; longest gap of a partition: {self.longest_gap_s:.1f} s",
            *[f"own exit: {own}" for own in self.own_exits],
        ]


class Rig:
    """One group at work on a broker; a context manager that ends its workers whatever happens.

    `label` names topics, group and transactional ids; worker logs go to `directory`.
    """

    def __init__(
        self,
        broker: RunningBroker,
        contender: Contender,
        protocol: GroupProtocol,
        load: Load,
        directory: Path,
        *,
        commit_interval_s: float = 0.1,
        pinned_ids: bool = True,
        consumer_config: Mapping[str, str] | None = None,
        transform: Transform = Transform.COPY,
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.group = f"{contender.value}-{protocol.value}-{time.time_ns() % 10**9}"
        self.source, self.sink = f"in-{self.group}", f"out-{self.group}"
        self._broker = broker
        self._load = load
        self._transform = transform
        config = protocol.consumer_config if consumer_config is None else consumer_config
        job = Job(
            contender,
            broker.bootstrap,
            self.group,
            self.source,
            self.sink,
            commit_interval_s,
            {**config, **TRANSFORM_CONFIG[transform]},
            pinned_ids,
            transform,
        )
        self.pool = WorkerPool(job, directory)
        replicas = len(broker.directories)
        create_topics(broker.bootstrap, {self.source: load.partitions}, replicas=replicas)
        create_topics(broker.bootstrap, {self.sink: load.partitions}, replicas=replicas, config=SINKS[transform])
        self._watcher = Watcher(broker.bootstrap, self.sink, load.partitions)
        self._loader = Loader(
            broker.bootstrap, self.source, load.partitions, rate_per_s=load.rate_per_s, run_id=self.group
        )

    def __enter__(self) -> Self:
        self._watcher.start()
        self._loader.start()
        for slot in STEADY_SLOTS:
            self.pool.start(slot)
        return self

    def __exit__(self, *_: object) -> None:
        self.pool.close()

    def await_outputs(self) -> None:
        """Until every output partition has visible records. Raises TimeoutError with the workers' own words."""

        def tails() -> str:
            return "\n".join(f"worker {slot}: {self.pool.log_tail(slot)}" for slot in STEADY_SLOTS)

        wait_for(
            lambda: len({seen.partition for seen in self._watcher.seen}) >= self._load.partitions,
            lambda: f"the first outputs; {tails()}",
            self.pool.supervise,
            lambda: time.sleep(TICK_S),
            timeout_s=FIRST_OUTPUT_TIMEOUT_S,
        )

    def judge(self) -> Judgement:
        """End the load, let the workers drain and leave, read everything back and check it."""
        self._loader.stop()
        drained_s = wait_until_drained(
            self._broker.bootstrap,
            self.group,
            self.source,
            self._load.partitions,
            timeout_s=DRAIN_TIMEOUT_S,
            tick=self.pool.supervise,
        )
        self.pool.leave_all()
        history = read_history(
            self._broker,
            group=self.group,
            source=self.source,
            sink=self.sink,
            partitions=self._load.partitions,
            watched=self._watcher.stop(),
            transform=self._transform,
        )
        return Judgement(check(history), drained_s, self.pool.own_exits, self._watcher.longest_gap_s)
