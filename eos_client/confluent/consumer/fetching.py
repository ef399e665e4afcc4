"""Fetches records into the table of partitions, and repairs what a call that was interrupted has left.

``consume`` of the client library may collect records, run a revoke callback and then return what it had collected
before it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from eos_client.confluent.consumer.library_consumer import LibraryConsumer
from eos_client.confluent.consumer.membership import Membership
from eos_client.confluent.consumer.partition_table import PartitionTable, positions_of
from eos_client.confluent.consumer.start_offsets import StartOffsets
from eos_client.confluent.failures.consumer_failures import input_error
from eos_client.confluent.thread_ownership import ThreadOwnership, owned
from eos_client.core.hand_over import standing_refusal
from eos_client.core.membership_events import Synced
from eos_client.core.model import GroupGeneration
from eos_client.core.partition_events import (
    Aborted,
    CallBegan,
    CallEnded,
    Fetched,
    Interrupted,
    LibraryCallBegan,
    PauseOfAllBegan,
    PauseOfAllEnded,
    TopicReplaced,
    WaitingGivenBack,
)
from eos_client.core.record_runs import Run, message_count, messages_of, runs, without_partitions
from eos_client.errors import ClusterUnfitError, FatalClientError
from eos_client.ports import Clock, input_partitions

_DRAIN_ROUNDS_MAX = 10
_DRAIN_STEP = 100
_PREFETCH_STEP = 500
_PREFETCH_MAX = 20_000


@dataclass(eq=False, repr=False)
class Fetching:
    """Fetches records from the library into the table, where they wait to be handed over."""

    _library: LibraryConsumer
    _membership: Membership
    _ownership: ThreadOwnership
    _table: PartitionTable
    _starts: StartOffsets
    _clock: Clock
    _queue_was_emptied: bool = field(default=False, init=False)
    _brought_nothing_ready: bool = field(default=False, init=False)

    def fetch(self, count: int, timeout: float, *, read_before: GroupGeneration | None = None) -> None:
        """Fetch up to ``count`` messages and let them wait; serves callbacks.

        ``read_before``: the generation that was read before the library's queue began to be emptied.
        """
        table, membership, guard = self._table, self._membership, self._library.guard
        membership.record_call_time()
        if table.state.departed_in_call:
            table.tell(LibraryCallBegan())
        # Only an empty queue syncs a generation (core/membership_states.py): during a backlog none needs to be read.
        if read_before is None and self._queue_was_emptied:
            read_before = membership.snapshot().generation
        messages = self._fetch_raw(count, timeout)
        if membership.state.callback_interrupted:
            guard.raise_deferred()  # with the mark of this call: the next one repairs the state
        self._queue_was_emptied = len(messages) < count
        self._refuse_replaced_topics()
        if read_before is not None and self._queue_was_emptied:
            membership.tell(Synced(read_before))
        self._receive(runs(messages, one_topic=membership.state.is_of_one_topic))
        if guard.error is not None:
            table.tell(CallEnded())
            guard.raise_deferred()
        self._brought_nothing_ready = bool(messages) and not table.state.has_ready

    def _receive(self, fetched: list[Run]) -> None:
        table, starts = self._table, self._starts
        if table.state.unsettled or table.state.departed_in_call:
            starts.find_due(without_partitions(fetched, table.state.departed_in_call))
        table.tell(Fetched(tuple(fetched)))
        table.perform_due()

    def _find_withheld(self) -> None:
        """Ask once where partitions start that are withheld, and let those go on of which that is known."""
        self._starts.find(self._table.state.withheld)
        self._table.perform_due()

    def _refuse_replaced_topics(self) -> None:
        """Hand over nothing of a topic that was replaced by another, and commit nothing of the old one for the new."""
        replaced = self._library.topics.replaced
        if not replaced:
            return
        assigned = input_partitions(self._library.raw.assignment())
        for topic in replaced:
            if self._membership.state.is_input(topic, assigned):
                partitions = frozenset(partition for partition in assigned if partition.topic == topic)
                self._table.tell(TopicReplaced(topic, partitions))
        self._library.topics.acknowledge(replaced)  # last: what is interrupted is repeated by the next call

    def _fetch_raw(self, count: int, timeout: float) -> list[Any]:
        try:
            with self._library.naming_errors("consume()"):
                return self._library.fetch(count, timeout)
        except (ClusterUnfitError, FatalClientError):
            self._table.tell(CallEnded())  # such a client hands over nothing any more
            raise

    def fetch_in_time(self, count: int, timeout: float) -> None:
        """Fetch; if every message was withheld, fetch again until ``timeout``, unless nothing may be handed over."""
        deadline = math.inf if timeout < 0 else self._clock() + timeout
        self.fetch(count, timeout)
        while self._may_bring_more and (left_s := deadline - self._clock()) > 0:
            self.fetch(count, left_s if timeout >= 0 else timeout)

    @property
    def _may_bring_more(self) -> bool:
        return self._brought_nothing_ready and standing_refusal(self._table.state) is None

    # -- serving callbacks -------------------------------------------------------------------------------------------

    @owned(claims=True)
    def serve_callbacks(self, *, drain: bool = False) -> None:
        """Serve rebalance callbacks that are due.

        Callbacks queue up after fetched records. ``drain`` pauses the partitions, which makes the queued records
        void, until the queue is empty: then nothing that happened before the call can still be waiting. Raises
        TransactionStateError inside a callback.
        """
        self._library.refuse_nested()  # before anything is told
        self.begin_call()
        if drain:
            self.drain_in_call()
        else:
            self.fetch(1, 0)
        self._table.tell(CallEnded())

    def drain_in_call(self) -> None:
        """Empty the library's queue, so that every callback in it is served; only after `begin_call`."""
        before = self._membership.begin_sync()
        self._pause_all()
        try:
            for _ in range(_DRAIN_ROUNDS_MAX):
                self.fetch(_DRAIN_STEP, 0, read_before=before)
                if self._queue_was_emptied:
                    break
        finally:
            self._resume_all()

    @owned(claims=True)
    def wait_while_paused(self, limit_s: float) -> None:
        """Consume nothing for up to ``limit_s`` seconds and serve callbacks."""
        self.begin_call()
        self._pause_all()
        try:
            self.fetch(1, limit_s)
        finally:
            self._resume_all()
        self._table.tell(CallEnded())

    @owned(claims=True)
    def prefetch(self) -> None:
        """Take records that are there already, for a later call; serves callbacks."""
        if message_count(self._table.state.waiting) < _PREFETCH_MAX:
            self.begin_call()
            self.fetch(_PREFETCH_STEP, 0)
            self._table.tell(CallEnded())

    def _pause_all(self) -> None:
        self._table.tell(PauseOfAllBegan())
        self._table.pause(self._table.state.pausable)

    def _resume_all(self) -> None:
        self._table.tell(PauseOfAllEnded())
        self._table.resume_due()

    # -- interrupted calls -------------------------------------------------------------------------------------------

    def begin_call(self) -> None:
        """Begin a call that takes records from the client library; repairs what one that was interrupted has left.

        Nothing more is handed over by a closed consumer, so there is nothing to repair.
        """
        if self._membership.in_callback:
            return
        if self._table.state.call_is_unfinished and not self._membership.state.is_closed:
            self._repair()
        self._table.tell(CallBegan())
        if not self._membership.state.is_closed:
            self._table.perform_due()

    def last_events(self) -> tuple[Run, ...]:
        """Return the remaining error events of a client that failed for good; its records are not handed over.

        Raises what ``require_not_fatal`` does once there are none left.
        """
        if self._library.take_awaits_fatal_event():
            messages = self._fetch_raw(_PREFETCH_STEP, 0)
            self._table.tell(Fetched(tuple(runs(messages))))
        events = tuple(run for run in self._table.state.waiting if run.is_error)
        self._library.record_fatal(messages_of(events))
        if not events:
            self.require_not_fatal()
        return events

    def require_not_fatal(self) -> None:
        """Raise FatalClientError where librdkafka gave the client up, ClusterUnfitError if the group has refused it."""
        if self._library.fatal is not None:
            fatal, group_id = self._library.fatal, self._library.group_id
            patterns = self._membership.state.patterns
            raise self._table.ended_by(input_error(fatal, group_id=group_id, patterns=patterns))

    def _repair(self) -> None:
        """Continue every partition at the first record that was not handed over: an interrupted call may lose records.

        If records of a partition were handed over before, it is sought to the next one. If records were only fetched,
        it starts again at its committed offset. If neither, the position of librdkafka is no proof of where it starts:
        a record may have been dropped uncounted when an exception of a callback interrupted the call.
        """
        raw = self._library.raw
        self._library.check_fatal()  # its event may have been in the interrupted call
        assigned = raw.assignment()
        self._membership.replay_interrupted_callbacks(input_partitions(assigned))
        self._table.tell(Interrupted(positions_of(raw.position(assigned))))
        self._table.perform_due()
        self._find_withheld()

    # -- going back --------------------------------------------------------------------------------------------------

    @owned(claims=True)
    def rewind(self) -> None:
        """Go back to the first uncommitted record of every partition that is still ours.

        Records that wait to be handed over are dropped and read again. Raises FatalClientError when a partition cannot
        be rewound.
        """
        self.begin_call()
        self._table.tell(Aborted())
        if not self._membership.state.is_closed:
            self._table.perform_due()
        self._table.tell(CallEnded())

    def give_back_waiting(self) -> None:
        """Let the library fetch again what waits to be handed over: a cooperative member may keep these partitions."""
        self._table.tell(WaitingGivenBack())
        if not self._membership.in_callback:  # else the call that runs performs it
            self._table.perform_due()
