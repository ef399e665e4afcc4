"""The driver's lease on its sink, served by a thread of its own while a batch runs.

Only that thread touches the group member: any other one that called it during a poll would hang the process. The gate
decides in that thread, too, so a decision always sees the callbacks and the membership of the same moment.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import suppress
from typing import Any, TypeVar

from eos_client.clock import MONOTONIC_CLOCK
from eos_client.confluent.ledger.lease_member import LeaseMember
from eos_client.core.batch_ledger import LedgerEntry
from eos_client.core.commit_gate import CommitAttempt, CommitDecision, CommitGate
from eos_client.core.model import UNJOINED, GroupGeneration, InputPartition, InputPosition
from eos_client.errors import ClusterUnavailableError, EosError, RunFencedError
from eos_client.integration.spark.settings import SinkSettings
from eos_client.ports import Clock, MembershipSnapshot

_SERVE_INTERVAL_S = 0.1
_CALL_LIMIT_S = 10.0

T = TypeVar("T")


class Lease:
    """Held once: when it is over, every further call raises RunFencedError, and nothing rejoins."""

    def __init__(self, settings: SinkSettings, *, clock: Clock = MONOTONIC_CLOCK) -> None:
        self._settings = settings
        self._clock = clock
        self._session_s = settings.session_timeout_s
        self._calls: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._serve, name=f"eos-lease-{settings.sink_id}", daemon=True)
        self._member: LeaseMember  # from acquire() on
        self.gate = CommitGate()
        self.generation: GroupGeneration = UNJOINED
        self.ended: str | None = None
        self._held: frozenset[InputPartition] = frozenset()

    # -- the driver's side -------------------------------------------------------------------------------------------

    def acquire(self) -> None:
        """Join the group as the newest driver. Raises ClusterUnavailableError within ``start_timeout_s``."""
        settings = self._settings
        try:
            self._member = LeaseMember(
                settings.kafka, settings.group_id, settings.sink_id, settings.ledger_topic, self.gate, clock=self._clock
            )
        except Exception as error:
            self._end(str(error))
            raise
        self._thread.start()
        self._call(self._join, settings.start_timeout_s + _CALL_LIMIT_S)

    def require_membership(self) -> MembershipSnapshot:
        """Ask the gate whether a batch may be written now; returns the membership that it is written under.

        Raises RunFencedError when the lease is over.
        """
        return self._call(self._decide, _CALL_LIMIT_S)

    def commit(self, entries: Mapping[int, LedgerEntry]) -> None:
        """Commit ledger entries by partition, if the gate lets it; the broker checks that the lease is still ours.

        Retried for the length of the group's session, because the lease may be ours that long without an answer. Raises
        RunFencedError when the lease is over, ClusterUnavailableError when nobody answers.
        """
        limit_s = self._session_s + self._settings.commit_timeout_s + _CALL_LIMIT_S
        self._call(lambda: self._commit(entries), limit_s)

    @property
    def is_superseded(self) -> bool:
        """Whether the group has reported that a newer driver holds the lease."""
        return self._member.is_fenced

    def has_ended(self, *, within_s: float = 0.0) -> bool:
        """Return whether the lease is over, waiting ``within_s`` seconds for the group to say so."""
        deadline = self._clock() + within_s
        while self.ended is None and self._clock() < deadline:
            self._clock.sleep(_SERVE_INTERVAL_S)
        return self.ended is not None

    def release(self) -> None:
        """Give up the lease; the next driver takes it over at once."""
        self._end("the lease was released")
        self._calls.put((Future(), self._check))
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(_CALL_LIMIT_S)

    def _call(self, function: Callable[[], T], limit_s: float) -> T:
        self._check()
        future: Future[T] = Future()
        self._calls.put((future, function))
        try:
            return future.result(limit_s)
        except FutureTimeoutError:
            raise ClusterUnavailableError(
                f"the lease of sink {self._settings.sink_id!r} did not answer within {limit_s:g} s: the group's "
                "coordinator is slow or away. Start the query again."
            ) from None

    def _check(self) -> None:
        if self.ended is not None:
            raise RunFencedError(
                f"{self.ended}. A driver holds its lease once: let this query end. If no newer driver runs this sink, "
                "start the query again."
            )

    # -- the lease's thread ------------------------------------------------------------------------------------------

    def _serve(self) -> None:
        served_at = self._clock()
        while self.ended is None:
            try:
                call = self._calls.get(timeout=_SERVE_INTERVAL_S)
            except queue.Empty:
                call = (Future(), self._check)
            if self._clock() - served_at > self._session_s:
                # The process was frozen for longer than the session. Serving callbacks now would let librdkafka
                # rejoin, and fence the new owner.
                self._end(f"this driver was stopped for longer than its group session of {self._session_s:g} s")
            if self.ended is None:
                self._serve_member()
            self._answer(*call)
            served_at = self._clock()
        with suppress(queue.Empty):
            while True:
                self._answer(*self._calls.get_nowait())
        self._member.close()

    def _answer(self, future: Future[Any], function: Callable[[], Any]) -> None:
        try:
            self._check()
            future.set_result(function())
        except BaseException as error:  # noqa: BLE001  # it is raised again in the thread that asked
            future.set_exception(error)

    def _serve_member(self) -> None:
        self._member.serve()
        if self._member.ended is not None:
            self._end(self._member.ended)

    def _join(self) -> None:
        try:
            self._member.join(self._settings.start_timeout_s)
        except EosError as error:
            self._end(str(error))
            raise
        self.generation = self._member.snapshot().generation
        # The assigned partitions stand for the whole ledger: a static member that rejoins gets its old assignment,
        # without partitions that were added since.
        self._held = self.gate.state.assigned

    def _decide(self) -> MembershipSnapshot:
        """Ask the gate about one piece of work on each ledger partition; a lease that it refuses is over."""
        snapshot = self._member.snapshot()
        self._serve_member()
        self._check()
        positions = dict.fromkeys(self._held, InputPosition(0, 1, self.generation))  # no rule looks at offsets
        attempt = CommitAttempt(
            positions, snapshot.generation, generation_is_synced=True, required_membership=self.generation
        )
        ruling = self.gate.decide(attempt)
        if ruling.decision is not CommitDecision.COMMIT:
            self._end(f"the commit gate is closed (rule {ruling.rule}): {ruling.reason}")
        self._check()
        return snapshot

    def _commit(self, entries: Mapping[int, LedgerEntry]) -> None:
        self._decide()
        try:
            self._member.commit(entries, self._session_s)
        finally:
            if self._member.ended is not None:  # before the refusal reaches the driver
                self._end(self._member.ended)

    def _end(self, reason: str) -> None:
        if self.ended is None:
            self.ended = reason
