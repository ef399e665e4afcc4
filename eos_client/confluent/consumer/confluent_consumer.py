"""A group consumer that knows what the application has not committed yet, and can go back to it.

Same methods as confluent_kafka's; it decides nothing about commits.
"""

from __future__ import annotations

import math
import threading
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_INVALID,
    OFFSET_STORED,
    Consumer,
    KafkaError,
    KafkaException,
    TopicPartition,
)

from eos_client.clock import MONOTONIC_CLOCK
from eos_client.config import safe_consumer_settings
from eos_client.confluent.call_stack import in_library
from eos_client.confluent.consumer.dropped_members import MEMBERS
from eos_client.confluent.consumer.fetching import FetchingConsumer
from eos_client.confluent.consumer.group_member import ConsumerFactory
from eos_client.confluent.consumer.read_positions import behind_the_end, forbidden_reset, topic_replaced
from eos_client.confluent.consumer.record_runs import RecordRun, last_good, runs
from eos_client.confluent.consumer.safe_close import close_in_time, serve_before_close
from eos_client.confluent.failures import consumer_errors
from eos_client.confluent.thread_ownership import NeverBuilt, owned, require_alone, whole_call
from eos_client.core.model import InputPartition, InputPositions
from eos_client.ports import Clock, keys_of

if TYPE_CHECKING:
    from typing_extensions import Self


_BACK = (OFFSET_BEGINNING, OFFSET_STORED, OFFSET_INVALID)
"""Logical offsets that lie before whatever was handed over and is not committed."""


