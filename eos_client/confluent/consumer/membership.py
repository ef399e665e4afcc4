"""Holds the state of a consumer's membership, and performs what follows from it: the calls, callbacks and reports.

``eos_client.core.membership_states`` decides. Callbacks run inside ``poll`` and ``consume``, in the thread that polls.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from confluent_kafka import KafkaException, TopicPartition

from eos_client.completion import Completion
from eos_client.config.client_settings import group_protocol
from eos_client.confluent.call_marks import CallMarks
from eos_client.confluent.consumer.library_consumer import LibraryConsumer, to_kafka
from eos_client.confluent.consumer.partition_table import PartitionTable
from eos_client.confluent.consumer.safe_close import MEMBERS, in_background, serve_before_close, unsubscribe_when_lost
from eos_client.confluent.consumer.start_offsets import StartOffsets
from eos_client.confluent.failures.consumer_failures import subscription_refused
from eos_client.confluent.group_metadata import GenerationReader
from eos_client.confluent.thread_ownership import ThreadOwnership
from eos_client.core import membership_events as events
from eos_client.core import partition_events
from eos_client.core.membership_states import MembershipState, next_state
from eos_client.core.model import UNJOINED, GroupGeneration, Partitions
from eos_client.ports import Clock, MembershipSnapshot, RebalanceListener, input_partition, input_partitions


class Membership:
    """``state`` is replaced by one assignment; the listener hears of what the group gives and takes.

    ``_calls_at_s``: when the last two calls into the library began.
    """

    _listener: RebalanceListener | None = None
    _raised_by_application: BaseException | None = None

    def __init__(
        self,
        library: LibraryConsumer,
        ownership: ThreadOwnership,
        table: PartitionTable,
        starts: StartOffsets,
        clock: Clock,
    ) -> None:
        self._library = library
        self._ownership = ownership
        self._table = table
        self._starts = starts
        self._clock = clock
        self._generations = GenerationReader()
        self._callbacks = CallMarks()
        self._calls_at_s = (clock(),) * 2
        self.state = MembershipState(
            is_member_epoch=group_protocol(library.settings) == "consumer",
            is_static="group.instance.id" in library.settings,
            session_timeout_s=library.session_timeout_s,
        )

    def tell(self, event: events.MembershipEvent) -> None:
        """Apply ``event`` to the state."""
        self.state = next_state(self.state, event)

    # -- what is known -----------------------------------------------------------------------------------------------

    @property
    def is_forked_copy(self) -> bool:
        """Whether this process was forked later than the consumer was built, and only has a copy of it."""
        return self._ownership.is_forked_copy

    @property
    def in_callback(self) -> bool:
        """Whether the calling thread is inside a rebalance callback."""
        return self._callbacks.is_under_way()

    @property
    def has_left(self) -> bool:
        """Whether the group was left for good, and no callback of the leaving is running any more."""
        return self.state.is_closed and not self.in_callback

    def may_be_readmitted(self, now: GroupGeneration) -> bool:
        """Whether the group may have evicted and readmitted us between the last callback and ``now``."""
        return self.state.may_be_readmitted(now, self._clock())

    def snapshot(self) -> MembershipSnapshot:
        """Read the group metadata now."""
        try:
            metadata = self._library.raw.consumer_group_metadata()
        except RuntimeError:
            if not self.state.is_leaving:
                raise
            return MembershipSnapshot(None, UNJOINED)  # the library has none any more once it leaves the group
        generation = self._generations.read(metadata, self._library.raw.memberid)
        if self.state.is_member_epoch:
            generation = replace(generation, is_member_epoch=True)
        return MembershipSnapshot(metadata, generation)

    # -- joining and leaving -----------------------------------------------------------------------------------------

    def subscribe(self, topics: list[str], listener: RebalanceListener) -> None:
        """Join the group; ``listener`` is called at rebalances."""
        if self._library.is_real:
            group = self._library.settings.get("bootstrap.servers"), self._library.settings.get("group.id")
            MEMBERS.register(self._ownership, group, self._leave_at_exit)
        while_active, before = self._library.guard.while_active, (self.state, self._listener)
        # First: an exception may strike when the library has taken it, and then only a close() that knows of it serves
        # what is due before the library's close().
        self._listener = listener
        self.tell(events.Subscribed(tuple(topics)))
        try:
            self._library.raw.subscribe(
                topics,
                on_assign=while_active(self._on_assign),
                on_revoke=while_active(self._on_revoke),
                on_lost=while_active(self._on_lost),
            )
        except KafkaException as exception:
            if (refused := subscription_refused(exception, topics)) is not None:
                self.state, self._listener = before
                raise refused from exception
            raise
        except TypeError:
            if not isinstance(topics, list):
                self.state, self._listener = before
            raise

    def unsubscribe(self) -> None:
        """Leave the subscription; the revoke callback runs in a later ``poll`` or in ``close``."""
        self._library.raw.unsubscribe()

    def leave_before_close(self) -> None:
        """Serve the callbacks that are due, so that the library's ``close()`` meets none.

        The revoke callback of a static member runs here, once, and the one in the library's close() is ignored:
        close() can then run in another thread, with a time limit.
        """
        self.tell(events.Leaving())
        if self.state.is_subscribed:
            self._library.call(self._serving_before_close())
            if self.state.stays_a_member and not self.state.is_revoked_early:
                if self.state.assigned:
                    self._callback(self._revoked_from_us, to_kafka(self.state.assigned))
                self.tell(events.RevokedBeforeClose())
        self.tell(events.MemberClosed())
        MEMBERS.forget(self._ownership)

    def _serving_before_close(self) -> Callable[[], None]:
        """Return `serve_before_close` for this member; it does not keep the member alive."""
        unsubscribe, is_classic = not self.state.stays_a_member, not self.state.is_member_epoch
        return partial(serve_before_close, self._library.raw, unsubscribe=unsubscribe, is_classic=is_classic)

    def _leave_at_exit(self) -> Completion | None:
        return None if self._library.close_has_begun or not self._ownership.may_end else self._leave_unclosed()

    def _leave_unclosed(self) -> Completion:
        """Leave the group in a background thread, without callbacks, because nobody will close this consumer."""
        self.tell(events.MemberClosed())
        self._library.guard.retire()
        library, serve = self._library, self._serving_before_close()

        def leave() -> None:
            serve()
            library.close_once()

        return in_background(leave)

    def leave_if_dropped(self) -> None:
        """Leave the group of a consumer that was dropped without close(); not in the thread that collects garbage."""
        is_real_member = self.state.is_subscribed and self._library.is_real
        if is_real_member and not (self._library.close_has_begun or self.is_forked_copy or sys.is_finalizing()):
            self._leave_unclosed()

    # -- around the calls into the library ---------------------------------------------------------------------------

    def record_call_time(self) -> None:
        """Record that a call into the library begins, which may run callbacks."""
        self._calls_at_s = self._calls_at_s[1], self._clock()

    def begin_sync(self) -> GroupGeneration:
        """Return the generation that is synced once the queue, whose emptying begins, is empty."""
        generation = self.snapshot().generation
        self.tell(events.SyncBegan())
        return generation

    def replay_interrupted_callbacks(self, ours: Partitions) -> None:
        """Replay interrupted rebalance callbacks, where the library has assigned ``ours``.

        Partitions that left without a callback count as lost. Raises the exception of a further interruption; the next
        call tries again.
        """
        if self.state.is_subscribed:
            self.tell(events.ReplayBegan())
            if gone := self.state.due_losses(ours):
                self._on_lost(None, to_kafka(gone))
            if new := self.state.due_assignments(ours):
                self._on_assign(None, to_kafka(new))
            elif not gone:
                self._callback(self._followed_by_us, [])
            if self.state.callback_interrupted:
                self._library.guard.raise_deferred()
        self.tell(events.Replayed())

    # -- rebalance callbacks -----------------------------------------------------------------------------------------
    #
    # If a callback does not (un)assign, confluent_kafka does it. What a callback raises is kept until the client
    # library has returned: raised inside, the records that it had collected would be dropped without our knowledge.

    def _on_assign(self, _: Any, partitions: list[TopicPartition]) -> None:
        if not self.state.is_leaving:
            self._callback(self._assigned_to_us, partitions)
            # A callback of its own: if it is interrupted, the application's on_assign must not run again.
            self._callback(lambda _: self._starts.commit_missing_in_callback(), [])

    def _on_revoke(self, _: Any, partitions: list[TopicPartition]) -> None:
        self._on_departure(self._revoked_from_us, partitions)

    def _on_lost(self, _: Any, partitions: list[TopicPartition]) -> None:
        self._on_departure(self._lost_by_us, partitions)
        self._stay_out_if_leaving()

    def _on_departure(self, act: Callable[[list[TopicPartition]], None], partitions: list[TopicPartition]) -> None:
        departing = self.state.departing(input_partitions(partitions))
        if departing is not None:
            self._callback(act, [p for p in partitions if input_partition(p) in departing])

    def _callback(self, act: Callable[[list[TopicPartition]], None], partitions: list[TopicPartition]) -> None:
        """Run our half of a rebalance callback; until it returns, its partitions count as partly handled."""
        try:
            self.tell(events.CallbackBegan(input_partitions(partitions)))
            self._callbacks.run(None, self._library.guard.running, act, partitions)
            self.tell(events.CallbackEnded(input_partitions(partitions)))
        except BaseException as error:  # noqa: BLE001  # raised again as soon as the client library has returned
            self.tell(events.CallbackInterrupted())
            self._library.guard.keep(error)

    def _assigned_to_us(self, partitions: list[TopicPartition]) -> None:
        keys = input_partitions(partitions)
        self.tell(events.MemberAssigned(keys, *self._generation_to_follow(keys)))
        self._table.tell(partition_events.Assigned(keys))
        self._table.resume_due()
        self._notify(lambda listener: listener.on_assigned(partitions))

    def _followed_by_us(self, _: list[TopicPartition]) -> None:
        self.tell(events.Followed(*self._generation_to_follow(frozenset())))

    def _generation_to_follow(self, given: Partitions) -> tuple[GroupGeneration, float]:
        """Return the generation of a callback, as `_generation_now`, once what was lost unnoticed was reported."""
        generation, since_s = self._generation_now()
        if lost := self.state.lost_unnoticed(generation, self._clock(), given):
            self._report_rejoin(lost, frozenset())
        return generation, since_s

    def _generation_now(self) -> tuple[GroupGeneration, float]:
        """Return the generation that a callback shows, and a time at which we were a member of it already.

        The rebalance may have happened at any time since the previous library call began, so that time is returned.
        """
        return self.snapshot().generation, self._calls_at_s[0]

    def _revoked_from_us(self, partitions: list[TopicPartition]) -> None:
        (generation, since_s), keys = self._generation_now(), input_partitions(partitions)
        if self.may_be_readmitted(generation):
            self._report_rejoin(self.state.assigned - keys, keys)
            self.tell(events.RejoinReported(keys, generation, since_s))
            self._stay_out_if_leaving()
            return
        self.tell(events.RevocationBegan(generation, since_s))
        self._notify(lambda listener: listener.on_revoked(partitions))
        self.tell(events.MemberDeparted(keys))
        self._leave_table(keys)

    def _lost_by_us(self, partitions: list[TopicPartition]) -> None:
        keys = input_partitions(partitions)
        self.tell(events.MemberDeparted(keys))
        self._notify(lambda listener: listener.on_lost(partitions))
        self._leave_table(keys)

    def _leave_table(self, keys: Partitions) -> None:
        self._table.tell(partition_events.Departed(keys))
        self._table.resume_due()

    def _report_rejoin(self, retained: Partitions, revoked: Partitions) -> None:
        """Read ``retained`` from the group's offsets, and commit nothing of what was read of all these before."""
        self._notify(lambda listener: listener.on_membership_changed(to_kafka(retained), to_kafka(revoked)))
        self._leave_table(retained | revoked)
        self._table.tell(partition_events.Retained(retained))

    def _stay_out_if_leaving(self) -> None:
        if self.state.must_stay_out:
            unsubscribe_when_lost(self._library.raw)

    def _notify(self, call: Callable[[RebalanceListener], None]) -> None:
        if self._listener is None:
            return
        try:
            call(self._listener)
        except BaseException as error:
            if error is not self._raised_by_application:
                raise
            self._raised_by_application = None
            self._library.guard.keep(error)

    def tracking_errors_of(self, callback: Callable[..., Any] | None) -> Callable[..., Any] | None:
        """Wrap ``callback`` so that its own exceptions can be distinguished from those that interrupt our half."""
        if callback is None:
            return None

        def tracking(*arguments: Any) -> None:
            try:
                callback(*arguments)
            except BaseException as error:
                self._raised_by_application = error
                raise

        return tracking
