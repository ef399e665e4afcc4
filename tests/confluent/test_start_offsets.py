"""Where partitions start is asked of the group, when that is due; with ``latest`` it is committed first."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from eos_client.confluent.consumer.library_consumer import with_offsets
from eos_client.confluent.consumer.partition_table import PartitionTable
from eos_client.confluent.consumer.start_offsets import _REPORT_AFTER_S, _RETRY_INTERVAL_S, StartOffsets
from eos_client.core.model import CommittedOffset, InputPartition, Partitions
from eos_client.core.partition_events import Assigned, Fetched, StartsFound
from eos_client.core.partition_row import ResetPolicy
from eos_client.core.record_runs import Run
from eos_client.testing.simulator import SimulatedClock
from tests.core.fetched_messages import ONE, ZERO

BOTH = frozenset({ZERO, ONE})


class Library:
    """What StartOffsets asks of `LibraryConsumer`: a log of ``spans``, a group with ``committed`` offsets.

    ``pending``: those of which an offset is pending.
    """

    def __init__(self, policy: ResetPolicy) -> None:
        self.reset_policy = policy
        self.why_unanswered = "an offset is pending"
        self.committed: dict[InputPartition, CommittedOffset] = {}
        self.pending: Partitions = frozenset()
        self.spans: dict[InputPartition, tuple[int, int]] = {}
        self.asked: list[Partitions] = []
        self.ends_asked: list[InputPartition] = []

    def committed_offsets(self, partitions: Partitions) -> dict[InputPartition, CommittedOffset] | None:
        self.asked.append(partitions)
        if partitions & self.pending:
            return None
        return {partition: self.committed[partition] for partition in partitions & self.committed.keys()}

    def span_of(self, partition: InputPartition) -> tuple[int, int] | None:
        self.ends_asked.append(partition)
        return self.spans.get(partition)

    def end_of(self, partition: InputPartition) -> int | None:
        span = self.span_of(partition)
        return None if span is None else span[1]


class Group:
    """A consumer's start offsets with all that they are made of."""

    def __init__(self, policy: ResetPolicy = ResetPolicy.EARLIEST) -> None:
        library: Any = Library(policy)
        self.library = library
        self.clock = SimulatedClock()
        self.table = PartitionTable(library, self.clock)
        self.commits: list[dict[InputPartition, int]] = []
        self.may_commit = True
        self.reports: list[str] = []
        self.starts = StartOffsets(library, self.table, self.commit, self.reports.append, self.clock)
        self.table.tell(Assigned(BOTH))

    def commit(self, ends: Any) -> str | None:
        self.commits.append(dict(ends))
        if not self.may_commit:
            return "another transaction is open"
        self.library.committed.update({p: CommittedOffset(end, "") for p, end in ends.items()})
        return None

    def receive(self, *runs: Run) -> None:
        self.starts.find_due(runs)
        self.table.tell(Fetched(runs))

    def start_of(self, partition: InputPartition) -> Any:
        return self.table.state.row(partition).start


def run(partition: InputPartition, first: int, epoch: int | None = None) -> Run:
    return Run(partition, (first,), first, first + 1, ((first, epoch),))


@pytest.fixture
def group() -> Group:
    return Group()


@pytest.fixture
def latest() -> Group:
    made = Group(ResetPolicy.LATEST)
    made.library.spans = {ZERO: (5, 20), ONE: (0, 0)}
    return made


# -- when the group is asked -------------------------------------------------------------------------------------------


def test_nothing_is_asked_before_records_arrive(group):
    group.receive()
    assert group.library.asked == []


def test_all_unknown_starts_are_asked_for_in_one_request(group):
    group.library.committed[ZERO] = CommittedOffset(7, "")
    group.receive(run(ZERO, 7))
    assert group.library.asked == [BOTH]
    assert group.table.state.waiting == (run(ZERO, 7),)
    group.receive(run(ONE, 0))
    assert group.library.asked == [BOTH]


def test_where_one_start_is_pending_the_needed_ones_are_asked_for_alone(group):
    group.library.pending = frozenset({ONE})
    group.receive(run(ZERO, 0), run(ONE, 0))
    assert group.library.asked == [BOTH, frozenset({ZERO}), frozenset({ONE})]
    assert group.table.state.waiting == (run(ZERO, 0),)
    assert group.table.state.withheld == {ONE}


