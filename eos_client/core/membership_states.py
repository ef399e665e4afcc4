"""The state of a consumer's membership of its group, as one immutable value.

Theory of operation. `next_state` is the only way `MembershipState` changes: an event goes in, the next state comes out,
and the consumer replaces its state by one assignment. Nothing is sent from here, and no clock is read: times come in
with the events.

A *generation* is the classic protocol's, or the member epoch of KIP-848. It is *synced* when no rebalance callback from
before it can still be waiting, so that records handed over under it are of partitions that are ours. A classic member
cannot join again before a callback has returned, so the generation inside one is synced. A KIP-848 member can, and its
epoch may move before the callback: only an emptied queue syncs it.

*Readmission.* A classic member can lose its partitions and get a place in the group again without a callback:

- librdkafka (2.16, ``rd_kafka_cgrp_revoke_all_rejoin_maybe``) reports no loss while a revocation waits for its
  callback. A cooperative member then joins again under a new member id, and keeps what was not to be revoked.
- A group that has KIP-848 members, too, readmits a classic member under its old id
  (``GroupMetadataManager.classicGroupJoinToConsumerGroup``). Its eviction and its return each begin a generation, so
  at least two have passed. A round of a rebalance that was interrupted looks the same; but no member is evicted within
  a session time-out of its last callback.

Another owner may have committed meanwhile. So the generation of a callback is recorded only once what may have been
lost before it was reported as lost: a report that was interrupted is still due afterwards, and nothing is committed
before. After an unnoticed rejoin, retained partitions count as owned only once an assignment of that generation
confirms it: a change of the subscription revokes before the member has joined again. A KIP-848 member hears of a loss
later (``WAIT_REJOIN``).

*Interrupted callbacks.* Until our half of a callback has ended, its partitions are partly handled. Which callbacks must
be replayed follows from that and from what the library has assigned by then: see `MembershipState.due_losses`.

*Static members.* A classic group keeps the place of a member with a ``group.instance.id`` until its session ends
(KIP-345), so it must not unsubscribe in order to leave. It also keeps its assignment if the member comes back with
another subscription, so records may be of more topics than are subscribed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from eos_client.core import membership_events as events
from eos_client.core.model import (
    NO_PARTITIONS,
    UNJOINED,
    GroupGeneration,
    InputPartition,
    Partitions,
    UnexpectedEventError,
    is_pattern,
)


class MembershipState(NamedTuple):
    """Everything that is true of a consumer's membership."""

    is_member_epoch: bool
    """As the settings say: a KIP-848 member."""
    is_static: bool
    """As the settings say: it has a ``group.instance.id``."""
    session_timeout_s: float
    """How long a classic group keeps a member of which it hears nothing."""
    topics: tuple[str, ...] | None = None
    """The subscription; None: there never was one, so there is no group."""
    is_of_one_topic: bool = False
    """All records are of the only topic that was ever subscribed to."""
    is_assigned_by_hand: bool = False
    """The application has assigned partitions itself since it subscribed."""
    has_others: bool = False
    """Inside a callback, the application has assigned partitions that the group did not give us."""
    assigned: Partitions = NO_PARTITIONS
    """What the group gave us and has not taken back."""
    is_assigned: bool = False
    """The group gave us an assignment, which may be an empty one, and has not taken all of it back."""
    synced_generation: GroupGeneration = UNJOINED
    """The newest one that is synced."""
    needs_sync: bool = False
    """Only an emptied queue can sync the present generation."""
    callback_generation: GroupGeneration = UNJOINED
    """The generation of the last callback."""
    member_since_s: float = 0.0
    """We have been a member of ``callback_generation`` since then."""
    is_unconfirmed: bool = False
    """No assignment has confirmed yet what was retained over an unnoticed rejoin."""
    partly_handled: Partitions = NO_PARTITIONS
    """Partitions whose callback has begun and not ended."""
    callback_interrupted: bool = False
    """Our half of a callback was interrupted."""
    is_leaving: bool = False
    """``close()`` has begun."""
    is_revoked_early: bool = False
    """All was revoked, ahead of the library's own callback."""
    is_closed: bool = False
    """The group was left for good."""

    # -- the subscription --------------------------------------------------------------------------------------------

    @property
    def is_subscribed(self) -> bool:
        """Whether ``subscribe`` was called: without it there is no group, and partitions are assigned by hand."""
        return self.topics is not None

    @property
    def is_assigned_by_group(self) -> bool:
        """Whether the partitions came from a group, whose generation fences their offsets."""
        return self.is_subscribed and not self.is_assigned_by_hand

    @property
    def syncs_before_leaving(self) -> bool:
        """Whether its revoke callback can commit only under a synced generation (EPOCH_MOVED_BEFORE_REVOKE)."""
        return self.is_member_epoch

    @property
    def patterns(self) -> tuple[str, ...]:
        """The patterns of the subscription."""
        return tuple(filter(is_pattern, self.topics or ()))

    def names(self, topic: str) -> bool:
        """Whether ``topic`` was subscribed by name: a topic that only a pattern has matched may come and go."""
        return topic in (self.topics or ()) and not is_pattern(topic)

    def by_pattern_alone(self, partitions: Iterable[InputPartition]) -> dict[str, bool]:
        """Return for each topic of ``partitions`` whether only a pattern has matched it."""
        return {partition.topic: not self.names(partition.topic) for partition in partitions}

    def is_input(self, topic: str, assigned: Partitions) -> bool:
        """Whether ``topic`` is or was read: by partitions that are ``assigned``, by name, or perhaps by a pattern.

        What a pattern has matched counts also after its partitions have left.
        """
        is_assigned = any(partition.topic == topic for partition in assigned)
        return is_assigned or self.names(topic) or bool(self.patterns)

    # -- readmission -------------------------------------------------------------------------------------------------

    def may_be_readmitted(self, now: GroupGeneration, at_s: float) -> bool:
        """Whether the group may have evicted and readmitted us between the last callback and ``now``, at ``at_s``."""
        before = self.callback_generation
        if self.is_member_epoch or not (before.is_active_member and now.is_active_member):
            return False
        may_be_evicted = at_s - self.member_since_s >= self.session_timeout_s
        has_missed_one = may_be_evicted and now.generation_id > before.generation_id + 1
        has_moved_unconfirmed = self.is_unconfirmed and now.generation_id != before.generation_id
        return has_missed_one or has_moved_unconfirmed or now.member_id != before.member_id

    def lost_unnoticed(self, now: GroupGeneration, at_s: float, given: Partitions) -> Partitions:
        """Return what has to be reported as lost before an assignment of ``given`` in generation ``now`` is followed.

        A partition that is given although it counts as assigned has left in between. The callback for its loss was
        interrupted, and the library went on to the next callback in the same call.
        """
        return self.assigned if self.may_be_readmitted(now, at_s) else self.assigned & given

    # -- interrupted callbacks ---------------------------------------------------------------------------------------

    def due_losses(self, ours: Partitions) -> Partitions:
        """Return what has left without a complete callback, where the library has assigned ``ours``."""
        return (self.assigned | self.partly_handled) - ours

    def due_assignments(self, ours: Partitions) -> Partitions:
        """Return what was assigned without a complete callback, where the library has assigned ``ours``."""
        return ours - (self.assigned - self.partly_handled)

    # -- leaving -----------------------------------------------------------------------------------------------------

    @property
    def stays_a_member(self) -> bool:
        """Whether the group keeps this member's place until it comes back."""
        return self.is_static and not self.is_member_epoch

    @property
    def must_stay_out(self) -> bool:
        """Whether the library must not join again for what was lost: a static member would fence its successor."""
        return self.is_leaving and not self.is_closed

    def departing(self, partitions: Partitions) -> Partitions | None:
        """Return which of ``partitions``, named by a callback, leave; None where the callback is to be ignored.

        While it closes, librdkafka may still assign partitions, which we ignore, and revokes them before it returns.
        """
        known = partitions & self.assigned if self.is_leaving else partitions
        return None if self.is_revoked_early or (partitions and not known) else known


