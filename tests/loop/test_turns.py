"""When the loop looks at the clock, puts records back, and tries a held transaction again."""

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from confluent_kafka import KafkaError, KafkaException

from eos_client.core.model import InputPartition, InputPosition
from eos_client.errors import ClusterUnavailableError, FatalClientError, TransformError
from eos_client.loop.transaction_size import RepeatedAborts, TransactionCost
from eos_client.observe import CommitSkipped, LoopStopped, TransactionAborted, TransactionCommitted
from eos_client.ports import Clock
from eos_client.testing.simulator import SimulatedConsumer
from tests.loop.bench import Bench, numbers, values
from tests.support.interception import close_the_gate

INTERVAL_S = 1.0
A_FEW_REQUESTS_S = 0.02
A_HEARTBEAT_S = 5.0
COOPERATIVE = {"group.protocol": "classic", "partition.assignment.strategy": "cooperative-sticky"}


class Worker:
    """A transform that takes as long as it is told and stops the loop after its last record.

    ``meanwhile`` is done in each of its calls.
    """

    def __init__(self, cluster, **options):
        self.bench = Bench(cluster, self, **{"commit_interval_s": INTERVAL_S, **options})
        self.took: list[int] = []
        self.began_at: list[float] = []
        self.cost_s = lambda number: 0.0
        self.meanwhile: Callable[[], object] = lambda: None
        self.stop_at: int | None = None
        self.refuses = False

    def __call__(self, record):
        number = int(record.value())
        self.took.append(number)
        self.began_at.append(self.bench.clock())
        self.bench.clock.sleep(self.cost_s(number))
        self.meanwhile()
        if number == self.stop_at:
            self.bench.loop.stop()
        if self.refuses:
            raise ValueError(number)
        return [record.value()]

    def refuse(self):
        """Let the group refuse the next commit."""
        self.bench.cluster.refuse("TxnOffsetCommit", "UNKNOWN_MEMBER_ID")

    def close_the_gate(self):
        close_the_gate(self.bench.loop._consumer)


def between(moments):
    return [after - before for before, after in itertools.pairwise(moments)]


def about(*seconds):
    return pytest.approx(list(seconds), abs=A_FEW_REQUESTS_S)


@pytest.fixture
def on_bench(simulated_cluster):
    def start(**options):
        worker = Worker(simulated_cluster, **options)
        return worker, worker.bench

    return start


def test_a_slow_transform_ends_its_transaction_on_time_and_puts_the_rest_back(on_bench):
    worker, bench = on_bench(batch_size=10)
    worker.cost_s, worker.stop_at = lambda number: 0.25, 20
    bench.load(100)
    bench.run()
    # The first transaction is the one record of the first poll and as much of a batch as the interval has room for.
    assert between([worker.began_at[0], *bench.moments(TransactionCommitted)][:4]) == about(*[INTERVAL_S] * 3)
    assert worker.took == list(range(21)), "in order, none twice"
    assert bench.committed == 21


class Library(NamedTuple):
    """A cluster's clients, with another clock for what uses them."""

    clock: Clock
    consumer: Callable[[dict[str, Any]], Any]
    producer: Callable[[dict[str, Any]], Any]


class CountingClock:
    """A cluster's clock; `readings` counts how often it was looked at."""

    is_simulated = True

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.sleep = clock.sleep
        self.readings = 0

    def __call__(self) -> float:
        self.readings += 1
        return self._clock()


def test_a_fast_transform_is_not_slowed_down_by_looking_at_the_clock(simulated_cluster):
    clock = CountingClock(simulated_cluster.clock)
    library = Library(clock, simulated_cluster.consumer, simulated_cluster.producer)
    worker = Worker(simulated_cluster, batch_size=10_000, clients=library)
    worker.stop_at = 9_999
    worker.bench.load(10_000)
    worker.bench.run()
    assert len(worker.took) == 10_000
    assert clock.readings < 200