def test_only_a_needed_start_is_asked_for_alone(group):
    group.library.pending = BOTH
    group.receive(run(ZERO, 0))
    assert group.library.asked == [BOTH, frozenset({ZERO})]


def test_the_only_unknown_start_is_asked_for_once(group):
    group.table.tell(StartsFound({ONE: None}))
    group.library.pending = frozenset({ZERO})
    group.receive(run(ZERO, 0))
    assert group.library.asked == [frozenset({ZERO})]


def test_a_pending_start_is_asked_for_again_after_an_interval(group):
    group.library.pending = frozenset({ZERO})
    group.receive(run(ZERO, 0))
    count = len(group.library.asked)
    group.receive()
    assert len(group.library.asked) == count
    group.clock.sleep(_RETRY_INTERVAL_S)
    group.library.pending = frozenset()
    group.library.committed[ZERO] = CommittedOffset(3, "")
    group.receive()
    assert group.table.state.due_seeks == {ZERO: (3, None)}


def test_where_no_partition_starts_nothing_is_asked(group):
    group.table.tell(StartsFound(dict.fromkeys(BOTH)))
    group.receive(run(ZERO, 0), run(ONE, 0))
    group.clock.sleep(_RETRY_INTERVAL_S)
    group.receive(run(ZERO, 1))
    assert group.library.asked == []


def test_a_start_that_is_known_is_not_asked_for(group):
    group.table.tell(StartsFound({ONE: None}))
    group.starts.find(BOTH)
    group.starts.find(BOTH)
    assert group.library.asked == [frozenset({ZERO})]


# -- an answer that does not come --------------------------------------------------------------------------------------


def pending_for(group: Group, seconds: float) -> None:
    group.library.pending = BOTH
    group.receive(run(ZERO, 0))
    group.clock.sleep(seconds)
    group.receive()


def test_an_answer_that_does_not_come_is_reported_in_time(group):
    pending_for(group, _REPORT_AFTER_S - 1)
    assert group.reports == []
    pending_for(group, 1)
    assert len(group.reports) == 1
    assert "orders[0]" in group.reports[0]
    assert group.reports[0].endswith("The last answer was: an offset is pending")


def test_the_report_is_repeated_only_after_the_same_time(group):
    pending_for(group, _REPORT_AFTER_S)
    pending_for(group, _REPORT_AFTER_S - 1)
    assert len(group.reports) == 1
    pending_for(group, 1)
    assert len(group.reports) == 2


def test_an_answer_in_between_counts(group):
    pending_for(group, _REPORT_AFTER_S - 1)
    group.library.pending = frozenset()
    group.clock.sleep(1)
    group.receive()
    group.table.tell(Assigned(frozenset({InputPartition("orders", 2)})))
    pending_for(group, _REPORT_AFTER_S - 1)
    assert group.reports == []


# -- latest ------------------------------------------------------------------------------------------------------------


def test_with_latest_the_end_is_committed_as_the_start(latest):
    latest.starts.commit_missing()
    assert latest.commits == [{ZERO: 20, ONE: 0}]
    assert latest.start_of(ZERO).offset == 20
    assert not latest.table.state.due_start_commits
    latest.starts.commit_missing()
    assert len(latest.library.asked) == 1


def test_what_lies_before_the_start_is_counted_once(latest):
    latest.starts.commit_missing()
    assert latest.starts.take_skipped_by_latest() == {ZERO: 15}
    assert latest.starts.take_skipped_by_latest() == {}


def test_a_committed_start_is_not_committed_again(latest):
    latest.library.committed = {ZERO: CommittedOffset(7, ""), ONE: CommittedOffset(0, "")}
    latest.starts.commit_missing()
    assert latest.commits == []
    assert latest.library.ends_asked == []
    assert latest.start_of(ZERO).offset == 7