def next_state(state: MembershipState, event: events.MembershipEvent) -> MembershipState:
    """Return the state after ``event``. Pure; every change of a consumer's membership is a case here."""
    change = _CHANGES.get(type(event))
    if change is None:
        raise UnexpectedEventError(f"{event!r} is not an event of a consumer's membership")
    return change(state, event)


def _subscribed(state: MembershipState, event: events.Subscribed) -> MembershipState:
    # A resubscription may still deliver records of the old topics.
    is_only_one = not state.is_subscribed and len(event.topics) == 1 and not is_pattern(event.topics[0])
    return state._replace(topics=event.topics, is_of_one_topic=is_only_one, is_assigned_by_hand=False, has_others=False)


def _with_topics(state: MembershipState, topics: frozenset[str]) -> MembershipState:
    return state._replace(is_of_one_topic=state.is_of_one_topic and all(map(state.names, topics)))


def _application_assigns(state: MembershipState, event: events.ApplicationAssigns) -> MembershipState:
    state = _with_topics(state, frozenset(partition.topic for partition in event.partitions))
    adds_others = event.in_callback and not event.partitions <= state.assigned
    return state._replace(has_others=True) if adds_others else state


def _callback_began(state: MembershipState, event: events.CallbackBegan) -> MembershipState:
    return state._replace(partly_handled=state.partly_handled | event.partitions)


