"""The table of partitions against a model of the library: whatever happens, the next record is the right one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import KafkaError
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec.structs import replace

from eos_client.core import partition_events
from eos_client.core.hand_over import HandOver, LogTooShort, MissingStart, TruncatedLog, next_hand_over
from eos_client.core.leader_epochs import Misplacement
from eos_client.core.model import CommittedOffset, GroupGeneration, InputPartition
from eos_client.core.partition_events import (
    Aborted,
    Assigned,
    AssignedByHand,
    CallBegan,
    CallEnded,
    Chosen,
    Closed,
    Committed,
    CommittedByOthers,
    Departed,
    EndsFound,
    ErrorsTaken,
    Fetched,
    HandedOver,
    Interrupted,
    LibraryCallBegan,
    LibraryPauses,
    LibraryResumed,
    LogEndFound,
    LossReported,
    Passed,
    Paused,
    PauseOfAllBegan,
    PauseOfAllEnded,
    Processed,
    PutBack,
    Resumed,
    Retained,
    RewindsRepeated,
    Sought,
    StartsFound,
    TopicReplaced,
    Truncated,
    UnassignedByHand,
    WaitingGivenBack,
    WorkLost,
    WorkTakenBack,
)
from eos_client.core.partition_row import BEGINNING, SEEK_ATTEMPTS_MAX, PartitionRow, ResetPolicy, Start
from eos_client.core.partition_states import ConsumerState, next_state
from eos_client.core.passed_offsets import PassedOffset, passed_before_a_record, passed_runs, positions_to_read
from eos_client.core.record_runs import message_count, messages_of, runs
from tests.core.fetched_messages import Message

GENERATION = GroupGeneration(1, "member")
PARTITIONS = [InputPartition("orders", 0), InputPartition("orders", 1)]
EVERY_NTH_IS_A_MARKER = 4
INVALID = -1001
END = -1
ERROR = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)

partitions = st.sampled_from(PARTITIONS)

EVENTS = {event for event in vars(partition_events).values() if getattr(event, "__module__", "").endswith("_events")}
TOLD: set[type] = set()


def record(partition: InputPartition, offset: int) -> Message:
    return Message(partition.partition, offset, name=partition.topic, epoch=epoch_of(offset))


def epoch_of(offset: int) -> int:
    return offset // 10


def place_of(message: Message) -> InputPartition:
    return InputPartition(str(message.name), message.number or 0)


def is_record(offset: int) -> bool:
    return offset % EVERY_NTH_IS_A_MARKER != EVERY_NTH_IS_A_MARKER - 1


def record_at_or_after(offset: int) -> int:
    return offset if is_record(offset) else offset + 1


def resolved(partition: InputPartition, offset: int) -> int:
    """What a logical offset means in the log of the partition."""
    return {BEGINNING: 0, END: end_of(partition)}.get(offset, offset)


def end_of(partition: InputPartition) -> int:
    return 20 + partition.partition


@dataclass
class Library:
    """A client library: it fetches ahead, and a pause drops what it has fetched, but no seek does.

    librdkafka's seek does drop it: the table does not rely on that.
    """

    positions: dict[InputPartition, int | None] = field(default_factory=dict)
    queue: list[Message] = field(default_factory=list)
    paused: set[InputPartition] = field(default_factory=set)
    handed: dict[InputPartition, int] = field(default_factory=dict)
    started_over: set[InputPartition] = field(default_factory=set)

    def seek(self, partition: InputPartition, offset: int) -> None:
        self.positions[partition] = resolved(partition, offset)
        if partition in self.started_over:  # what it has fetched since cannot be told from what follows the seek
            self.drop(partition)
        self.handed.pop(partition, None)

    def pause(self, partitions: frozenset[InputPartition]) -> None:
        self.paused |= partitions
        for partition in partitions & self.positions.keys():
            fetched = (m for m in self.queue if place_of(m) == partition and m.failed is None)
            if (first := next(fetched, None)) is not None:
                self.positions[partition] = first.at
            self.drop(partition)

    def drop(self, partition: InputPartition) -> None:
        self.queue = [m for m in self.queue if place_of(m) != partition or m.failed is not None]

    def fetch_ahead(self, partition: InputPartition, count: int) -> None:
        if partition in self.paused:
            return
        for _ in range(count):
            position = self.positions.get(partition)
            if position is None:
                return
            offset = record_at_or_after(position)
            self.queue.append(record(partition, offset))
            self.positions[partition] = offset + 1

    def take_all(self) -> list[Message]:
        taken, self.queue = self.queue, []
        self.started_over = set()
        self.handed.update({place_of(message): message.at + 1 for message in taken if message.failed is None})
        return taken


def has_partitions(machine: Any) -> bool:
    return bool(machine.library.positions)


def may_hand_over(machine: Any) -> bool:
    return not machine.state.truncations


class Partitions(RuleBasedStateMachine):
    """Drives the table with every event in any order; the application checks each record that it is given.

    Nothing is handed over after ``Closed`` and ``TopicReplaced``: the states after them are looked at and not gone on
    from.
    """

    @initialize(policy=st.sampled_from(ResetPolicy), assigned=st.sets(partitions), data=st.data())
    def begin(self, policy: ResetPolicy, assigned: set[InputPartition], data: Any) -> None:
        self.data = data
        self.state = ConsumerState(reset_policy=policy)
        self.library = Library()
        self.committed: dict[InputPartition, int] = {}
        self.first: dict[InputPartition, int] = {}  # of the work that is not committed
        self.following: dict[InputPartition, int] = {}  # what the application must be given next
        self.events = 0  # error events that were taken from the library and not handed over
        for partition in sorted(assigned):
            self.assign(partition)
            self.is_read(2)

    def tell(self, *events: Any) -> None:
        for event in events:
            self.state = self.after(event)

    def after(self, event: Any) -> ConsumerState:
        TOLD.add(type(event))
        return next_state(self.state, event)

    def one_of_ours(self) -> InputPartition:
        chosen: InputPartition = self.data.draw(st.sampled_from(sorted(self.library.positions)))
        return chosen

    @property
    def that_were_read(self) -> list[InputPartition]:
        return [p for p in sorted(self.library.positions) if self.state.row(p).was_read]

    @property
    def that_are_settled(self) -> list[InputPartition]:
        rows = {p: self.state.row(p) for p, at in sorted(self.library.positions.items()) if at is not None}
        return [p for p, row in rows.items() if row.rejects_earlier and row.is_settled]

    # -- the adapter -------------------------------------------------------------------------------------------------

    def perform_due(self, *, may_break_off: bool = True) -> None:
        """Do what is due, perhaps only a part of it: the rest must stay due."""
        steps = self.data.draw(st.integers(0, 6)) if may_break_off else 100
        for _ in range(steps):
            if pauses := self.state.due_pauses:
                self.tell(LibraryPauses(pauses))
                self.library.pause(pauses)
            elif seeks := self.state.due_seeks:
                partition, (offset, _) = next(iter(seeks.items()))
                self.library.seek(partition, offset)
                self.tell(Sought(partition, offset))
            elif resumes := self.state.due_resumes:
                self.library.paused -= resumes
                self.tell(LibraryResumed(resumes))
            else:
                return

    def find_starts(self, *, is_answered: bool) -> None:
        unknown = self.state.unknown_starts
        if ends := self.state.due_ends(unknown - self.committed.keys()):
            self.tell(EndsFound({p: (end_of(p), 1) for p in ends}))
        if not is_answered:
            return
        self.tell(StartsFound({p: self.committed_offset(p) for p in unknown}))
        if ends_to_commit := self.state.due_end_commits(unknown):
            self.committed.update(ends_to_commit)
            self.following.update(ends_to_commit)
            self.tell(StartsFound({p: self.committed_offset(p) for p in ends_to_commit}))

    def committed_offset(self, partition: InputPartition) -> CommittedOffset | None:
        """What the group has, maybe with the leader epoch of the record before it."""
        if (offset := self.committed.get(partition)) is None:
            return None
        return CommittedOffset(offset, "", self.data.draw(st.sampled_from([None, epoch_of(max(0, offset - 1))])))

    def start_of(self, partition: InputPartition) -> Start:
        start = self.state.rows[partition].start
        assert start is not None
        return start

    def receive(self, messages: list[Message], *, is_answered: bool) -> None:
        fetched = tuple(runs(messages))
        self.events += sum(message.failed is not None for message in messages)
        if self.state.due_starts(fetched, is_time=True):
            self.find_starts(is_answered=is_answered)
        for partition in self.state.due_log_ends(fetched):
            goal = self.start_of(partition).goal
            self.tell(LogEndFound(partition, self.data.draw(st.sampled_from([goal - 1, goal, goal + 5]))))
        self.tell(Fetched(fetched))

    # -- what may happen ---------------------------------------------------------------------------------------------

    @precondition(lambda self: len(self.library.positions) < len(PARTITIONS))
    @rule()
    def is_assigned(self) -> None:
        self.assign(self.data.draw(st.sampled_from([p for p in PARTITIONS if p not in self.library.positions])))

    def assign(self, partition: InputPartition) -> None:
        # The library may have looked up another start, as while an offset is pending (KIP-447).
        self.library.positions[partition] = self.data.draw(st.sampled_from([0, self.committed.get(partition, 0)]))
        if self.state.reset_policy is ResetPolicy.ERROR and partition not in self.committed:
            self.library.positions[partition] = None
        self.following[partition] = self.committed.get(partition, 0)
        self.tell(Assigned(frozenset({partition})))

    @precondition(has_partitions)
    @rule()
    def leaves(self) -> None:
        self.tell(LibraryCallBegan())
        self.depart(self.one_of_ours())
        self.receive([], is_answered=True)

    def depart(self, partition: InputPartition) -> None:
        del self.library.positions[partition]
        self.library.drop(partition)
        self.library.handed.pop(partition, None)
        self.first.pop(partition, None)
        if self.data.draw(st.booleans()):  # no session keeps its work for the gate
            had_work = partition in self.state.owned_positions
            self.tell(LossReported(), WorkLost(frozenset({partition})))
            assert partition not in self.state.positions.keys() | self.state.unprocessed
            assert self.state.has_unreported_loss is had_work
        self.tell(Departed(frozenset({partition})))

    @precondition(has_partitions)
    @rule(count=st.integers(1, 5))
    def is_fetched_ahead(self, count: int) -> None:
        self.library.fetch_ahead(self.one_of_ours(), count)

    @precondition(has_partitions)
    @precondition(may_hand_over)
    @rule(count=st.integers(1, 5))
    def is_read(self, count: int) -> None:
        """Several calls without any mishap."""
        for _ in range(3):
            self.is_fetched_ahead(count)
            self.is_fetched_at_last()
            self.is_handed_over(count)

    @rule(is_answered=st.booleans())
    def is_fetched(self, is_answered: bool) -> None:
        self.tell(CallBegan(), LibraryCallBegan())
        self.receive(self.library.take_all(), is_answered=is_answered)
        self.perform_due()

    @rule()
    def serves_callbacks(self) -> None:
        """A call that hands nothing over, and ends: what it has fetched waits for the next one."""
        self.tell(CallBegan(), LibraryCallBegan())
        self.receive(self.library.take_all(), is_answered=True)
        self.perform_due()
        self.tell(CallEnded())
        assert not self.state.call_is_unfinished

    @precondition(has_partitions)
    @rule(is_lost=st.booleans())
    def is_fetched_while_it_leaves_and_comes_back(self, is_lost: bool) -> None:
        partition = self.one_of_ours()
        self.tell(CallBegan(), LibraryCallBegan())
        messages = self.library.take_all()
        self.depart(partition)
        if is_lost:  # and nobody has told: the library goes on where it was
            self.library.positions[partition] = self.data.draw(st.integers(0, 30))
            self.following[partition] = self.committed.get(partition, 0)
            self.tell(Retained(frozenset({partition})))
        else:
            self.assign(partition)
        self.receive(messages, is_answered=True)
        self.perform_due()

    @precondition(may_hand_over)
    @rule(count=st.integers(1, 8))
    def is_handed_over(self, count: int) -> None:
        hand_over = self.next_hand_over(count)
        for message in hand_over.messages:
            place = place_of(message)
            if message.failed is not None:
                self.events -= 1
                continue
            assert message.at == record_at_or_after(self.following[place]), message
            self.first.setdefault(place, message.at)
            self.following[place] = message.at + 1
        self.tell(HandedOver(hand_over.runs, hand_over.waiting, GENERATION))
        assert self.state.has_unprocessed or all(run.is_error for run in hand_over.runs)

    def next_hand_over(self, count: int) -> HandOver:
        """What may be handed over now, which is nothing where it is refused."""
        hand_over = next_hand_over(self.state, count)
        if self.state.missing_starts:
            assert isinstance(hand_over.refusal, MissingStart)
            assert not hand_over.runs
            return hand_over
        if self.state.truncations:
            assert isinstance(hand_over.refusal, TruncatedLog)
            assert not hand_over.runs
            return hand_over
        if hand_over.misplaced is not None:
            hand_over = hand_over.given_log_end(self.data.draw(st.sampled_from([None, 1000])))
        if hand_over.event is not None:
            self.tell(hand_over.event)
        if isinstance(hand_over.refusal, LogTooShort):
            assert self.state.row(hand_over.refusal.partition).attempts == SEEK_ATTEMPTS_MAX
        elif hand_over.refusal is not None:  # no log of this model is truncated, so one of the epochs is not known
            assert isinstance(hand_over.refusal, TruncatedLog)
            assert None in {hand_over.refusal.misplacement.expected_epoch, hand_over.refusal.misplacement.found_epoch}
        return hand_over

    @precondition(may_hand_over)
    @rule(count=st.integers(1, 8))
    def takes_events_in_a_block(self, count: int) -> None:
        """Acts on the error events among what comes next; the records wait again."""
        hand_over = self.next_hand_over(count)
        taken, waiting = hand_over.runs, hand_over.waiting
        self.tell(ErrorsTaken(taken, waiting))
        self.events -= message_count(run for run in taken if run.is_error)
        records = messages_of(run for run in taken if not run.is_error)
        assert messages_of(self.state.waiting) == [*records, *messages_of(waiting)]

    @precondition(lambda self: self.that_are_settled)
    @rule()
    def starts_over(self) -> None:
        """The library lost its position, and begins again at the beginning of the log."""
        partition = self.data.draw(st.sampled_from(self.that_are_settled))
        self.library.positions[partition] = 0
        self.library.started_over.add(partition)
        self.library.fetch_ahead(partition, 1)

    @rule(partition=partitions)
    def reports_an_error(self, partition: InputPartition) -> None:
        self.library.queue.append(Message(partition.partition, -1, ERROR, partition.topic))

    @precondition(may_hand_over)
    @rule()
    def has_passed_markers(self) -> None:
        """The library has passed what stands behind the last record that it has handed over."""
        self.tell(CallBegan())
        sought_again, partitions = positions_to_read(self.state, frozenset(self.library.positions))
        self.tell(RewindsRepeated(sought_again))
        for partition in sought_again:
            self.library.drop(partition)  # nothing stale follows a seek outside of every callback
        self.perform_due(may_break_off=False)
        handed = {p: self.library.handed[p] for p in partitions & self.library.handed.keys()}
        passed = {p: PassedOffset(record_at_or_after(at), at // 10) for p, at in handed.items()}
        first = passed_before_a_record(self.state, passed)
        if self.state.due_starts(first, is_time=True):
            self.find_starts(is_answered=True)
        self.tell(Passed(first))
        found = passed_runs(self.state, passed, first)
        for partition, _, first_offset, next_offset, *_ in found:
            assert record_at_or_after(self.following[partition]) == next_offset
            self.first.setdefault(partition, first_offset)
            self.following[partition] = next_offset
        self.tell(HandedOver(found, self.state.waiting, GENERATION))
        self.perform_due()

    @rule(is_lost=st.booleans())
    def is_interrupted(self, is_lost: bool) -> None:
        """A call is interrupted after the library has counted its records as delivered."""
        self.tell(CallBegan(), LibraryCallBegan())
        messages = self.library.take_all()
        if not is_lost:
            self.receive(messages, is_answered=False)
        assert self.state.call_is_unfinished
        assigned = self.library.positions
        self.tell(Interrupted({p: self.library.handed.get(p, INVALID) for p in assigned}))
        self.perform_due(may_break_off=False)

    @precondition(may_hand_over)
    @rule(count=st.integers(1, 3))
    def is_put_back(self, count: int) -> None:
        before = dict(self.following), dict(self.first), self.events
        hand_over = self.next_hand_over(count)
        taken, waiting = hand_over.runs, hand_over.waiting
        if self.state.truncations:
            return
        self.state = replace(self.state, waiting=(*taken, *waiting))
        self.is_handed_over(message_count(taken))
        self.tell(PutBack(taken))
        self.following, first, self.events = before
        self.first = {p: offset for p, offset in self.first.items() if p in first}
        assert messages_of(self.state.waiting) == messages_of((*taken, *waiting))

    @rule()
    def is_processed(self) -> None:
        self.tell(Processed())
        assert not self.state.has_unprocessed

    @rule()
    def is_committed(self) -> None:
        owned = self.state.owned_positions
        assert {p: position.first_offset for p, position in owned.items()} == self.first
        next_records = {p: record_at_or_after(position.next_offset) for p, position in owned.items()}
        assert next_records == {p: record_at_or_after(self.following[p]) for p in owned}  # a marker may precede it
        offsets = {p: position.next_offset for p, position in owned.items()}
        self.committed.update(offsets)
        self.tell(Committed(offsets))
        self.first = {}
        assert not self.state.owned_positions

    @rule()
    def is_aborted(self) -> None:
        self.following.update(self.first)
        self.first = {}
        self.tell(Aborted())
        assert not self.state.positions
        self.perform_due()

    @rule(count=st.integers(0, 5))
    def is_committed_by_others(self, count: int) -> None:
        """What has work goes on where the group is now; what has none, or only waits, goes on as after an abort."""
        overtaken = {p: position.next_offset + count for p, position in self.state.owned_positions.items()}
        overtaken = {p: offset for p, offset in overtaken.items() if self.state.row(p).is_assigned}
        self.committed.update(overtaken)
        self.following.update(self.first | overtaken)
        self.first = {}
        self.tell(CommittedByOthers())
        assert not self.state.positions
        self.perform_due()

    @precondition(has_partitions)
    @rule(offset=st.integers(0, 30) | st.sampled_from([BEGINNING, END]))
    def is_sought_by_the_application(self, offset: int) -> None:
        self.seek(self.one_of_ours(), offset)

    def seek(self, partition: InputPartition, offset: int) -> None:
        self.is_committed()
        self.library.seek(partition, offset)
        self.library.drop(partition)
        if offset != END:
            self.tell(WorkTakenBack(partition, offset))
        self.tell(Chosen(partition, offset))
        self.following[partition] = resolved(partition, offset)

    @rule(partition=partitions, offset=st.integers(0, 30) | st.none(), is_first=st.booleans(), replaces=st.booleans())
    def is_assigned_by_hand(
        self, partition: InputPartition, offset: int | None, is_first: bool, replaces: bool
    ) -> None:
        """Inside on_assign, or after it was unassigned; without an ``offset`` the group decides."""
        if (partition in self.library.positions) is is_first:
            return
        self.is_committed()
        if is_first:
            self.assign(partition)
        elif offset is not None:
            self.library.drop(partition)
            self.tell(UnassignedByHand(frozenset({partition})))
        else:
            return
        for other in self.library.positions.keys() - {partition} if replaces else ():
            del self.library.positions[other]
            self.library.drop(other)
        self.tell(AssignedByHand(frozenset({partition}), replaces=replaces, without_group=False))
        self.tell(Chosen(partition, offset))
        if offset is not None:
            self.library.seek(partition, offset)
            self.following[partition] = offset

    @precondition(lambda self: self.that_were_read)
    @rule()
    def is_truncated(self) -> None:
        """Nothing is handed over until the application has chosen another place, or the partition has left."""
        partition = self.data.draw(st.sampled_from(self.that_were_read))
        self.tell(Truncated(partition, Misplacement(20, 1, 10, 2)))
        assert partition in self.state.truncations

    @rule()
    def is_replaced(self) -> None:
        """The topic was created again: nothing of the old one is left to commit."""
        ours = frozenset(self.library.positions)
        state = self.after(TopicReplaced("orders", ours))
        assert not state.owned_positions.keys() & ours

    @precondition(has_partitions)
    @rule()
    def is_paused_by_the_application(self) -> None:
        partition = self.one_of_ours()
        self.library.pause(frozenset({partition}))
        self.tell(Paused(frozenset({partition})))

    @precondition(lambda self: self.state.paused)
    @rule()
    def is_resumed_by_the_application(self) -> None:
        self.tell(Resumed(frozenset({self.data.draw(st.sampled_from(sorted(self.state.paused)))})))
        self.perform_due()

    @rule(is_interrupted=st.booleans())
    def pauses_all(self, is_interrupted: bool) -> None:
        pausing = self.state.pausable
        self.tell(CallBegan(), PauseOfAllBegan(), LibraryPauses(pausing))
        self.library.pause(pausing)
        if is_interrupted:
            self.is_interrupted(is_lost=True)
            return
        self.tell(LibraryCallBegan())
        self.receive(self.library.take_all(), is_answered=True)
        self.tell(PauseOfAllEnded())
        self.perform_due()

    @rule()
    def is_given_back(self) -> None:
        self.tell(WaitingGivenBack())
        assert all(run.is_error for run in self.state.waiting)
        self.perform_due()

    # -- what always holds -------------------------------------------------------------------------------------------

    @invariant()
    def every_index_says_what_the_rows_say(self) -> None:
        if hasattr(self, "state"):
            state, rows = self.state, self.state.rows
            assert state.unsettled == {p for p, row in rows.items() if not row.is_settled}
            assert state.due == {p for p, row in rows.items() if row.has_due_call}
            assert state.asking == {p for p, row in rows.items() if row.has_due_question}
            assert state.stopping == {p for p, row in rows.items() if row.stops_all}
            assert state.paused == {p for p, row in rows.items() if row.paused_by_application}
            work = {p: row.work or row.orphan for p, row in rows.items()}
            assert state.positions == {p: position for p, position in work.items() if position is not None}

    @invariant()
    def a_partition_of_which_nothing_is_true_has_no_row(self) -> None:
        if hasattr(self, "state"):
            assert PartitionRow() not in self.state.rows.values()

    @invariant()
    def no_error_event_is_lost(self) -> None:
        if hasattr(self, "state"):
            assert message_count(run for run in self.state.waiting if run.is_error) == self.events

    def teardown(self) -> None:
        """Everything that is assigned and not paused goes on: nothing stays withheld, paused or elsewhere."""
        if not hasattr(self, "state"):
            return
        for _ in range(12):
            for partition in {*self.state.truncations, *self.state.missing_starts}:
                self.seek(partition, 0)
            self.perform_due(may_break_off=False)
            for partition in self.library.positions:
                self.library.fetch_ahead(partition, 1)
            self.is_fetched_at_last()
            self.is_handed_over(100)
        ours = self.library.positions.keys() - self.state.paused
        ours -= {p for p in ours if self.library.positions[p] is None}
        assert ours <= {p for p in ours if self.state.row(p).was_read}
        closed = self.after(Closed())
        assert (closed.waiting, closed.positions) == ((), self.state.positions)

    def is_fetched_at_last(self) -> None:
        self.tell(CallBegan(), LibraryCallBegan())
        self.receive(self.library.take_all(), is_answered=True)
        self.perform_due(may_break_off=False)


class TestPartitions(Partitions.TestCase):  # type: ignore[misc,valid-type]
    settings = settings(max_examples=300, stateful_step_count=40, deadline=None)

    @classmethod
    def tearDownClass(cls) -> None:
        assert TOLD >= EVENTS, f"no run has told {EVENTS - TOLD}"
