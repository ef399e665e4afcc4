"""Each part of the consumer alone: what it keeps by partition, and what it does with it."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import CodeType
from typing import Any, cast
from unittest.mock import Mock

import pytest
from confluent_kafka import OFFSET_BEGINNING, OFFSET_INVALID, KafkaException, TopicPartition

import eos_client
from eos_client.clock import MONOTONIC_CLOCK
from eos_client.confluent.callback_guard import CallbackGuard
from eos_client.confluent.consumer.fetched_records import Batch
from eos_client.confluent.consumer.library_consumer import LibraryConsumer
from eos_client.confluent.consumer.membership import Membership
from eos_client.confluent.consumer.partition_parts import ChosenPositions, PartitionParts
from eos_client.confluent.consumer.plain_offsets import PlainOffsets
from eos_client.confluent.consumer.rewinding import ReadPositions, Rewinding, Seeks
from eos_client.confluent.thread_ownership import ThreadOwnership
from eos_client.core.hand_over import HandedOver
from eos_client.core.model import UNJOINED, GroupGeneration, InputPartition, InputPosition
from eos_client.errors import FatalClientError
from eos_client.ports import MembershipSnapshot
from eos_client.testing.simulator import SimulatedClock
from tests.confluent.test_record_runs import EOF, ONE, ZERO, Message, places
from tests.simulation.broken_off import StepStrike, StrikeError


class Raw:
    """The client library's consumer: writes down what it is asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Any]] = []
        self.callbacks: dict[str, Any] = {}
        self.member_id = "one"

    def pause(self, partitions: list[TopicPartition]) -> None:
        self.asked.append(("pause", [p.partition for p in partitions]))

    def resume(self, partitions: list[TopicPartition]) -> None:
        self.asked.append(("resume", [p.partition for p in partitions]))

    def seek(self, place: TopicPartition) -> None:
        self.asked.append(("seek", (place.partition, place.offset)))

    def committed(self, _partitions: list[TopicPartition], _timeout: float) -> list[TopicPartition]:
        return []

    def subscribe(self, _topics: list[str], **callbacks: Any) -> None:
        self.callbacks = callbacks

    def unsubscribe(self) -> None:
        self.asked.append(("unsubscribe", None))

    def consumer_group_metadata(self) -> Any:
        return object()

    def memberid(self) -> str:
        return self.member_id


class Guard:
    """Hears everything, and keeps what is raised."""

    def __init__(self) -> None:
        self.error: BaseException | None = None

    def while_active(self, callback: Any) -> Any:
        return callback

    def running(self, callback: Any, *arguments: Any) -> None:
        callback(*arguments)

    def keep(self, error: BaseException) -> None:
        self.error = error

    def raise_kept(self) -> None:
        error, self.error = self.error, None
        if error is not None:
            raise error


class Library:
    """What the parts ask of `LibraryConsumer`."""

    is_real = False

    def __init__(self, **settings: Any) -> None:
        self.raw = Raw()
        self.guard = Guard()
        self.settings = settings
        self.given_up = False

    def check_fatal(self) -> bool:
        return self.given_up


@pytest.fixture
def library() -> Any:
    return Library()


# -- pauses ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def pausing() -> Any:
    return LibraryConsumer({"auto.offset.reset": "earliest"}, lambda _: Raw(), SimulatedClock())


def test_a_pause_of_ours_leaves_the_applications_alone(pausing):
    pausing.pause_for_application([TopicPartition("orders", 0)])
    pausing.pause(frozenset({ZERO}))
    pausing.resume(frozenset({ZERO}))
    assert pausing.raw.asked[-1] == ("resume", [])
    assert pausing.paused_by_application == {ZERO}


def test_the_applications_pause_ends_when_its_partition_leaves(pausing):
    pausing.pause_for_application([TopicPartition("orders", 0)])
    pausing.departed(frozenset({ZERO, ONE}))
    assert pausing.raw.asked[-1] == ("resume", [0])
    assert not pausing.paused_by_application


