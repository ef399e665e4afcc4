"""Fetches records and drops those that were revoked, precede a rewind, or came from a wrong start offset.

``consume`` of the client library may collect records, run a revoke callback and then return what it had collected
before it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from eos_client.confluent.consumer.fetched_records import Batch
from eos_client.confluent.consumer.library_consumer import LibraryConsumer
from eos_client.confluent.consumer.membership import Membership
from eos_client.confluent.consumer.partition_parts import PartitionParts
from eos_client.confluent.consumer.rewinding import Spans
from eos_client.confluent.consumer.safe_close import LEAVING_ROUNDS_MAX, LEAVING_STEP_S
from eos_client.confluent.consumer.start_offsets import SoughtStart
from eos_client.confluent.failures.consumer_failures import input_error
from eos_client.confluent.thread_ownership import ThreadOwnership, owned
from eos_client.core.model import InputPartition, Partitions
from eos_client.errors import ClusterUnfitError, FatalClientError
from eos_client.ports import Clock, input_partitions

_DRAIN_ROUNDS_MAX = 10
_DRAIN_STEP = 100
_PREFETCH_STEP = 500
_PREFETCH_MAX = 20_000
_REJOIN_READ_TIMEOUT_S = 10.0


@dataclass(eq=False, repr=False)
class Fetching:
    """Fetches records from the library, and repairs the state that an interrupted call has left.

    ``replaced_topics`` of the subscription were deleted and created again: nothing of them is handed over.
    """

    _library: LibraryConsumer
    _membership: Membership
    _ownership: ThreadOwnership
    _parts: PartitionParts
    _report: Callable[[str], None]
    _clock: Clock
    _queue_was_emptied: bool = field(default=False, init=False)
    _withheld_all: bool = field(default=False, init=False)
    replaced_topics: frozenset[str] = field(default=frozenset(), init=False)

    def fetch(self, count: int, timeout: float) -> Batch:
        """Fetch records, and return those that are still ours, not paused and not from before a rewind."""
        membership, parts, guard = self._membership, self._parts, self._library.guard
        membership.begin_call()
        parts.chosen.begin_call()
        # Only an empty queue syncs a generation, so there is no point in reading it during a backlog.
        before = membership.snapshot().generation if self._queue_was_emptied else None
        messages = self._fetch_raw(count, timeout)
        if membership.callback_interrupted:
            guard.raise_kept()  # with an open journal: the next call fetches all this again
        self._queue_was_emptied = len(messages) < count
        batch = Batch(messages, one_topic=membership.is_of_one_topic)
        if replaced := self._library.topics.replaced:
            batch = self._without_replaced(batch, replaced)
            self._library.topics.acknowledge(replaced)  # last: an interrupted replacement is repeated by the next call
        if parts.undecided:
            undecided = parts.decide_recreated()
            batch = batch.select(run for run in batch.runs if run.partition not in undecided)
        if before is not None and self._queue_was_emptied:
            membership.mark_synced(before)
        if membership.left_in_call:
            batch = self._without_departed(batch)
        # A rewind aborts a transaction, which is reported to the application only once this call has returned.
        goes_back = parts.rewinding.is_due
        if goes_back:
            parts.records.add(batch.messages)
            batch = Batch([])
            self._rewind()
        else:
            batch = parts.starts.filter_batch(parts.rewinding.filter_batch(batch))
        if self._library.paused_by_application and batch:
            batch = self._without_paused(batch)
        if guard.error is not None:
            parts.records.add(batch.messages)
            self._parts.handed.journal = None
            guard.raise_kept()
        self._withheld_all = bool(messages) and not batch and not goes_back
        return batch

    def _fetch_raw(self, count: int, timeout: float) -> list[Any]:
        try:
            with self._library.naming_errors("consume()"):
                return self._library.fetch(count, timeout)
        except (ClusterUnfitError, FatalClientError):
            self._parts.handed.journal = None  # such a client hands over nothing any more
            raise
        finally:
            self._membership.end_call()

    def fetch_in_time(self, count: int, timeout: float) -> Batch:
        """Fetch; if every message was withheld, fetch again until ``timeout``."""
        deadline = math.inf if timeout < 0 else self._clock() + timeout
        batch = self.fetch(count, timeout)
        while not batch and self._withheld_all and (left_s := deadline - self._clock()) > 0:
            batch = self.fetch(count, left_s if timeout >= 0 else timeout)
        return batch

    def fetch_for_later(self, count: int, timeout: float) -> None:
        """Fetch and buffer the messages; serves callbacks."""
        # The callbacks that fetching runs may replace what the records are added to: fetch first.
        batch = self.fetch(count, timeout)
        self._parts.records.add(batch.messages)

    def _without_departed(self, batch: Batch) -> Batch:
        membership = self._membership
        left = membership.left_in_call
        # A partition left and came back within one call, so its older records cannot be told apart. librdkafka keeps
        # its position, which may be the end of the log, where no record would show the gap.
        has_come = any(run.partition in left for run in batch.runs)
        back = (left if has_come else membership.rejoined_in_call) & membership.assigned
        if back:
            self._start_again(back)
        return batch.without(left)

    def _start_again(self, partitions: Partitions) -> None:
        """Continue where the application has chosen to in this call, else at the group's offset."""
        chosen = self._parts.chosen.in_call(partitions)
        for partition, offset in chosen.items():
            self._parts.seeks.seek(partition, offset)
        if rest := partitions - chosen.keys():
            self._parts.handed.forget_next(rest)
            self._parts.starts.await_committed(rest)

    def _without_replaced(self, batch: Batch, replaced: frozenset[str]) -> Batch:
        """Hand over nothing of a topic that was replaced by another, and commit nothing of the old one for the new."""
        for topic in replaced:
            partitions = frozenset(p for p in input_partitions(self._library.raw.assignment()) if p.topic == topic)
            if not partitions and not self._membership.names(topic):
                continue
            batch = batch.select(run for run in batch.runs if run.partition.topic != topic)
            self._parts.records.drop_of_topic(topic)
            if self._membership.is_by_pattern(topic):
                self._parts.undecided.update(dict.fromkeys(partitions, (0, self._clock())))
            else:
                self._parts.handed.work.forget(partitions)
                if partitions:
                    self._library.pause(partitions)
                self.replaced_topics |= {topic}
        return batch

    def _without_paused(self, batch: Batch) -> Batch:
        """Keep what was paused until it is resumed: librdkafka ignores a pause before a topic's first assignment.

        Handed over, such records would overtake those of their partition that wait.
        """
        coming = self._library.paused_by_application & {run.partition for run in batch.runs}
        if not coming:
            return batch
        self._library.pause(coming)
        self._parts.records.add(batch.only(coming).messages)
        return batch.without(coming)

    # -- serving callbacks -------------------------------------------------------------------------------------------

    @owned(claims=True)
    def serve_callbacks(self, *, drain: bool = False) -> None:
        """Serve rebalance callbacks that are due.

        Callbacks queue up after fetched records. ``drain`` pauses the partitions, which makes the queued records
        void, until the queue is empty: then nothing that happened before the call can still be waiting.
        """
        self.begin_call()
        if drain:
            self.drain_in_call()
        else:
            self.fetch_for_later(1, 0)
        self._parts.handed.journal = None

    def drain_in_call(self) -> None:
        """Empty the library's queue, so that every callback in it is served; only after `begin_call`."""
        before = self._membership.begin_sync()
        pausing = self._pause_assigned()
        try:
            for _ in range(_DRAIN_ROUNDS_MAX):
                self.fetch_for_later(_DRAIN_STEP, 0)
                if self._queue_was_emptied:
                    self._membership.mark_synced(before)
                    break
        finally:
            self._resume_after(pausing)

    @owned(claims=True)
    def wait_while_paused(self, limit_s: float) -> None:
        """Consume nothing for up to ``limit_s`` seconds and serve callbacks."""
        self.begin_call()
        pausing = self._pause_assigned()
        try:
            self.fetch_for_later(1, limit_s)
        finally:
            self._resume_after(pausing)
        self._parts.handed.journal = None

    @owned(claims=True)
    def prefetch(self) -> None:
        """Take records that are there already, for a later call; serves callbacks."""
        if len(self._parts.records) < _PREFETCH_MAX:
            self.begin_call()
            self.fetch_for_later(_PREFETCH_STEP, 0)
            self._parts.handed.journal = None

    def _pause_assigned(self) -> Partitions:
        parts = self._parts
        pausing = self._membership.assigned - self._library.paused_by_application - parts.starts.waiting
        self._library.pause(pausing)
        return pausing

    def _resume_after(self, pausing: Partitions) -> None:
        # A pause outlives revocation: resume what was paused, also what has left by now, but for what the application
        # has paused in a callback meanwhile.
        self._library.resume(pausing - self._parts.starts.waiting)

    # -- interrupted calls -------------------------------------------------------------------------------------------

    def begin_call(self) -> None:
        """Begin a call that takes records from the client library; repairs the state that an interrupted one has left.

        A call that an asynchronous exception interrupted has left its journal open (``eos_client.core.hand_over``).
        Nothing more is handed over by a closed consumer, so there is nothing to repair.
        """
        membership = self._membership
        may_go_back = not membership.in_callback
        if not self._parts.handed.begin_call() and may_go_back and not membership.is_closed:
            self._rewind_to_next()
        elif self._parts.rewinding.is_due and may_go_back:
            self._rewind()
        if membership.rejoins and may_go_back and not membership.is_closed:
            self._join_again()

    def last_events(self) -> list[Any]:
        """Return the remaining error events of a client that failed for good; its records are not handed over.

        Raises what ``require_not_given_up`` does once there are none left.
        """
        waiting = self._parts.records.take(len(self._parts.records), frozenset())
        if self._library.take_awaits_fatal_event():
            self._membership.begin_call()
            waiting = [*waiting, *self._fetch_raw(_PREFETCH_STEP, 0)]
        events = [message for message in waiting if message.error() is not None]
        self._library.record_fatal(events)
        self._parts.handed.journal = None
        if not events:
            self.require_not_given_up()
        return events

    def require_not_given_up(self) -> None:
        """Raise FatalClientError where librdkafka gave the client up, ClusterUnfitError if the group has refused it."""
        if self._library.fatal is not None:
            self._parts.handed.journal = None
            patterns = self._membership.patterns
            raise input_error(self._library.fatal, group_id=self._library.group_id, patterns=patterns)

    def _rewind_to_next(self) -> None:
        """Continue every partition at the first record that was not handed over: an interrupted call may lose records.

        A partition of which records were handed over is rewound to the next one; one of which records were only fetched
        starts again at its committed offset. Of the others librdkafka may have dropped a record without counting it, if
        an exception of a callback has interrupted the call; so its position says nothing about where they start.
        """
        parts, raw = self._parts, self._library.raw
        parts.handed.undo()
        parts.records.drop_records()
        self._library.check_fatal()  # its event may have been in the interrupted call
        if (spans := parts.rewinding.take_plan()) is not None:
            self._apply_rewind(spans)
        assigned = raw.assignment()
        ours = input_partitions(assigned)
        if self._membership.is_subscribed:
            self._membership.replay_interrupted_callbacks(ours)
        self._membership.require_sync()
        fetched_up_to = {InputPartition(p.topic, p.partition): p.offset for p in raw.position(assigned)}
        for partition in ours & parts.handed.next_offsets.keys():
            parts.rewinding.rewind(partition, parts.handed.next_offsets[partition], fetched_up_to[partition])
        at_their_start = ours - parts.handed.next_offsets.keys() - parts.starts.withheld
        if fetched := frozenset(p for p in at_their_start if fetched_up_to[p] >= 0):
            parts.reads.forget(fetched)
            parts.starts.await_committed(fetched)
        self._resume_after(ours)
        parts.starts.mark_may_miss_records(ours - parts.handed.next_offsets.keys() - parts.starts.withheld)

    # -- going back --------------------------------------------------------------------------------------------------

    @owned(claims=True)
    def rewind(self) -> None:
        """Go back to the first uncommitted record of every partition that is still ours.

        Records that wait to be handed over are dropped and read again. Raises FatalClientError when a partition cannot
        be rewound.
        """
        self.begin_call()
        self._rewind()
        self._parts.handed.journal = None

    def give_back_waiting(self) -> None:
        """Let the library fetch again what waits to be handed over: a cooperative member may keep these partitions."""
        is_outermost = self._parts.handed.begin_change()
        spans = self._parts.records.spans()
        self._parts.records.drop_records()
        for partition in spans.keys() & self._membership.assigned:
            self._parts.rewinding.rewind(partition, *spans[partition])
        self._parts.handed.end_change(is_outermost=is_outermost)

    def rewind_soon(self) -> None:
        """Rewind as soon as the running call has returned from the library, or in the next one."""
        self._plan_rewind()
        self._parts.handed.work.clear()

    def _plan_rewind(self) -> Spans:
        parts = self._parts
        return parts.rewinding.plan(parts.records.spans(), parts.handed.work.owned)

    def _rewind(self) -> None:
        spans = self._plan_rewind()
        self._parts.records.drop_records()
        self._apply_rewind(spans)
        for partition, (offset, reached) in spans.items():
            if partition in self._membership.assigned and not self._membership.is_closed:
                self._parts.rewinding.rewind(partition, offset, reached)
        self._parts.rewinding.take_plan()

    def _apply_rewind(self, spans: Spans) -> None:
        for partition in spans.keys() & self._membership.assigned:
            self._parts.handed.set_next_offset(partition, spans[partition][0])
        self._parts.handed.work.clear()

    # -- another membership ------------------------------------------------------------------------------------------

    @owned(claims=True)
    def rejoin(self) -> None:
        """Leave the group and join it as another member: what the old one has sent is refused once its partitions left.

        Runs the revoke callback; the new assignment comes with a later call that fetches. If this is interrupted,
        the next such call goes on with it. Raises ConfigurationError where no other client can be built.
        """
        self.begin_call()
        self._membership.begin_rejoin()
        self._join_again()
        self._parts.handed.journal = None

    def _join_again(self) -> None:
        """Leave the group, and join it by a client library of its own: its member id is another one.

        ``unsubscribe`` and ``subscribe`` would do for a classic group only: a KIP-848 client joins again by its old id,
        and if its leave request was lost, the group takes it for the old member.
        """
        library, chosen = self._library, self._parts.chosen
        self._require_library()
        library.raw.unsubscribe()
        self._parts.records.drop_records()
        for _ in range(LEAVING_ROUNDS_MAX):
            if not library.raw.assignment():
                break
            self.fetch_for_later(1, LEAVING_STEP_S)
        self._require_library()
        self._membership.replay_interrupted_callbacks(frozenset())
        committed = self._library.committed_or_raise(chosen.saved, _REJOIN_READ_TIMEOUT_S) if chosen.saved else {}
        if report := library.replace():
            self._report(report)
        self._parts.starts.continue_at({p: SoughtStart(committed.get(p), offset) for p, offset in chosen.saved.items()})
        self._membership.join_again()
        chosen.saved.clear()

    def _require_library(self) -> None:
        """Raise what the client was given up for, if it was: a replacement would fence the member that fenced it."""
        self._library.check_fatal()
        self.require_not_given_up()
