"""Strikes a Spark stream again and again, and keeps it going: which strike and when is the seed's choice."""

from __future__ import annotations

import enum
import random
import signal
import time
from collections import Counter
from collections.abc import Callable

from eos_client.testing.process_session import send_signal
from tests.spark.rig.cluster_query import ClusterQuery
from tests.spark.rig.launching import Application
from tests.spark.rig.settings import Sink

POLL_S = 0.02
OPEN_TRANSACTION_TIMEOUT_S = 1.5
SUCCESSOR_TIMEOUT_S = 90.0
ZOMBIE_END_TIMEOUT_S = 90.0
BATCHES_TO_COME = 10
BATCHES_BETWEEN_MIN, BATCHES_BETWEEN_MAX = 2, 5


class Kind(enum.Enum):
    """What the nemesis does."""

    EXECUTOR = "executor"
    WORKER = "worker"
    DRIVER = "driver"
    ZOMBIE = "zombie"
    ORPHANS = "orphans"


KINDS = tuple(Kind)
WEIGHTS = (16, 16, 9, 6, 3)


class SparkNemesis:
    """`kills` strikes by kind on one stage's query, between batches; restarts whatever ends before its time."""

    def __init__(self, stage: ClusterQuery, chance: random.Random, kills: int, batches_min: int) -> None:
        self._batches_min = batches_min
        self._ending = False
        self._stage = stage
        self._chance = chance
        self._due = _shuffled_kinds(chance, kills)
        self.kills: Counter[str] = Counter()
        self.own_exits: list[str] = []
        self._current: Application = self._start()

    def run(self, *, timeout_s: float) -> None:
        """Until all strikes are done, and as many batches as are wanted at least. Raises TimeoutError."""
        deadline_s = time.monotonic() + timeout_s
        next_at = self._next_at()
        while self._current.exit_code() != 0:
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"not done in {timeout_s} s: {len(self._due)} strikes left\n{self._current.tail()}")
            if self._current.exit_code() is not None:
                self._note_own_exit(self._current)
                self._current = self._start()
            elif self._due and len(self.finished_batches()) >= next_at and self._current.progress():
                self._strike(self._due.pop())
                next_at = self._next_at()
            elif not self._due and not self._ending and len(self.finished_batches()) >= self._batches_min:
                self._ending = True
                self._stage.end_after(max(self.finished_batches()) + BATCHES_TO_COME)
            time.sleep(POLL_S)

    def finished_batches(self) -> set[int]:
        """Batches that some start of the query has finished."""
        return {int(line["batch_id"]) for each in self._stage.applications for line in each.progress()}

    def _next_at(self) -> int:
        return len(self.finished_batches()) + self._chance.randint(BATCHES_BETWEEN_MIN, BATCHES_BETWEEN_MAX)

    def _start(self) -> Application:
        return self._stage.start(
            repartition=self._chance.choice((None, 2, 3, 5)),
            shuffle_partitions=self._chance.choice((2, 3, 5, 8)),
            adaptive=self._chance.random() < 0.5,
        )

    def _strike(self, kind: Kind) -> None:
        struck = self._current
        if kind is Kind.WORKER and self._stage.settings.sink is Sink.PLAIN:
            kind = Kind.EXECUTOR  # Spark's own sink has no Python in its executors
        self._await_open_transaction(struck)
        match kind:
            case Kind.EXECUTOR:
                self._kill_one(struck, struck.executors)
            case Kind.WORKER:
                self._kill_one(struck, struck.workers)
            case Kind.DRIVER:
                struck.kill()
                self._current = self._start()
            case Kind.ZOMBIE:
                self._succeed(struck)
                struck.thaw()
                self._await_end(struck)
            case Kind.ORPHANS:
                orphans = struck.kill_all_but_workers()
                self._succeed(struck)
                send_signal(signal.SIGCONT, orphans)
        self.kills[kind.value] += 1

    def _succeed(self, frozen: Application) -> None:
        """Freeze one application and have another write at least a batch beside it."""
        frozen.freeze()
        self._current = self._start()
        deadline_s = time.monotonic() + SUCCESSOR_TIMEOUT_S
        while not self._current.progress() and time.monotonic() < deadline_s:
            if (code := self._current.exit_code()) is not None:
                if code == 0:
                    return
                self._note_own_exit(self._current)
                self._current = self._start()
            time.sleep(POLL_S)

    def _await_end(self, zombie: Application) -> None:
        """A zombie must end by itself. With Spark's own sink either of the two may, so there nobody waits."""
        if self._stage.settings.sink is Sink.PLAIN:
            return
        try:
            zombie.wait(ZOMBIE_END_TIMEOUT_S)
        except TimeoutError:
            self.own_exits.append(f"start {zombie.label}: a zombie that did not end in {ZOMBIE_END_TIMEOUT_S} s")

    def _await_open_transaction(self, struck: Application) -> None:
        """A strike between transactions proves little. Spark's own sink has none: there a busy moment must do."""
        deadline_s = time.monotonic() + OPEN_TRANSACTION_TIMEOUT_S
        if self._stage.settings.sink is Sink.PLAIN:
            time.sleep(self._chance.uniform(0.0, self._stage.settings.pace_s))
            return
        while time.monotonic() < deadline_s and struck.exit_code() is None and not self._stage.open_partitions():
            pass

    def _kill_one(self, struck: Application, candidates: Callable[[], list[int]]) -> None:
        """One of them, as soon as there is one: after an executor's death the next one takes a moment to start."""
        struck.until(lambda: candidates() or struck.exit_code() is not None, "somebody to kill", SUCCESSOR_TIMEOUT_S)
        send_signal(signal.SIGKILL, [self._chance.choice(sorted(candidates()))] if candidates() else [])

    def _note_own_exit(self, application: Application) -> None:
        words = [line for line in application.failure().splitlines() if line.strip()]
        said = next((line for line in words if "Error" in line and "eos_client" in line), words[-1] if words else "")
        self.own_exits.append(f"start {application.label} ended by itself: {said.strip()[:300]}")


def _shuffled_kinds(chance: random.Random, kills: int) -> list[Kind]:
    """In the proportions of the weights, each kind at least once where there are enough."""
    kinds = [kind for kind, weight in zip(KINDS, WEIGHTS, strict=True) for _ in range(weight)]
    chosen = [*KINDS, *chance.choices(kinds, k=max(0, kills - len(KINDS)))][:kills]
    chance.shuffle(chosen)
    return chosen
