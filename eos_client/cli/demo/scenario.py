"""The demo's scenario: two workers, a third joins, and one is killed in the middle of a transaction.

Every step waits for progress of the cluster instead of a time, so that the join and the kill hit a moving stream on a
slow machine, too.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from eos_client.cli.demo.display import Display, Progress
from eos_client.cli.demo.feed import Feed
from eos_client.cli.demo.worker import Worker
from eos_client.errors import EosError

_TICK_S = 0.1
_OFFSETS_INTERVAL_S = 0.4
# When things happen, as shares of all records.
_RELEASED_AT_START, _JOIN_AT, _RELEASED_AFTER_JOIN, _KILL_AT = 0.45, 0.2, 0.8, 0.5
_INTO_TRANSACTION_S = 0.05
_RESTART_AFTER_S = 1.5
_STALL_LIMIT_S = 180.0
_STOP_LIMIT_S = 30.0


class StalledError(EosError):
    """The workers, or the stream, make no progress."""


def wait_until(
    reached: Callable[[], bool], look: Callable[[], None], progress: Progress, limit_s: float, awaited: str
) -> None:
    """Look again and again until it is ``reached``; raises StalledError where nothing moves for ``limit_s`` seconds."""
    moved_at, committed = time.monotonic(), progress.committed
    while not reached():
        time.sleep(_TICK_S)
        look()
        if progress.committed != committed:
            moved_at, committed = time.monotonic(), progress.committed
        if time.monotonic() - moved_at > limit_s:
            raise StalledError(f"nothing was {awaited} for {limit_s:g} s at {committed:,} records")


@dataclass
class Scenario:
    """Plays the story with three workers over a feed; what it notices goes to the display.

    :param committed_of: asks the cluster how many input records the group has committed.
    :param beside: called now and then: what else goes on meanwhile.
    """

    workers: Sequence[Worker]
    feed: Feed
    display: Display
    committed_of: Callable[[], int]
    beside: Callable[[], None]
    _asked_at: float = 0.0

    def play(self) -> None:
        """Go through all steps until everything is committed.

        :raises StalledError: nothing moved for _STALL_LIMIT_S seconds, or a worker ended by itself.
        """
        first, victim, third = self.workers
        feed, emit = self.feed, self.display.emit
        feed.release(_RELEASED_AT_START)
        feed.start()
        self._start(first, victim)
        self._until(lambda: self._has_committed(_JOIN_AT))
        self._start(third)
        self._until(lambda: third.tally.partitions > 0)
        emit(f"{third.name} has joined and owns {third.tally.partitions} partitions")
        feed.release(_RELEASED_AFTER_JOIN)
        self._until(lambda: self._has_committed(_KILL_AT) and victim.tally.partitions > 0)
        owned = self._kill_at_work(victim)
        emit(f"{victim.name} killed (SIGKILL) while it owned {owned} partitions")
        due = time.monotonic() + _RESTART_AFTER_S
        self._until(lambda: time.monotonic() >= due)
        self._start(victim)
        self._until(lambda: victim.tally.partitions > 0)
        emit(f"{victim.name} is back and owns {victim.tally.partitions} partitions")
        feed.release(1.0)
        self._until(lambda: feed.is_done and self.display.progress.committed >= feed.total)
        emit(f"all {feed.total:,} records are committed")

    def stop(self) -> list[str]:
        """Send SIGTERM to every worker and wait; return a complaint for each that did not end with status 0."""
        self.feed.stop()
        running = [worker for worker in self.workers if worker.is_running]
        for worker in running:
            worker.terminate()
        complaints = []
        deadline = time.monotonic() + _STOP_LIMIT_S
        for worker in running:
            code = worker.wait(max(0.1, deadline - time.monotonic()))
            if code != 0:
                how = "had to be killed" if code is None else f"ended with status {code}"
                complaints.append(f"{worker.name} {how}")
                if code is not None:
                    self.display.emit(f"{worker.name} {how} when it was stopped: {worker.tally.failure}")
        return complaints

    def _start(self, *workers: Worker) -> None:
        for worker in workers:
            worker.start()
            again = " again" if worker.tally.lives > 1 else ""
            pid = worker.child.pid if worker.child else 0
            self.display.emit(f"{worker.name} started{again} (process {pid})")

    def _kill_at_work(self, victim: Worker) -> int:
        """Kill it some way into the transaction after its next commit; return how many partitions it owned."""
        before = victim.tally.committed
        self._until(lambda: victim.tally.committed > before or self._has_committed(1.0))
        time.sleep(_INTO_TRANSACTION_S)
        owned = victim.tally.partitions
        victim.kill()
        return owned

    def _has_committed(self, share: float) -> bool:
        wanted = math.ceil(self.display.progress.total * share)
        return self.display.progress.committed >= min(wanted, self.feed.released)

    def _until(self, reached: Callable[[], bool]) -> None:
        wait_until(reached, self._look, self.display.progress, _STALL_LIMIT_S, "committed")

    def _look(self) -> None:
        self.beside()
        if self.feed.error is not None:
            raise self.feed.error
        for worker in self.workers:
            while worker.tally.incidents:
                self.display.emit(f"{worker.name} {worker.tally.incidents.popleft()}")
            if worker.state.startswith(("failed", "stopped")):
                last = worker.tally.failure or "\n".join(worker.log_tail)
                raise StalledError(f"{worker.name} ended by itself, {worker.state}: {last}")
        self.display.progress.loaded = self.feed.loaded
        if time.monotonic() - self._asked_at >= _OFFSETS_INTERVAL_S:
            self.display.progress.committed = self.committed_of()
            self._asked_at = time.monotonic()
        self.display.refresh()