def test_what_waits_for_its_start_is_resumed_in_name_only(pausing):
    pausing.pause_for_application([TopicPartition("orders", 0)])
    pausing.resume_for_application([TopicPartition("orders", 0)], frozenset({ZERO}))
    assert pausing.raw.asked[-1] == ("resume", [])
    assert not pausing.paused_by_application


# -- seeks and rewinding -----------------------------------------------------------------------------------------------


def seeks_of(library: Any, handed: HandedOver | None = None) -> Seeks:
    return Seeks(library, handed or HandedOver(), ReadPositions(), SimulatedClock())


def position(first: int, following: int) -> InputPosition:
    return InputPosition(first, following, UNJOINED)


def test_a_seek_books_where_the_partition_goes_on_and_is_repeated_while_it_is_outdated(library):
    handed, refused = HandedOver(), [1, 1]
    seek = library.raw.seek

    def outdated(place: TopicPartition) -> None:
        if refused:
            refused.pop()
            raise KafkaException("outdated")
        seek(place)

    library.raw.seek = outdated
    seeks_of(library, handed).seek(ZERO, 7)
    assert handed.next_offsets == {ZERO: 7}
    assert library.raw.asked == [("seek", (0, 7))]


def test_a_seek_that_never_succeeds_ends_the_client(library):
    def failing(_: TopicPartition) -> None:
        raise KafkaException("outdated")

    library.raw.seek = failing
    with pytest.raises(FatalClientError, match="could not be rewound"):
        seeks_of(library).seek(ZERO, 7)


def test_a_seek_of_a_consumer_that_was_given_up_is_not_repeated(library):
    def refused(place: TopicPartition) -> None:
        library.raw.asked.append(("seek", (place.partition, place.offset)))
        raise KafkaException("erroneous state")

    library.raw.seek, library.given_up = refused, True
    seeks_of(library).seek(ZERO, 7)
    assert library.raw.asked == [("seek", (0, 7))]


def test_a_rewind_goes_back_to_the_first_record_that_waits_or_is_not_committed(library):
    rewinding = Rewinding(seeks_of(library))
    assert not rewinding.is_due
    goals = rewinding.plan({ZERO: (5, 9), ONE: (1, 2)}, {ZERO: position(3, 5)})
    assert goals == {ZERO: (3, 9), ONE: (1, 2)}
    assert rewinding.is_due


def test_a_plan_that_is_due_stands_until_it_is_carried_out_or_its_partition_leaves(library):
    rewinding = Rewinding(seeks_of(library))
    rewinding.plan({}, {ZERO: position(3, 5), ONE: position(1, 2)})
    rewinding.forget(frozenset({ONE}))
    assert rewinding.plan({ZERO: (8, 9)}, {}) == {ZERO: (3, 5)}
    assert rewinding.take_plan() == {ZERO: (3, 5)}
    assert not rewinding.is_due


def test_records_from_before_a_rewind_are_dropped_and_their_partition_is_sought_again(library):
    rewinding = Rewinding(seeks_of(library))
    rewinding.rewind(ZERO, 3, 7)
    stale = Batch([Message(0, 7), Message(1, 1), Message(0, 8)])
    assert places(rewinding.filter_batch(stale).messages) == [(1, 1)]
    assert library.raw.asked == [("seek", (0, 3)), ("seek", (0, 3))]
    again = Batch([Message(0, 3), Message(0, 4)])
    assert rewinding.filter_batch(again) is again


def test_a_log_that_does_not_have_the_old_offset_any_more_ends_the_seeking(library):
    rewinding = Rewinding(seeks_of(library))
    rewinding.rewind(ZERO, 3, 7)
    beyond = Batch([Message(0, 9)])
    for _ in range(3):
        assert not rewinding.filter_batch(beyond)
    assert rewinding.filter_batch(beyond) is beyond


# -- leader epochs -----------------------------------------------------------------------------------------------------


@pytest.fixture
def parts() -> PartitionParts:
    """The parts of a consumer that has read three records of partition 0, of leader epochs 3, 3 and 4."""
    clock = SimulatedClock()
    library = LibraryConsumer({"auto.offset.reset": "earliest"}, lambda _: Raw(), clock)
    made = PartitionParts(library, lambda _: True, lambda _: None, clock)
    batch = Batch([Message(0, 7, epoch=3), Message(0, 8, EOF), Message(0, 9, epoch=3), Message(0, 12, epoch=4)])
    assert [made.reads.read(run, batch.messages) for run in batch.runs] == [4]
    return made