def test_a_transform_that_becomes_slow_is_noticed_within_a_few_strides(on_bench):
    worker, bench = on_bench(batch_size=3_000)
    # After 1 000 quick records 512 are worked on in one go; then each takes a quarter of the interval.
    worker.cost_s, worker.stop_at = lambda number: 0.0 if number < 1000 else INTERVAL_S / 4, 1700
    bench.load(3_000)
    bench.run()
    late = between(bench.moments(TransactionCommitted))
    assert late[10:30] == about(*[INTERVAL_S] * 20)


def test_a_stop_in_the_middle_of_a_batch_puts_the_rest_back_and_commits_what_was_done(on_bench):
    worker, bench = on_bench()
    worker.cost_s, worker.stop_at = lambda number: INTERVAL_S / 8, 2
    bench.load(50)
    bench.run()
    assert worker.took == [0, 1, 2]
    assert bench.written == numbers(3)
    assert bench.committed == 3
    assert len(bench.events(TransactionCommitted)) == 1


def test_never_asks_for_more_records_than_the_transaction_has_room_for(on_bench, monkeypatch):
    asked_for = []
    consume = SimulatedConsumer.consume

    def noting(consumer, num_messages=1, timeout=-1):
        asked_for.append(num_messages)
        return consume(consumer, num_messages, timeout)

    monkeypatch.setattr(SimulatedConsumer, "consume", noting)
    worker, bench = on_bench(max_records=100, batch_size=60)
    worker.stop_at = 299
    bench.load(300)
    bench.run()
    assert [count for count in asked_for if count > 1] == [60, 39] * 3
    assert [event.records_in for event in bench.events(TransactionCommitted)] == [100] * 3


@pytest.mark.parametrize(("policy", "waits_s"), [("hold", 0.125), ("skip", INTERVAL_S)])
def test_hold_tries_a_held_transaction_again_at_once_and_skip_an_interval_later(on_bench, policy, waits_s):
    worker, bench = on_bench(policy=policy, poll_timeout_s=0.125, hold_limit_s=20)
    worker.meanwhile = worker.close_the_gate
    bench.hears = lambda event: len(bench.events(CommitSkipped)) == 5 and bench.loop.stop()
    bench.load(1)
    bench.run()
    assert between(bench.moments(CommitSkipped)[:5]) == about(*[waits_s] * 4)


def test_a_held_transaction_still_open_at_the_end_of_the_shutdown_budget_is_aborted(on_bench):
    worker, bench = on_bench(shutdown_timeout_s=5, poll_timeout_s=0.1, hold_limit_s=20)
    worker.stop_at, worker.meanwhile = 0, worker.close_the_gate
    bench.load(1)
    bench.run()
    (aborted,) = bench.events(TransactionAborted)
    assert aborted.reason == "the loop was stopped while the gate was closed"
    assert bench.moments(TransactionAborted)[0] - worker.began_at[0] == pytest.approx(5, abs=0.2)


def test_aborts_in_a_row_come_slower_and_end_the_loop_after_the_recovery_timeout(on_bench):
    worker, bench = on_bench(recovery_timeout_s=10, max_records=1)
    worker.meanwhile = worker.refuse
    bench.load(1)
    with pytest.raises(ClusterUnavailableError, match="without a commit"):
        bench.run()
    assert between(bench.moments(TransactionAborted))[:7] == about(0.0, 0.08, 0.16, 0.32, 0.64, 1.0, 1.0)
    assert 10 < bench.clock() - worker.began_at[0] < 11.5


def test_a_commit_between_aborts_starts_their_count_anew(on_bench):
    worker, bench = on_bench(recovery_timeout_s=1, max_records=1)
    worker.meanwhile = lambda: (len(worker.took) > 80 or len(worker.took) % 4) and worker.refuse()
    bench.load(30)
    with pytest.raises(ClusterUnavailableError):
        bench.run()
    assert bench.committed == 20


