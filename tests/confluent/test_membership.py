"""Membership without a client library: what the listener and the table are told, and when."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import suppress
from types import CodeType
from typing import Any
from unittest.mock import Mock

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from eos_client.clock import MONOTONIC_CLOCK
from eos_client.confluent.callback_guard import CallbackGuard
from eos_client.confluent.consumer.membership import Membership
from eos_client.confluent.thread_ownership import ThreadOwnership
from eos_client.core.membership_events import Leaving, MemberClosed
from eos_client.core.model import UNJOINED, GroupGeneration, InputPartition, Partitions
from eos_client.errors import ConfigurationError
from eos_client.ports import Clock, MembershipSnapshot
from eos_client.testing.simulator import SimulatedClock
from tests.clients.struck_steps import StepStrike, StrikeError

ZERO, ONE = InputPartition("orders", 0), InputPartition("orders", 1)
DEPARTURES = {"on_revoked", "on_lost", "Departed"}


class Raw:
    """The client library's consumer: writes down what it is asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.callbacks: dict[str, Any] = {}

    def subscribe(self, _topics: list[str], **callbacks: Any) -> None:
        self.callbacks = callbacks

    def unsubscribe(self) -> None:
        self.asked.append("unsubscribe")

    def assignment(self) -> list[TopicPartition]:
        return []

    def pause(self, _: list[TopicPartition]) -> None:
        pass

    def poll(self, _: float) -> None:
        pass

    def consumer_group_metadata(self) -> Any:
        return object()

    def memberid(self) -> str:
        return "" if "unsubscribe" in self.asked else "one"


class Library:
    """What a membership asks of `LibraryConsumer`."""

    is_real = False
    session_timeout_s = 10.0

    def __init__(self, **settings: Any) -> None:
        self.raw = Raw()
        self.guard = CallbackGuard()
        self.settings = settings

    def call(self, call: Callable[[], Any]) -> Any:
        return call()


