"""Membership: which partitions the group gave us, and the rebalance callbacks that tell.

Callbacks run inside ``poll`` and ``consume``, in the thread that polls.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from eos_client.completion import Completion
from eos_client.confluent.callback_guard import CallbackGuard
from eos_client.confluent.consumer.consumer_calls import OwnedConsumer
from eos_client.confluent.consumer.dropped_members import MEMBERS, in_background
from eos_client.confluent.consumer.safe_close import serve_before_close, unsubscribe_when_lost
from eos_client.confluent.consumer.start_offsets import library_settings
from eos_client.confluent.consumer.topic_identities import TopicIdentities
from eos_client.confluent.diagnosis import LastErrors
from eos_client.confluent.group_metadata import GenerationReader
from eos_client.confluent.thread_ownership import ThreadOwnership, owned
from eos_client.core.model import UNJOINED, GroupGeneration, InputPartition, is_pattern
from eos_client.ports import MembershipSnapshot, RebalanceListener, keys_of

ConsumerFactory = Callable[[dict[str, Any]], Any]


def to_kafka(partitions: Iterable[InputPartition]) -> list[TopicPartition]:
    """Return ``partitions`` as confluent_kafka wants them."""
    return [TopicPartition(p.topic, p.partition) for p in partitions]


class GroupMember(OwnedConsumer):
    """A consumer that follows its own membership. Fetched records that wait to be handed over are ``_carried``."""

    _listener: RebalanceListener | None = None

    def __init__(self, settings: dict[str, Any], factory: ConsumerFactory) -> None:
        self.last_errors = LastErrors(settings.get("error_cb"))
        self._settings = {**settings, "error_cb": self.last_errors}
        self._topics = TopicIdentities(self._settings)
        self._ownership = ThreadOwnership("EosConsumer")
        self._generations = GenerationReader()
        self._is_member_epoch = str(settings.get("group.protocol", "classic")).lower() == "consumer"
        self._proven: GroupGeneration = UNJOINED
        self._member_id = ""
        self._assigned: frozenset[InputPartition] = frozenset()
        self._left_in_call: frozenset[InputPartition] = frozenset()
        self._retained_in_call: frozenset[InputPartition] = frozenset()
        self._paused: frozenset[InputPartition] = frozenset()
        self._prove_soon = False
        self._leaving = False
        self._revoked_before_close = False
        self._closed = False
        self._one_topic = False
        self._has_patterns = False
        self._named: frozenset[str] = frozenset()
        self._subscription: list[str] = []
        self._rejoins = False
        self._carried: list[Any] = []
        self._factory = factory
        self._guard = CallbackGuard()
        self._callback_broke_off = False
        self._half_heard: frozenset[InputPartition] = frozenset()
        self._raised_by_application: BaseException | None = None
        self._in_callback = False
        self._raw = self._new_library(self._guard)

    def _new_library(self, guard: CallbackGuard) -> Any:
        with guard.building("consumer"):
            return self._factory(guard.added_to(self._topics.added_to(library_settings(self._settings))))

    @property
    def settings(self) -> Mapping[str, Any]:
        """The librdkafka settings in force, the defaults of this package included."""
        return self._settings

    @property
    def assigned(self) -> frozenset[InputPartition]:
        """The partitions that the group gave us and has not taken back."""
        return self._assigned

    @property
    def proven(self) -> GroupGeneration:
        """The newest generation for which no rebalance callback can still be waiting."""
        return self._proven

    def _is_by_pattern(self, topic: str) -> bool:
        """Whether ``topic`` was matched by a pattern: such a topic may come and go."""
        return self._has_patterns and topic not in self._named

    @owned()
    def snapshot(self) -> MembershipSnapshot:
        """Read the group metadata now."""
        try:
            metadata = self._raw.consumer_group_metadata()
        except RuntimeError:
            if not self._leaving:
                raise
            return MembershipSnapshot(None, UNJOINED)  # the library has none any more once it leaves the group
        generation = self._generations.read(metadata, self._raw.memberid)
        return MembershipSnapshot(metadata, replace(generation, is_member_epoch=self._is_member_epoch))

    @owned()
    def _subscribe(self, topics: list[str], listener: RebalanceListener) -> None:
        if self._factory is Consumer:  # members of a simulated group stand for processes
            group = self._settings.get("bootstrap.servers"), self._settings.get("group.id")
            MEMBERS.joins(self._ownership, group, self._leave_at_exit)
        heard = self._guard.heard
        self._raw.subscribe(
            topics, on_assign=heard(self._on_assign), on_revoke=heard(self._on_revoke), on_lost=heard(self._on_lost)
        )
        # Only for the first subscription: records of an earlier one may still be on their way later.
        self._one_topic = self._listener is None and len(topics) == 1 and not is_pattern(topics[0])
        self._has_patterns = any(map(is_pattern, topics))
        self._named = frozenset(topics)
        self._subscription = list(topics)
        self._listener = listener
        self._rejoins = False

    def _leave_at_exit(self) -> Completion | None:
        return None if self._closed or not self._ownership.may_end else self._leave_unclosed()

    def _leave_unclosed(self) -> Completion:
        """Leave the group, in a thread of its own and unheard, as a consumer that nobody closes any more."""
        self._closed = True
        self._guard.retire()
        raw, unsubscribe = self._raw, not self._stays_a_member

        def leave() -> None:
            serve_before_close(raw, unsubscribe=unsubscribe)
            raw.close()

        return in_background(leave)

    def __del__(self) -> None:
        """Leave the group of a consumer that was dropped without close(); not in the thread that collects garbage."""
        is_real_member = self._listener is not None and self._factory is Consumer
        if is_real_member and not (self._closed or self._ownership.is_a_parents or sys.is_finalizing()):
            self._leave_unclosed()

    @property
    def _stays_a_member(self) -> bool:
        """Whether a classic group keeps this member's place until it comes back (KIP-345)."""
        return not self._is_member_epoch and "group.instance.id" in self._settings

    def _replace_library(self) -> Any:
        """Be another member from now on, of no group yet; returns the client library's consumer that was left."""
        guard = CallbackGuard(self._guard.error)
        new, left = self._new_library(guard), self._raw
        self._guard.retire()
        self._guard, self._raw = guard, new
        return left

    # The binding (un)assigns by itself after a callback that did not. What a callback raises is kept until the client
    # library has returned: raised inside, the records that it had collected would be dropped behind our back.

    def _on_assign(self, _: Any, partitions: list[TopicPartition]) -> None:
        if not self._leaving:  # the library still offers what it will take back before close() returns
            self._callback(self._assigned_to_us, partitions)
            # Heard by then: where this is broken off, the application must not be told of its assignment again.
            self._callback(lambda _: self._fix_starts(), [])

    def _on_revoke(self, _: Any, partitions: list[TopicPartition]) -> None:
        if not self._revoked_before_close:
            self._callback(self._revoked_from_us, partitions)

    def _on_lost(self, _: Any, partitions: list[TopicPartition]) -> None:
        if not self._revoked_before_close:
            self._callback(self._lost_by_us, partitions)

    def _revoke_before_close(self) -> None:
        """Run the revoke callback of a classic static member that closes, once, instead of the library's ``close()``.

        So that the library's close() has nothing to tell: it can be waited for in another thread, with a limit.
        """
        if not self._revoked_before_close:
            self._revoked_before_close = True
            if self._assigned:
                self._callback(self._revoked_from_us, to_kafka(self._assigned))

    def _callback(self, act: Callable[[list[TopicPartition]], None], partitions: list[TopicPartition]) -> None:
        """Run a rebalance callback of ours; until it is through, its partitions count as heard of by half."""
        outside, self._in_callback = self._in_callback, True
        try:
            self._half_heard |= keys_of(partitions)
            self._guard.running(act, partitions)
            self._half_heard -= keys_of(partitions)
        except BaseException as error:  # noqa: BLE001  # raised again as soon as the client library has returned
            self._callback_broke_off = True
            self._guard.keep(error)
        finally:
            self._in_callback = outside

    def _assigned_to_us(self, partitions: list[TopicPartition]) -> None:
        keys, retained = keys_of(partitions), self._assigned
        self._assigned |= keys
        self._note_generation()
        if self._note_member_id() and retained:
            self._lose_unheard(retained)
        self._expect_start(keys)
        self._tell(lambda listener: listener.on_assigned(partitions))

    def _revoked_from_us(self, partitions: list[TopicPartition]) -> None:
        if not self._is_member_epoch:
            self._note_generation()
        if self._note_member_id():
            if retained := self._assigned - keys_of(partitions):
                self._lose_unheard(retained)
            self._lost_by_us(partitions)
            return
        self._tell(lambda listener: listener.on_revoked(partitions))
        self._note_where_to_go_on(keys_of(partitions))
        self._forget_departed(keys_of(partitions))

    def _lost_by_us(self, partitions: list[TopicPartition]) -> None:
        keys = keys_of(partitions)
        self._assigned -= keys
        self._tell(lambda listener: listener.on_lost(partitions))
        self._forget_departed(keys)
        if self._leaving and not self._closed:
            unsubscribe_when_lost(self._raw)

    def _note_member_id(self) -> bool:
        """Note who we are; returns whether a classic group has evicted us and let us in again since the last callback.

        librdkafka (2.16, ``rd_kafka_cgrp_revoke_all_rejoin_maybe``) tells no loss while a revocation waits for its
        callback: a cooperative member then joins again, by another name, and still owns what was not to be revoked. Its
        next owner may have committed since. A KIP-848 member keeps its name, and the loss is told later.
        """
        before, now = self._member_id, "" if self._is_member_epoch else self._proven.member_id
        self._member_id = now or before
        return bool(before and now) and now != before

    def _lose_unheard(self, retained: frozenset[InputPartition]) -> None:
        """Read ``retained`` from the group's offsets, and commit nothing of what was read of them before."""
        self._tell(lambda listener: listener.on_membership_changed(to_kafka(retained)))
        self._forget_departed(retained)
        self._assigned |= retained
        self._retained_in_call |= retained

    def _expect_start(self, keys: frozenset[InputPartition]) -> None:
        """``keys`` will start at the group's offset, unless the application's callback chooses another."""

    def _note_where_to_go_on(self, keys: frozenset[InputPartition]) -> None:
        """``keys`` leave; note where the application wants to go on should they come back."""

    def _fix_starts(self) -> None:
        """Let later owners start where this assignment does, also when nothing is committed before it ends."""

    def _note_generation(self) -> None:
        """Classic members cannot rejoin before a callback has returned: the generation inside it is proven.

        A KIP-848 member can, so its epoch is proven by a drain before the next record is handed over.
        """
        if self._is_member_epoch:
            self._prove_soon = True
        else:
            self._proven = self.snapshot().generation

    def _tell(self, tell: Callable[[RebalanceListener], None]) -> None:
        if self._listener is None:
            return
        try:
            tell(self._listener)
        except BaseException as error:
            if error is not self._raised_by_application:
                raise
            self._raised_by_application = None
            self._guard.keep(error)

    def _noting_what_it_raises(self, callback: Callable[..., Any] | None) -> Callable[..., Any] | None:
        """Return ``callback`` so that what it raises can be told from what strikes our own half of the callback."""
        if callback is None:
            return None

        def noting(*arguments: Any) -> None:
            try:
                callback(*arguments)
            except BaseException as error:
                self._raised_by_application = error
                raise

        return noting

    def _drop_carried_of(self, keys: frozenset[InputPartition]) -> None:
        self._carried = [m for m in self._carried if InputPartition(m.topic(), m.partition()) not in keys]

    def _forget_departed(self, keys: frozenset[InputPartition]) -> None:
        self._assigned -= keys
        self._left_in_call |= keys
        self._drop_carried_of(keys)
        departing = self._paused & keys
        if departing:
            self._paused -= departing
            self._raw.resume(to_kafka(departing))

    @owned()
    def pause(self, partitions: list[TopicPartition]) -> None:
        """Stop fetching ``partitions``; ends when they are revoked, as in the Java client."""
        self._raw.pause(partitions)
        self._paused |= keys_of(partitions)