def test_the_leader_epoch_of_each_record_that_was_read_is_known(parts):
    assert [parts.reads.epochs.at(ZERO, offset) for offset in (6, 7, 9, 11, 12, 13)] == [None, 3, 3, 3, 4, 4]


def test_records_further_back_have_their_epochs_though_the_run_ends_under_a_known_one(parts):
    batch = Batch([Message(0, 2, epoch=1), Message(0, 12, epoch=4)])
    for run in batch.runs:
        parts.reads.read(run, batch.messages)
    assert [parts.reads.epochs.at(ZERO, offset) for offset in (2, 7, 12)] == [1, 3, 4]


def test_what_departs_and_what_another_topic_replaces_has_no_known_epochs(parts):
    for forget in (parts.departed, parts.restart_recreated):
        parts.reads.epochs.record(ZERO, 7, 3)
        forget(frozenset({ZERO}))
        assert parts.reads.epochs.at(ZERO, 13) is None


def test_an_offset_that_the_application_chooses_has_the_epoch_that_it_gives(parts):
    for place, epoch in (
        (TopicPartition("orders", 0, 20), None),
        (TopicPartition("orders", 0, 20, leader_epoch=6), 6),
        (TopicPartition("orders", 0, OFFSET_BEGINNING), None),
    ):
        parts.continue_at([place])
        assert parts.reads.epochs.at(ZERO, 20) == epoch


# -- what the application chooses --------------------------------------------------------------------------------------


def test_a_chosen_position_counts_within_its_call_and_until_its_partition_leaves():
    chosen = ChosenPositions()
    chosen.record([TopicPartition("orders", 0, 7), TopicPartition("orders", 1, OFFSET_INVALID)])
    assert chosen.in_call(frozenset({ZERO, ONE})) == {ZERO: 7}
    chosen.departed(frozenset({ZERO}))
    assert chosen.in_call(frozenset({ZERO})) == {}


def test_where_the_application_has_sought_it_goes_on_after_a_rejoin_at_its_first_uncommitted_record():
    chosen, handed = ChosenPositions(), HandedOver()
    chosen.record([TopicPartition("orders", 0, 7)])
    handed.hand_over(ZERO, InputPosition(7, 9, UNJOINED))
    handed.hand_over(ONE, InputPosition(1, 2, UNJOINED))
    chosen.save_for_rejoin(frozenset({ZERO, ONE}), handed)
    assert chosen.saved == {ZERO: 7}


# -- offsets that the application commits ------------------------------------------------------------------------------


def test_a_commit_is_unfenced_from_before_it_is_sent_until_its_partition_leaves():
    clock = SimulatedClock()
    offsets = PlainOffsets(clock)
    offsets.record_sending([ZERO])
    offsets.record_in_flight([ZERO])
    assert offsets.unanswered() == {ZERO}
    offsets.record_answer(ZERO)
    assert not offsets.unanswered()
    assert offsets.unfenced == {ZERO}
    offsets.forget([ZERO])
    assert not offsets.unfenced


def test_what_was_stored_beyond_what_was_sent_is_still_to_be_committed():
    offsets = PlainOffsets(SimulatedClock())
    offsets.store([TopicPartition("orders", 0, 5), TopicPartition("orders", 1, 5)])
    offsets.drop_stored({ZERO: 5, ONE: 4})
    assert set(offsets.stored) == {ONE}
    offsets.forget_stored([ONE])
    assert offsets.stored == {}


# -- membership --------------------------------------------------------------------------------------------------------


