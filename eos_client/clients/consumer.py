"""EosConsumer: a drop-in for confluent_kafka's Consumer whose commits go through the gate."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from eos_client.clients.plain_commit import Offsets, PlainCommits
from eos_client.clients.settings import merged_settings
from eos_client.clients.transaction import TransactionSession
from eos_client.clock import MONOTONIC_CLOCK
from eos_client.confluent.consumer import ConfluentConsumer
from eos_client.confluent.failures import commit_refused, misplaced_call
from eos_client.confluent.thread_ownership import owned
from eos_client.core.commit_gate import CommitDecision, CommitGate, GateSettings
from eos_client.core.model import InputPartition
from eos_client.listeners import ApplicationCallbacks, ComposedListener, RevocationListener
from eos_client.listeners.compose import RebalanceCallback
from eos_client.observe import Counters, EventHook, log_event
from eos_client.ports import Clock, MembershipSnapshot, RevocationWork


class EosConsumer(ConfluentConsumer):
    """Same constructor dict and methods as ``confluent_kafka.Consumer``, for one thread.

    Its ``commit`` sends nothing while the gate is closed and keeps the offsets pending. Errors are subclasses of
    ``KafkaException`` named for what to do. Raises ConfigurationError for settings that would break exactly-once
    processing, WrongThreadError at once for a call from another thread than the one that polls.
    """

    def __init__(
        self,
        config: Mapping[str, Any] | None = None,
        /,
        *,
        gate: GateSettings | None = None,
        hook: EventHook = log_event,
        counters: Counters | None = None,
        factory: Callable[[dict[str, Any]], Any] | None = None,
        clock: Clock = MONOTONIC_CLOCK,
        **settings: Any,
    ) -> None:
        chosen: dict[str, Any] = {} if factory is None else {"factory": factory}
        super().__init__(merged_settings("EosConsumer", config, settings), clock=clock, **chosen)
        self.gate = CommitGate(gate)
        self.counters = counters or Counters()
        self._hook = hook
        self.session: TransactionSession | None = None
        self.plain = PlainCommits(self, self._send_now, hook, clock)

    def subscribe(
        self,
        topics: list[str],
        on_assign: RebalanceCallback | None = None,
        on_revoke: RebalanceCallback | None = None,
        on_lost: RebalanceCallback | None = None,
    ) -> None:
        """Join the group. The application's callbacks run inside ours (``eos_client.listeners.compose``)."""
        for name, callback in (("on_assign", on_assign), ("on_revoke", on_revoke), ("on_lost", on_lost)):
            if callback is not None and not callable(callback):
                raise TypeError(f"{name} expects a callable, not {callback!r}")
        ours = RevocationListener(self.gate, _CurrentWork(self), hook=self._hook, counters=self.counters)
        theirs = ApplicationCallbacks(self, on_assign, on_revoke, on_lost)
        self._subscribe(topics, ComposedListener(ours, theirs))

    def join_transaction(self, session: TransactionSession) -> TransactionSession:
        """Let ``session`` own this consumer's uncommitted work from now on."""
        if self.session is not None and self.session.is_open:
            raise misplaced_call(
                "this consumer's records are in an open transaction of another producer: end that one first"
            )
        self.session = session
        self.plain.beside_transactions = True
        return session

    # -- plain commits -------------------------------------------------------------------------------------------

    @owned()
    def commit(
        self, message: Any = None, offsets: list[Any] | None = None, asynchronous: bool = True
    ) -> list[Any] | None:
        """Commit offsets outside a transaction, if the gate lets them pass.

        Gate closed: nothing is sent, ``commit_skipped`` is logged, the offsets stay pending and the next allowed
        commit, or the one inside the revoke callback, covers them; the result is then ``[]`` (None if asynchronous).
        Raises CommitRefusedError for offsets of partitions that are no longer ours; an asynchronous call only logs it,
        as confluent_kafka's does. May serve rebalance callbacks.
        """
        if self.session is not None and self.session.is_open:
            raise misplaced_call(
                "commit() with an open transaction: its offsets are sent inside it; end the transaction instead"
            )
        if self._listener is None:
            return self._raw_commit(message=message, offsets=offsets, asynchronous=asynchronous)
        requested = self._requested(message, offsets)
        if not requested and not self.plain.pending:
            self.nothing_to_commit(asynchronous=asynchronous)
            return None
        ruling = self.plain.rule(requested)
        if ruling.decision is CommitDecision.COMMIT:
            return self._send({**self.plain.pending, **requested}, asynchronous=asynchronous)
        if ruling.decision is CommitDecision.ABORT and not asynchronous:
            raise commit_refused(
                f"nothing was committed for {', '.join(map(str, sorted(requested)))}: {ruling.reason} "
                f"(row {ruling.row})."
            )
        return None if asynchronous else []

    def _requested(self, message: Any, offsets: list[Any] | None) -> dict[InputPartition, Any]:
        if message is not None:
            offsets = [self.offset_after(message)]
        if offsets is not None:
            return {InputPartition(p.topic, p.partition): p for p in offsets}
        if str(self._settings.get("enable.auto.offset.store", "true")).lower() == "false":
            return dict(self._stored)
        return dict(self.handed_over_offsets())

    def _send(self, offsets: Offsets, *, asynchronous: bool) -> list[Any] | None:
        sent = self._raw_commit(offsets=list(offsets.values()), asynchronous=asynchronous)
        for partition, place in offsets.items():
            self.plain.pending.pop(partition, None)
            self._stored.pop(partition, None)
            self._work.committed_up_to(partition, place.offset)
        return sent

    def _send_now(self, offsets: Offsets) -> None:
        self._send(offsets, asynchronous=False)


class _CurrentWork:
    """RevocationWork of both kinds: the open transaction, and plain offsets that are pending beside it."""

    def __init__(self, consumer: EosConsumer) -> None:
        self._consumer = consumer

    @property
    def _both(self) -> list[RevocationWork]:
        session, plain = self._consumer.session, self._consumer.plain
        return [plain] if session is None else [session, plain]

    def snapshot(self) -> MembershipSnapshot:
        return self._consumer.snapshot()

    def uncommitted(self) -> frozenset[InputPartition]:
        return frozenset().union(*(work.uncommitted() for work in self._both))

    def commit_before_revoke(self, partitions: frozenset[InputPartition]) -> None:
        for work in self._both:
            work.commit_before_revoke(partitions)

    def abort_before_revoke(self, partitions: frozenset[InputPartition], reason: str) -> None:
        for work in self._both:
            work.abort_before_revoke(partitions, reason)

    def departed(self, partitions: frozenset[InputPartition]) -> None:
        for work in self._both:
            work.departed(partitions)