def test_an_end_that_may_not_be_committed_yet_stays_the_start(latest):
    latest.may_commit = False
    latest.starts.commit_missing()
    assert latest.table.state.unknown_starts == latest.table.state.due_start_commits == BOTH
    assert latest.starts.take_skipped_by_latest() == {}
    latest.library.spans = {ZERO: (5, 99), ONE: (0, 99)}
    latest.may_commit = True
    latest.clock.sleep(_RETRY_INTERVAL_S)
    latest.receive()
    assert latest.commits == [{ZERO: 20, ONE: 0}] * 2


@pytest.mark.parametrize("breaks", [0, 1])
def test_a_start_that_cannot_be_committed_for_long_is_reported(latest, breaks):
    latest.may_commit = False
    latest.starts.commit_missing()
    for number in range(2 * int(_REPORT_AFTER_S)):
        latest.clock.sleep(1)
        if breaks and number == _REPORT_AFTER_S - 2:
            latest.may_commit = True
            latest.receive()
            latest.may_commit = False
            latest.table.tell(Assigned(frozenset({InputPartition("orders", 2)})))
            latest.library.spans[InputPartition("orders", 2)] = (0, 5)
        latest.receive()
    assert len(latest.reports) == (1 if breaks else 2)
    report = latest.reports[0]
    assert ("orders[2]" if breaks else "orders[0-1]") in report
    assert "another transaction is open" in report


def test_while_an_offset_is_pending_the_end_is_only_looked_up(latest):
    latest.library.pending = BOTH
    latest.starts.commit_missing()
    assert latest.commits == []
    assert (latest.start_of(ZERO).log_end, latest.start_of(ONE).log_end) == (20, 0)


def test_without_an_answer_about_the_end_nothing_is_committed(latest):
    latest.library.spans = {}
    latest.starts.commit_missing()
    assert latest.commits == []
    assert latest.table.state.unknown_starts == BOTH
    assert len(latest.library.ends_asked) == 1


def test_only_when_it_is_time_a_missing_start_is_committed(latest):
    latest.may_commit = False
    latest.receive()
    latest.receive()
    assert len(latest.commits) == 1


@pytest.mark.parametrize("policy", [ResetPolicy.EARLIEST, ResetPolicy.ERROR])
def test_without_latest_nothing_is_committed(policy):
    group = Group(policy)
    group.starts.commit_missing()
    group.receive(run(ZERO, 0))
    assert group.commits == []
    assert group.library.ends_asked == []


@pytest.mark.parametrize("error", [KafkaException("transport"), RuntimeError("closed")])
def test_what_fails_inside_a_callback_is_tried_again(latest, monkeypatch, error):
    def failing(_: object) -> None:
        raise error

    with monkeypatch.context() as patched:
        patched.setattr(latest.library, "committed_offsets", failing)
        latest.starts.commit_missing_in_callback()
        with pytest.raises(type(error)):
            latest.starts.commit_missing()
    assert latest.table.state.due_start_commits == BOTH
    latest.starts.commit_missing()
    assert latest.commits


# -- a start beyond the end --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("first", "end", "is_kept"), [(3, 10, False), (3, 20, True), (3, None, True), (20, 10, True)])
def test_a_start_beyond_the_end_is_sought_without_its_epoch(group, first, end, is_kept):
    group.library.committed[ZERO] = CommittedOffset(20, "", 4)
    group.library.spans = {} if end is None else {ZERO: (0, end)}
    group.receive(run(ZERO, first, 5))
    assert group.table.state.due_seeks == {ZERO: (20, 4 if is_kept else None)}


def test_the_end_is_not_asked_for_where_no_epoch_is_committed(group):
    group.library.committed[ZERO] = CommittedOffset(20, "")
    group.receive(run(ZERO, 3, 5))
    assert group.library.ends_asked == []


def test_a_partition_whose_offset_could_not_be_read_is_no_partition_without_one():
    answered: Any = SimpleNamespace(offset=3, error=None)
    without: Any = SimpleNamespace(offset=-1001, error=None)
    refused: Any = SimpleNamespace(offset=-1001, error=KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED))
    assert with_offsets([answered, without]) == [answered]
    with pytest.raises(KafkaException, match="GROUP_AUTHORIZATION_FAILED"):
        with_offsets([answered, refused])
