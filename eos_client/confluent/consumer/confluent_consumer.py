"""A group consumer that knows what the application has not committed yet, and can go back to it.

It decides nothing about commits. Applications hold an ``EosConsumer``, which has confluent_kafka's methods; transaction
sessions and the loop hold this consumer, and the parts that they need of it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, OFFSET_INVALID, OFFSET_STORED, KafkaError, KafkaException

from eos_client.config.client_settings import safe_consumer_settings
from eos_client.confluent.client_library import CONFLUENT_KAFKA
from eos_client.confluent.consumer.fetched_records import (
    Batch,
    RecordRun,
    in_order_without,
    offset_gaps,
)
from eos_client.confluent.consumer.fetching import Fetching
from eos_client.confluent.consumer.library_consumer import (
    ConsumerFactory,
    LibraryConsumer,
    ResetPolicy,
    TopicPartition,
    with_epoch,
)
from eos_client.confluent.consumer.membership import Membership
from eos_client.confluent.consumer.partition_parts import PartitionParts
from eos_client.confluent.consumer.safe_close import close_in_time
from eos_client.confluent.failures.consumer_failures import consumer_closed
from eos_client.confluent.failures.position_failures import (
    beyond_the_end,
    forbidden_reset,
    log_truncated,
    topic_replaced,
)
from eos_client.confluent.thread_ownership import ThreadOwnership, owned
from eos_client.core.commit_gate import CommitGate
from eos_client.core.model import InputPartition, InputPosition, InputPositions
from eos_client.core.passed_offsets import ends_in_markers_of_others, passed_work
from eos_client.ports import Clock, MembershipSnapshot, input_partitions

_BEFORE_UNCOMMITTED = (OFFSET_BEGINNING, OFFSET_STORED, OFFSET_INVALID)
"""Logical offsets that lie before everything that was handed over and is not committed."""


class ConfluentConsumer:
    """Hands records over, keeps their positions until they are committed, and leaves the group within a limit.

    ``commit_starts`` commits start offsets of newly assigned partitions; it returns whether they were committed.
    ``report`` receives what ``close`` could not do or does not raise, and what keeps records waiting.
    ``settings`` are librdkafka's, with the defaults of this package. ``work_since``: when the first record of the open
    work was handed over, by the clock.
    ``was_left_behind``: the client library did not close in time, so leaving the group was not confirmed.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        ownership: ThreadOwnership,
        gate: CommitGate,
        commit_starts: Callable[[Mapping[InputPartition, int]], bool],
        report: Callable[[str], None],
        clock: Clock,
        factory: ConsumerFactory | None,
    ) -> None:
        self.ownership = self._ownership = ownership
        self._clock = clock
        self._report = report
        self._may_commit_by_hand = False
        self.gate = gate
        self.library = LibraryConsumer(safe_consumer_settings(settings), factory or CONFLUENT_KAFKA.consumer, clock)
        self.settings: Mapping[str, Any] = self.library.settings
        self.parts = parts = PartitionParts(self.library, commit_starts, report, clock)
        self.handed, self.plain = parts.handed, parts.plain
        self.membership = Membership(self.library, ownership, parts, clock)
        self.fetching = Fetching(self.library, self.membership, ownership, parts, report, clock)
        self.work_since = 0.0
        self.was_left_behind = False

    # -- what is known -----------------------------------------------------------------------------------------------

    @property
    def positions(self) -> InputPositions:
        """Uncommitted work by partition."""
        return self.handed.work.positions

    @owned()
    def snapshot(self) -> MembershipSnapshot:
        """Read the group metadata now."""
        return self.membership.snapshot()

    def require_open(self) -> None:
        """Raise ClientClosedError where nothing can be committed by this consumer any more."""
        if self.membership.is_closed and not self.membership.in_callback:
            raise consumer_closed()

    @owned()
    def serve_errors(self) -> None:
        """Let the client library report why it is not connected, also inside a call that fetches.

        Records, and a fatal error, which is reported only once, are kept for a later call.
        """
        self.fetching.fetch_for_later(1, 0)

    # -- what is handed over -----------------------------------------------------------------------------------------
    #
    # A record at an unexpected offset is not handed over, nor one of a topic that was deleted and recreated. Seeks and
    # put_back() change the next expected offset.

    def next_batch(self, count: int, timeout: float) -> list[Any]:
        """Return up to ``count`` messages within ``timeout`` seconds, and count them as handed over."""
        count = operator.index(count)  # the client library takes a TypeError for an exception out of a callback
        if self.library.fatal is not None:
            return self.fetching.last_events()
        self.parts.starts.require_starts()
        if self.membership.needs_sync:
            self.fetching.drain_in_call()
        batch = self._take(count) if self.parts.records else None
        return self._hand_over(batch or self.fetching.fetch_in_time(count, timeout))

    def _take(self, count: int) -> Batch:
        """Take buffered messages; fewer than ``count`` are too few for a batch, so what is there already is fetched."""
        records, paused = self.parts.records, self.library.paused_by_application
        if 0 < (ready := len(records.ready(paused))) < count:
            self.fetching.fetch_for_later(count - ready, 0)
        messages = records.take(count, self.library.paused_by_application) if count > 0 else []
        return Batch(messages, one_topic=self.membership.is_of_one_topic)

    def _hand_over(self, batch: Batch) -> list[Any]:
        """Count records as uncommitted work and return them, up to the first that may not be handed over."""
        for topic in self.fetching.replaced_topics:
            return self._stop_at(batch, 0, topic_replaced(topic))
        messages, handed, reads = batch.messages, self.handed, self.parts.reads
        for partition, misplacement in reads.truncated.items():
            return self._stop_at(batch, 0, log_truncated(partition, misplacement))
        if messages and not handed.work.positions:
            self.work_since = self._clock()
        for run in batch.runs:
            if not run.is_error:
                if reads.starts_too_early(run):
                    return self._stop_at_misplaced(batch, run)
                epoch = reads.read(run, messages)
                generation = self.membership.synced_generation
                gaps = offset_gaps(messages, run)
                position = InputPosition(run.first_offset, run.next_offset, generation, epoch, gaps)
                handed.hand_over(run.partition, position)
            else:
                self.library.record_fatal(messages[run.start : run.stop])
            refusal = forbidden_reset(run.partition, messages[run.stop - 1])
            if refusal is not None:
                return self._stop_at(batch, run.stop - 1, refusal)
        return messages

    @owned(claims=True)
    def hand_over_passed(self) -> bool:
        """Count the offsets without records that the client library has passed as handed over; whether there are any.

        The library's position is read now. It moves in the order in which records are handed over, and a seek takes it
        away until something comes from there.
        """
        self.fetching.begin_call()
        work = self._passed_work()
        if work and not self.handed.work.positions:
            self.work_since = self._clock()
        for partition, position in work.items():
            self.parts.reads.pass_over(partition, position)
            self.handed.hand_over(partition, position)
        self.handed.journal = None
        return bool(work)

    def _passed_work(self) -> InputPositions:
        parts = self.parts
        undecided_or_waiting = parts.undecided.keys() | parts.records.spans().keys()
        ours = self.membership.assigned - undecided_or_waiting
        ours -= parts.rewinding.repeat(ours)
        passed = self.library.passed_offsets(ends_in_markers_of_others(ours))
        starting = parts.starts.waiting
        parts.starts.check_passed(passed)
        generation, next_offsets = self.membership.synced_generation, self.handed.next_offsets
        found = {p: passed_work(next_offsets.get(p), passed[p], generation) for p in passed.keys() - starting}
        return {partition: work for partition, work in found.items() if work is not None}

    def _stop_at(self, batch: Batch, index: int, refusal: KafkaException) -> list[Any]:
        """Return the messages before ``index`` and buffer the rest; raises ``refusal`` if ``index`` is 0."""
        self.parts.records.put_first(batch.messages[index:])
        if index == 0:
            self.handed.journal = None
            raise refusal
        return batch.messages[:index]

    def _stop_at_misplaced(self, batch: Batch, run: RecordRun) -> list[Any]:
        """Refuse a truncated log; seek to the expected offset if the log has it; else restart a topic of a pattern."""
        parts, partition = self.parts, run.partition
        misplacement = parts.reads.misplacement(run, batch.messages[run.start].leader_epoch())
        if misplacement.shows_truncation(were_read=parts.reads.has_read(partition)):
            parts.reads.truncated[partition] = misplacement
            return self._stop_at(batch, run.start, log_truncated(partition, misplacement))
        expected, end = misplacement.expected, self.library.end_of(partition)
        if (end is None or end >= expected) and parts.reads.count_seek(partition):
            parts.seeks.seek(partition, expected)
            self._keep_others(batch, run)
        elif self.membership.is_by_pattern(partition.topic):
            self._keep_others(batch, run)
            parts.restart_recreated(frozenset({partition}))
        else:
            return self._stop_at(batch, run.start, beyond_the_end(partition, expected, run.first_offset))
        return batch.messages[: run.start]

    def _keep_others(self, batch: Batch, run: RecordRun) -> None:
        """Drop everything from ``run`` on that is of its partition, and keep the rest for later."""
        misplaced = frozenset({run.partition})
        self.parts.records.drop_of(misplaced)
        self.parts.records.put_first(in_order_without(misplaced, batch.messages[run.start :]))

    @owned()
    def put_back(self, batch: Sequence[Any]) -> None:
        """Take back the unprocessed end of the last batch; the next call returns it first."""
        is_outermost = self.handed.begin_change()
        returned = Batch(list(batch))
        first_offsets = {run.partition: run.first_offset for run in reversed(returned.runs) if not run.is_error}
        for partition, first_offset in first_offsets.items():
            self.handed.take_back(partition, first_offset)
            self.parts.reads.expect_next(partition, first_offset)
        self.parts.records.put_first(returned.messages)
        self.handed.end_change(is_outermost=is_outermost)

    def seek(self, partition: TopicPartition) -> None:
        """Continue at ``partition.offset``; records of it that wait to be handed over are dropped."""
        is_outermost = self.handed.begin_change()
        self.library.raw.seek(partition)
        key = InputPartition(partition.topic, partition.partition)
        if partition.offset >= 0 or partition.offset in _BEFORE_UNCOMMITTED:
            self.handed.record_seek(key, partition.offset)
        self.parts.continue_at([partition])
        self.parts.records.drop_of(frozenset({key}))
        self.parts.rewinding.forget(frozenset({key}))
        self.handed.end_change(is_outermost=is_outermost)

    def position(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """Return the offset of the next record to hand over; the library's own is past records that wait here."""
        self.handed.undo()
        positions: list[TopicPartition] = self.library.raw.position(partitions)
        waiting = {partition: first for partition, (first, _) in self.parts.records.spans().items()}
        for position in positions:
            key = InputPartition(position.topic, position.partition)
            is_open = self.handed.journal is not None
            first = self.handed.next_offsets.get(key) if is_open else waiting.get(key)
            if first is not None and first >= 0:
                position.offset = first
            elif is_open or key in self.parts.starts.waiting:
                # The library may have counted records that were not handed over.
                position.offset = OFFSET_INVALID
        return positions

    # -- committed and aborted work ----------------------------------------------------------------------------------

    def record_committed(self, positions: InputPositions) -> None:
        """Record that a transaction has committed ``positions``: stored offsets up to them are dropped."""
        for partition, position in dict(positions).items():
            self.handed.work.mark_committed_up_to(partition, position.next_offset)
        self.plain.drop_stored({partition: position.next_offset for partition, position in positions.items()})

    def consumer_group_metadata(self) -> Any:
        """Return the opaque group metadata as of now, for a transaction that the application commits by itself."""
        self._may_commit_by_hand = True
        return self.library.raw.consumer_group_metadata()

    @owned()
    def record_manual_commits(self, timeout_s: float) -> None:
        """Record what the application's own transactions have committed: an abort must not rewind to before that.

        Raises ClusterUnavailableError when the group does not say so within ``timeout_s`` seconds, as while such a
        transaction is open.
        """
        if self._may_commit_by_hand and (ours := frozenset(self.handed.work.owned)):
            for partition, offset in self.library.committed_or_raise(ours, timeout_s).items():
                self.handed.work.mark_committed_up_to(partition, offset)
        self._may_commit_by_hand = False

    @staticmethod
    def offset_after(message: Any) -> TopicPartition:
        """Return the offset that says ``message`` was processed."""
        partition = InputPartition(message.topic(), message.partition())
        return with_epoch(partition, message.offset() + 1, message.leader_epoch())

    # -- plain commits -----------------------------------------------------------------------------------------------

    def nothing_to_commit(self, *, asynchronous: bool) -> None:
        """Raise _NO_OFFSET for a synchronous commit of nothing, as confluent_kafka does."""
        if self.membership.is_closed:
            self.library.raw.memberid()  # which raises RuntimeError, but inside a callback that close() runs
        if not asynchronous:
            raise KafkaException(KafkaError(KafkaError._NO_OFFSET))

    def fence_commits(self) -> None:
        """Rejoin the group as a new member if a plain commit could still be applied after the next transaction.

        Within one generation the broker would not refuse it. Pending offsets are committed while leaving. The group is
        not left while a commit is unanswered, because its result would be lost.
        """
        to_fence = self.plain.unfenced & self.membership.assigned or self.plain.pending
        if not to_fence or self.plain.unanswered():
            return
        self._sync_before_leaving()
        self.fetching.rejoin()

    # -- the group ---------------------------------------------------------------------------------------------------

    def unsubscribe(self) -> None:
        """Leave the subscription; the revoke callback runs in a later call that fetches, or in ``close``.

        Raises FatalClientError if a partition of which records wait could not be rewound to them.
        """
        self._sync_before_leaving()
        self.fetching.give_back_waiting()
        self.membership.unsubscribe()

    def _sync_before_leaving(self) -> None:
        # The revoke callback commits open work only under a synced epoch (EPOCH_MOVED_BEFORE_REVOKE).
        if self.membership.is_member_epoch and self.handed.work.owned:
            self.fetching.serve_callbacks(drain=True)

    # -- the assignment, as the application changes it ---------------------------------------------------------------

    def assign(self, partitions: list[TopicPartition], *, incrementally: bool = False) -> None:
        """Set the assignment by hand, or add to it; offsets of such a consumer carry no group fence."""
        by_hand, raw, parts = not self.membership.is_subscribed, self.library.raw, self.parts
        self.handed.undo()
        self.membership.record_topics(partitions)
        if by_hand and self.library.reset_policy is ResetPolicy.LATEST:  # nobody else looks up where they start
            parts.starts.forget(parts.starts.waiting)
            parts.starts.expect(input_partitions(partitions))
        if incrementally:
            raw.incremental_assign(partitions)
            self.handed.forget_next(input_partitions(partitions))
        else:
            raw.assign(partitions)
            parts.records.drop_records()
            self.handed.forget_next(list(self.handed.next_offsets))
        parts.continue_at(partitions)
        if by_hand:
            parts.commit_start_offsets()

    def unassign(self) -> None:
        """Drop the assignment; its records that wait to be handed over are dropped with it."""
        self.library.raw.unassign()
        self.parts.records.drop_records()

    def incremental_unassign(self, partitions: list[TopicPartition]) -> None:
        """Take ``partitions`` from the assignment; their records that wait to be handed over are dropped."""
        self.library.raw.incremental_unassign(partitions)
        self.parts.records.drop_of(input_partitions(partitions))

    @owned()
    def list_topics(self, topic: str | None = None, timeout: float = -1) -> Any:
        """Return the cluster's metadata. ``timeout`` in seconds. Raises TransactionStateError inside a callback."""
        given: dict[str, Any] = {"timeout": timeout} if topic is None else {"topic": topic, "timeout": timeout}
        with self.library.naming_errors("list_topics()"):
            return self.library.call(lambda: self.library.raw.list_topics(**given))

    # -- closing -----------------------------------------------------------------------------------------------------

    @owned()
    def close(self) -> None:
        """Leave the group, close the library, and raise what callbacks of the application have raised meanwhile.

        Runs the revoke callback. What does not end within its time limit is abandoned. A second call goes on where
        an exception of a signal handler has interrupted the first one.
        """
        if not self.membership.is_closed:
            self._prepare_to_leave()
        if not self.library.close_has_begun:
            self._close_library_in_time()
        if report := self.library.guard.take_report():
            self._report(report)
        self.library.guard.raise_kept()

    def _prepare_to_leave(self) -> None:
        self.library.guard.begin_close()
        try:
            self._sync_before_leaving()
        except BaseException as error:  # noqa: BLE001  # raised again at the end: whatever it is, the group is left
            self.library.guard.keep(error)
        self.membership.leave_before_close()
        self.parts.records.clear()

    def _close_library_in_time(self) -> None:
        limit_s = self.library.close_limit_s
        try:
            if not close_in_time(self._ownership.as_owner(self.library.close_once), limit_s, self._clock):
                self.was_left_behind = True
                self._report(self._what_is_left_behind(limit_s))
        finally:
            self._ownership.disown()

    def _what_is_left_behind(self, limit_s: float) -> str:
        stays = f"within {limit_s:g} s. Its thread and connections stay to the process's end"
        if self.library.may_keep_a_record:
            return (
                f"close() did not let go of the client library {stays}: a callback or a signal handler has raised "
                "inside consume(), after which the library may keep one record that was not handed over, and wait for "
                "it in its close(). It was asked to leave the group before that. No committed offset counts the "
                "record: the next owner of its partition reads it"
            )
        session_ms = self.settings.get("session.timeout.ms", "of the group's")
        if self.membership.stays_a_member:
            return (
                f"close() did not let go of the client library {stays}. The group keeps the place of this static "
                f"member, as after every close(), until its session ({session_ms} ms) is over"
            )
        return (
            f"close() did not leave the group {stays}, and its partitions go to other members when its session "
            f"({session_ms} ms) is over"
        )