def test_an_event_that_comes_alone_is_no_progress_between_aborts(on_bench):
    """A classic group's eviction is followed by its event, and the partitions come back only after an interval."""
    limits = {"group.protocol": "classic", "max.poll.interval.ms": 6_000, "session.timeout.ms": 6_000}
    worker, bench = on_bench(max_records=1, consumer=limits)
    worker.cost_s = lambda number: 8.0
    worker.meanwhile = lambda: len(worker.took) < 3 and bench.cluster.delay("JoinGroup", 2 * INTERVAL_S)
    bench.load(1)
    with pytest.raises(FatalClientError, match=r"one record took 8\.0 s, longer than max\.poll\.interval\.ms=6000"):
        bench.run()
    assert len(worker.took) == 3


def test_evictions_count_in_a_row_although_their_work_went_elsewhere_meanwhile():
    aborts = RepeatedAborts(recovery_timeout_s=60.0, poll_limit_s=6.0)
    first, second, third = (frozenset({InputPartition("orders", partition)}) for partition in range(3))
    slow = TransactionCost(1, 8.0, 8.0)
    for work in (first, second):
        aborts.aborted(work, frozenset(), slow, "it left the group")
    with pytest.raises(FatalClientError, match=r"3 transactions in a row .* one record took 8\.0 s"):
        aborts.aborted(third, frozenset(), slow, "it left the group")
    assert (aborts.count, aborts.evictions) == (1, 3)
    aborts.progress()
    assert (aborts.count, aborts.evictions) == (0, 0)


def test_aborts_of_work_that_came_back_count_although_nothing_is_assigned_now():
    """An eager revocation takes every partition, and the poll that records the abort may not have got them back."""
    aborts = RepeatedAborts(recovery_timeout_s=60.0, poll_limit_s=6.0)
    work = frozenset({InputPartition("orders", 0)})
    for _ in range(3):
        aborts.aborted(work, frozenset(), TransactionCost(1, 8.0, 1.0), "the commit was refused")
    assert (aborts.count, aborts.spent_s) == (3, 24.0)


def test_time_without_work_between_aborts_does_not_end_the_loop(on_bench):
    """The records come so late again that the waits are longer than all that the work may take."""
    worker, bench = on_bench(recovery_timeout_s=60, max_records=1)

    def refuse_and_fetch_late():
        if len(worker.took) == 6:
            bench.loop.stop()
        else:
            worker.refuse()
            bench.cluster.delay("Fetch", 50.0)

    worker.meanwhile = refuse_and_fetch_late
    bench.load(1)
    bench.run()
    assert min(between(worker.began_at)) >= 50.0
    assert bench.committed == 1


def test_aborts_of_work_that_went_elsewhere_do_not_end_the_loop(on_bench):
    worker, bench = on_bench(recovery_timeout_s=60, partitions=5)

    def take_away(event):
        if isinstance(event, TransactionAborted):
            bench.cluster.revoke(("orders", worker.took[-1]))
            bench.cluster.advance(A_HEARTBEAT_S)
        if len(worker.took) == 5:
            bench.loop.stop()

    bench.hears, worker.meanwhile = take_away, worker.refuse
    worker.cost_s = lambda number: 50.0
    for partition in range(5):
        bench.cluster.write("orders", values(partition), partition=partition)
    bench.run()
    assert sorted(worker.took) == [0, 1, 2, 3, 4]
    assert bench.written == []


