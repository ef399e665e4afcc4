"""When the loop looks at the clock, puts records back, and tries a held transaction again."""

import itertools
from typing import Any

import pytest
from confluent_kafka import KafkaError

from eos_client.core.model import InputPartition, Outcome
from eos_client.errors import ClusterUnavailableError, FatalClientError
from eos_client.loop.transaction_size import RepeatedAborts, Spent
from tests.loop.fakes import Bench

INTERVAL_S = 1.0


class Worker:
    """A transform that takes as long as it is told, and stops the loop after its last record."""

    def __init__(self):
        self.bench: Any = None
        self.took: list[int] = []
        self.cost_s = lambda number: 0.0
        self.stop_at: int | None = None

    def __call__(self, record):
        number = int(record.value())
        self.took.append(number)
        self.bench.clock.spend(self.cost_s(number))
        if number == self.stop_at:
            self.bench.loop.stop()
        return [record.value()]


@pytest.fixture
def on_bench(monkeypatch):
    def start(**options):
        worker = Worker()
        worker.bench = Bench(monkeypatch, worker, commit_interval_s=INTERVAL_S, **options)
        return worker, worker.bench

    return start


def test_a_slow_transform_ends_its_transaction_on_time_and_puts_the_rest_back(on_bench):
    worker, bench = on_bench()
    worker.cost_s, worker.stop_at = lambda number: 0.25, 20
    bench.load(100)
    bench.loop.run()
    # The first transaction is the one record of the first poll and as much of a batch as the interval has room for.
    assert [at - 100.0 for at in bench.session.ended_at[:3]] == [1.0, 2.0, 3.0]
    assert worker.took == list(range(21)), "in order, none twice"
    assert [int(record.value()) for record in bench.consumer.waiting] == list(range(21, 100))


def test_a_fast_transform_is_not_slowed_down_by_looking_at_the_clock(on_bench):
    worker, bench = on_bench(batch_size=10_000)
    worker.stop_at = 9_999
    bench.load(10_000)
    bench.loop.run()
    assert len(worker.took) == 10_000
    assert bench.clock.readings < 200


def test_a_transform_that_becomes_slow_is_noticed_within_a_few_strides(on_bench):
    worker, bench = on_bench(batch_size=3_000)
    # After 1 000 quick records 512 are worked on in one go; then each takes a quarter of the interval.
    worker.cost_s, worker.stop_at = lambda number: 0.0 if number < 1000 else INTERVAL_S / 4, 2000
    bench.load(3_000)
    bench.loop.run()
    late = [after - before for before, after in itertools.pairwise(bench.session.ended_at)]
    assert late[10:30] == [INTERVAL_S] * 20


def test_a_stop_in_the_middle_of_a_batch_puts_the_rest_back_and_commits_what_was_done(on_bench):
    worker, bench = on_bench()
    worker.cost_s, worker.stop_at = lambda number: INTERVAL_S / 8, 2
    bench.load(50)
    bench.loop.run()
    assert worker.took == [0, 1, 2]
    assert bench.producer.written == [b"0", b"1", b"2"]
    assert len(bench.consumer.waiting) == 47
    assert len(bench.session.ended_at) == 1


def test_never_asks_for_more_records_than_the_transaction_has_room_for(on_bench):
    worker, bench = on_bench(max_records=100, batch_size=60)
    worker.stop_at = 299
    bench.load(300)
    bench.loop.run()
    assert bench.consumer.asked_for == [1, 60, 39] * 3


@pytest.mark.parametrize(("policy", "waits_s"), [("hold", 0.125), ("skip", INTERVAL_S)])
def test_hold_tries_a_held_transaction_again_at_once_and_skip_an_interval_later(on_bench, policy, waits_s):
    _, bench = on_bench(policy=policy, poll_timeout_s=0.125)
    bench.session.script = [Outcome.SKIPPED] * 4
    bench.load(1)
    end = bench.session.end

    def stopping_end():
        ending = end()
        if ending.outcome is Outcome.COMMITTED:
            bench.loop.stop()
        return ending

    bench.session.end = stopping_end
    bench.loop.run()
    attempts = bench.session.ended_at[:5]
    waited = [after - before for before, after in itertools.pairwise(attempts)]
    assert waited == [waits_s] * 4


def test_a_held_transaction_still_open_at_the_end_of_the_shutdown_budget_is_aborted(on_bench):
    worker, bench = on_bench(shutdown_timeout_s=5, poll_timeout_s=0.1)
    worker.stop_at = 0
    bench.session.script = [Outcome.SKIPPED] * 1000
    bench.load(1)
    bench.loop.run()
    assert bench.session.script == []
    assert len(bench.consumer.waiting) == 1, "it was rewound"
    assert bench.clock.now - 100.0 == pytest.approx(5, abs=0.2)