class ConfluentConsumer(FetchingConsumer):
    """The adapter: hands records over, keeps their positions, settles them."""

    def __init__(
        self, settings: Mapping[str, Any], *, factory: ConsumerFactory = Consumer, clock: Clock = MONOTONIC_CLOCK
    ) -> None:
        super().__init__(safe_consumer_settings(settings), factory, clock)
        self._left_behind = False
        self._may_commit_by_hand = False
        self._library_close = threading.Lock()  # taken for good when the client library's close() begins

    # What is returned is the application's from the moment that the journal is closed, the last step of each call.

    @whole_call
    def poll(self, timeout: float = -1) -> Any:
        """Return one record, an error event, or None after ``timeout`` seconds; serves callbacks.

        Raises TransactionStateError in a callback of this consumer, or a signal handler inside another call of it.
        """
        require_alone(self, "poll")
        message = self._poll(timeout)
        self._handed.journal = None
        return message

    @whole_call
    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Any]:
        """Return up to ``num_messages`` records within ``timeout`` seconds; serves callbacks.

        Every record returned counts as processed at the next commit. Raises TransactionStateError as ``poll`` does.
        """
        require_alone(self, "consume")
        batch = self._consume(num_messages, timeout)
        self._handed.journal = None
        return batch

    @owned(claims=True)
    def _poll(self, timeout: float) -> Any:
        self._begin_fetching()
        batch = self._next(1, timeout)
        return batch[0] if batch else None

    @owned(claims=True)
    def _consume(self, num_messages: int, timeout: float) -> list[Any]:
        self._begin_fetching()
        return self._next(num_messages, timeout)

    def _next(self, count: int, timeout: float) -> list[Any]:
        self._require_not_given_up()
        self._starts.require_starts()
        if self._prove_soon:
            self._drain()
        if 0 < (ready := len(self._ready())) < count:  # serving callbacks leaves single records: no batch by itself
            self._fetch_for_later(count - ready, 0)
        batch = self._ready()[:count] if count > 0 else []
        if batch:
            taken = set(map(id, batch))
            self._carried = [m for m in self._carried if id(m) not in taken] if self._paused else self._carried[count:]
        else:
            batch = self._fetch_in_time(count, timeout)
        return self._hand_over(batch)

    def _ready(self) -> list[Any]:
        """Return what waits and may be handed over: the client library's own pauses do not hold for it."""
        if not self._paused or not self._carried:
            return self._carried
        return [m for m in self._carried if InputPartition(m.topic(), m.partition()) not in self._paused]

    def _fetch_in_time(self, count: int, timeout: float) -> list[Any]:
        """Fetch again, while there is time, where all that came had to be withheld."""
        deadline = math.inf if timeout < 0 else self._clock() + timeout
        batch = self._fetch(count, timeout)
        while not batch and self._withheld and (left_s := deadline - self._clock()) > 0:
            batch = self._fetch(count, left_s if timeout >= 0 else timeout)
        return batch

    def _hand_over(self, batch: list[Any]) -> list[Any]:
        """Count records as uncommitted work and return them, up to the first that may not be handed over."""
        for topic in self._replaced_topics:
            return self._stop_at(batch, 0, topic_replaced(topic))
        for run in runs(batch, one_topic=self._one_topic):
            if not run.is_error:
                if self._reads.misses(run):
                    return self._stop_at_misplaced(batch, run)
                self._reads.read(run)
                self._handed.handed_over(
                    run.partition, run.first_offset, run.next_offset, self._proven, last_good(batch, run).leader_epoch()
                )
            else:
                self._note_given_up(batch[run.start : run.stop])
            refusal = forbidden_reset(run.partition, batch[run.stop - 1])
            if refusal is not None:
                return self._stop_at(batch, run.stop - 1, refusal)
        return batch

    def _stop_at(self, batch: list[Any], place: int, refusal: KafkaException) -> list[Any]:
        """Hand over what lies before ``place``; the rest is kept, and refused as soon as it comes first."""
        self._carried = [*batch[place:], *self._carried]
        if place == 0:
            self._close_journal()
            raise refusal
        return batch[:place]

    def _stop_at_misplaced(self, batch: list[Any], run: RecordRun) -> list[Any]:
        """Seek again where the log has the position that the library has left, else find out who may go on."""
        partition, expected = run.partition, self._reads.expected(run.partition)
        end = self.end_offset(partition)
        if (end is None or end >= expected) and self._reads.may_seek_again(partition):
            self._seek(partition, expected)
            self._carried = [*_without(partition, batch[run.start :]), *_without(partition, self._carried)]
            return batch[: run.start]
        if not self._is_by_pattern(partition.topic):
            return self._stop_at(batch, run.start, behind_the_end(partition, expected, run.first_offset))
        self._carried = [*_without(partition, batch[run.start :]), *_without(partition, self._carried)]
        self._begin_anew(frozenset({partition}))
        return batch[: run.start]

    @owned()
    def put_back(self, batch: Sequence[Any]) -> None:
        """Take back the unprocessed end of the last batch; the next ``consume`` returns it first."""
        is_outermost = self._begin_change()
        first_offsets = {r.partition: r.first_offset for r in reversed(list(runs(batch))) if not r.is_error}
        for partition, first_offset in first_offsets.items():
            self._handed.taken_back(partition, first_offset)
            self._reads.goes_on_at(partition, first_offset)
        self._carried = [*batch, *self._carried]
        self._end_change(is_outermost=is_outermost)

    def consumer_group_metadata(self) -> Any:
        """Return the opaque group metadata as of now, for a transaction that the application commits by itself."""
        self._may_commit_by_hand = True
        return super().consumer_group_metadata()

    def settle_commits_by_hand(self, timeout_s: float) -> None:
        """Note what the application's own transactions have committed: an abort must not go back behind it.

        Raises ClusterUnavailableError when the group does not say so within ``timeout_s`` seconds, as while such a
        transaction is open.
        """
        if self._may_commit_by_hand and (ours := frozenset(self._work.ours)):
            for partition, offset in self.committed_for_sure(ours, timeout_s).items():
                self._work.committed_up_to(partition, offset)
        self._may_commit_by_hand = False

    def forget(self, partitions: Iterable[InputPartition]) -> None:
        """Drop the uncommitted positions of ``partitions``."""
        self._work.forget(partitions)

    def processed(self) -> None:
        """All records that were handed over so far have been processed, and their outputs were written."""
        self._work.processed()

    def settle(self, positions: InputPositions) -> None:
        """Note that the work in ``positions`` was committed; more may have been handed over since."""
        for partition, position in dict(positions).items():
            self._work.committed_up_to(partition, position.next_offset)

    @owned()
    def assign(self, partitions: list[TopicPartition]) -> None:
        """Set the assignment by hand; offsets of such a consumer carry no group fence."""
        self._handed.undo()
        self._await_own_start(partitions)
        self._raw.assign(partitions)
        self._drop_carried_records()
        self._handed.forget_next(list(self._handed.next_offsets))
        self._note_chosen(partitions)
        self._fix_own_start()

    @owned()
    def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        """Add to the assignment, from an ``on_assign`` callback of a cooperative group."""
        self._handed.undo()
        self._await_own_start(partitions)
        self._raw.incremental_assign(partitions)
        self._handed.forget_next(keys_of(partitions))
        self._note_chosen(partitions)
        self._fix_own_start()

    @owned()
    def unassign(self) -> None:
        """Drop the assignment."""
        super().unassign()
        self._drop_carried_records()

    @owned()
    def incremental_unassign(self, partitions: list[TopicPartition]) -> None:
        """Take from the assignment, from an ``on_revoke`` callback of a cooperative group."""
        super().incremental_unassign(partitions)
        self._drop_carried_of(keys_of(partitions))

    @owned()
    def _raw_commit(
        self, *, message: Any = None, offsets: list[TopicPartition] | None = None, asynchronous: bool = True
    ) -> list[Any] | None:
        # The C method tells "not given" from None.
        given: dict[str, Any] = {"asynchronous": asynchronous}
        given.update({k: v for k, v in (("message", message), ("offsets", offsets)) if v is not None})
        with consumer_errors("commit()"):
            sent: list[Any] | None = self._raw.commit(**given)
        return sent

    @owned(alone=True, but_for_callbacks=True)
    def store_offsets(self, message: Any = None, offsets: list[TopicPartition] | None = None) -> None:
        """Store offsets for the next ``commit()`` without arguments (``enable.auto.offset.store=false``)."""
        if message is not None:
            self._raw.store_offsets(message=message)
            self._stored[InputPartition(message.topic(), message.partition())] = self.offset_after(message)
        else:
            self._raw.store_offsets(offsets=offsets)
            self._stored.update({InputPartition(p.topic, p.partition): p for p in offsets or ()})

    @staticmethod
    def offset_after(message: Any) -> TopicPartition:
        """Return the offset that says ``message`` was processed."""
        epoch = message.leader_epoch()
        place = (message.topic(), message.partition(), message.offset() + 1)
        return TopicPartition(*place) if epoch is None else TopicPartition(*place, leader_epoch=epoch)

    def handed_over_offsets(self) -> dict[InputPartition, TopicPartition]:
        """Return the offsets that say everything handed over was processed, of partitions that are ours."""
        return {
            p: TopicPartition(p.topic, p.partition, position.next_offset) for p, position in self._work.ours.items()
        }

    def nothing_to_commit(self, *, asynchronous: bool) -> None:
        """Say so as confluent_kafka does: it raises for a synchronous call only."""
        if self._closed:
            self._raw.memberid()  # which raises RuntimeError, but inside a callback that close() runs
        if not asynchronous:
            raise KafkaException(KafkaError(KafkaError._NO_OFFSET))  # noqa: SLF001  # a public local code

    # -- what the application does itself ------------------------------------------------------------------------

    @owned(alone=True, but_for_callbacks=True)
    def seek(self, partition: TopicPartition) -> None:
        """Continue at ``partition.offset``; records of it that wait to be handed over are dropped.

        A seek back gives records back: those from there on that were handed over, outside a block or in the open one,
        count as processed no more, so their offsets are not committed.
        ``OFFSET_END`` is looked up again where an asynchronous exception (of a signal handler, say) breaks off a call
        before the first record from there is handed over: what was written meanwhile is skipped. Where that matters,
        seek to the high watermark that ``get_watermark_offsets`` returns.
        """
        is_outermost = self._begin_change()
        self._raw.seek(partition)
        key = InputPartition(partition.topic, partition.partition)
        if partition.offset >= 0 or partition.offset in _BACK:
            self._handed.sought(key, partition.offset)
        self._note_chosen([partition])
        self._carried = _without(key, self._carried)
        self._forget_way_back(key)
        self._end_change(is_outermost=is_outermost)

    @owned(alone=True, but_for_callbacks=True)
    def position(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """Return the next offset that is handed over, also where records wait that the library has counted already."""
        self._handed.undo()
        positions: list[TopicPartition] = self._raw.position(partitions)
        waiting = {r.partition: r.first_offset for r in reversed(list(runs(self._carried))) if not r.is_error}
        for position in positions:
            key = InputPartition(position.topic, position.partition)
            is_open = self._handed.journal is not None
            first = self._handed.next_offsets.get(key) if is_open else waiting.get(key)
            if first is not None and first >= 0:
                position.offset = first
            elif is_open or key in self._starts.waiting:  # the library may have counted what nobody was given
                position.offset = OFFSET_INVALID
        return positions

    @owned(alone=True, but_for_callbacks=True)
    def unsubscribe(self) -> None:
        """Leave the subscription; the revoke callback runs in a later ``poll`` or in ``close``."""
        self._prove_before_leaving()
        self._rejoins = False
        self._raw.unsubscribe()
        self._drop_carried_records()

    @owned(claims=True)
    def rejoin(self) -> None:
        """Leave the group and join it as another member: what the old one has sent is refused once its partitions left.

        Runs the revoke callback; the new assignment comes with a later ``poll`` or ``consume``. Where this is broken
        off, the next call that fetches goes on with it. Raises ConfigurationError where no other client can be built.
        """
        self._prove_before_leaving()
        self._begin_fetching()
        self._rejoins = True
        self._join_again()
        self._close_journal()

    @owned()
    def close(self) -> None:
        """Leave the group; runs the revoke callback, and then raises what callbacks of the application have raised.

        What ``error_cb``, ``stats_cb``, ``throttle_cb`` and ``logger`` have raised is reported and not raised, but for
        KeyboardInterrupt and SystemExit.

        The client library gets CLOSE_LIMIT_S seconds to leave and to let go of its connections. What it has not done by
        then is left behind and reported: the group gives the partitions to others only when the session has timed out.
        After an exception out of ``consume`` it gets CLOSE_LIMIT_AFTER_AN_EXCEPTION_S seconds: librdkafka may keep a
        record then, for which its close() would wait for ever, although the member has left the group.
        """
        if isinstance(self._ownership, NeverBuilt):
            return
        if not self._closed:
            self._prepare_to_leave()
        self._close_library()
        if report := self._guard.take_report():
            self.report(report)
        self._guard.raise_kept()

    def _prepare_to_leave(self) -> None:
        self._guard.begin_close()
        try:
            self._prove_before_leaving()
        except BaseException as error:  # noqa: BLE001  # raised again at the end: whatever it is, the group is left
            self._guard.keep(error)
        self._leaving = True
        if self._listener is not None:
            in_library(self, lambda: serve_before_close(self._raw, unsubscribe=not self._stays_a_member))
            if self._stays_a_member:
                self._revoke_before_close()
        self._closed = True
        MEMBERS.leaves(self._ownership)
        self._carried = []

    def _close_library(self) -> None:
        """Close the client library. A second call goes on where a signal handler has broken off the first one."""
        if not self._library_close.locked():
            self._close_library_in_time()

    def _close_library_once(self) -> None:
        # Two calls at once would destroy the library's handle twice.
        if self._library_close.acquire(blocking=False):
            in_library(self, self._raw.close)

    def _close_library_in_time(self) -> None:
        limit_s = self._close_limit_s
        try:
            if not close_in_time(self._ownership.lent(self._close_library_once), limit_s, self._clock):
                self._left_behind = True
                self.report(self._what_is_left_behind(limit_s))
        finally:
            self._ownership.disown()

    def _what_is_left_behind(self, limit_s: float) -> str:
        stays = f"within {limit_s:g} s. Its thread and connections stay to the process's end"
        if self._may_keep_a_record:
            return (
                f"close() did not let go of the client library {stays}: a callback or a signal handler has raised "
                "inside consume(), after which the library may keep one record that nobody was given, and wait for it "
                "in its close(). It was asked to leave the group before that. No committed offset counts the record: "
                "the next owner of its partition reads it"
            )
        session_ms = self._settings.get("session.timeout.ms", "of the group's")
        if self._stays_a_member:
            return (
                f"close() did not let go of the client library {stays}. The group keeps the place of this static "
                f"member, as after every close(), until its session ({session_ms} ms) is over"
            )
        return (
            f"close() did not leave the group {stays}, and its partitions go to other members when its session "
            f"({session_ms} ms) is over"
        )

    def report(self, what: str) -> None:
        """Tell the application what ``close`` could not do or does not raise, and what keeps records waiting."""
        warnings.warn(what, RuntimeWarning, stacklevel=4)

    def _prove_before_leaving(self) -> None:
        # The revoke callback commits open work only under a proven epoch (EPOCH_MOVED_BEFORE_REVOKE).
        if self._is_member_epoch and self._work.ours:
            self.serve_callbacks(drain=True)

    def close_within(self, limit_s: float) -> bool:
        """Close, waiting ``limit_s`` seconds at most; returns whether leaving the group was confirmed."""
        self._ownership.disown()
        return close_in_time(self.close, limit_s, self._clock) and not self._left_behind

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _without(partition: InputPartition, messages: Iterable[Any]) -> list[Any]:
    return [m for m in messages if InputPartition(m.topic(), m.partition()) != partition]
