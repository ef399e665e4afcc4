"""A group consumer that knows what the application has not committed yet, and can go back to it.

It decides nothing about commits. Applications hold an ``EosConsumer``, which has confluent_kafka's methods; transaction
sessions and the loop hold this consumer, as a ``GroupConsumer``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from eos_client.config import safe_consumer_settings
from eos_client.confluent.consumer.chosen_positions import ChosenPositions
from eos_client.confluent.consumer.closing import Closing
from eos_client.confluent.consumer.fetched_records import FetchedRecords
from eos_client.confluent.consumer.fetching import Fetching
from eos_client.confluent.consumer.group_offsets import GroupOffsets
from eos_client.confluent.consumer.handing_over import HandingOver
from eos_client.confluent.consumer.library_consumer import ConsumerFactory, LibraryConsumer
from eos_client.confluent.consumer.membership import Membership
from eos_client.confluent.consumer.partition_parts import PartitionParts
from eos_client.confluent.consumer.paused_partitions import PausedPartitions
from eos_client.confluent.consumer.plain_offsets import PlainOffsets
from eos_client.confluent.consumer.read_positions import ReadPositions
from eos_client.confluent.consumer.reset_policy import ResetPolicy
from eos_client.confluent.consumer.rewinding import Rewinding
from eos_client.confluent.consumer.seeks import Seeks
from eos_client.confluent.consumer.start_offsets import StartOffsets
from eos_client.confluent.diagnosis import LastErrors
from eos_client.confluent.failures import consumer_closed, consumer_errors
from eos_client.confluent.thread_ownership import ThreadOwnership, owned
from eos_client.core.commit_gate import CommitGate
from eos_client.core.hand_over import HandOver
from eos_client.core.model import CommittedOffset, GroupGeneration, InputPartition, InputPosition, InputPositions
from eos_client.ports import Clock, MembershipSnapshot, RebalanceListener, keys_of


class ConfluentConsumer:
    """Hands records over, keeps their positions, settles them. Fulfils ``GroupConsumer``.

    ``commit_starts`` is asked to commit where newly assigned partitions start; it returns whether later owners will
    find it. ``report`` is told what ``close`` could not do or does not raise, and what keeps records waiting.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        ownership: ThreadOwnership,
        gate: CommitGate,
        commit_starts: Callable[[InputPositions], bool],
        report: Callable[[str], None],
        *,
        factory: ConsumerFactory = Consumer,
        clock: Clock,
    ) -> None:
        self._ownership = ownership
        self._clock = clock
        self._report = report
        self._commit_starts_for_group = commit_starts
        self._may_commit_by_hand = False
        self.gate = gate
        self.library = LibraryConsumer(safe_consumer_settings(settings), factory, clock)
        self.offsets = GroupOffsets(self.library)
        self.plain = PlainOffsets(clock)
        self.handed = HandOver()
        self._reset_policy = ResetPolicy.of(self.library.settings)
        self._parts = self._new_parts()
        self.membership = Membership(self.library, ownership, self._parts)
        self._fetching = Fetching(self.library, self.membership, self._parts, self.offsets, report, clock)
        self.handing_over = HandingOver(self.library, self.membership, self._parts, self._fetching, self.offsets)
        self._closing = Closing(
            self.library,
            self.membership,
            self._parts.records,
            ownership,
            self._sync_before_leaving,
            report,
            clock,
        )

    def _new_parts(self) -> PartitionParts:
        reads = ReadPositions()
        paused = PausedPartitions(self.library)
        seeks = Seeks(self.library, self.handed, reads, self._clock)
        return PartitionParts(
            handed=self.handed,
            records=FetchedRecords(),
            paused=paused,
            reads=reads,
            seeks=seeks,
            rewinding=Rewinding(seeks),
            chosen=ChosenPositions(),
            starts=StartOffsets(
                self._reset_policy, self.offsets, self._commit_starts, seeks, paused, self._report, self._clock
            ),
            plain=self.plain,
        )

    # -- what is known -----------------------------------------------------------------------------------------------

    @property
    def settings(self) -> Mapping[str, Any]:
        """The librdkafka settings in force, the defaults of this package included."""
        return self.library.settings

    @property
    def last_errors(self) -> LastErrors:
        """What the client library has last reported."""
        return self.library.last_errors

    @property
    def assigned(self) -> frozenset[InputPartition]:
        """The partitions that the group gave us and has not taken back."""
        return self.membership.assigned

    @property
    def synced_generation(self) -> GroupGeneration:
        """The newest generation for which no rebalance callback can still be waiting."""
        return self.membership.synced_generation

    @property
    def positions(self) -> InputPositions:
        """Uncommitted work by partition."""
        return self.handed.work.positions

    @property
    def positions_of_ours(self) -> InputPositions:
        """Uncommitted work of the partitions that have not left since it was consumed."""
        return self.handed.work.ours

    @property
    def records_in_hand(self) -> bool:
        """Whether records were handed over that are not known to be processed yet."""
        return self.handed.work.in_hand

    @owned()
    def snapshot(self) -> MembershipSnapshot:
        """Read the group metadata now."""
        return self.membership.snapshot()

    def require_open(self) -> None:
        """Raise ClientClosedError where nothing can be committed by this consumer any more."""
        if self.membership.is_closed and not self.membership.in_callback:
            raise consumer_closed()

    @owned()
    def put_back(self, batch: Sequence[Any]) -> None:
        """Take back the unprocessed end of the last batch; the next call returns it first."""
        self.handing_over.put_back(batch)

    # -- serving callbacks, going back -------------------------------------------------------------------------------

    @owned(claims=True)
    def serve_callbacks(self, *, drain: bool = False) -> None:
        """Serve rebalance callbacks that are due.

        Callbacks queue up behind fetched records. ``drain`` pauses the partitions, which makes the queued records
        void, until the queue is empty: then nothing that happened before the call can still be waiting.
        """
        self._fetching.serve_callbacks(drain=drain)

    @owned()
    def serve_errors(self) -> None:
        """Let the client library report why it is not connected, also inside a call that fetches.

        What else it hands over meanwhile, a fatal error that it tells once or a record, comes with a later call.
        """
        self._fetching.fetch_for_later(1, 0)

    @owned(claims=True)
    def wait_while_paused(self, limit_s: float) -> None:
        """Consume nothing for up to ``limit_s`` seconds and serve callbacks."""
        self._fetching.wait_while_paused(limit_s)

    @owned(claims=True)
    def prefetch(self) -> None:
        """Take records that are there already, for a later call; serves callbacks."""
        self._fetching.prefetch()

    @owned(claims=True)
    def rewind(self) -> None:
        """Go back to the first uncommitted record of every partition that is still ours.

        Records that wait to be handed over are dropped and read again. Raises FatalClientError when a partition cannot
        be rewound.
        """
        self._fetching.rewind()

    def rewind_soon(self) -> None:
        """Rewind as soon as the running call has returned from the library, or in the next one."""
        self._fetching.rewind_soon()

    # -- what becomes of the work ------------------------------------------------------------------------------------

    def processed(self) -> None:
        """All records that were handed over so far have been processed, and their outputs were written."""
        self.handed.work.processed()

    def committed_up_to(self, partition: InputPartition, offset: int) -> None:
        """Note that the records of ``partition`` below ``offset`` were committed outside a session's transaction."""
        self.handed.work.committed_up_to(partition, offset)

    def settle(self, positions: InputPositions) -> None:
        """Note that a transaction has committed ``positions``; more may have been handed over since.

        What was stored of them must not be sent after that.
        """
        for partition, position in dict(positions).items():
            self.handed.work.committed_up_to(partition, position.next_offset)
        self.plain.drop_stored({partition: position.next_offset for partition, position in positions.items()})

    def forget(self, partitions: Iterable[InputPartition]) -> None:
        """Drop the uncommitted positions of ``partitions``."""
        self.handed.work.forget(partitions)

    def consumer_group_metadata(self) -> Any:
        """Return the opaque group metadata as of now, for a transaction that the application commits by itself."""
        self._may_commit_by_hand = True
        return self.library.raw.consumer_group_metadata()

    def settle_commits_by_hand(self, timeout_s: float) -> None:
        """Note what the application's own transactions have committed: an abort must not go back behind it.

        Raises ClusterUnavailableError when the group does not say so within ``timeout_s`` seconds, as while such a
        transaction is open.
        """
        if self._may_commit_by_hand and (ours := frozenset(self.handed.work.ours)):
            for partition, offset in self._for_sure(ours, timeout_s).items():
                self.handed.work.committed_up_to(partition, offset)
        self._may_commit_by_hand = False

    @owned()
    def _for_sure(self, partitions: frozenset[InputPartition], timeout_s: float) -> dict[InputPartition, int]:
        return self.offsets.for_sure(partitions, timeout_s)

    @owned()
    def committed_entries(
        self, partitions: Iterable[InputPartition], timeout_s: float
    ) -> dict[InputPartition, CommittedOffset]:
        """Read the group's stable committed offsets with their metadata; partitions without one are left out."""
        return self.offsets.entries(partitions, timeout_s)

    def handed_over_offsets(self) -> dict[InputPartition, TopicPartition]:
        """Return the offsets that say everything handed over was processed, of partitions that are ours."""
        ours = self.handed.work.ours
        return {p: TopicPartition(p.topic, p.partition, position.next_offset) for p, position in ours.items()}

    @staticmethod
    def offset_after(message: Any) -> TopicPartition:
        """Return the offset that says ``message`` was processed."""
        epoch = message.leader_epoch()
        place = (message.topic(), message.partition(), message.offset() + 1)
        return TopicPartition(*place) if epoch is None else TopicPartition(*place, leader_epoch=epoch)

    # -- plain commits -----------------------------------------------------------------------------------------------

    def store_offsets(self, message: Any, offsets: list[TopicPartition] | None) -> None:
        """Store offsets for the next ``commit()`` without arguments."""
        if message is not None:
            self.library.raw.store_offsets(message=message)
            self.plain.store([self.offset_after(message)])
        else:
            self.library.raw.store_offsets(offsets=offsets)
            self.plain.store(offsets or ())

    def nothing_to_commit(self, *, asynchronous: bool) -> None:
        """Say so as confluent_kafka does: it raises for a synchronous call only."""
        if self.membership.is_closed:
            self.library.raw.memberid()  # which raises RuntimeError, but inside a callback that close() runs
        if not asynchronous:
            raise KafkaException(KafkaError(KafkaError._NO_OFFSET))  # noqa: SLF001  # a public local code

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
        is_due = not self.unfenced_commits.isdisjoint(self.assigned) or self.plain.pending
        if not is_due or self.unanswered_commits:
            return
        self.rejoin()

    def _commit_starts(self, starts: Mapping[InputPartition, int]) -> bool:
        """Commit ``starts`` under our membership; a consumer that assigns by hand has none, and commits nothing."""
        if not self.membership.is_subscribed:
            return True
        generation = self.membership.snapshot().generation
        positions = {p: InputPosition(offset, offset, generation) for p, offset in starts.items()}
        return generation.is_active_member and self._commit_starts_for_group(positions)

    # -- the group ---------------------------------------------------------------------------------------------------

    def subscribe(self, topics: list[str], listener: RebalanceListener) -> None:
        """Join the group; ``listener`` hears of rebalances."""
        self.membership.subscribe(topics, listener)

    def unsubscribe(self) -> None:
        """Leave the subscription; the revoke callback runs in a later call that fetches, or in ``close``."""
        self._sync_before_leaving()
        self.membership.unsubscribe()
        self._parts.records.drop_records()

    @owned(claims=True)
    def rejoin(self) -> None:
        """Leave the group and join it as another member: what the old one has sent is refused once its partitions left.

        Runs the revoke callback; the new assignment comes with a later call that fetches. Where this is broken off,
        the next such call goes on with it. Raises ConfigurationError where no other client can be built.
        """
        self._sync_before_leaving()
        self._fetching.rejoin()

    def _sync_before_leaving(self) -> None:
        # The revoke callback commits open work only under a synced epoch (EPOCH_MOVED_BEFORE_REVOKE).
        if self.membership.is_member_epoch and self.handed.work.ours:
            self.serve_callbacks(drain=True)

    # -- the assignment, as the application changes it ---------------------------------------------------------------

    def assign(self, partitions: list[TopicPartition]) -> None:
        """Set the assignment by hand; offsets of such a consumer carry no group fence."""
        self.handed.undo()
        self._await_own_start(partitions)
        self.library.raw.assign(partitions)
        self._parts.records.drop_records()
        self.handed.forget_next(list(self.handed.next_offsets))
        self._parts.go_on_at(partitions)
        self._fix_own_start()

    def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        """Add to the assignment, from an ``on_assign`` callback of a cooperative group."""
        self.handed.undo()
        self._await_own_start(partitions)
        self.library.raw.incremental_assign(partitions)
        self.handed.forget_next(keys_of(partitions))
        self._parts.go_on_at(partitions)
        self._fix_own_start()

    def unassign(self) -> None:
        """Drop the assignment."""
        self.library.raw.unassign()
        self._parts.records.drop_records()

    def incremental_unassign(self, partitions: list[TopicPartition]) -> None:
        """Take from the assignment, from an ``on_revoke`` callback of a cooperative group."""
        self.library.raw.incremental_unassign(partitions)
        self._parts.records.drop_of(keys_of(partitions))

    def _await_own_start(self, partitions: Sequence[TopicPartition]) -> None:
        """Without a group nobody else looks up where ``latest`` lets ``partitions`` start."""
        if not self.membership.is_subscribed and self._reset_policy is ResetPolicy.LATEST:
            self._parts.starts.forget(self._parts.starts.waiting)
            self._parts.starts.expect(keys_of(partitions))

    def _fix_own_start(self) -> None:
        if not self.membership.is_subscribed:
            self._parts.fix_starts()

    def pause(self, partitions: list[TopicPartition]) -> None:
        """Stop fetching ``partitions``; ends when they are revoked, as in the Java client."""
        self._parts.paused.pause_for_application(partitions)

    def resume(self, partitions: list[TopicPartition]) -> None:
        """Fetch ``partitions`` again, each as soon as it is known where it goes on."""
        self._parts.paused.resume_for_application(partitions, self._parts.starts.held)

    @owned()
    def list_topics(self, topic: str | None = None, timeout: float = -1) -> Any:
        """Return the cluster's metadata. ``timeout`` in seconds. Raises TransactionStateError inside a callback."""
        given: dict[str, Any] = {"timeout": timeout} if topic is None else {"topic": topic, "timeout": timeout}
        with consumer_errors("list_topics()"):
            return self.library.call(lambda: self.library.raw.list_topics(**given))

    @owned()
    def close(self) -> None:
        """Leave the group; runs the revoke callback, and then raises what callbacks of the application have raised."""
        self._closing.close()

    @property
    def was_left_behind(self) -> bool:
        """Whether the client library did not let go in time, so leaving the group was not confirmed."""
        return self._closing.was_left_behind
