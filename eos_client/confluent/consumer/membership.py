"""Membership: which partitions the group gave us, and the rebalance callbacks.

Callbacks run inside ``poll`` and ``consume``, in the thread that polls.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from confluent_kafka import KafkaException, TopicPartition

from eos_client.completion import Completion
from eos_client.config.client_settings import group_protocol
from eos_client.confluent.consumer.library_consumer import LibraryConsumer, to_kafka
from eos_client.confluent.consumer.partition_parts import PartitionParts
from eos_client.confluent.consumer.safe_close import MEMBERS, in_background, serve_before_close, unsubscribe_when_lost
from eos_client.confluent.failures.consumer_failures import subscription_refused
from eos_client.confluent.group_metadata import GenerationReader
from eos_client.confluent.thread_ownership import ThreadOwnership
from eos_client.core.model import UNJOINED, GroupGeneration, InputPartition, Partitions, is_pattern
from eos_client.ports import Clock, MembershipSnapshot, RebalanceListener, input_partitions


class Membership:
    """The assignment, the generation that is synced, and who we are to the group. Others only read its attributes.

    ``assigned``: what the group gave us and has not taken back. ``is_assigned``: it gave us an assignment, which may be
    an empty one, and has not taken all of it back. ``synced_generation``: the newest one for which no rebalance
    callback can still be waiting, so that records handed over under it are of partitions that are ours.
    ``needs_sync``: only an emptied queue can show that now. ``is_member_epoch``: KIP-848, whose members may rejoin
    before a callback has run. ``is_of_one_topic``: all records are of the only topic that was ever subscribed to.
    ``patterns``: those of the subscription.

    Within a call into the library, ``left_in_call`` and ``rejoined_in_call`` are the partitions that have left, and
    those that were lost and given back to us as another member. ``callback_interrupted``: an exception has interrupted
    our own half of a rebalance callback.

    ``is_leaving``: ``close()`` has begun. ``is_closed``: the group was left for good. ``rejoins``: it is being left to
    be joined again as another member.
    """

    _listener: RebalanceListener | None = None

    def __init__(
        self, library: LibraryConsumer, ownership: ThreadOwnership, parts: PartitionParts, clock: Clock
    ) -> None:
        self._library = library
        self._clock = clock
        self._ownership = ownership
        self._parts = parts
        self._generations = GenerationReader()
        self.is_member_epoch = group_protocol(library.settings) == "consumer"
        self.synced_generation: GroupGeneration = UNJOINED
        self._last_generation: GroupGeneration = UNJOINED
        self._is_unconfirmed = False  # whether what was retained as another member may have another owner
        self._member_since = self._previous_call_at = self._call_at = clock()
        self.assigned: Partitions = frozenset()
        self.is_assigned = False
        self.left_in_call: Partitions = frozenset()
        self.rejoined_in_call: Partitions = frozenset()
        self._partially_handled: Partitions = frozenset()
        self.needs_sync = False
        self.callback_interrupted = False
        self._raised_by_application: BaseException | None = None
        self._in_callback = False
        self.is_leaving = False
        self.is_closed = False
        self._revoked_before_close = False
        self.rejoins = False
        self._subscription: list[str] = []
        self.patterns: tuple[str, ...] = ()
        self.is_of_one_topic = False

    # -- what is known -----------------------------------------------------------------------------------------------

    @property
    def is_subscribed(self) -> bool:
        """Whether ``subscribe`` was called: without it there is no group, and partitions are assigned by hand."""
        return self._listener is not None

    @property
    def is_forked_copy(self) -> bool:
        """Whether this process was forked later than the consumer was built, and only has a copy of it."""
        return self._ownership.is_forked_copy

    @property
    def in_callback(self) -> bool:
        """Whether a rebalance callback is under way."""
        # The stack is checked, too: an asynchronous exception may have left the flag set.
        return self._in_callback and self._library.guard.is_running()

    @property
    def stays_a_member(self) -> bool:
        """Whether a classic group keeps this member's place until it comes back (KIP-345)."""
        return not self.is_member_epoch and "group.instance.id" in self._library.settings

    def names(self, topic: str) -> bool:
        """Whether ``topic`` was subscribed by name: a topic that only a pattern has matched may come and go."""
        return topic in self._subscription and not is_pattern(topic)

    def is_by_pattern(self, topic: str) -> bool:
        """Whether a pattern of the subscription has matched ``topic``: no topic of an assignment by hand is."""
        return bool(self.patterns) and not self.names(topic)

    def snapshot(self) -> MembershipSnapshot:
        """Read the group metadata now."""
        try:
            metadata = self._library.raw.consumer_group_metadata()
        except RuntimeError:
            if not self.is_leaving:
                raise
            return MembershipSnapshot(None, UNJOINED)  # the library has none any more once it leaves the group
        generation = self._generations.read(metadata, self._library.raw.memberid)
        if self.is_member_epoch:
            generation = replace(generation, is_member_epoch=True)
        return MembershipSnapshot(metadata, generation)

    # -- joining and leaving -----------------------------------------------------------------------------------------

    def subscribe(self, topics: list[str], listener: RebalanceListener) -> None:
        """Join the group; ``listener`` is called at rebalances."""
        if self._library.is_real:
            group = self._library.settings.get("bootstrap.servers"), self._library.settings.get("group.id")
            MEMBERS.register(self._ownership, group, self._leave_at_exit)
        while_active = self._library.guard.while_active
        try:
            self._library.raw.subscribe(
                topics,
                on_assign=while_active(self._on_assign),
                on_revoke=while_active(self._on_revoke),
                on_lost=while_active(self._on_lost),
            )
        except KafkaException as exception:
            if (refused := subscription_refused(exception, topics)) is not None:
                raise refused from exception
            raise
        # Only for the first subscription: records of an earlier one may still be on their way later.
        self.is_of_one_topic = self._listener is None and len(topics) == 1 and not is_pattern(topics[0])
        self.patterns = tuple(filter(is_pattern, topics))
        self._subscription = list(topics)
        self._listener = listener
        self.rejoins = False

    def unsubscribe(self) -> None:
        """Leave the subscription; the revoke callback runs in a later ``poll`` or in ``close``."""
        self.rejoins = False
        self._library.raw.unsubscribe()

    def begin_rejoin(self) -> None:
        """Leave the group only to join it again, until `join_again`."""
        self.rejoins = True

    def join_again(self) -> None:
        """Subscribe as before, by the library's new consumer."""
        if self._listener is not None:
            self.subscribe(self._subscription, self._listener)

    def leave_before_close(self) -> None:
        """Serve the callbacks that are due, so that the library's ``close()`` meets none.

        A classic static member must not unsubscribe (KIP-345), so its revoke callback runs here, once, and the one in
        the library's close() is ignored: close() can then run in another thread, with a time limit.
        """
        self.is_leaving = True
        if self._listener is not None:
            stays = self.stays_a_member
            self._library.call(lambda: serve_before_close(self._library.raw, unsubscribe=not stays))
            if stays and not self._revoked_before_close:
                self._revoked_before_close = True
                if self.assigned:
                    self._callback(self._revoked_from_us, to_kafka(self.assigned))
        self.is_closed = True
        MEMBERS.forget(self._ownership)

    def _leave_at_exit(self) -> Completion | None:
        return None if self.is_closed or not self._ownership.may_end else self._leave_unclosed()

    def _leave_unclosed(self) -> Completion:
        """Leave the group in a background thread, without callbacks, because nobody will close this consumer."""
        self.is_closed = True
        self._library.guard.retire()
        raw, unsubscribe = self._library.raw, not self.stays_a_member

        def leave() -> None:
            serve_before_close(raw, unsubscribe=unsubscribe)
            raw.close()

        return in_background(leave)

    def leave_if_dropped(self) -> None:
        """Leave the group of a consumer that was dropped without close(); not in the thread that collects garbage."""
        is_real_member = self._listener is not None and self._library.is_real
        if is_real_member and not (self.is_closed or self.is_forked_copy or sys.is_finalizing()):
            self._leave_unclosed()

    # -- around the calls into the library ---------------------------------------------------------------------------

    def begin_call(self) -> None:
        """Begin a call into the library: nothing has left within it."""
        self.left_in_call = self.rejoined_in_call = frozenset()
        self._previous_call_at, self._call_at = self._call_at, self._clock()

    def end_call(self) -> None:
        """End the call into the library: no rebalance callback is under way."""
        self._in_callback = False

    def mark_synced(self, generation: GroupGeneration) -> None:
        """Sync ``generation``: the queue was emptied since it was read, so no callback from before can be waiting."""
        self.synced_generation = generation

    def begin_sync(self) -> GroupGeneration:
        """Return the generation that is synced once the queue, whose emptying begins, is empty."""
        generation = self.snapshot().generation
        self.needs_sync = False
        return generation

    def require_sync(self) -> None:
        """Let an epoch be synced anew, because a call was interrupted."""
        self.needs_sync = self.is_member_epoch

    def replay_interrupted_callbacks(self, ours: Partitions) -> None:
        """Replay interrupted rebalance callbacks; partitions that left without a callback count as lost.

        Raises the exception of a further interruption; the next call tries again.
        """
        self.callback_interrupted = False
        if gone := (self.assigned | self._partially_handled) - ours:
            self._on_lost(None, to_kafka(gone))
        if new := ours - (self.assigned - self._partially_handled):
            self._on_assign(None, to_kafka(new))
        elif not gone:
            self._callback(lambda _: self._follow_generation(self.assigned), [])
        if self.callback_interrupted:
            self._library.guard.raise_kept()
        self._partially_handled = self.left_in_call = self.rejoined_in_call = frozenset()

    # -- rebalance callbacks -----------------------------------------------------------------------------------------
    #
    # If a callback does not (un)assign, confluent_kafka does it. What a callback raises is kept until the client
    # library has returned: raised inside, the records that it had collected would be dropped without our knowledge.

    def _on_assign(self, _: Any, partitions: list[TopicPartition]) -> None:
        # During close() librdkafka may still assign partitions, and revokes them before it returns.
        if not self.is_leaving:
            self._callback(self._assigned_to_us, partitions)
            # A callback of its own: if it is interrupted, the application's on_assign must not run again.
            self._callback(lambda _: self._parts.commit_start_offsets(), [])

    def _on_revoke(self, _: Any, partitions: list[TopicPartition]) -> None:
        self._on_departure(self._revoked_from_us, partitions)

    def _on_lost(self, _: Any, partitions: list[TopicPartition]) -> None:
        self._on_departure(self._lost_by_us, partitions)
        self._stay_out_if_leaving()

    def _on_departure(self, act: Callable[[list[TopicPartition]], None], partitions: list[TopicPartition]) -> None:
        known = partitions
        if self.is_leaving:  # without those whose assignment was ignored
            known = [p for p in partitions if InputPartition(p.topic, p.partition) in self.assigned]
        if not self._revoked_before_close and (known or not partitions):
            self._callback(act, known)

    def _callback(self, act: Callable[[list[TopicPartition]], None], partitions: list[TopicPartition]) -> None:
        """Run our half of a rebalance callback; until it returns, its partitions count as partially handled."""
        outside, self._in_callback = self._in_callback, True
        try:
            self._partially_handled |= input_partitions(partitions)
            self._library.guard.running(act, partitions)
            self._partially_handled -= input_partitions(partitions)
        except BaseException as error:  # noqa: BLE001  # raised again as soon as the client library has returned
            self.callback_interrupted = True
            self._library.guard.keep(error)
        finally:
            self._in_callback = outside

    def record_topics(self, partitions: list[TopicPartition]) -> None:
        """Record of which topics records may come: of any that the application assigns, and of more than it names.

        A classic group keeps the assignment of a static member that comes back with another subscription (KIP-345).
        """
        self.is_of_one_topic = self.is_of_one_topic and all(self.names(p.topic) for p in partitions)

    def _assigned_to_us(self, partitions: list[TopicPartition]) -> None:
        self.record_topics(partitions)
        keys, retained = input_partitions(partitions), self.assigned
        self.assigned |= keys
        self.is_assigned = True
        self._follow_generation(retained)
        self._parts.starts.expect(keys)
        self._notify(lambda listener: listener.on_assigned(partitions))

    def _follow_generation(self, retained: Partitions) -> None:
        self._sync_in_callback()
        if self._record_generation() and retained:
            self._treat_as_lost(retained)
        self._is_unconfirmed = False

    def _revoked_from_us(self, partitions: list[TopicPartition]) -> None:
        if not self.is_member_epoch:
            self._sync_in_callback()
        keys = input_partitions(partitions)
        if self._record_generation():
            self._treat_as_lost(self.assigned - keys, keys)
            self._is_unconfirmed = self.is_assigned
            return
        self._notify(lambda listener: listener.on_revoked(partitions))
        if self.rejoins:
            self._parts.chosen.save_for_rejoin(keys, self._parts.handed)
        self._departed(keys)

    def _lost_by_us(self, partitions: list[TopicPartition]) -> None:
        keys = input_partitions(partitions)
        self.assigned -= keys
        self._notify(lambda listener: listener.on_lost(partitions))
        self._departed(keys)

    def _stay_out_if_leaving(self) -> None:
        if self.is_leaving and not self.is_closed:
            unsubscribe_when_lost(self._library.raw)

    def may_be_readmitted(self, now: GroupGeneration) -> bool:
        """Whether a classic group may have evicted and readmitted us between the last callback and generation ``now``.

        librdkafka (2.16, ``rd_kafka_cgrp_revoke_all_rejoin_maybe``) reports no loss while a revocation waits for its
        callback: a cooperative member then joins again under a new member id, and still owns what was not to be
        revoked. Another owner may have committed meanwhile. A group that has KIP-848 members, too, readmits a classic
        member under its old id (``GroupMetadataManager.classicGroupJoinToConsumerGroup``): then only the generations
        in between, of which there are at least two, show it. A round of a rebalance that was broken off looks the same;
        but no member is evicted within a session time-out of its last callback. A KIP-848 member hears of it later.

        What a revocation retains then may have another owner, unless an assignment of its generation follows: a change
        of the subscription revokes, too.
        """
        before = self._last_generation
        if self.is_member_epoch or not (before.is_active_member and now.is_active_member):
            return False
        may_be_evicted = self._clock() - self._member_since >= self._library.session_timeout_s
        has_missed_one = may_be_evicted and now.generation_id > before.generation_id + 1
        has_moved_unconfirmed = self._is_unconfirmed and now.generation_id != before.generation_id
        return has_moved_unconfirmed or has_missed_one or now.member_id != before.member_id

    def _record_generation(self) -> bool:
        """Record the generation of a callback; returns whether we may have been readmitted before it."""
        now = self.synced_generation
        may_be_readmitted = self.may_be_readmitted(now)
        if now.is_active_member and not self.is_member_epoch:
            self._last_generation, self._member_since = now, self._previous_call_at
        return may_be_readmitted

    def _treat_as_lost(self, retained: Partitions, revoked: Partitions = frozenset()) -> None:
        """Read ``retained`` from the group's offsets, and commit nothing of what was read of all these before."""
        self._notify(lambda listener: listener.on_membership_changed(to_kafka(retained), to_kafka(revoked)))
        self._departed(retained | revoked)
        self.assigned |= retained
        self.is_assigned = bool(retained)
        self.rejoined_in_call |= retained
        if revoked:
            self._stay_out_if_leaving()

    def _departed(self, keys: Partitions) -> None:
        self.assigned -= keys
        self.is_assigned = bool(self.assigned)
        self.left_in_call |= keys
        self._parts.departed(keys)

    def _sync_in_callback(self) -> None:
        """Classic members cannot rejoin before a callback has returned: the generation inside it is synced.

        A KIP-848 member can, so its epoch is synced by a drain before the next record is handed over.
        """
        if self.is_member_epoch:
            self.needs_sync = True
        else:
            self.synced_generation = self.snapshot().generation

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
