"""The demo's scenario: two workers, a third joins, and one is killed in the middle of a transaction.

Before a database, the third one is also suspended until others have its partitions, and wakes up as a zombie.

Every step waits for progress of the cluster instead of a time, so that the join and the kill hit a moving stream on a
slow machine, too.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from eos_client.cli.demo.display import Display, StalledError
from eos_client.cli.demo.feed import Feed
from eos_client.cli.demo.spark_stream import SparkStream
from eos_client.cli.demo.worker import Worker

# When things happen, as shares of all records.
_RELEASED_AT_START, _JOIN_AT, _RELEASED_AFTER_JOIN, _KILL_AT = 0.45, 0.2, 0.8, 0.5
_RELEASED_FOR_ZOMBIE, _KILL_EXECUTOR_AT = 0.95, 0.2
_INTO_TRANSACTION_S = 0.05
_RESTART_AFTER_S = 1.5
_STOP_LIMIT_S = 30.0


@dataclass
class Scenario:
    """Plays the story with the display's three workers over a feed; what it notices goes to the display.

    :param committed_of: asks the cluster how many input records the group has committed.
    :param stream: the Spark stream behind the workers, if there is one; it loses an executor meanwhile.
    :param outputs_of: asks the cluster where the workers' output ends, as the sum of all partitions.
    :param has_zombie: a worker is suspended until others have its partitions, and goes on then.
    """

    feed: Feed
    display: Display
    committed_of: Callable[[], int]
    stream: SparkStream | None
    outputs_of: Callable[[], int]
    has_zombie: bool = False
    _executor_killed: bool = False

    def play(self) -> None:
        """Go through all steps until everything is committed.

        :raises StalledError: nothing moved for long, or a worker ended by itself.
        :raises EmbeddedKafkaError: Spark ended by itself.
        """
        first, victim, third = self.display.workers
        feed, emit = self.feed, self.display.emit
        feed.release(_RELEASED_AT_START)
        self._start(first)
        self._start(victim)
        self._until(lambda: self._has_committed(_JOIN_AT))
        self._start(third)
        self._until(lambda: third.partitions > 0)
        emit(f"{third.name} has joined and owns {third.partitions} partitions")
        feed.release(_RELEASED_AFTER_JOIN)
        self._until(lambda: self._has_committed(_KILL_AT) and victim.partitions > 0)
        self._await_transaction_of(victim)
        owned = victim.partitions
        victim.kill()
        emit(f"{victim.name} killed (SIGKILL) while it owned {owned} partitions")
        due = time.monotonic() + _RESTART_AFTER_S
        self._until(lambda: time.monotonic() >= due)
        self._start(victim)
        self._until(lambda: victim.partitions > 0)
        emit(f"{victim.name} is back and owns {victim.partitions} partitions")
        if self.has_zombie:
            feed.release(_RELEASED_FOR_ZOMBIE)
            self._make_zombie(third)
        feed.release(1.0)
        self._until(lambda: self.display.committed >= feed.total == feed.loaded)
        emit(f"all {feed.total:,} records are committed")
        if self.stream is not None:
            self._until(lambda: self.display.read_by_spark >= self.outputs_of())
            emit(f"Spark has caught up, in {self.stream.batches()} micro-batches")

    def _await_transaction_of(self, worker: Worker) -> None:
        """Wait until ``worker`` has just begun a transaction, if it still has work."""
        before = worker.committed
        self._until(lambda: worker.committed > before or self._has_committed(1.0))
        time.sleep(_INTO_TRANSACTION_S)

    def _make_zombie(self, worker: Worker) -> None:
        workers, partition_count = self.display.workers, self.feed.partition_count
        others = [each for each in workers if each is not worker]
        # From here on the others get more partitions only if the group expels this worker.
        self._until(lambda: sum(each.partitions for each in workers) == partition_count and worker.partitions > 0)
        self._await_transaction_of(worker)
        self.display.emit(f"{worker.name} suspended (SIGSTOP) while it owned {worker.partitions} partitions")
        worker.suspend()
        try:
            self._until(lambda: sum(each.partitions for each in others) == partition_count)
            assigned = worker.rebalances
        finally:
            worker.resume()
        self.display.emit(f"others own its partitions; {worker.name} goes on (SIGCONT), a zombie")
        self._until(lambda: worker.rebalances > assigned and worker.partitions > 0)
        self.display.emit(f"{worker.name} has joined again and owns {worker.partitions} partitions")

    def stop(self) -> list[str]:
        """Send SIGTERM to every worker and wait; return a complaint for each that did not end with status 0."""
        running = [worker for worker in self.display.workers if worker.state in {"joining", "running"}]
        for worker in running:
            worker.terminate()
        complaints = []
        deadline = time.monotonic() + _STOP_LIMIT_S
        for worker in running:
            code = worker.wait(max(0.1, deadline - time.monotonic()))
            if code is None:
                complaints.append(f"{worker.name} had to be killed")
            elif code:
                complaints.append(f"{worker.name} ended with status {code}")
                self.display.emit(f"{complaints[-1]} when it was stopped: {worker.failure}")
        return complaints

    def _start(self, worker: Worker) -> None:
        pid = worker.start()
        self.display.emit(f"{worker.name} started{' again' if worker.lives > 1 else ''} (process {pid})")

    def _has_committed(self, share: float) -> bool:
        wanted = math.ceil(self.feed.total * share)
        return self.display.committed >= min(wanted, self.feed.released)

    def _until(self, reached: Callable[[], bool]) -> None:
        self.display.until(reached, self._look)

    def _look(self) -> None:
        self.feed.advance()
        display = self.display
        for worker in display.workers:
            while worker.incidents:
                display.emit(f"{worker.name} {worker.incidents.popleft()}")
            if worker.state.startswith(("failed", "stopped")):
                last = worker.failure or "\n".join(worker.log_tail)
                raise StalledError(f"{worker.name} ended by itself, {worker.state}: {last}")
        display.loaded = self.feed.loaded
        display.committed = self.committed_of()
        if self.stream is not None:
            display.read_by_spark = self.stream.read_so_far()
            due = not self._executor_killed and display.read_by_spark >= self.feed.total * _KILL_EXECUTOR_AT
            if due and (executor := self.stream.kill_executor()):
                self._executor_killed = True
                batches = self.stream.batches()
                display.emit(f"Spark's executor {executor} killed (SIGKILL) after {batches} micro-batches")
