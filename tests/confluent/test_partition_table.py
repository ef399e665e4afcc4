"""The table of partitions tells the library what is due, and remembers what could not be told."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from confluent_kafka import OFFSET_INVALID, OFFSET_STORED, KafkaError, KafkaException, TopicPartition

from eos_client.confluent.call_marks import CallMarks
from eos_client.confluent.consumer.confluent_consumer import ConfluentConsumer
from eos_client.confluent.consumer.partition_table import PartitionTable, positions_of
from eos_client.confluent.failures.kafka_errors import FromKafka
from eos_client.confluent.thread_ownership import ThreadOwnership
from eos_client.core.commit_gate import CommitGate
from eos_client.core.model import UNJOINED, CommittedOffset
from eos_client.core.partition_events import (
    Aborted,
    Assigned,
    AssignedByHand,
    Chosen,
    Departed,
    Fetched,
    HandedOver,
    LibraryPauses,
    StartsFound,
)
from eos_client.core.partition_row import ResetPolicy
from eos_client.core.record_runs import Run
from eos_client.errors import AbortableError, FatalClientError, InputPositionError
from eos_client.testing.simulator import SimulatedClock
from tests.core.fetched_messages import EOF, ONE, ZERO, Message

BOTH = frozenset({ZERO, ONE})
SEEK_LIMIT_S = 5.0


class Raw:
    """The client library's consumer: writes down what it is asked for, and fails where a call is in ``failing``."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []
        self.failing: dict[str, list[BaseException]] = {}

    def _record(self, name: str, *asked: Any) -> None:
        self.asked.append((name, *asked))
        if failures := self.failing.get(name):
            raise failures.pop(0)

    def pause(self, partitions: list[TopicPartition]) -> None:
        self._record("pause", sorted(p.partition for p in partitions))

    def resume(self, partitions: list[TopicPartition]) -> None:
        self._record("resume", sorted(p.partition for p in partitions))

    def seek(self, place: TopicPartition) -> None:
        self._record("seek", place.partition, place.offset, place.leader_epoch)

    def unsubscribe(self) -> None:
        self._record("unsubscribe")


class Library:
    """What the table asks of `LibraryConsumer`."""

    reset_policy = ResetPolicy.EARLIEST

    def __init__(self) -> None:
        self.raw = Raw()
        self.given_up = False

    def check_fatal(self) -> bool:
        return self.given_up


@pytest.fixture
def library() -> Any:
    return Library()


@pytest.fixture
def table(library: Any) -> PartitionTable:
    """A table whose partitions have handed over the records 7 and 8, of leader epoch 3."""
    made = PartitionTable(library, SimulatedClock())
    made.tell(Assigned(BOTH))
    made.tell(StartsFound(dict.fromkeys(BOTH, CommittedOffset(7, ""))))
    made.tell(Fetched(tuple(Run(each, (7, 8), 7, 9, ((7, 3),)) for each in sorted(BOTH))))
    made.tell(HandedOver(made.state.waiting, (), UNJOINED))
    return made


def withheld(library: Any) -> PartitionTable:
    made = PartitionTable(library, SimulatedClock())
    made.tell(Assigned(frozenset({ZERO})))
    made.tell(Fetched((Run(ZERO, (7,), 7, 8, ((7, 3),)),)))
    return made


def test_a_table_has_the_reset_policy_of_the_library(library):
    library.reset_policy = ResetPolicy.ERROR
    assert PartitionTable(library, SimulatedClock()).state.reset_policy is ResetPolicy.ERROR


def test_where_nothing_is_due_the_library_is_not_asked(table, library):
    table.perform_due()
    assert library.raw.asked == []


# -- seeks -------------------------------------------------------------------------------------------------------------


def test_a_seek_that_is_due_is_made_with_its_leader_epoch(table, library):
    table.tell(Aborted())
    table.perform_due()
    assert sorted(library.raw.asked) == [("seek", 0, 7, 3), ("seek", 1, 7, 3)]
    assert not table.state.due_seeks


def test_a_seek_without_a_known_epoch_asks_no_broker(library):
    table = withheld(library)
    table.tell(StartsFound({ZERO: None}))
    table.perform_due()
    assert library.raw.asked == [("pause", [0]), ("seek", 0, -2, None), ("resume", [0])]


def test_a_seek_that_is_outdated_is_repeated(table, library):
    library.raw.failing["seek"] = [KafkaException("outdated")] * 2
    table.tell(Aborted())
    table.perform_due()
    assert len(library.raw.asked) == 4
    assert not table.state.due_seeks


