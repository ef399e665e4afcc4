"""EosConsumer: a drop-in for confluent_kafka's Consumer whose commits go through the gate."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Concatenate, NoReturn, ParamSpec, SupportsIndex, TypeVar, cast

from eos_client.clients.input_events import InputEvents, LagReport, MissingTopics, UnmatchedPatterns
from eos_client.clients.open_work import OpenWork
from eos_client.clients.plain_commit import PlainCommits
from eos_client.clients.session_close import prepare_consumer_close
from eos_client.clients.transaction_session import TransactionSession
from eos_client.clock import MONOTONIC_CLOCK
from eos_client.completion import Completion
from eos_client.config.client_settings import merged_settings
from eos_client.config.secret_settings import MaskedSettings
from eos_client.confluent.call_marks import enter
from eos_client.confluent.client_library import Consumer, nothing_inherited
from eos_client.confluent.consumer.confluent_consumer import ConfluentConsumer
from eos_client.confluent.consumer.library_consumer import TopicPartition
from eos_client.confluent.consumer.safe_close import close_in_time
from eos_client.confluent.failures.client_failures import not_to_be_copied
from eos_client.confluent.failures.consumer_failures import read_after_close
from eos_client.confluent.serialisation import Deserializers, raw_record
from eos_client.confluent.thread_ownership import (
    CALL,
    NeverBuilt,
    ThreadOwnership,
    is_in_call,
    owned,
    refuse_nested,
)
from eos_client.core.commit_gate import CommitGate, GateSettings
from eos_client.core.hand_over import HandOver
from eos_client.core.model import InputPartition
from eos_client.core.partition_events import (
    ErrorsTaken,
)
from eos_client.core.partition_states import ConsumerState, next_state
from eos_client.listeners import ApplicationCallbacks, ComposedListener, RevocationListener
from eos_client.listeners.compose import RebalanceCallback
from eos_client.observe import (
    ClientReported,
    Counters,
    EventHook,
    PartitionsStartedAtEnd,
    log_event,
    safe_hook,
)
from eos_client.ports import Clock

if TYPE_CHECKING:
    from typing_extensions import Self


P = ParamSpec("P")
T = TypeVar("T")


def _hands_over(method: Callable[Concatenate[EosConsumer, P], T]) -> Callable[Concatenate[EosConsumer, P], T]:
    """Hand over records and ``_state_with_records`` together; nested calls are refused.

    Assigning the state is the last step: whatever interrupts the call before makes the records come again, because the
    next call finds it unfinished and repairs it (``Fetching.begin_call``). Python runs no signal handler from there to
    the return. A handler may still run in the caller before it stores the result; these records count as handed over.
    """
    name = method.__name__

    @functools.wraps(method)
    def handing_over(self: EosConsumer, *args: P.args, **kwargs: P.kwargs) -> T:
        refuse_nested(self, name)
        marks = self._ownership.marks
        outside = enter(marks, CALL)
        try:
            records = method(self, *args, **kwargs)
            self._table.state = self._state_with_records
            return records
        finally:
            marks.stack = outside

    return cast("Callable[Concatenate[EosConsumer, P], T]", handing_over)


@nothing_inherited
class EosConsumer(Consumer):
    """Same constructor dict and methods as ``confluent_kafka.Consumer``, for one thread.

    Its ``commit`` sends nothing while the gate is closed and keeps the offsets pending. Errors are subclasses of
    ``KafkaException`` named for what to do; a retriable error stays confluent_kafka's own. Raises ConfigurationError
    for settings that would break exactly-once processing, WrongThreadError at once for a call from another thread than
    the one that polls.

    ``auto.offset.reset`` decides where a partition without a committed offset starts. ``latest`` is the end of the log
    when the partition is first assigned: that offset is committed before the first record is handed over, so later
    owners start there too. An ``on_assign`` that assigns an offset of its own wins, and then nothing is committed. A
    position that retention has deleted goes on at the start of the log. ``poll`` and ``consume`` raise
    InputPositionError for a position beyond the end of the log, and with ``auto.offset.reset=error`` for one that is
    missing or was deleted. They raise the same for a position that the application has set by ``seek`` or ``assign``.

    ``key.deserializer`` and ``value.deserializer`` are those of ``confluent_kafka.DeserializingConsumer``, but here
    ``consume`` works too, and it is ``key()`` and ``value()`` of a record that raise InputUnreadableError.

    Beyond confluent_kafka's methods: ``gate``, ``counters``, ``settings`` (of librdkafka, with this package's defaults)
    and ``close_within``. ``adapter`` and ``open_work`` are parts that this package's own producers and loop talk to.

    It is a ``confluent_kafka.Consumer`` for ``isinstance`` and for type checkers; the base class is never built, and
    nothing of it is inherited.
    """

    _ownership: ThreadOwnership | NeverBuilt = NeverBuilt("Consumer closed")
    _state_with_records: ConsumerState
    """The state in which the application has the records that the call under way is about to hand over."""

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
        merged = merged_settings("EosConsumer", config, settings)
        self._deserializers = Deserializers.taken_from(merged)
        application_on_commit = merged.get("on_commit")
        if application_on_commit is None or callable(application_on_commit):
            merged["on_commit"] = self._on_commit
        self._counters = counters or Counters()
        self._clock = clock
        self._hook = hook = safe_hook(hook)
        ownership = ThreadOwnership("EosConsumer")
        self.adapter = ConfluentConsumer(
            merged, ownership, CommitGate(gate), self._commit_starts, self._report, clock, factory
        )
        self._library = self.adapter.library
        self._membership = self.adapter.membership
        self._table = self.adapter.table
        self._plain = PlainCommits(self.adapter, hook, clock, application_on_commit)
        self._events = InputEvents(self.adapter, hook)
        self._lag = LagReport(self.adapter, hook)
        self._missing = MissingTopics(self.adapter, (), clock)
        self._unmatched = UnmatchedPatterns(self.adapter, (), hook, clock)
        self.open_work = OpenWork(self.adapter, self._plain, hook, clock)
        self._ownership = ownership
        self._close_begun: Completion | None = None

    def __reduce_ex__(self, _protocol: SupportsIndex) -> NoReturn:
        raise not_to_be_copied(self)

    def __del__(self) -> None:
        """Leave the group of a consumer that was dropped without ``close()``."""
        # Here and not in a part, which may be finalised before an application's own __del__ closes the consumer.
        if not isinstance(self._ownership, NeverBuilt):
            self._membership.leave_if_dropped()

    @property
    def gate(self) -> CommitGate:
        """The commit gate of this member."""
        return self.adapter.gate

    @property
    def counters(self) -> Counters:
        """Totals of records and transactions since this consumer was built."""
        return self._counters

    @property
    def settings(self) -> Mapping[str, Any]:
        """A copy of the librdkafka settings in force, the defaults of this package included."""
        return MaskedSettings(self.adapter.settings)

    def _report(self, what: str) -> None:
        self._hook(ClientReported(client="consumer", error=what))

    def _commit_starts(self, starts: Mapping[InputPartition, int]) -> str | None:
        return self.open_work.commit_starts(starts)

    def _on_commit(self, error: Any, topic_partitions: list[Any]) -> None:
        self._plain.on_commit(error, topic_partitions)

    # -- records -----------------------------------------------------------------------------------------------------

    @_hands_over
    @owned(claims=True)
    def poll(self, timeout: float = -1) -> Any:
        """Return one record, an error event, or None after ``timeout`` seconds; serves callbacks.

        Raises TransactionStateError in a callback of this consumer, or a signal handler inside another call of it.
        """
        batch = self._next(1, timeout)
        return batch[0] if batch else None

    @_hands_over
    @owned(claims=True)
    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Any]:
        """Return up to ``num_messages`` records within ``timeout`` seconds; serves callbacks.

        Every record returned counts as processed at the next commit. Raises TransactionStateError as ``poll`` does.
        """
        return self._next(num_messages, timeout)

    def _next(self, count: int, timeout: float) -> list[Any]:
        """Return records, and leave the state in which the application has them to `_hands_over`."""
        self.adapter.require_not_leaving()
        self.open_work.resolve_pending()
        self._lag.report()
        if skipped := self.adapter.starts.take_skipped_by_latest():
            self._hook(PartitionsStartedAtEnd(offsets_before=skipped))
        if not self._membership.has_left:
            self._unmatched.report()
        session = self.open_work.session
        if session is not None and session.block.is_open:
            records, hand_over = self._next_in_block(session, count, timeout)
        else:
            self._require_not_closed()
            self.adapter.fetching.begin_call()
            hand_over = self.adapter.fetch_hand_over(count, timeout)
            records = hand_over.messages
            if session is not None and session.state.needs_resume:
                session.callback_failure.raise_once()  # of a step in a revoke callback of this very call
        found = self._deserializers.records(records)
        self._state_with_records = next_state(self._table.state, self.adapter.record_hand_over(hand_over))
        return found

    def _require_not_closed(self) -> None:
        if self._membership.has_left:
            raise read_after_close()

    def _next_in_block(self, session: TransactionSession, count: int, timeout: float) -> tuple[list[Any], HandOver]:
        deadline = math.inf if timeout < 0 else self._clock() + timeout
        with session.block.failing_on_read_error:
            self._require_not_closed()
            self.adapter.fetching.begin_call()
            self._missing.require()
            while True:
                hand_over = self.adapter.fetch_hand_over(count, timeout)
                session.callback_failure.raise_once()
                session.block.check()
                records = hand_over.messages
                if hand_over.has_errors:
                    self._table.tell(ErrorsTaken(hand_over.runs, hand_over.waiting))
                    records = self._events.records(records)
                if records or not hand_over.runs or self._clock() >= deadline:
                    return records, hand_over
                timeout = min(timeout, max(0.0, deadline - self._clock()))

    @owned(exclusive=True, allow_in_callbacks=True)
    def seek(self, partition: TopicPartition) -> None:
        """Continue at ``partition.offset``; records of it that wait to be handed over are dropped.

        After a seek back, records from that offset on that were already handed over, outside a block or in the open
        one, no longer count as processed, and their offsets are not committed. A block commits all outputs that were
        written in it, so write none of records that you give back: they come again. A block that has given back all of
        its records and has written outputs ends as ABORTED.

        If an asynchronous exception (of a signal handler, say) interrupts a call before the first record is fetched,
        ``OFFSET_END`` is looked up again and records written meanwhile are skipped. Where that matters, seek to the
        high watermark that ``get_watermark_offsets`` returns. Raises ValueError for any other logical offset, such as
        ``OFFSET_STORED``: ask ``committed``, or count back from that watermark.
        """
        self.open_work.record_seek(partition)
        self.adapter.seek(partition)

    @owned(exclusive=True, allow_in_callbacks=True)
    def position(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """Return the offset of the next record to hand over; the library's own is past records that wait here.

        ``OFFSET_INVALID`` where it is not known, as while the outcome of the last block is not.
        """
        return self.adapter.position(partitions, may_go_back=self.open_work.may_go_back)

    @owned(exclusive=True, allow_in_callbacks=True)
    def pause(self, partitions: list[TopicPartition]) -> None:
        """Stop fetching ``partitions``; ends when they are revoked, as in the Java client."""
        self.adapter.pause(partitions)

    @owned(exclusive=True, allow_in_callbacks=True)
    def resume(self, partitions: list[TopicPartition]) -> None:
        """Fetch ``partitions`` again, each as soon as its start offset is known."""
        self.adapter.resume(partitions)

    # -- the group and the assignment --------------------------------------------------------------------------------

    @owned(exclusive=True, allow_in_callbacks=True)
    def subscribe(
        self,
        topics: list[str],
        on_assign: RebalanceCallback | None = None,
        on_revoke: RebalanceCallback | None = None,
        on_lost: RebalanceCallback | None = None,
    ) -> None:
        """Join the group. The application's callbacks run inside ours (``eos_client.listeners.compose``).

        Raises ConfigurationError for a topic or pattern that the client library does not take.
        """
        if isinstance(topics, list):
            topics = list(map(str, topics))  # as confluent_kafka takes them
        for name, callback in (("on_assign", on_assign), ("on_revoke", on_revoke), ("on_lost", on_lost)):
            if callback is not None and not callable(callback):
                raise TypeError(f"{name} expects a callable, not {callback!r}")
        ours = RevocationListener(self.gate, self.open_work, hook=self._hook, counters=self._counters)
        tracked = self._membership.tracking_errors_of
        theirs = ApplicationCallbacks(self, *map(tracked, (on_assign, on_revoke, on_lost)))
        self._membership.subscribe(topics, ComposedListener(ours, theirs))
        self._look_up(topics)

    def _look_up(self, topics: list[str]) -> None:
        """Let ``topics`` be looked up from now on while nothing of them is read."""
        self._missing = MissingTopics(self.adapter, list(topics), self._clock)
        self._unmatched = UnmatchedPatterns(self.adapter, list(topics), self._hook, self._clock)

    @owned(exclusive=True, allow_in_callbacks=True)
    def unsubscribe(self) -> None:
        """Leave the subscription; the revoke callback runs in a later ``poll`` or in ``close``."""
        self.adapter.unsubscribe()
        self._look_up([])

    @owned(exclusive=True, allow_in_callbacks=True)
    def assign(self, partitions: list[TopicPartition]) -> None:
        """Set the assignment: inside ``on_assign``, or by hand; offsets of the latter carry no group fence.

        Raises TransactionStateError inside a block and while its transaction is held.
        """
        self.open_work.refuse_manual_assignment("assign()")
        self.adapter.assign(partitions)

    @owned(exclusive=True, allow_in_callbacks=True)
    def unassign(self) -> None:
        """Drop the assignment. Raises TransactionStateError inside a block and while its transaction is held."""
        self.open_work.refuse_manual_assignment("unassign()")
        self.adapter.unassign()

    @owned(exclusive=True, allow_in_callbacks=True)
    def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        """Add to the assignment, inside ``on_assign`` of a cooperative group, or by hand as ``assign`` does."""
        self.open_work.refuse_manual_assignment("incremental_assign()")
        self.adapter.assign(partitions, incrementally=True)

    @owned(exclusive=True, allow_in_callbacks=True)
    def incremental_unassign(self, partitions: list[TopicPartition]) -> None:
        """Take from the assignment, inside ``on_revoke`` of a cooperative group, or by hand as ``unassign`` does."""
        self.open_work.refuse_manual_assignment("incremental_unassign()")
        self.adapter.incremental_unassign(partitions)

    @owned()
    def assignment(self) -> list[TopicPartition]:
        """Return the current assignment."""
        assigned: list[TopicPartition] = self._library.raw.assignment()
        return assigned

    @owned()
    def memberid(self) -> str | None:  # type: ignore[override]  # the library returns None, too
        """Return the member id; None before the group has given one."""
        member: str | None = self._library.raw.memberid()
        return member

    @owned()
    def consumer_group_metadata(self) -> Any:
        """Return the opaque group metadata as of now, for ``send_offsets_to_transaction``. Do not keep it: it ages.

        Offsets of plain commits that are pending are dropped: sent after the transaction's, they would move the
        committed offsets backwards. Raises TransactionStateError for a consumer that was given to
        ``producer.transaction()``: its blocks commit its offsets.
        """
        self.open_work.refuse_plain_use("consumer_group_metadata()")
        self.adapter.plain.pending.clear()
        return self.adapter.consumer_group_metadata()

    # -- commits outside transactions --------------------------------------------------------------------------------

    @owned(exclusive=True, allow_in_callbacks=True)
    def commit(  # type: ignore[override]  # one signature for the library's six overloads
        self, message: Any = None, offsets: list[Any] | None = None, asynchronous: bool = True
    ) -> list[Any] | None:
        """Commit offsets outside a transaction, if the gate lets them pass.

        Gate closed: nothing is sent, ``commit_skipped`` is logged, the offsets stay pending and the next allowed
        commit, or the one inside the revoke callback, covers them; the result is then ``[]`` (None if asynchronous).
        Raises CommitRefusedError for offsets of partitions that are no longer ours; an asynchronous call only logs it,
        as confluent_kafka's does, and its offsets stay pending until ``on_commit`` has confirmed them. Raises
        ClusterUnfitError where this client may not read the group or a topic any more. Raises TransactionStateError for
        a consumer that was given to ``producer.transaction()``: its blocks commit its offsets. May serve rebalance
        callbacks.
        """
        self.open_work.refuse_plain_use("commit()")
        requested = self._plain.requested(message, offsets)
        is_by_hand = not self._membership.state.is_assigned_by_group
        if not requested and (is_by_hand or not self.adapter.plain.pending):
            self.adapter.nothing_to_commit(asynchronous=asynchronous)
            return None
        if is_by_hand:
            return self._plain.send(requested, asynchronous=asynchronous)
        return self._plain.commit(requested, asynchronous=asynchronous)

    @owned(exclusive=True, allow_in_callbacks=True)
    def store_offsets(self, message: Any = None, offsets: list[TopicPartition] | None = None) -> None:
        """Store offsets for the next ``commit()`` without arguments (``enable.auto.offset.store=false``)."""
        if message is not None:
            message = raw_record(message)
            self._library.raw.store_offsets(message=message)
            self.adapter.plain.store([self.adapter.offset_after(message)])
        else:
            self._library.raw.store_offsets(offsets=offsets)
            self.adapter.plain.store(offsets or ())

    @owned()
    def committed(self, partitions: list[TopicPartition], timeout: float = -1) -> list[TopicPartition]:
        """Read committed offsets; waits for pending transactional ones (KIP-447). ``timeout`` in seconds."""
        with self._library.naming_errors("committed()", (each.topic for each in partitions)):
            committed: list[TopicPartition] = self._library.raw.committed(partitions, timeout)
        return committed

    # -- the cluster -------------------------------------------------------------------------------------------------

    @owned()
    def get_watermark_offsets(
        self, partition: TopicPartition, timeout: float = -1, cached: bool = False
    ) -> tuple[int, int]:
        """Return the low and high watermark of ``partition``."""
        low, high = self._library.raw.get_watermark_offsets(partition, timeout, cached)
        return int(low), int(high)

    @owned()
    def offsets_for_times(self, partitions: list[TopicPartition], timeout: float = -1) -> list[TopicPartition]:
        """Look up offsets by timestamp (milliseconds since the epoch, in each ``offset``)."""
        found: list[TopicPartition] = self._library.raw.offsets_for_times(partitions, timeout)
        return found

    @owned()
    def list_topics(self, topic: str | None = None, timeout: float = -1) -> Any:
        """Return the cluster's metadata. ``timeout`` in seconds. Raises TransactionStateError inside a callback."""
        return self.adapter.list_topics(topic, timeout)

    @owned()
    def cluster_id(self, timeout: float = -1) -> str:
        """Return the cluster's id. Raises TransactionStateError inside a callback."""
        return str(self._library.call(lambda: self._library.raw.cluster_id(timeout)))

    @owned()
    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Replace the SASL credentials."""
        self._library.set_sasl_credentials(username, password)

    # -- closing -----------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Leave the group; runs the revoke callback, and then raises what callbacks of the application have raised.

        A block that is open ends as ABORTED. What ``error_cb``, ``stats_cb``, ``throttle_cb`` and ``logger`` have
        raised is reported and not raised, but for KeyboardInterrupt and SystemExit.

        The client library gets CLOSE_LIMIT_S seconds to leave and to close its connections. What it has not done by
        then is abandoned and reported: the group gives the partitions to others only when the session has timed out.
        After an exception out of ``consume`` it gets CLOSE_LIMIT_AFTER_AN_EXCEPTION_S seconds: librdkafka may keep a
        record then, for which its close() would wait for ever, although the member has left the group.

        Raises TransactionStateError in a callback or a signal handler that has come inside another call of this
        consumer, or while a block begins or ends: that call would go on with a consumer that is gone. Called inside
        ``close()``, or on an object whose ``__init__`` did not run, it does nothing.
        """
        if not self._is_being_closed:
            self._close()

    @property
    def _is_being_closed(self) -> bool:
        """Whether a close is under way, perhaps in a thread of `close_within`, or nothing was ever built."""
        if isinstance(self._ownership, NeverBuilt) or (is_in_call(self) and self._membership.state.is_leaving):
            return True
        return self._close_begun is not None and not self._close_begun.is_set

    @owned(exclusive=True)
    def _close(self) -> None:
        session = self.open_work.session
        self.open_work.prepare_consumer_close()
        try:
            self.adapter.close()
        finally:
            if session is not None and self._membership.state.is_closed:
                prepare_consumer_close(session)  # the revoke callback may have left a commit unanswered

    def close_within(self, limit_s: float) -> bool:
        """Close, waiting ``limit_s`` seconds at most; returns whether leaving the group was confirmed.

        A close that is not finished by then goes on in a thread of its own: ``close`` does nothing meanwhile, and
        another ``close_within`` waits for it again. Raises TransactionStateError as ``close`` does.
        """
        if isinstance(self._ownership, NeverBuilt):
            return True
        begun = self._close_begun
        if begun is None or begun.is_set:
            refuse_nested(self, "close_within")
            self.open_work.refuse_inside_a_step("consumer.close_within()")
            self._ownership.hand_over()
            is_over = close_in_time(self._close_in_background, limit_s, self._clock)
        else:
            is_over = begun.wait(limit_s)
        return is_over and not self.adapter.was_abandoned

    def _close_in_background(self) -> None:
        done = self._close_begun = Completion()
        try:
            self._close()
        finally:
            done.set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
