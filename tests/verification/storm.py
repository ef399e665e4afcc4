"""A join/leave storm behind added latency: how many commits are refused, and which of them could have been avoided.

Two steady workers of the contender and a guest that joins and leaves. The guest is a bare consumer that commits
nothing, so each contender meets the same storm; which records it saw, the steady workers see again.
"""

from __future__ import annotations

import random
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Consumer

from tests.verification.brokers import RunningBroker
from tests.verification.commands import Contender
from tests.verification.leaving import leave
from tests.verification.protocols import GroupProtocol, patient_config
from tests.verification.refusals import RefusalReport, analyse
from tests.verification.rig import Judgement, Load, Rig

LOAD = Load(partitions=6, rate_per_s=600)
GUEST_STAYS_S = (1.5, 3.5)
GUEST_AWAY_S = (1.0, 2.5)
GUEST_POLL_S = 0.1
GUEST_STOP_TIMEOUT_S = 30.0
SUPERVISE_EVERY_S = 0.05
COUNT_EVERY_S = 1.0
OVERTIME_S = 60.0


@dataclass(frozen=True, slots=True)
class Storm:
    """What to run; the seed decides when the guest comes and goes.

    It goes on for longer than `seconds`, but not for ever, until there were `commits_min` and `rebalances_min`.
    """

    contender: Contender
    protocol: GroupProtocol
    seconds: float
    seed: int
    commit_interval_s: float = 0.1
    commits_min: int = 0
    rebalances_min: int = 0

    def has_shown_enough(self, report: RefusalReport) -> bool:
        """Whether so much happened that what did not happen means something."""
        return report.commits >= self.commits_min and report.rebalances >= self.rebalances_min


@dataclass(frozen=True, slots=True)
class StormOutcome:
    """The refusals of one storm, and whether the records are right after it."""

    storm: Storm
    version: str
    report: RefusalReport
    judgement: Judgement
    guest_visits: int
    undecoded: list[str]

    def explain(self) -> str:
        """All one needs to run it again and to see what was refused."""
        report = self.report
        lines = [
            f"{self.storm.contender.value} on {self.version}, {self.storm.protocol.value}, seed {self.storm.seed}",
            str(report),
            *[f"  {refusal}" for refusal in report.refusals],
            *self.judgement.explain(),
            *[f"frame not decoded: {frame}" for frame in self.undecoded],
        ]
        return "\n".join(lines)


class Guest:
    """Joins the group, stays, leaves, stays away, and again, in a thread of its own."""

    def __init__(self, bootstrap: str, group: str, topic: str, protocol: GroupProtocol, seed: int) -> None:
        self._config = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            **patient_config(protocol),
        }
        self._topic = topic
        self._rng = random.Random(seed)
        self._leaving = threading.Event()
        self._thread = threading.Thread(target=self._run, name="guest", daemon=True)
        self.visits = 0

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._leaving.set()
        self._thread.join(GUEST_STOP_TIMEOUT_S)

    def _run(self) -> None:
        while not self._leaving.wait(self._rng.uniform(*GUEST_AWAY_S)):
            until_s = time.monotonic() + self._rng.uniform(*GUEST_STAYS_S)
            consumer = Consumer(self._config)
            consumer.subscribe([self._topic])
            while time.monotonic() < until_s and not self._leaving.is_set():
                consumer.consume(500, GUEST_POLL_S)
            leave(consumer)
            self.visits += 1


def perform(storm: Storm, broker: RunningBroker, directory: Path) -> StormOutcome:
    """Carry out one storm on a proxied broker; worker logs go to `directory`."""
    proxy = broker.proxy
    if proxy is None:
        raise ValueError("a storm is measured at the proxy: give it a broker from proxied_broker()")
    proxy.reset()
    with Rig(
        broker,
        storm.contender,
        storm.protocol,
        LOAD,
        directory,
        commit_interval_s=storm.commit_interval_s,
        consumer_config=patient_config(storm.protocol),
    ) as rig:
        rig.await_outputs()
        guest = Guest(broker.bootstrap, rig.group, rig.source, storm.protocol, storm.seed)
        guest.start()
        _supervise(rig, storm.seconds)
        report, undecoded = analyse(list(proxy.exchanges)), list(proxy.undecoded)
        latest_s = time.monotonic() + OVERTIME_S
        while not storm.has_shown_enough(report) and time.monotonic() < latest_s:
            _supervise(rig, COUNT_EVERY_S)
            report, undecoded = analyse(list(proxy.exchanges)), list(proxy.undecoded)
        guest.stop()
        judgement = rig.judge()
    return StormOutcome(storm, broker.version, report, judgement, guest.visits, undecoded)


def _supervise(rig: Rig, seconds: float) -> None:
    until_s = time.monotonic() + seconds
    while time.monotonic() < until_s:
        rig.pool.supervise()
        time.sleep(SUPERVISE_EVERY_S)