class Follower:
    """The parts that follow a membership, and its listener: writes down what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, list[int]]] = []
        self.starts = self.chosen = self

    def __getattr__(self, name: str) -> Any:
        def told(partitions: Any = (), *_: Any) -> None:
            self.told.append((name, sorted(p.partition for p in partitions)))

        return told


@pytest.fixture
def joined(library: Any) -> tuple[Membership, Any]:
    follower: Any = Follower()
    membership = Membership(library, ThreadOwnership("EosConsumer"), follower, MONOTONIC_CLOCK)
    membership.subscribe(["orders"], follower)
    return membership, follower


def to_kafka(*numbers: int) -> list[TopicPartition]:
    return [TopicPartition("orders", number) for number in numbers]


def test_the_parts_are_told_of_an_assignment_before_the_listener_and_fix_starts_after_it(joined, library):
    membership, follower = joined
    library.raw.callbacks["on_assign"](library.raw, to_kafka(0, 1))
    assert membership.assigned == {ZERO, ONE}
    assert follower.told == [("expect", [0, 1]), ("on_assigned", [0, 1]), ("commit_start_offsets", [])]


def test_the_listener_hears_of_a_revocation_while_the_partitions_are_ours_and_of_a_loss_when_they_are_not(
    joined, library
):
    membership, follower = joined
    seen: list[frozenset[InputPartition]] = []
    follower.on_revoked = follower.on_lost = lambda _: seen.append(membership.assigned)
    library.raw.callbacks["on_assign"](library.raw, to_kafka(0, 1))
    library.raw.callbacks["on_revoke"](library.raw, to_kafka(0))
    library.raw.callbacks["on_lost"](library.raw, to_kafka(1))
    assert seen == [frozenset({ZERO, ONE}), frozenset()]
    assert membership.left_in_call == {ZERO, ONE}
    assert follower.told[-2:] == [("departed", [0]), ("departed", [1])]


def test_a_callback_that_broke_off_is_made_good_as_a_loss_and_a_new_assignment(joined, library):
    membership, follower = joined
    library.raw.callbacks["on_assign"](library.raw, to_kafka(0))

    def struck(_: Any) -> None:
        raise KeyboardInterrupt

    follower.on_assigned = struck
    library.raw.callbacks["on_assign"](library.raw, to_kafka(1))
    assert membership.callback_interrupted
    assert isinstance(library.guard.error, KeyboardInterrupt)
    del follower.on_assigned
    follower.told.clear()
    membership.replay_interrupted_callbacks(frozenset({ONE}))
    assert not membership.callback_interrupted
    assert membership.assigned == {ONE}
    assert [name for name, _ in follower.told][:2] == ["on_lost", "departed"]
    assert ("on_assigned", [1]) in follower.told


def test_a_callback_that_breaks_off_again_as_it_is_made_good_is_made_good_by_the_next_call(joined, library):
    membership, follower = joined

    def struck(_: Any) -> None:
        raise KeyboardInterrupt

    follower.on_assigned = struck
    library.raw.callbacks["on_assign"](library.raw, to_kafka(0))
    with pytest.raises(KeyboardInterrupt):
        library.guard.raise_kept()
    with pytest.raises(KeyboardInterrupt):
        membership.replay_interrupted_callbacks(frozenset({ZERO}))
    del follower.on_assigned
    follower.told.clear()
    membership.replay_interrupted_callbacks(frozenset({ZERO}))
    assert ("on_assigned", [0]) in follower.told
    assert not membership.callback_interrupted


class CallbackStrike(StepStrike):
    """Strikes where a rebalance callback begins and ends."""

    def _strikes(self, code: CodeType) -> bool:
        return code is Membership._callback.__code__


def test_no_callback_is_under_way_after_one_that_was_struck_at_any_step_as_it_was_made_good(library):
    library.guard = CallbackGuard()
    for number in itertools.count(1):
        strike, follower = CallbackStrike(number), cast("Any", Follower())
        membership = Membership(library, ThreadOwnership("EosConsumer"), follower, MONOTONIC_CLOCK)
        with strike.armed(), suppress(StrikeError):
            membership.replay_interrupted_callbacks(frozenset({ZERO}))
        if not strike.struck:
            break
        assert not membership.in_callback, strike.struck
    assert number > 50


@pytest.mark.parametrize("leave", ["on_revoke", "on_lost"])
def test_nobody_is_told_that_partitions_leave_whose_assignment_came_only_while_the_consumer_leaves(
    joined, library, leave
):
    membership, follower = joined
    library.raw.callbacks["on_assign"](library.raw, to_kafka(0))
    membership.is_leaving = True
    library.raw.callbacks["on_assign"](library.raw, to_kafka(1))
    library.raw.callbacks[leave](library.raw, to_kafka(0, 1))
    leaving = [each for each in follower.told if each[0] in {"on_revoked", "on_lost", "departed"}]
    assert [numbers for _, numbers in leaving] == [[0], [0]]
    library.raw.asked.clear()
    library.raw.callbacks[leave](library.raw, to_kafka(1))
    assert [each for each in follower.told if each[0] in {"on_revoked", "on_lost", "departed"}] == leaving
    # What was lost is not joined for again: a static member would fence its successor.
    assert library.raw.asked == ([("unsubscribe", None)] if leave == "on_lost" else [])


def test_what_the_applications_callback_raises_breaks_nothing_off(joined, library):
    membership, follower = joined

    def theirs(_: Any) -> None:
        raise ValueError

    follower.on_assigned = membership.tracking_errors_of(theirs)
    library.raw.callbacks["on_assign"](library.raw, to_kafka(0))
    assert not membership.callback_interrupted
    assert isinstance(library.guard.error, ValueError)
    assert membership.assigned == {ZERO}


def test_a_kip_848_member_syncs_its_epoch_by_an_emptied_queue_only():
    library: Any = Library(**{"group.protocol": "consumer"})
    follower: Any = Follower()
    membership = Membership(library, ThreadOwnership("EosConsumer"), follower, MONOTONIC_CLOCK)
    membership.subscribe(["orders"], follower)
    library.raw.callbacks["on_assign"](library.raw, to_kafka(0))
    assert membership.needs_sync
    assert membership.synced_generation is UNJOINED


@pytest.mark.parametrize(("stopped_s", "lost"), [(9.9, []), (10.0, [0])])
def test_a_missed_generation_is_a_loss_if_the_process_was_stopped_inside_a_call_for_as_long_as_a_session(
    library, monkeypatch, stopped_s, lost
):
    clock, follower = SimulatedClock(), cast("Any", Follower())
    library.session_timeout_s = 10.0
    membership = Membership(library, ThreadOwnership("EosConsumer"), follower, clock)
    membership.subscribe(["orders"], follower)
    for generation_id, number in (1, 0), (3, 1):
        generation = GroupGeneration(generation_id, "one")
        monkeypatch.setattr(membership, "snapshot", lambda now=generation: MembershipSnapshot(None, now))
        membership.begin_call()
        if generation_id > 1:
            clock.sleep(stopped_s)
        library.raw.callbacks["on_assign"](library.raw, to_kafka(number))
        membership.end_call()
    assert [numbers for name, numbers in follower.told if name == "on_membership_changed"] == ([lost] if lost else [])


def test_what_another_member_retains_at_a_revocation_may_have_another_owner_until_the_next_assignment(
    joined, library, monkeypatch
):
    membership, follower = joined
    library.session_timeout_s = 10.0

    def call(name: str, generation: GroupGeneration, *numbers: int) -> list[Any]:
        follower.told.clear()
        monkeypatch.setattr(membership, "snapshot", lambda: MembershipSnapshot(None, generation))
        library.raw.callbacks[name](library.raw, to_kafka(*numbers))
        return [(told, numbers) for told, numbers in follower.told if told in {"on_revoked", "on_membership_changed"}]

    call("on_assign", GroupGeneration(1, "one"), 0, 1, 2)
    assert call("on_revoke", GroupGeneration(2, "two"), 2) == [("on_membership_changed", [0, 1])]
    assert membership.may_be_readmitted(GroupGeneration(3, "two"))
    assert call("on_revoke", GroupGeneration(3, "two"), 1) == [("on_membership_changed", [0])]
    assert call("on_assign", GroupGeneration(4, "two")) == [("on_membership_changed", [0])]
    assert not membership.may_be_readmitted(GroupGeneration(4, "two"))
    assert call("on_revoke", GroupGeneration(5, "two"), 0) == [("on_revoked", [0])]


def test_what_another_member_retains_is_its_own_if_an_assignment_of_the_revocations_generation_follows(
    joined, library, monkeypatch
):
    membership, follower = joined
    library.session_timeout_s = 10.0
    for name, generation, numbers in (
        ("on_assign", GroupGeneration(1, "one"), (0, 1)),
        ("on_revoke", GroupGeneration(2, "two"), (1,)),
        ("on_assign", GroupGeneration(2, "two"), ()),
        ("on_revoke", GroupGeneration(3, "two"), (0,)),
    ):
        follower.told.clear()
        monkeypatch.setattr(membership, "snapshot", lambda now=generation: MembershipSnapshot(None, now))
        library.raw.callbacks[name](library.raw, to_kafka(*numbers))
    assert ("on_revoked", [0]) in follower.told


def test_a_readmission_that_an_interrupted_empty_assignment_has_reported_is_heard_of_by_the_next_call(
    library, monkeypatch
):
    clock, follower = SimulatedClock(), cast("Any", Follower())
    library.session_timeout_s, library.guard = 10.0, CallbackGuard()
    membership = Membership(library, ThreadOwnership("EosConsumer"), follower, clock)
    membership.subscribe(["orders"], follower)
    for generation_id in 1, 3:
        snapshot = MembershipSnapshot(None, GroupGeneration(generation_id, "one"))
        monkeypatch.setattr(membership, "snapshot", lambda now=snapshot: now)
        membership.begin_call()
        if generation_id == 1:
            membership._on_assign(None, to_kafka(0))
        else:
            clock.sleep(10.0)
            with monkeypatch.context() as patched:
                patched.setattr(membership, "_assigned_to_us", Mock(side_effect=KeyboardInterrupt))
                membership._on_assign(None, [])
        membership.end_call()
    assert membership.callback_interrupted
    assert membership.may_be_readmitted(snapshot.generation)
    with suppress(KeyboardInterrupt):
        membership.replay_interrupted_callbacks(frozenset({ZERO}))
    assert not membership.may_be_readmitted(snapshot.generation)
    assert ("on_membership_changed", [0]) in follower.told


def test_records_are_of_one_topic_only_while_all_that_was_ever_assigned_is(joined, library):
    membership, _ = joined
    library.raw.callbacks["on_assign"](library.raw, to_kafka(0))
    assert membership.is_of_one_topic
    library.raw.callbacks["on_assign"](library.raw, [TopicPartition("bills", 0)])
    assert not membership.is_of_one_topic
    library.raw.callbacks["on_assign"](library.raw, to_kafka(1))
    assert not membership.is_of_one_topic


def test_a_topic_is_by_pattern_where_the_subscription_has_one_and_does_not_name_it(library):
    follower: Any = Follower()
    membership = Membership(library, ThreadOwnership("EosConsumer"), follower, MONOTONIC_CLOCK)
    membership.subscribe(["orders", "^or.*"], follower)
    assert membership.names("orders")
    assert not membership.is_by_pattern("orders")
    assert membership.is_by_pattern("orders-eu")
    assert not membership.names("orders-eu")
    assert not membership.names("^or.*")  # of which librdkafka has events, too
    assert not membership.is_of_one_topic


# -- each owns its state -----------------------------------------------------------------------------------------------

PACKAGE = Path(eos_client.__file__).parent
NO_STATE_OF_A_PART = {"journal", "offset"}  # closed by the last step of a call; of the library's TopicPartition


def written_from_outside(path: Path) -> Iterator[str]:
    """Assignments to an attribute of anything but the object itself."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            is_own = isinstance(node.value, ast.Name) and node.value.id == "self"
            if not is_own and node.attr not in NO_STATE_OF_A_PART:
                yield f"{path.name}:{node.lineno} {ast.unparse(node)}"


@pytest.mark.parametrize("name", ["confluent_consumer", "fetching", "membership"])
def test_no_part_changes_the_state_of_another(name):
    assert list(written_from_outside(PACKAGE / "confluent" / "consumer" / f"{name}.py")) == []


@pytest.mark.parametrize("name", ["consumer", "open_work", "plain_commit"])
def test_a_consumers_face_changes_the_state_of_no_part(name):
    assert list(written_from_outside(PACKAGE / "clients" / f"{name}.py")) == []
