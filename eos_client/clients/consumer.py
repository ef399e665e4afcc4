"""EosConsumer: a drop-in for confluent_kafka's Consumer whose commits go through the gate."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from eos_client.clients.gate_attempts import GateAttempts
from eos_client.clients.input_events import InputEvents
from eos_client.clients.missing_topics import MissingTopics
from eos_client.clients.plain_commit import Offsets, PlainCommits
from eos_client.clients.settings import merged_settings
from eos_client.clients.transaction import TransactionSession
from eos_client.clock import MONOTONIC_CLOCK
from eos_client.confluent.callback_guard import is_in_a_callback
from eos_client.confluent.consumer.confluent_consumer import ConfluentConsumer
from eos_client.confluent.failures import (
    commit_refused,
    consumer_closed,
    last_commit_errors,
    misplaced_call,
    refuse_error_event,
)
from eos_client.confluent.thread_ownership import is_in_call, owned
from eos_client.core.commit_gate import CommitDecision, CommitGate, GateSettings
from eos_client.core.model import InputPartition, InputPositions
from eos_client.listeners import ApplicationCallbacks, ComposedListener, RevocationListener
from eos_client.listeners.compose import RebalanceCallback
from eos_client.observe import ClientReported, CommitRefused, Counters, EventHook, log_event, safe_hook
from eos_client.ports import Clock, MembershipSnapshot, RevocationWork


def _refuse_open_work(session: TransactionSession | None, why: str) -> None:
    """Refuse a call, because of ``why``, while records are in a transaction of ``session`` that has not ended."""
    if session is not None and session.has_open_work:
        raise misplaced_call(
            "the outcome of the last commit is unknown, and only the producer that has sent it can find out: go on "
            "with that one, or build a new consumer, which goes on at the group's committed offsets"
            if session.is_unresolved
            else why
        )


class EosConsumer(ConfluentConsumer):
    """Same constructor dict and methods as ``confluent_kafka.Consumer``, for one thread.

    Its ``commit`` sends nothing while the gate is closed and keeps the offsets pending. Errors are subclasses of
    ``KafkaException`` named for what to do; one that only asks for the call to be repeated is confluent_kafka's. Raises
    ConfigurationError for settings that would break exactly-once processing, WrongThreadError at once for a call from
    another thread than the one that polls.

    ``auto.offset.reset`` says where a partition starts for which the group has no offset. ``latest`` is the end of the
    log when the partition is first assigned: that offset is committed before the first record is handed over, so later
    owners start there too. An ``on_assign`` that assigns an offset of its own wins, and then nothing is committed. A
    position that retention has deleted goes on at the start of the log. ``poll`` and ``consume`` raise
    InputPositionError for a position behind the end of the log, and with ``auto.offset.reset=error`` for one that is
    missing or was deleted.
    """

    session: TransactionSession | None = None

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
        merged = merged_settings("EosConsumer", config, settings)
        self._application_on_commit = merged.get("on_commit")
        if self._application_on_commit is None or callable(self._application_on_commit):
            merged["on_commit"] = self._on_commit
        super().__init__(merged, clock=clock, **chosen)
        self.gate = CommitGate(gate)
        self.counters = counters or Counters()
        self._hook = safe_hook(hook)
        self._starts_of_ours = GateAttempts(self, self._hook, clock)
        self._events = InputEvents(self._hook)
        self._missing = MissingTopics(self, (), clock)
        self._is_assigned_by_hand = False
        self.plain = PlainCommits(self, self._send_before_revoke, self._hook, clock)

    @owned()
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
        theirs = ApplicationCallbacks(self, *map(self._noting_what_it_raises, (on_assign, on_revoke, on_lost)))
        self._is_assigned_by_hand = False
        self._events.topics = list(topics)
        self._missing = MissingTopics(self, self._events.topics if self._is_member_epoch else (), self._clock)
        self._subscribe(topics, ComposedListener(ours, theirs))

    def report(self, what: str) -> None:
        """Tell the hook what ``close`` could not do or does not raise, and what keeps records waiting."""
        self._hook(ClientReported(client="consumer", error=what))

    def join_transaction(self, session: TransactionSession) -> TransactionSession:
        """Let ``session`` own this consumer's uncommitted work from now on."""
        if self.session is not session:
            _refuse_open_work(
                self.session,
                "this consumer's records are in an open transaction of another producer: end that one first, by a "
                "block of that producer, or by its close(), after which the records are consumed again",
            )
        self.session = session
        self.plain.beside_transactions = True
        return session

    @property
    def _commits_in_transactions(self) -> TransactionSession | None:
        """The session whose transactions carry all offsets of this consumer."""
        return None if self.session is None or self.session.is_over else self.session

    def _may_commit(self, positions: InputPositions) -> bool:
        ruling, snapshot = self._starts_of_ours.decide(positions)
        self._starts_of_ours.record(ruling, snapshot)
        return ruling.decision is CommitDecision.COMMIT

    def starts_departed(self) -> None:
        """Partitions have left: what the gate keeps back from now on, it keeps back since then."""
        self._starts_of_ours.ended()

    def _commit_starts(self, starts: InputPositions) -> bool:
        # A plain commit that is sent twice could be served after the transactions that follow, and undo them.
        if (session := self._commits_in_transactions) is not None:
            return session.commit_starts(starts)
        self.plain.sends(starts)
        return super()._commit_starts(starts)

    # -- beside transactions, and inside a block -------------------------------------------------------------------

    @owned(claims=True)
    def _poll(self, timeout: float) -> Any:
        self._conclude()
        return super()._poll(timeout)

    @owned(claims=True)
    def _consume(self, num_messages: int, timeout: float) -> list[Any]:
        self._conclude()
        return super()._consume(num_messages, timeout)

    def _conclude(self) -> None:
        session = self.session
        if session is None:
            return
        session.refuse_within_a_step("poll() or consume()")
        session.leave_broken_block()
        if not session.block.is_open:
            session.conclude()

    def _next(self, count: int, timeout: float) -> list[Any]:
        session = self.session
        if session is None or not session.block.is_open:
            batch = super()._next(count, timeout)
            if session is not None and session.is_unresolved:  # a commit inside the revoke callback of this very call
                session.raise_failure()
            return batch
        deadline = math.inf if timeout < 0 else self._clock() + timeout
        with session.block.reading():
            self._missing.require()
            while True:
                batch = super()._next(count, timeout)
                session.raise_failure()
                session.block.check()
                records = self._events.records(batch)
                if records or not batch or self._clock() >= deadline:
                    return records
                timeout = min(timeout, max(0.0, deadline - self._clock()))

    def require_open(self) -> None:
        """Raise ClientClosedError where nothing can be committed by this consumer any more."""
        if self._closed and not self._in_callback:
            raise consumer_closed()

    def require_group_membership(self) -> None:
        """Raise TransactionStateError unless records of this consumer can be in a block that begins now."""
        if self._in_callback:
            raise misplaced_call(
                "a block inside a rebalance callback: it could neither consume nor commit there. Let the callback "
                "return; what the last block has processed is committed without it"
            )
        if self._listener is None or self._is_assigned_by_hand:
            how = "was assigned partitions by hand" if self._is_assigned_by_hand else "has not subscribed"
            raise misplaced_call(
                f"transaction() with a consumer that {how}: nothing would fence its offsets against another member "
                "(KIP-447). Call consumer.subscribe(topics), and assign() only inside on_assign"
            )

    @owned(alone=True, but_for_callbacks=True)
    def assign(self, partitions: list[Any]) -> None:
        """Set the assignment: inside ``on_assign``, or by hand; offsets of the latter carry no group fence.

        Raises TransactionStateError inside a block and while its transaction is held.
        """
        self._note_by_hand("assign()")
        super().assign(partitions)

    @owned(alone=True, but_for_callbacks=True)
    def unassign(self) -> None:
        """Drop the assignment. Raises TransactionStateError inside a block and while its transaction is held."""
        self._note_by_hand("unassign()")
        super().unassign()

    @owned(alone=True, but_for_callbacks=True)
    def incremental_assign(self, partitions: list[Any]) -> None:
        """Add to the assignment, inside ``on_assign`` of a cooperative group, or by hand as ``assign`` does."""
        self._note_by_hand("incremental_assign()")
        super().incremental_assign(partitions)

    @owned(alone=True, but_for_callbacks=True)
    def incremental_unassign(self, partitions: list[Any]) -> None:
        """Take from the assignment, inside ``on_revoke`` of a cooperative group, or by hand as ``unassign`` does."""
        self._note_by_hand("incremental_unassign()")
        super().incremental_unassign(partitions)

    def _note_by_hand(self, call: str) -> None:
        if self._in_callback:
            return
        if self.session is not None and self.session.has_open_work:
            raise misplaced_call(
                f"{call} outside a rebalance callback while a block's transaction is open: its records could be "
                "neither committed nor read again. Leave partitions to the group, or pause() and seek() them; end the "
                "block before you assign by hand"
            )
        self._is_assigned_by_hand = True

    def close(self) -> None:
        """Leave the group; runs the revoke callback. A block that is open ends as ABORTED.

        Raises TransactionStateError in a callback or a signal handler that has come inside another call of this
        consumer, or while a block begins or ends: that call would go on with a consumer that is gone. Inside
        ``close()`` itself it does nothing.
        """
        if not (is_in_call(self) and self._leaving):
            self._close()

    @owned(alone=True)
    def _close(self) -> None:
        session = self.session
        if session is not None:
            session.refuse_within_a_step("consumer.close()")
            session.consumer_closes()
            if session.block.is_open and session.in_hand:
                closed = misplaced_call("the consumer was closed inside the block: leave it first")
                session.block.fail(closed, quietly=True)
        try:
            super().close()
        finally:
            if session is not None and self._closed:
                session.consumer_closes()  # the revoke callback may have left a commit unanswered

    def consumer_group_metadata(self) -> Any:
        """Return the opaque group metadata as of now, for ``send_offsets_to_transaction``. Do not keep it: it ages.

        Offsets of plain commits that are pending are dropped: sent after the transaction's, they would take the group
        back. The next block asks the group first what that transaction has committed. Raises TransactionStateError
        inside a block, and while one that was skipped keeps its transaction open.
        """
        _refuse_open_work(
            self._commits_in_transactions,
            "consumer_group_metadata() while records of this consumer are in the open transaction of a block: offsets "
            "beyond them would pass over them. Let a block of that producer commit first, or close that producer",
        )
        self.plain.pending.clear()
        return super().consumer_group_metadata()

    @property
    def unanswered_commits(self) -> frozenset[InputPartition]:
        """The partitions for which an asynchronous commit is still on its way."""
        return self.plain.unanswered()

    @property
    def unfenced_commits(self) -> frozenset[InputPartition]:
        """The partitions for which a plain commit may still be served after whatever is sent now."""
        return frozenset(self.plain.unfenced)

    def fence_commits(self) -> None:
        """Become another member of the group where a plain commit could be served after the next transaction.

        Nothing else has the broker refuse an OffsetCommit within one generation. Offsets that are pending are committed
        on the way out. The group is not left while a commit is not answered, or nobody would hear how it ended.
        """
        is_due = not self.unfenced_commits.isdisjoint(self._assigned) or self.plain.pending
        if not is_due or self.unanswered_commits:
            return
        self.rejoin()

    def settle(self, positions: InputPositions) -> None:
        """Note that a transaction has committed ``positions``; what was stored of them must not be sent after that."""
        super().settle(positions)
        self._drop_stored({partition: position.next_offset for partition, position in positions.items()})

    def _drop_stored(self, sent: Mapping[InputPartition, int]) -> None:
        """Drop what was stored up to the offsets that were ``sent``; what lies beyond them is still to be committed."""
        for partition in self._stored.keys() & sent.keys():
            if self._stored[partition].offset <= sent[partition]:
                del self._stored[partition]

    # -- plain commits -------------------------------------------------------------------------------------------

    @owned(alone=True, but_for_callbacks=True)
    def commit(
        self, message: Any = None, offsets: list[Any] | None = None, asynchronous: bool = True
    ) -> list[Any] | None:
        """Commit offsets outside a transaction, if the gate lets them pass.

        Gate closed: nothing is sent, ``commit_skipped`` is logged, the offsets stay pending and the next allowed
        commit, or the one inside the revoke callback, covers them; the result is then ``[]`` (None if asynchronous).
        Raises CommitRefusedError for offsets of partitions that are no longer ours; an asynchronous call only logs it,
        as confluent_kafka's does, and its offsets stay pending until ``on_commit`` has confirmed them. Raises
        TransactionStateError for a consumer that was given to ``producer.transaction()``, until that producer is
        closed: blocks commit its offsets. May serve rebalance callbacks.
        """
        if self.session is not None:
            if not is_in_a_callback():  # but in a signal handler
                self.session.refuse_within_a_step("commit()")
            self.session.leave_broken_block()
        if self.session is not None and (self.session.has_open_work or self.session.is_in_doubt):
            raise misplaced_call(
                "commit() while the outcome of the last commit is unknown, or of the last block: the next block, "
                "poll() or consume() finds out"
                if self.session.is_in_doubt
                else "commit() with an open transaction: its offsets are sent inside it; end the transaction instead"
            )
        requested = self._requested(message, offsets)
        if self._listener is None or self._is_assigned_by_hand:
            return self._commit_by_hand(requested, asynchronous=asynchronous)
        if not requested and not self.plain.pending:
            self.nothing_to_commit(asynchronous=asynchronous)
            return None
        if self._commits_in_transactions is not None:
            raise misplaced_call(
                "commit() of a consumer whose blocks commit its offsets: where the client library sends it twice, "
                "after a lost connection, the second copy could be served after a later block and take the group back. "
                "A block without outputs commits what was consumed in it; after producer.close(), commit() works again"
            )
        ruling, asked = self.plain.decide(requested)
        if ruling.decision is CommitDecision.COMMIT:
            return self._send_beside(requested, asked, asynchronous=asynchronous)
        if ruling.decision is CommitDecision.ABORT and not asynchronous:
            refused = sorted(requested.keys() & asked.keys())
            raise commit_refused(
                f"nothing was committed for {', '.join(map(str, refused))}: {ruling.reason} (rule {ruling.rule})."
            )
        return None if asynchronous else []

    def _send_beside(self, requested: Offsets, due: Offsets, *, asynchronous: bool) -> list[Any] | None:
        """Send what is still ``due``; the rest of ``requested`` was committed by a revocation that came first."""
        sent = self._send(due, asynchronous=asynchronous) if due else []
        if asynchronous or sent is None:
            return None
        return sent + [place for partition, place in requested.items() if partition not in due]

    def _commit_by_hand(self, requested: dict[InputPartition, Any], *, asynchronous: bool) -> list[Any] | None:
        """Commit what was assigned by hand: what was handed over, not what the library has counted as that."""
        if not requested:
            self.nothing_to_commit(asynchronous=asynchronous)
            return None
        return self._send(requested, asynchronous=asynchronous)

    def _requested(self, message: Any, offsets: list[Any] | None) -> dict[InputPartition, Any]:
        if message is not None and offsets is not None:
            raise ValueError("message and offsets are mutually exclusive")
        if message is not None:
            made_by_hand = refuse_error_event(message).offset() is None
            offsets = [] if made_by_hand else [self.offset_after(message)]
        if offsets is not None:
            return {InputPartition(p.topic, p.partition): p for p in offsets}
        if str(self._settings.get("enable.auto.offset.store", "true")).lower() == "false":
            return dict(self._stored)
        return dict(self.handed_over_offsets())

    def _send(self, offsets: Offsets, *, asynchronous: bool) -> list[Any] | None:
        self.plain.sends(offsets)
        if asynchronous:
            self.plain.pending.update(offsets)  # until on_commit has confirmed them
        sent = self._raw_commit(offsets=list(offsets.values()), asynchronous=asynchronous)
        if asynchronous:
            self.plain.sent(offsets)
        self._drop_stored({partition: place.offset for partition, place in offsets.items()})
        if sent is not None:
            self.plain.superseded(offsets)
            self._note_committed(place for place in sent if place.error is None)
        return sent

    def _send_before_revoke(self, offsets: Offsets) -> None:
        with last_commit_errors():
            self._send(offsets, asynchronous=False)

    def _note_committed(self, places: Iterable[Any]) -> None:
        for place in places:
            partition = InputPartition(place.topic, place.partition)
            self.plain.committed(partition, place.offset)
            self._work.committed_up_to(partition, place.offset)

    def _on_commit(self, error: Any, places: list[Any]) -> None:
        """Take note of what became of an asynchronous commit, then tell the application as confluent_kafka does."""
        for place in places:
            self.plain.answered(InputPartition(place.topic, place.partition))
        sent = [place for place in places if place.offset >= 0]
        if error is None:
            self._note_committed(place for place in sent if place.error is None)
        failed = [(place, error or place.error) for place in sent if error is not None or place.error is not None]
        if failed:
            partitions = frozenset(InputPartition(place.topic, place.partition) for place, _ in failed)
            reason = f"{failed[0][1].name()}: {failed[0][1].str()}; the next commit covers these offsets"
            self._hook(CommitRefused(partitions=partitions, rule=None, reason=reason))
        if self._application_on_commit is not None:
            self._application_on_commit(error, places)


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

    def on_callback_failed(self, partitions: frozenset[InputPartition], reason: str) -> None:
        for work in self._both:
            work.on_callback_failed(partitions, reason)

    def departed(self, partitions: frozenset[InputPartition]) -> None:
        self._consumer.starts_departed()
        for work in self._both:
            work.departed(partitions)
