"""A group consumer that knows what the application has not committed yet, and can go back to it.

It decides nothing about commits. Applications hold an ``EosConsumer``, which has confluent_kafka's methods; transaction
sessions and the loop hold this consumer, and the parts that they need of it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from confluent_kafka import OFFSET_END, OFFSET_INVALID, OFFSET_STORED, KafkaError, KafkaException

from eos_client.config.client_settings import safe_consumer_settings
from eos_client.confluent.client_library import CONFLUENT_KAFKA, factory_or
from eos_client.confluent.consumer.fetching import Fetching
from eos_client.confluent.consumer.library_consumer import (
    ConsumerFactory,
    LibraryConsumer,
    TopicPartition,
    to_kafka,
    with_epoch,
)
from eos_client.confluent.consumer.membership import Membership
from eos_client.confluent.consumer.partition_table import PartitionTable
from eos_client.confluent.consumer.plain_offsets import PlainOffsets, PlainUse
from eos_client.confluent.consumer.safe_close import close_in_time
from eos_client.confluent.consumer.start_offsets import StartOffsets
from eos_client.confluent.failures.consumer_failures import write_after_close
from eos_client.confluent.failures.position_failures import refusal_error, says_no_offset
from eos_client.confluent.thread_ownership import ThreadOwnership, owned
from eos_client.core.commit_gate import CommitGate
from eos_client.core.hand_over import (
    ForbiddenReset,
    HandOver,
    Refusal,
    next_hand_over,
    standing_refusal,
)
from eos_client.core.membership_events import ApplicationAssigns, AssignmentTakenOver
from eos_client.core.model import InputPartition, InputPositions, Partitions
from eos_client.core.partition_events import (
    Aborted,
    AssignedByHand,
    Chosen,
    Closed,
    Committed,
    CommittedByOthers,
    HandedOver,
    LibraryPauses,
    LibraryResumed,
    LossReported,
    Passed,
    Paused,
    Processed,
    PutBack,
    Resumed,
    RewindsRepeated,
    UnassignedByHand,
    WorkLost,
    WorkTakenBack,
)
from eos_client.core.partition_row import BEGINNING
from eos_client.core.partition_states import ConsumerState
from eos_client.core.passed_offsets import passed_before_a_record, passed_runs, positions_to_read
from eos_client.core.record_runs import Run, message_count, runs
from eos_client.errors import ClientClosedError
from eos_client.ports import Clock, MembershipSnapshot, input_partition, input_partitions

_GROUP_DECIDES = (OFFSET_STORED, OFFSET_INVALID)


class ConfluentConsumer:
    """Hands records over, keeps their positions until they are committed, and leaves the group within a limit.

    ``commit_starts`` commits start offsets of newly assigned partitions; it returns why they were not committed.
    ``report`` receives what ``close`` could not do or does not raise, and what keeps records waiting.
    ``settings`` are librdkafka's, with the defaults of this package. ``work_since``: when the first record of the open
    work was handed over, by the clock.
    ``has_handed_over_errors``: whether error events are among what was handed over last.
    ``was_abandoned``: the client library did not close in time, so leaving the group was not confirmed.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        ownership: ThreadOwnership,
        gate: CommitGate,
        commit_starts: Callable[[Mapping[InputPartition, int]], str | None],
        report: Callable[[str], None],
        clock: Clock,
        factory: ConsumerFactory | None,
    ) -> None:
        self._ownership = ownership
        self._clock = clock
        self._report = report
        self.gate = gate
        self.library = LibraryConsumer(
            safe_consumer_settings(settings), factory_or(CONFLUENT_KAFKA.consumer, factory), clock, ownership.marks
        )
        self.settings: Mapping[str, Any] = self.library.settings
        self.plain = PlainOffsets()
        self.table = table = PartitionTable(self.library, clock)
        self.starts = StartOffsets(self.library, table, commit_starts, report, clock)
        self.membership = Membership(self.library, ownership, table, self.starts, clock)
        self.fetching = Fetching(self.library, self.membership, ownership, table, self.starts, clock)
        self.work_since = 0.0
        self.has_handed_over_errors = False
        self.was_abandoned = False

    # -- what is known -----------------------------------------------------------------------------------------------

    @property
    def ownership(self) -> ThreadOwnership:
        """Who may call it."""
        return self._ownership

    @property
    def state(self) -> ConsumerState:
        """What is true of the partitions."""
        return self.table.state

    @property
    def positions(self) -> InputPositions:
        """Uncommitted work by partition, with that of partitions that have left."""
        return self.table.state.positions

    @property
    def has_unprocessed_records(self) -> bool:
        """Whether records were handed over that are not known to be processed yet."""
        return self.table.state.has_unprocessed

    @property
    def can_serve_callbacks(self) -> bool:
        """Whether it is open, and not inside a rebalance callback already."""
        return not (self.membership.in_callback or self.membership.state.is_closed)

    @owned()
    def snapshot(self) -> MembershipSnapshot:
        """Read the group metadata now."""
        return self.membership.snapshot()

    def require_not_leaving(self) -> None:
        """Raise ClientClosedError where close() was interrupted before the library's: nothing more would be read."""
        if self.membership.state.is_leaving and not self.library.close_has_begun:
            raise ClientClosedError(
                "close() of this consumer was interrupted by an exception, and it may have left its group: call "
                "close() again, and build another consumer"
            )

    def require_open(self) -> None:
        """Raise ClientClosedError where nothing can be committed by this consumer any more."""
        if self.membership.has_left:
            raise write_after_close()

    @owned()
    def serve_errors(self) -> None:
        """Let the client library report why it is not connected, also inside a call that fetches.

        Records, and a fatal error, which is reported only once, are kept for a later call.
        """
        self.fetching.fetch(1, 0)

    # -- what is handed over -----------------------------------------------------------------------------------------
    #
    # Decided by `core/hand_over.py`. Seeks and put_back() change the next expected offset.

    def fetch_hand_over(self, count: int, timeout: float) -> HandOver:
        """Return up to ``count`` messages within ``timeout`` seconds; `handed_over` counts them as handed over.

        Fewer messages than ``count`` are too few for a batch, so what the library has already is fetched as well.
        """
        count = operator.index(count)  # the client library takes a TypeError for an exception out of a callback
        if self.library.fatal is not None:
            return HandOver(self.fetching.last_events(), ())
        if standing_refusal(self.state) is not None:
            timeout = 0.0  # no record is awaited; callbacks are served, which keeps the member in its group
        if self.membership.state.needs_sync:
            self.fetching.drain_in_call()
        ready_count = self._ready_count()
        if ready_count == 0 or count <= 0:
            self.fetching.fetch_in_time(count, timeout)
        elif ready_count < count:
            self.fetching.fetch(count - ready_count, 0)
        return self._from_waiting(count)

    def _ready_count(self) -> int:
        state = self.table.state
        if not state.waiting:
            return 0
        paused = state.paused
        return message_count(run for run in state.waiting if run.partition not in paused)

    def _from_waiting(self, count: int) -> HandOver:
        """Return up to ``count`` messages that wait; raises why none of them may be handed over."""
        hand_over = next_hand_over(self.table.state, count)
        for run in hand_over.runs:
            if run.is_error:
                self.library.record_fatal(run.messages)
        if hand_over.misplaced is not None:
            hand_over = hand_over.given_log_end(self.library.end_of(hand_over.misplaced.run.partition))
        if hand_over.event is not None:
            self.table.tell(hand_over.event)
        if hand_over.refusal is not None:
            raise self.table.ended_by(refusal_error(self._checked(hand_over.refusal)))
        return hand_over

    def _checked(self, refusal: Refusal) -> Refusal:
        """Ask the group before it is said that it has no offset where a partition starts."""
        if isinstance(refusal, ForbiddenReset) and refusal.start_is_unknown and says_no_offset(refusal.error):
            return refusal.given_committed(self.library.committed_offsets([refusal.partition]))
        return refusal

    def record_hand_over(self, hand_over: HandOver) -> HandedOver:
        """Record when work began, and whether events are handed over; return the event that ends the call."""
        self.has_handed_over_errors = hand_over.has_errors
        if hand_over.runs and not self.table.state.positions:
            self.work_since = self._clock()
        return HandedOver(hand_over.runs, hand_over.waiting, self.membership.state.synced_generation)

    @owned(claims=True)
    def hand_over_passed(self) -> bool:
        """Hand over the offsets without records that the client library has passed; return whether there were any.

        The library's position is read now. It moves in the order in which records are handed over, and a seek takes it
        away until something comes from there.
        """
        self.fetching.begin_call()
        passed = self._passed_runs()
        self.table.tell(self.record_hand_over(HandOver(passed, self.table.state.waiting)))
        return bool(passed)

    def _passed_runs(self) -> tuple[Run, ...]:
        table = self.table
        sought_again, partitions = positions_to_read(table.state, self.membership.state.assigned)
        table.tell(RewindsRepeated(sought_again))
        table.perform_due()
        passed = self.library.passed_offsets(partitions)
        first = passed_before_a_record(table.state, passed)
        if first:
            self.starts.find_due(first)
            table.tell(Passed(first))
            table.perform_due()
        return passed_runs(table.state, passed, first)

    @owned()
    def put_back(self, batch: Sequence[Any]) -> None:
        """Take back the unprocessed end of the last batch; the next call returns it first."""
        self.table.tell(PutBack(tuple(runs(list(batch)))))

    def gives_back(self, partition: TopicPartition) -> bool:
        """Whether ``seek`` to it gives back records whose outputs may be written already."""
        if not isinstance(partition, TopicPartition) or not _is_place(partition.offset):
            return False
        return self.table.state.gives_back(input_partition(partition), partition.offset)

    def seek(self, partition: TopicPartition) -> None:
        """Continue at ``partition.offset``; records of it that wait to be handed over are dropped.

        Raises ValueError for a logical offset but the beginning and the end.
        """
        if isinstance(partition, TopicPartition):  # what is none is refused by the library
            _refuse_unknown_offset(partition)
        self.library.raw.seek(partition)
        key, chosen = input_partition(partition), _choice(partition)
        if _is_place(partition.offset):
            self.plain.take_back(key, partition.offset)
            self.table.tell(WorkTakenBack(key, partition.offset), chosen)
        else:
            self.table.tell(chosen)
        self.table.resume_due()

    def position(self, partitions: list[TopicPartition], *, may_go_back: bool) -> list[TopicPartition]:
        """Return the offset of the next record to hand over; the library's own is past records that wait here.

        OFFSET_INVALID where it is not known, as where records that were handed over ``may_go_back``.
        """
        positions: list[TopicPartition] = self.library.raw.position(partitions)
        state = self.table.state
        for position in positions:
            shown = state.shown_offset(input_partition(position), position.offset)
            position.offset = OFFSET_INVALID if shown is None or may_go_back else shown
        return positions

    def pause(self, partitions: list[TopicPartition]) -> None:
        """Stop fetching ``partitions`` until the application resumes them or they leave."""
        asked = input_partitions(p for p in partitions if isinstance(p, TopicPartition))  # the library refuses others
        self.table.tell(LibraryPauses(asked))  # first: a pause that was interrupted may have been done
        self.library.raw.pause(partitions)
        self.table.tell(Paused(input_partitions(partitions)))

    def resume(self, partitions: list[TopicPartition]) -> None:
        """Fetch ``partitions`` again; those that are withheld are resumed when their start offset is known."""
        withheld = self.table.state.withheld
        if not withheld:
            self.library.raw.resume(partitions)
        keys = input_partitions(partitions)
        if withheld:
            self.library.raw.resume(to_kafka(keys - withheld))
        self.table.tell(Resumed(keys))
        self.table.tell(LibraryResumed(keys - withheld))

    # -- committed and aborted work ----------------------------------------------------------------------------------

    def record_committed(self, offsets: Mapping[InputPartition, int]) -> None:
        """Record that the group has committed ``offsets``."""
        self.table.tell(Committed(offsets))

    def mark_processed(self) -> None:
        """Record that everything handed over so far was processed, and its outputs were written."""
        self.table.tell(Processed())

    def lose_work(self, partitions: Partitions) -> None:
        """Drop what was handed over of ``partitions``, which have left: nothing will commit it."""
        self.table.tell(WorkLost(partitions))

    def take_unreported_loss(self) -> bool:
        """Return, once, whether the application may hold records of partitions that left, and was not told so."""
        is_unreported = self.table.state.has_unreported_loss
        self.table.tell(LossReported())
        return is_unreported

    def rewind(self, *, in_call: bool) -> None:
        """Go back to the first uncommitted record of each partition; ``in_call``: once the call that runs returns."""
        if in_call:
            self.table.tell(Aborted())
        else:
            self.fetching.rewind()

    def leave_work_to_others(self) -> None:
        """Drop all work, which others have committed; the next call goes on at the group's offsets."""
        self.table.tell(CommittedByOthers())

    def consumer_group_metadata(self) -> Any:
        """Return the opaque group metadata as of now, for a transaction that the application commits by itself."""
        self.plain.record_use(PlainUse.METADATA)
        return self.library.raw.consumer_group_metadata()

    @staticmethod
    def offset_after(message: Any) -> TopicPartition:
        """Return the offset that says ``message`` was processed."""
        partition = InputPartition(message.topic(), message.partition())
        return with_epoch(partition, message.offset() + 1, message.leader_epoch())

    # -- plain commits -----------------------------------------------------------------------------------------------

    def nothing_to_commit(self, *, asynchronous: bool) -> None:
        """Raise _NO_OFFSET for a synchronous commit of nothing, as confluent_kafka does."""
        if self.membership.has_left:
            self.library.raw.memberid()  # raises RuntimeError
        if not asynchronous:
            raise KafkaException(KafkaError(KafkaError._NO_OFFSET))

    # -- the group ---------------------------------------------------------------------------------------------------

    def unsubscribe(self) -> None:
        """Leave the subscription; the revoke callback runs in a later call that fetches, or in ``close``.

        Raises FatalClientError if a partition of which records wait could not be rewound to them.
        """
        self._sync_before_leaving()
        self.fetching.give_back_waiting()
        self.membership.unsubscribe()

    def _sync_before_leaving(self) -> None:
        has_open_work = bool(self.table.state.owned_positions) and not self.membership.in_callback
        if has_open_work and self.membership.state.syncs_before_leaving:
            self.fetching.serve_callbacks(drain=True)

    # -- the assignment, as the application changes it ---------------------------------------------------------------

    def assign(self, partitions: list[TopicPartition], *, incrementally: bool = False) -> None:
        """Set the assignment by hand, or add to it; offsets of such a consumer carry no group fence."""
        by_hand, raw = not self.membership.in_callback, self.library.raw
        keys = input_partitions(p for p in partitions if isinstance(p, TopicPartition))  # the library refuses others
        self.membership.tell(ApplicationAssigns(keys, in_callback=not by_hand))
        (raw.incremental_assign if incrementally else raw.assign)(partitions)
        self._record_take_over()
        self.table.tell(AssignedByHand(keys, replaces=not incrementally, without_group=by_hand))
        for partition in partitions:
            self.table.tell(_choice(partition))
        self.table.resume_due()
        if by_hand:
            self.starts.commit_missing_in_callback()

    def _record_take_over(self) -> None:
        if not self.membership.in_callback:
            self.membership.tell(AssignmentTakenOver())

    def unassign(self) -> None:
        """Drop the assignment; its records that wait to be handed over are dropped with it."""
        self.library.raw.unassign()
        self._record_take_over()
        self.table.tell(UnassignedByHand(self.table.state.assigned))

    def incremental_unassign(self, partitions: list[TopicPartition]) -> None:
        """Take ``partitions`` from the assignment; their records that wait to be handed over are dropped."""
        self.library.raw.incremental_unassign(partitions)
        self._record_take_over()
        self.table.tell(UnassignedByHand(input_partitions(partitions)))

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
        if not self.membership.state.is_closed:
            self._prepare_to_leave()
        if not self.library.close_has_begun:
            self._close_library_in_time()
        if report := self.library.guard.take_report():
            self._report(report)
        self.library.guard.raise_deferred()

    def _prepare_to_leave(self) -> None:
        self.library.guard.begin_close()
        try:
            self._sync_before_leaving()
        except BaseException as error:  # noqa: BLE001  # raised again at the end: whatever it is, the group is left
            self.library.guard.keep(error)
        self.membership.leave_before_close()
        self.table.tell(Closed())

    def _close_library_in_time(self) -> None:
        limit_s = self.library.close_limit_s
        try:
            if not close_in_time(self._ownership.as_owner(self.library.close_once), limit_s, self._clock):
                self.was_abandoned = True
                self._report(self._what_was_abandoned(limit_s))
        finally:
            self._ownership.retire()

    def _what_was_abandoned(self, limit_s: float) -> str:
        stays = f"within {limit_s:g} s. Its thread and connections stay to the process's end"
        if self.library.may_keep_a_record:
            return (
                f"close() did not let go of the client library {stays}: a callback or a signal handler has raised "
                "inside consume(), after which the library may keep one record that was not handed over, and wait for "
                "it in its close(). It was asked to leave the group before that. No committed offset counts the "
                "record: the next owner of its partition reads it"
            )
        session_ms = self.settings.get("session.timeout.ms", "of the group's")
        if self.membership.state.stays_a_member:
            return (
                f"close() did not let go of the client library {stays}. The group keeps the place of this static "
                f"member, as after every close(), until its session ({session_ms} ms) is over"
            )
        return (
            f"close() did not leave the group {stays}, and its partitions go to other members when its session "
            f"({session_ms} ms) is over"
        )


def _choice(partition: TopicPartition) -> Chosen:
    """Return what the application has chosen for ``partition``."""
    offset = None if partition.offset in _GROUP_DECIDES else partition.offset
    return Chosen(input_partition(partition), offset, partition.leader_epoch)


def _is_place(offset: int) -> bool:
    """Whether a seek to ``offset`` may go back; the end of a log lies behind everything that was handed over."""
    return offset >= 0 or offset == BEGINNING


def _refuse_unknown_offset(partition: TopicPartition) -> None:
    """Raise ValueError for a seek to a logical offset that does not say which records come again.

    librdkafka (2.16) refuses OFFSET_STORED itself and reads nothing more of the partition, and takes OFFSET_INVALID for
    what ``auto.offset.reset`` says.
    """
    if partition.offset < 0 and partition.offset not in (BEGINNING, OFFSET_END):
        raise ValueError(
            f"seek() of {partition.topic}[{partition.partition}] to the logical offset {partition.offset}: which "
            "records come again would not be known. Seek to OFFSET_BEGINNING, to OFFSET_END, or to an offset that "
            "committed() or get_watermark_offsets() has told"
        )