def test_aborts_in_a_row_come_slower_and_end_the_loop_after_the_recovery_timeout(on_bench):
    _, bench = on_bench(recovery_timeout_s=10, max_records=1)
    bench.session.script = [Outcome.ABORTED] * 1000
    bench.load(1)
    with pytest.raises(ClusterUnavailableError, match="without a commit"):
        bench.loop.run()
    waited = [round(after - before, 2) for before, after in itertools.pairwise(bench.session.ended_at)]
    assert waited[:7] == [0.0, 0.08, 0.16, 0.32, 0.64, 1.0, 1.0]
    assert 10 < bench.clock.now - 100.0 < 11.5


def test_a_commit_between_aborts_starts_their_count_anew(on_bench):
    _, bench = on_bench(recovery_timeout_s=1, max_records=1)
    bench.session.script = ([Outcome.ABORTED] * 3 + [Outcome.COMMITTED]) * 20 + [Outcome.ABORTED] * 1000
    bench.load(1000)
    with pytest.raises(ClusterUnavailableError):
        bench.loop.run()
    assert len(bench.session.ended_at) > 80


def test_a_record_slower_than_the_group_waits_is_told_as_that_and_not_as_a_cluster_that_is_away(on_bench):
    worker, bench = on_bench(recovery_timeout_s=10, max_records=1)
    worker.cost_s = lambda number: 301.0
    bench.session.script = [Outcome.ABORTED] * 10
    bench.load(1)
    with pytest.raises(FatalClientError, match=r"one record took 301\.0 s, longer than max\.poll\.interval\.ms=300000"):
        bench.loop.run()
    assert len(worker.took) == 3


class Told:
    """An error event among the records."""

    def topic(self):
        return None

    def error(self):
        return KafkaError(KafkaError._MAX_POLL_EXCEEDED, "exceeded by 494ms")


@pytest.mark.parametrize(
    ("cost_s", "error", "words"),
    [(301.0, FatalClientError, "one record took"), (5.0, ClusterUnavailableError, "without a commit")],
)
def test_an_event_that_comes_alone_is_no_progress_between_aborts(on_bench, cost_s, error, words):
    """A classic group's eviction is followed by its event, and the partitions come back only after an interval."""
    worker, bench = on_bench(recovery_timeout_s=10, max_records=1)
    worker.cost_s = lambda number: cost_s
    bench.session.script = [Outcome.COMMITTED, Outcome.ABORTED] * 10
    bench.load(1)
    consume, polls = bench.consumer.consume, itertools.count()
    bench.consumer.poll = lambda timeout_s: consume(1, timeout_s)[0] if next(polls) % 2 else Told()
    bench.consumer.consume = lambda _, timeout_s: bench.clock.spend(timeout_s) or []
    with pytest.raises(error, match=words):
        bench.loop.run()


def test_evictions_count_in_a_row_although_their_work_went_elsewhere_meanwhile():
    aborts = RepeatedAborts(recovery_timeout_s=60.0, poll_limit_s=6.0)
    work, slow = frozenset({InputPartition("orders", 0)}), Spent(1, 8.0, 8.0)
    for _ in range(2):
        aborts.aborted(work, frozenset(), slow, "it left the group")
    with pytest.raises(FatalClientError, match=r"3 transactions in a row .* one record took 8\.0 s"):
        aborts.aborted(work, frozenset(), slow, "it left the group")
    assert (aborts.count, aborts.evictions) == (1, 3)
    aborts.progress()
    assert (aborts.count, aborts.evictions) == (0, 0)


def idle_before_each_transaction(bench, seconds, then=lambda: None):
    """Let that time pass without work before each first record."""
    poll = bench.consumer.poll

    def waiting_poll(timeout_s):
        bench.clock.spend(seconds)
        then()
        return poll(timeout_s)

    bench.consumer.poll = waiting_poll


def stop_after(bench, attempts):
    end = bench.session.end

    def stopping_end():
        if len(bench.session.ended_at) >= attempts:
            bench.loop.stop()
        return end()

    bench.session.end = stopping_end


def test_time_without_work_between_aborts_does_not_end_the_loop(on_bench):
    _, bench = on_bench(recovery_timeout_s=60, max_records=1)
    bench.session.script = [Outcome.ABORTED] * 5
    idle_before_each_transaction(bench, 1000)
    stop_after(bench, 5)
    bench.load(1)
    bench.loop.run()


def test_aborts_of_work_that_went_elsewhere_do_not_end_the_loop(on_bench):
    worker, bench = on_bench(recovery_timeout_s=60, max_records=1)
    worker.cost_s = lambda number: 50.0
    bench.session.script = [Outcome.ABORTED] * 5
    partitions = itertools.count()

    def rebalance():
        bench.consumer.assigned = frozenset({InputPartition("orders", next(partitions))})

    idle_before_each_transaction(bench, 0, rebalance)
    stop_after(bench, 5)
    bench.load(1)
    bench.loop.run()


def test_a_consumer_that_cannot_be_closed_does_not_keep_the_producer_open(on_bench):
    worker, bench = on_bench()
    worker.stop_at = 0
    bench.load(1)
    bench.consumer.close_error = FatalClientError("the group cannot be left")
    with pytest.raises(FatalClientError, match="cannot be left"):
        bench.loop.run()
    assert bench.producer.is_closed
    assert [event.name for event in bench.events].count("loop_stopped") == 1