def test_a_seek_that_never_succeeds_ends_the_client(table, library):
    library.raw.failing["seek"] = [KafkaException("outdated")] * 1000
    table.tell(Aborted())
    began_at = table._clock()
    with pytest.raises(FatalClientError, match="could not be rewound to 7"):
        table.perform_due()
    assert table._clock() - began_at == pytest.approx(SEEK_LIMIT_S, abs=0.1)
    assert table.state.due_seeks.keys() == BOTH


def test_a_consumer_that_was_given_up_is_not_sought_again(table, library):
    library.raw.failing["seek"] = [KafkaException("erroneous state")] * 1000
    library.given_up = True
    table.tell(Aborted())
    table.perform_due()
    assert len(library.raw.asked) == 2
    assert table.state.due_seeks.keys() == BOTH


@pytest.mark.parametrize("given_up", [False, True])
def test_an_error_of_ours_out_of_a_signal_handler_is_no_refused_seek(table, library, given_up):
    class OfHandlerError(FromKafka, AbortableError):
        pass

    library.raw.failing["seek"] = [OfHandlerError(KafkaError(KafkaError._FAIL), "raised by a handler")]
    library.given_up = given_up
    table.tell(Aborted())
    with pytest.raises(OfHandlerError):
        table.perform_due()
    assert len(library.raw.asked) == 1
    assert table.state.due_seeks.keys() == BOTH


def test_a_seek_that_was_interrupted_is_still_due(table, library):
    library.raw.failing["seek"] = [KeyboardInterrupt()]
    table.tell(Aborted())
    with pytest.raises(KeyboardInterrupt):
        table.perform_due()
    assert table.state.due_seeks.keys() == BOTH
    table.perform_due()
    assert not table.state.due_seeks


@pytest.mark.parametrize("offset", [3, -2])
def test_what_was_chosen_during_a_seek_is_not_taken_back(library, offset):
    class Choosing(Raw):
        def seek(self, place: TopicPartition) -> None:
            chosen_in.tell(Chosen(ZERO, offset))

    chosen_in = withheld(library)
    library.raw = Choosing()
    chosen_in.tell(StartsFound({ZERO: CommittedOffset(7, "")}))
    chosen_in.perform_due()
    assert chosen_in.state.next_offsets == {ZERO: offset}
    assert chosen_in.state.row(ZERO).rejects_earlier is (offset >= 0)


# -- pauses ------------------------------------------------------------------------------------------------------------


def test_what_is_withheld_is_paused_and_resumed_once_its_start_is_known(library):
    table = withheld(library)
    table.perform_due()
    table.perform_due()
    assert library.raw.asked == [("pause", [0])]
    table.tell(StartsFound({ZERO: CommittedOffset(5, "")}))
    table.perform_due()
    assert library.raw.asked[1:] == [("seek", 0, 5, None), ("resume", [0])]


def test_a_pause_that_was_interrupted_may_have_been_made(library, table):
    library.raw.failing["pause"] = [KeyboardInterrupt()]
    with pytest.raises(KeyboardInterrupt):
        table.pause(BOTH)
    table.resume_due()
    assert library.raw.asked[-1] == ("resume", [0, 1])


def test_a_resume_that_was_interrupted_is_still_due(library, table):
    library.raw.failing["resume"] = [KeyboardInterrupt()]
    table.tell(LibraryPauses(BOTH))
    with pytest.raises(KeyboardInterrupt):
        table.resume_due()
    assert table.state.due_resumes == BOTH
    table.resume_due()
    table.resume_due()
    assert library.raw.asked == [("resume", [0, 1])] * 2


def test_inside_a_callback_only_what_is_due_is_resumed(library, table):
    table.tell(Aborted())
    table.tell(LibraryPauses(frozenset({ZERO})))
    table.tell(Departed(frozenset({ZERO})))
    table.resume_due()
    assert library.raw.asked == [("resume", [0])]


# -- the application's pauses and seeks --------------------------------------------------------------------------------


@pytest.fixture
def member() -> Any:
    settings = {"group.id": "billing", "auto.offset.reset": "earliest"}
    ownership = ThreadOwnership("EosConsumer", CallMarks())
    clock = SimulatedClock()
    return ConfluentConsumer(settings, ownership, CommitGate(), lambda _: None, lambda _: None, clock, lambda _: Raw())