def test_aborts_in_the_callback_of_a_revocation_end_the_loop_after_the_recovery_timeout(on_bench):
    """Partition 0 stays, so its record comes again each time that partition 1 is taken away."""
    worker, bench = on_bench(recovery_timeout_s=20, commit_interval_s=20.0, partitions=2, consumer=COOPERATIVE)

    def take_partition_1_and_refuse_the_commit():
        if worker.took[-1] == 1:
            worker.refuse()
            bench.cluster.revoke(("orders", 1))

    def give_partition_1_back(event):
        if isinstance(event, TransactionAborted) and len(bench.events(TransactionAborted)) < 3:
            bench.cluster.after(INTERVAL_S, bench.cluster.give_back)

    worker.cost_s, worker.meanwhile = lambda number: 3.0, take_partition_1_and_refuse_the_commit
    bench.hears = give_partition_1_back
    for number in range(2):
        bench.cluster.write("orders", values(number), partition=number)
    with pytest.raises(ClusterUnavailableError, match=r"3 transactions in a row were aborted: 2. s of work"):
        bench.run()
    assert bench.written == []


def test_a_commit_in_the_callback_of_a_revocation_leaves_the_next_transaction_all_its_time_and_room(on_bench):
    _, bench = on_bench(max_records=10, commit_interval_s=60.0, partitions=2, consumer=COOPERATIVE)

    def write_four_more_or_stop(event):
        if not isinstance(event, TransactionCommitted):
            return
        if event.inside_revoke:
            bench.load(4)
        else:
            bench.loop.stop()

    for partition in range(2):
        bench.load(3, partition)
    bench.cluster.after(1.0, lambda: bench.cluster.revoke(("orders", 1)))
    bench.hears = write_four_more_or_stop
    bench.run()
    assert [event.records_in for event in bench.events(TransactionCommitted)] == [6, 4]
    assert between(bench.moments(TransactionCommitted)) == about(60.0)


def test_a_start_that_fails_in_the_poll_of_a_forced_commit_makes_it_no_abort(on_bench, monkeypatch):
    _, bench = on_bench(commit_interval_s=20.0, partitions=2, consumer=COOPERATIVE)
    session, adapter = bench.loop.session, bench.loop._consumer_adapter
    receive = adapter.fetching._receive
    refused: list[Any] = []

    def receive_and_commit_a_start(fetched):
        receive(fetched)
        if session.endings.forced is not None and not refused:
            bench.cluster.refuse("TxnOffsetCommit", "UNKNOWN_MEMBER_ID")
            snapshot = adapter.snapshot()
            start = InputPosition(3, 3, snapshot.generation)
            refused.append(session.commit_starts({InputPartition("orders", 0): start}, snapshot))

    monkeypatch.setattr(adapter.fetching, "_receive", receive_and_commit_a_start)
    bench.hears = lambda event: isinstance(event, TransactionCommitted) and bench.cluster.after(9.0, bench.loop.stop)
    for partition in range(2):
        bench.load(3, partition)
    bench.cluster.after(1.0, lambda: bench.cluster.revoke(("orders", 1)))
    bench.run()
    assert "UNKNOWN_MEMBER_ID" in refused[0]
    assert [event.records_in for event in bench.events(TransactionCommitted)] == [6]
    assert bench.loop._aborts.count == 0


def test_the_error_that_ends_a_loop_is_its_reason_also_where_a_stop_came_first(on_bench):
    worker, bench = on_bench()
    worker.stop_at, worker.refuses = 0, True
    bench.load(1)
    with pytest.raises(TransformError):
        bench.run()
    assert [event.reason for event in bench.events(LoopStopped)] == ["TransformError"]
    assert bench.loop.stop_reason == "TransformError"


def test_a_consumer_that_cannot_be_closed_does_not_keep_the_producer_open(on_bench, monkeypatch):
    def fails(consumer):
        raise KafkaException(KafkaError(KafkaError._FATAL, "the group cannot be left"))

    monkeypatch.setattr(SimulatedConsumer, "close", fails)
    worker, bench = on_bench()
    worker.stop_at = 0
    bench.load(1)
    with pytest.raises(KafkaException, match="cannot be left"):
        bench.run()
    assert bench.cluster._producers[0]._closed
    assert len(bench.events(LoopStopped)) == 1