def _callback_ended(state: MembershipState, event: events.CallbackEnded) -> MembershipState:
    return state._replace(partly_handled=state.partly_handled - event.partitions)


def _replayed(state: MembershipState, _: events.Replayed) -> MembershipState:
    # A call was interrupted, so the queue may hold callbacks of any time: an epoch has to be synced anew.
    return state._replace(needs_sync=state.is_member_epoch)


def _assigned(state: MembershipState, event: events.MemberAssigned) -> MembershipState:
    state = _with_topics(state, frozenset(partition.topic for partition in event.partitions))
    state = state._replace(assigned=state.assigned | event.partitions, is_assigned=True)
    return _followed(state, events.Followed(event.generation, event.since_s))


def _followed(state: MembershipState, event: events.Followed) -> MembershipState:
    if state.is_member_epoch:
        return state._replace(needs_sync=True)
    return _with_generation(state, event)._replace(is_unconfirmed=False)


def _revocation_began(state: MembershipState, event: events.RevocationBegan) -> MembershipState:
    return state if state.is_member_epoch else _with_generation(state, event)


def _with_generation(
    state: MembershipState, event: events.Followed | events.RevocationBegan | events.RejoinReported
) -> MembershipState:
    state = state._replace(synced_generation=event.generation)
    if not event.generation.is_active_member:
        return state
    return state._replace(callback_generation=event.generation, member_since_s=event.since_s)


def _departed(state: MembershipState, event: events.MemberDeparted) -> MembershipState:
    assigned = state.assigned - event.partitions
    return state._replace(assigned=assigned, is_assigned=bool(assigned))


def _rejoin_reported(state: MembershipState, event: events.RejoinReported) -> MembershipState:
    state = _departed(_with_generation(state, event), events.MemberDeparted(event.partitions))
    return state._replace(is_unconfirmed=state.is_assigned)


def _synced(state: MembershipState, event: events.Synced) -> MembershipState:
    if state.synced_generation == event.generation:
        return state
    return state._replace(synced_generation=event.generation)


_CHANGES: Mapping[type, Callable[[MembershipState, Any], MembershipState]] = {
    events.Subscribed: _subscribed,
    events.ApplicationAssigns: _application_assigns,
    events.AssignmentTakenOver: lambda state, _: state._replace(is_assigned_by_hand=True),
    events.CallbackBegan: _callback_began,
    events.CallbackEnded: _callback_ended,
    events.CallbackInterrupted: lambda state, _: state._replace(callback_interrupted=True),
    events.ReplayBegan: lambda state, _: state._replace(callback_interrupted=False),
    events.Replayed: _replayed,
    events.MemberAssigned: _assigned,
    events.Followed: _followed,
    events.RevocationBegan: _revocation_began,
    events.MemberDeparted: _departed,
    events.RejoinReported: _rejoin_reported,
    events.SyncBegan: lambda state, _: state._replace(needs_sync=False),
    events.Synced: _synced,
    events.Leaving: lambda state, _: state._replace(is_leaving=True),
    events.RevokedBeforeClose: lambda state, _: state._replace(is_revoked_early=True),
    events.MemberClosed: lambda state, _: state._replace(is_closed=True),
}