def test_what_waits_for_its_start_is_resumed_in_name_only(member):
    member.table.tell(Assigned(BOTH))
    member.table.tell(Fetched((Run(ZERO, (7,), 7, 8, ((7, 3),)),)))
    member.pause([TopicPartition("orders", 0)])
    member.resume([TopicPartition("orders", 0), TopicPartition("orders", 1)])
    assert member.library.raw.asked[-1] == ("resume", [1])
    assert not member.state.paused
    assert member.state.withheld == {ZERO}
    member.table.tell(StartsFound({ZERO: CommittedOffset(7, "")}))
    member.table.perform_due()
    assert member.library.raw.asked[2:] == [("seek", 0, 7, None), ("resume", [0])]


def test_a_pause_that_the_library_refuses_is_none(member):
    member.library.raw.failing["pause"] = [KafkaException("unknown partition")]
    with pytest.raises(KafkaException):
        member.pause([TopicPartition("orders", 0)])
    assert not member.state.paused


def test_a_seek_that_the_library_refuses_moves_nothing(member):
    member.library.raw.failing["seek"] = [KafkaException("erroneous state")]
    with pytest.raises(KafkaException):
        member.seek(TopicPartition("orders", 0, 7))
    assert not member.state.rows


@pytest.mark.parametrize("offset", [-2005, -3, OFFSET_STORED, OFFSET_INVALID])
def test_a_seek_to_an_unknown_logical_offset_is_refused_before_the_library_is_asked(member, offset):
    with pytest.raises(ValueError, match="to the logical offset"):
        member.seek(TopicPartition("orders", 0, offset))
    assert member.library.raw.asked == []
    assert not member.state.rows


def test_a_seek_resumes_what_was_withheld(member):
    member.table.tell(Assigned(BOTH))
    member.table.tell(Fetched((Run(ZERO, (7,), 7, 8, ((7, 3),)),)))
    member.table.perform_due()
    member.seek(TopicPartition("orders", 0, 3))
    assert member.library.raw.asked == [("pause", [0]), ("seek", 0, 3, None), ("resume", [0])]
    assert member.state.next_offsets == {ZERO: 3}


def test_an_event_between_records_hides_no_truncation(member):
    member.table.tell(Assigned(frozenset({ZERO})))
    member.table.tell(StartsFound({ZERO: CommittedOffset(7, "")}))
    member.table.tell(Fetched((Run(ZERO, (7, 8), 7, 9, ((7, 3),)),)))
    member.table.tell(HandedOver(member.state.waiting, (), UNJOINED))
    end = Run(ZERO, (Message(0, 9, EOF),), is_error=True)
    member.table.tell(Fetched((end, Run(ZERO, (5, 6), 5, 7, ((5, 4),)))))
    assert member._from_waiting(10).runs == (end,)
    member.table.tell(HandedOver((end,), member.state.waiting[1:], UNJOINED))
    with pytest.raises(InputPositionError):
        member._from_waiting(10)


@pytest.mark.parametrize("in_callback", [False, True])
def test_what_waits_is_sought_again_by_unsubscribe_but_not_inside_a_callback(member, in_callback):
    member.table.tell(Assigned(frozenset({ZERO})))
    member.table.tell(StartsFound({ZERO: CommittedOffset(7, "")}))
    member.table.tell(Fetched((Run(ZERO, (7, 8), 7, 9, ((7, 3),)),)))
    unsubscribe = partial(member.membership._callbacks.run, None, member.unsubscribe)
    (unsubscribe if in_callback else member.unsubscribe)()
    assert not member.state.waiting
    assert bool(member.state.due_seeks) is in_callback
    assert member.library.raw.asked == [*([] if in_callback else [("seek", 0, 7, None)]), ("unsubscribe",)]


def test_the_positions_of_an_answer_are_known_by_partition():
    assert positions_of([TopicPartition("orders", 0, 7), TopicPartition("orders", 1, -1001)]) == {ZERO: 7, ONE: -1001}


def test_a_pause_that_was_interrupted_is_undone(member, monkeypatch):
    def struck(_partitions):
        raise KeyboardInterrupt  # the library has paused it

    member.table.tell(AssignedByHand(BOTH, replaces=True, without_group=True))
    monkeypatch.setattr(member.library.raw, "pause", struck)
    with pytest.raises(KeyboardInterrupt):
        member.pause([TopicPartition("orders", 0)])
    assert member.state.due_resumes == {ZERO}