class Follower:
    """The table, the starts and the listener of a membership: writes down what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, list[int]]] = []

    def tell(self, event: Any) -> None:
        self._record(type(event).__name__, event.partitions)

    def resume_due(self) -> None:
        pass

    def commit_missing_in_callback(self) -> None:
        self._record("commit_missing_in_callback", ())

    def on_assigned(self, partitions: Any) -> None:
        self._record("on_assigned", partitions)

    def on_revoked(self, partitions: Any) -> None:
        self._record("on_revoked", partitions)

    def on_lost(self, partitions: Any) -> None:
        self._record("on_lost", partitions)

    def on_membership_changed(self, retained: Any, _revoked: Any) -> None:
        self._record("on_membership_changed", retained)

    def _record(self, name: str, partitions: Any) -> None:
        self.told.append((name, sorted(p.partition for p in partitions)))


def subscribed(library: Any, follower: Any, clock: Clock = MONOTONIC_CLOCK) -> Membership:
    membership = Membership(library, ThreadOwnership("EosConsumer"), follower, follower, clock)
    membership.subscribe(["orders"], follower)
    return membership


@pytest.fixture
def library() -> Any:
    return Library()


@pytest.fixture
def follower() -> Any:
    return Follower()


@pytest.fixture
def joined(library: Any, follower: Any) -> Membership:
    return subscribed(library, follower)


def to_kafka(*numbers: int) -> list[TopicPartition]:
    return [TopicPartition("orders", number) for number in numbers]


def struck(_: Any) -> None:
    raise KeyboardInterrupt


def test_the_table_hears_of_an_assignment_before_the_listener(joined, library, follower):
    library.raw.callbacks["on_assign"](library.raw, to_kafka(0, 1))
    assert joined.state.assigned == {ZERO, ONE}
    assert follower.told == [("Assigned", [0, 1]), ("on_assigned", [0, 1]), ("commit_missing_in_callback", [])]


def test_the_listener_hears_of_a_revocation_before_partitions_leave(joined, library, follower):
    seen: list[Partitions] = []
    follower.on_revoked = follower.on_lost = lambda _: seen.append(joined.state.assigned)
    library.raw.callbacks["on_assign"](library.raw, to_kafka(0, 1))
    library.raw.callbacks["on_revoke"](library.raw, to_kafka(0))
    library.raw.callbacks["on_lost"](library.raw, to_kafka(1))
    assert seen == [frozenset({ZERO, ONE}), frozenset()]
    assert follower.told[-2:] == [("Departed", [0]), ("Departed", [1])]


def test_an_interrupted_revocation_is_a_loss_at_the_next_assignment(joined, library, follower):
    library.raw.callbacks["on_assign"](library.raw, to_kafka(0))
    follower.on_revoked = struck
    library.raw.callbacks["on_revoke"](library.raw, to_kafka(0))
    follower.told.clear()
    library.raw.callbacks["on_assign"](library.raw, to_kafka(0))  # in the same call: nothing was made good in between
    assert follower.told[:2] == [("on_membership_changed", [0]), ("Departed", [0])]
    assert ("on_assigned", [0]) in follower.told


def test_an_interrupted_callback_is_replayed_as_loss_and_assignment(joined, library, follower):
    library.raw.callbacks["on_assign"](library.raw, to_kafka(0))
    follower.on_assigned = struck
    library.raw.callbacks["on_assign"](library.raw, to_kafka(1))
    assert joined.state.callback_interrupted
    assert isinstance(library.guard.error, KeyboardInterrupt)
    del follower.on_assigned
    follower.told.clear()
    joined.replay_interrupted_callbacks(frozenset({ONE}))
    assert not joined.state.callback_interrupted
    assert joined.state.assigned == {ONE}
    assert [name for name, _ in follower.told][:2] == ["on_lost", "Departed"]
    assert ("on_assigned", [1]) in follower.told


def test_an_interrupted_replay_is_repeated_by_the_next_call(joined, library, follower):
    follower.on_assigned = struck
    library.raw.callbacks["on_assign"](library.raw, to_kafka(0))
    with pytest.raises(KeyboardInterrupt):
        library.guard.raise_deferred()
    with pytest.raises(KeyboardInterrupt):
        joined.replay_interrupted_callbacks(frozenset({ZERO}))
    del follower.on_assigned
    follower.told.clear()
    joined.replay_interrupted_callbacks(frozenset({ZERO}))
    assert ("on_assigned", [0]) in follower.told
    assert not joined.state.callback_interrupted


class CallbackStrike(StepStrike):
    """Strikes where a rebalance callback begins and ends."""

    def _strikes(self, code: CodeType) -> bool:
        return code is Membership._callback.__code__


def test_no_callback_is_under_way_after_a_replay_struck_anywhere(library, follower):
    for number in itertools.count(1):
        strike, membership = CallbackStrike(number), subscribed(library, follower)
        with strike.armed(), suppress(StrikeError):
            membership.replay_interrupted_callbacks(frozenset({ZERO}))
        if not strike.struck:
            break
        assert not membership.in_callback, strike.struck
    assert number > 50


def test_only_a_rebalance_callback_that_runs_counts_as_one(joined, library, follower):
    seen = []
    follower.on_assigned = lambda _: seen.append(joined.in_callback)
    library.raw.callbacks["on_assign"](library.raw, to_kafka(0))
    library.guard.running(lambda: seen.append(joined.in_callback))  # any other callback of the client
    assert [*seen, joined.in_callback] == [True, False, False]


@pytest.mark.parametrize("leave", ["on_revoke", "on_lost"])
def test_what_was_assigned_while_leaving_leaves_without_a_word(joined, library, follower, leave):
    library.raw.callbacks["on_assign"](library.raw, to_kafka(0))
    joined.tell(Leaving())
    library.raw.callbacks["on_assign"](library.raw, to_kafka(1))
    library.raw.callbacks[leave](library.raw, to_kafka(0, 1))
    leaving = [each for each in follower.told if each[0] in DEPARTURES]
    assert [numbers for _, numbers in leaving] == [[0], [0]]
    library.raw.asked.clear()
    library.raw.callbacks[leave](library.raw, to_kafka(1))
    assert [each for each in follower.told if each[0] in DEPARTURES] == leaving
    # What was lost is not joined for again: a static member would fence its successor.
    assert library.raw.asked == (["unsubscribe"] if leave == "on_lost" else [])


def test_what_the_applications_callback_raises_interrupts_nothing(joined, library, follower):
    def theirs(_: Any) -> None:
        raise ValueError

    follower.on_assigned = joined.tracking_errors_of(theirs)
    library.raw.callbacks["on_assign"](library.raw, to_kafka(0))
    assert not joined.state.callback_interrupted
    assert isinstance(library.guard.error, ValueError)
    assert joined.state.assigned == {ZERO}


def test_a_kip_848_epoch_is_not_synced_by_a_callback(follower):
    library: Any = Library(**{"group.protocol": "consumer"})
    membership = subscribed(library, follower)
    library.raw.callbacks["on_assign"](library.raw, to_kafka(0))
    assert membership.state.needs_sync
    assert membership.state.synced_generation is UNJOINED


@pytest.mark.parametrize(("stopped_s", "lost"), [(9.9, []), (10.0, [0])])
def test_a_generation_missed_while_stopped_in_a_call_loses_everything(library, follower, monkeypatch, stopped_s, lost):
    clock = SimulatedClock()
    membership = subscribed(library, follower, clock)
    for generation_id, number in (1, 0), (3, 1):
        generation = GroupGeneration(generation_id, "one")
        monkeypatch.setattr(membership, "snapshot", lambda now=generation: MembershipSnapshot(None, now))
        membership.record_call_time()
        if generation_id > 1:
            clock.sleep(stopped_s)
        library.raw.callbacks["on_assign"](library.raw, to_kafka(number))
    assert [numbers for name, numbers in follower.told if name == "on_membership_changed"] == ([lost] if lost else [])


@pytest.fixture
def called(joined, library, follower, monkeypatch):
    """Runs a callback that shows a generation; returns what the listener was told of partitions that leave."""

    def call(name: str, generation: GroupGeneration, *numbers: int) -> list[tuple[str, list[int]]]:
        follower.told.clear()
        monkeypatch.setattr(joined, "snapshot", lambda: MembershipSnapshot(None, generation))
        library.raw.callbacks[name](library.raw, to_kafka(*numbers))
        return [each for each in follower.told if each[0] in {"on_revoked", "on_membership_changed"}]

    return call


def test_what_a_rejoin_retains_is_doubtful_until_an_assignment(joined, called):
    called("on_assign", GroupGeneration(1, "one"), 0, 1, 2)
    assert called("on_revoke", GroupGeneration(2, "two"), 2) == [("on_membership_changed", [0, 1])]
    assert joined.may_be_readmitted(GroupGeneration(3, "two"))
    assert called("on_revoke", GroupGeneration(3, "two"), 1) == [("on_membership_changed", [0])]
    assert called("on_assign", GroupGeneration(4, "two")) == [("on_membership_changed", [0])]
    assert not joined.may_be_readmitted(GroupGeneration(4, "two"))
    assert called("on_revoke", GroupGeneration(5, "two"), 0) == [("on_revoked", [0])]


def test_an_assignment_of_the_same_generation_confirms_what_was_retained(called):
    called("on_assign", GroupGeneration(1, "one"), 0, 1)
    called("on_revoke", GroupGeneration(2, "two"), 1)
    assert called("on_assign", GroupGeneration(2, "two")) == []
    assert called("on_revoke", GroupGeneration(3, "two"), 0) == [("on_revoked", [0])]


@pytest.mark.parametrize("is_leaving", [True, False])
def test_a_leaving_member_that_rejoined_unnoticed_stays_out(joined, library, called, is_leaving):
    called("on_assign", GroupGeneration(1, "one"), 0, 1)
    if is_leaving:
        joined.tell(Leaving())
    called("on_revoke", GroupGeneration(2, "two"), 1)
    assert library.raw.asked == ["unsubscribe"] * is_leaving


def test_only_a_leaving_member_may_lack_group_metadata(joined, library, monkeypatch):
    monkeypatch.setattr(library.raw, "consumer_group_metadata", Mock(side_effect=RuntimeError))
    with pytest.raises(RuntimeError):
        joined.snapshot()
    joined.tell(Leaving())
    assert joined.snapshot() == MembershipSnapshot(None, UNJOINED)


@pytest.mark.parametrize(("callback", "revoked"), [("on_assign", []), ("on_revoke", [1])])
def test_an_interrupted_report_of_a_rejoin_is_still_due(joined, called, follower, callback, revoked):
    called("on_assign", GroupGeneration(1, "one"), 0, 1)
    two, report, follower.on_membership_changed = GroupGeneration(2, "two"), follower.on_membership_changed, Mock()
    follower.on_membership_changed.side_effect = KeyboardInterrupt
    called(callback, two, *revoked)
    assert joined.state.callback_interrupted
    assert joined.may_be_readmitted(two)
    follower.on_membership_changed = report
    assert called("on_assign", two) == [("on_membership_changed", [0, 1])]
    assert not joined.may_be_readmitted(two)


def test_a_readmission_behind_an_interrupted_callback_is_replayed(library, follower, monkeypatch):
    clock = SimulatedClock()
    membership = subscribed(library, follower, clock)
    for generation_id in 1, 3:
        snapshot = MembershipSnapshot(None, GroupGeneration(generation_id, "one"))
        monkeypatch.setattr(membership, "snapshot", lambda now=snapshot: now)
        membership.record_call_time()
        if generation_id == 1:
            membership._on_assign(None, to_kafka(0))
        else:
            clock.sleep(10.0)
            with monkeypatch.context() as patched:
                patched.setattr(membership, "_assigned_to_us", Mock(side_effect=KeyboardInterrupt))
                membership._on_assign(None, [])
    assert membership.state.callback_interrupted
    assert membership.may_be_readmitted(snapshot.generation)
    with suppress(KeyboardInterrupt):
        membership.replay_interrupted_callbacks(frozenset({ZERO}))
    assert not membership.may_be_readmitted(snapshot.generation)
    assert ("on_membership_changed", [0]) in follower.told


def test_nothing_is_replayed_without_a_group(library, follower):
    membership = Membership(library, ThreadOwnership("EosConsumer"), follower, follower, MONOTONIC_CLOCK)
    membership.replay_interrupted_callbacks(frozenset({ZERO}))
    assert (membership.state.assigned, follower.told) == (frozenset(), [])


def test_a_static_member_is_revoked_early_once_its_callback_has_run(follower):
    library: Any = Library(**{"group.instance.id": "a"})
    membership = subscribed(library, follower)
    library.raw.callbacks["on_assign"](library.raw, to_kafka(0))
    seen = []
    follower.on_revoked = lambda _: seen.append(membership.state.is_revoked_early)
    membership.leave_before_close()
    assert seen == [False]
    assert membership.state.is_revoked_early
    library.raw.callbacks["on_revoke"](library.raw, to_kafka(0))
    assert seen == [False]


def test_a_subscription_whose_call_was_interrupted_is_left_all_the_same(library, follower, monkeypatch):
    """The library has taken it: its close() could serve an assignment of which nobody knows, and freeze the process."""

    def interrupted(_topics: list[str], **_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(library.raw, "subscribe", interrupted)
    membership = Membership(library, ThreadOwnership("EosConsumer"), follower, follower, MONOTONIC_CLOCK)
    with pytest.raises(KeyboardInterrupt):
        membership.subscribe(["orders"], follower)
    assert membership.state.is_subscribed
    membership.leave_before_close()
    assert "unsubscribe" in library.raw.asked


@pytest.mark.parametrize(
    ("topics", "refusal"), [("orders", TypeError()), (["^("], KafkaException(KafkaError(KafkaError._INVALID_ARG)))]
)
def test_a_subscription_that_the_library_refuses_is_none(library, follower, monkeypatch, topics, refusal):
    monkeypatch.setattr(library.raw, "subscribe", Mock(side_effect=refusal))
    membership = Membership(library, ThreadOwnership("EosConsumer"), follower, follower, MONOTONIC_CLOCK)
    with pytest.raises((TypeError, ConfigurationError)):
        membership.subscribe(topics, follower)
    assert not membership.state.is_subscribed


@pytest.mark.parametrize("error", [TypeError(), KafkaException(KafkaError(KafkaError._STATE))])
def test_what_a_handler_raises_as_the_library_has_subscribed_takes_nothing_back(library, follower, monkeypatch, error):
    monkeypatch.setattr(library.raw, "subscribe", Mock(side_effect=error))
    membership = Membership(library, ThreadOwnership("EosConsumer"), follower, follower, MONOTONIC_CLOCK)
    with pytest.raises(type(error)):
        membership.subscribe(["orders"], follower)
    assert membership.state.is_subscribed


@pytest.mark.parametrize("error", [RuntimeError(), KafkaException()])
@pytest.mark.parametrize("call", ["unsubscribe", "poll"])
def test_what_a_handler_raises_while_a_member_leaves_does_not_end_that(joined, library, monkeypatch, call, error):
    struck = Mock(side_effect=[error, None, None])
    monkeypatch.setattr(library.raw, call, struck)
    monkeypatch.setattr(library.raw, "memberid", Mock(side_effect=["one", ""]))
    joined.leave_before_close()
    assert struck.call_count == 3


def test_a_classic_member_asks_to_leave_until_it_has_left(joined, library, monkeypatch):
    """librdkafka only notes it while the member is rebalancing."""
    monkeypatch.setattr(library.raw, "memberid", Mock(side_effect=["one", ""]))
    joined.leave_before_close()
    assert library.raw.asked == ["unsubscribe"] * 2


@pytest.mark.parametrize("is_closed", [False, True])
def test_a_dropped_member_leaves_unless_the_librarys_close_has_begun(library, follower, monkeypatch, is_closed):
    library.is_real, library.close_has_begun = True, False
    membership = subscribed(library, follower)
    left = Mock()
    monkeypatch.setattr("eos_client.confluent.consumer.membership.in_background", left)
    if is_closed:  # an exception struck before the library's close() began
        membership.tell(MemberClosed())
    with monkeypatch.context() as patched:
        patched.setattr(Membership, "is_forked_copy", True)  # whose original is still a member
        membership.leave_if_dropped()
    assert not left.called
    membership.leave_if_dropped()
    assert left.called
    left.reset_mock()
    library.close_has_begun = True
    membership.leave_if_dropped()
    assert not left.called


def test_a_member_may_have_had_its_generation_since_the_call_before_the_one_that_tells(library, follower, monkeypatch):
    clock = SimulatedClock()
    membership = subscribed(library, follower, clock)
    monkeypatch.setattr(membership, "snapshot", lambda: MembershipSnapshot(None, GroupGeneration(1, "one")))
    for _ in range(3):
        clock.sleep(5.0)
        membership.record_call_time()
    library.raw.callbacks["on_assign"](library.raw, to_kafka(0))
    assert membership.state.member_since_s == clock() - 5.0
