"""Transaction markers and aborted records at the end of the input: the lag is 0 behind them, and no record is lost."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import suppress
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from eos_client import OutputRecord
from eos_client.core.model import InputPartition
from eos_client.core.passed_offsets import LOOK_INTERVAL_S
from eos_client.observe import (
    CommitSkipped,
    LagMeasured,
    PartitionsAssigned,
    TransactionAborted,
    TransactionCommitted,
)
from eos_client.testing.simulator import PartitionKey, SimulatedCluster
from eos_client.testing.simulator.brokers.model import BrokerError
from tests.loop.bench import BROKERS, Bench, values
from tests.support.interception import close_the_gate, intercepting
from tests.support.protocols import PROTOCOLS, settings_of

EVERY_PROTOCOL = pytest.mark.parametrize("protocol", PROTOCOLS)
A_WHILE_S = 30.0


def copy(record: Any) -> list[bytes]:
    return [record.value()]


class Upstream:
    """A transactional producer that writes the orders."""

    def __init__(self, cluster: SimulatedCluster, topic: str = "orders") -> None:
        self.producer = cluster.producer({"transactional.id": "upstream"})
        self.producer.init_transactions()
        self.topic = topic

    def begin(self, *records: bytes) -> None:
        self.producer.begin_transaction()
        for record in records:
            self.producer.produce(self.topic, record, partition=0)
        self.producer.flush()

    def commit(self, *records: bytes) -> None:
        self.begin(*records)
        self.producer.commit_transaction()

    def abort(self, *records: bytes) -> None:
        self.begin(*records)
        self.producer.abort_transaction()


class Work(Bench):
    """A loop that copies what a transactional producer writes, for as long as a test says."""

    def __init__(self, cluster: SimulatedCluster, protocol: str = PROTOCOLS[0], transform: Any = copy, **options: Any):
        super().__init__(cluster, transform, consumer=settings_of(protocol) | options.pop("consumer", {}), **options)
        self.upstream = Upstream(cluster)

    def run_for(self, seconds: float = A_WHILE_S) -> None:
        self.cluster.after(seconds, self.loop.stop)
        self.loop.run()

    def commit_as_group(self, offset: int) -> None:
        """Commit as an earlier member of the group has."""
        member = self.cluster.consumer(BROKERS | {"group.id": "billing"})
        member.commit(offsets=[TopicPartition("orders", 0, offset)], asynchronous=False)
        member.close()

    @property
    def end(self) -> int:
        """The last stable offset."""
        return self.cluster.brokers.log(PartitionKey("orders", 0)).last_stable_offset

    @property
    def without_records(self) -> list[TransactionCommitted]:
        return [event for event in self.events(TransactionCommitted) if event.records_in == 0]


@EVERY_PROTOCOL
def test_the_group_commits_the_offset_behind_the_last_marker(simulated_cluster, protocol):
    work = Work(simulated_cluster, protocol)
    work.upstream.commit(*values(0, 1, 2))
    work.run_for()
    assert (work.committed, work.end) == (4, 4)
    assert (work.written, work.loop.counters.records_in) == (values(0, 1, 2), 3)
    assert [event.poll_to_commit_s for event in work.without_records] == [None]


def test_it_passes_aborted_records_and_their_markers(simulated_cluster):
    work = Work(simulated_cluster)
    work.upstream.commit(*values(0, 1))
    work.upstream.abort(*values(7, 8, 9))
    work.run_for()
    assert (work.committed, work.end) == (7, 7)
    assert (work.written, work.loop.counters.records_in) == (values(0, 1), 2)


@EVERY_PROTOCOL
def test_after_a_restart_a_committed_offset_before_markers_alone_moves_behind_them(simulated_cluster, protocol):
    work = Work(simulated_cluster, protocol)
    work.upstream.commit(*values(0, 1, 2))
    work.commit_as_group(3)
    work.run_for()
    assert (work.committed, work.written) == (4, [])


def test_where_nothing_was_ever_readable_the_group_commits_the_end_all_the_same(simulated_cluster):
    work = Work(simulated_cluster)
    work.upstream.abort(*values(7, 8))
    work.run_for()
    assert (work.committed, work.written) == (3, [])


def test_an_empty_partition_gets_no_offset(simulated_cluster):
    work = Work(simulated_cluster)
    work.run_for()
    assert simulated_cluster.committed("billing") == {}
    assert work.events(TransactionCommitted) == []


def test_the_records_of_an_open_transaction_are_read_when_it_is_committed(simulated_cluster):
    work = Work(simulated_cluster)
    work.upstream.commit(*values(0))
    work.upstream.begin(*values(1, 2))
    seen: list[int] = []
    simulated_cluster.after(10, lambda: seen.append(work.committed))
    simulated_cluster.after(11, work.upstream.producer.commit_transaction)
    work.run_for()
    assert seen == [2], "behind the first marker, where the open transaction begins"
    assert (work.written, work.committed) == (values(0, 1, 2), 5)


def test_it_commits_once_for_all_that_it_has_passed_and_not_again(simulated_cluster):
    work = Work(simulated_cluster)
    work.upstream.commit(*values(0))
    work.run_for(600.0)
    assert len(work.without_records) == 1


def test_markers_that_come_all_the_time_are_committed_once_a_second_at_most(simulated_cluster):
    work = Work(simulated_cluster)
    for number in range(100):
        simulated_cluster.after(1.0 + number / 10, lambda: work.upstream.abort(*values(7)))
    work.run_for()
    moments = work.moments(TransactionCommitted)
    assert len(moments) > 5
    assert all(after - before >= LOOK_INTERVAL_S - 1e-6 for before, after in itertools.pairwise(moments))
    assert work.committed == work.end


def test_a_record_that_comes_meanwhile_is_committed_with_them(simulated_cluster):
    work = Work(simulated_cluster, commit_interval_s=5.0)
    work.upstream.commit(*values(0))
    work.commit_as_group(1)
    simulated_cluster.after(2.0, lambda: work.upstream.commit(*values(1)))
    work.run_for()
    assert [event.records_in for event in work.events(TransactionCommitted)] == [1, 0]
    assert (work.written, work.committed) == (values(1), 4)


def test_the_time_to_commit_a_record_counts_from_the_offsets_that_its_transaction_begins_with(simulated_cluster):
    work = Work(simulated_cluster, commit_interval_s=5.0)
    simulated_cluster.after(1.0, lambda: work.upstream.commit(*values(0)))
    simulated_cluster.after(20.0, lambda: work.upstream.abort(*values(7)))
    simulated_cluster.after(22.0, lambda: work.upstream.commit(*values(1)))
    work.run_for(40.0)
    times = [event.poll_to_commit_s for event in work.events(TransactionCommitted) if event.records_in]
    assert times == [pytest.approx(5.0, abs=0.2)] * 2


def test_refused_commits_without_records_do_not_add_up(simulated_cluster):
    work = Work(simulated_cluster, recovery_timeout_s=1.0, commit_interval_s=0.4)
    for number in range(5):
        simulated_cluster.after(10.0 * number, lambda: work.upstream.abort(*values(7)))
        simulated_cluster.after(10.0 * number, lambda: simulated_cluster.refuse("TxnOffsetCommit", "UNKNOWN_MEMBER_ID"))
    work.run_for(60.0)
    assert len(work.events(TransactionAborted)) == 5
    assert work.committed == work.end


def test_the_lag_that_is_measured_ends_at_0(simulated_cluster):
    work = Work(simulated_cluster, consumer={"statistics.interval.ms": 1000})
    work.upstream.commit(*values(0, 1))
    work.upstream.abort(*values(7))
    work.run_for()
    assert work.events(LagMeasured)[-1].records == {InputPartition("orders", 0): 0}


# -- where it must not ---------------------------------------------------------------------------------------------


def test_a_loop_that_reads_its_own_output_comes_to_rest(simulated_cluster):
    def once(record: Any) -> Iterator[OutputRecord]:
        if not record.value().startswith(b"again"):
            yield OutputRecord("orders", value=b"again " + record.value())

    work = Work(simulated_cluster, transform=once)
    work.upstream.commit(*values(0))
    work.run_for(600.0)
    assert work.committed == work.end
    assert len(work.events(TransactionCommitted)) < 5, "a commit of offsets alone writes nothing into the input"


def test_a_closed_gate_lets_nothing_pass(simulated_cluster):
    work = Work(simulated_cluster, hold_limit_s=20.0)
    work.upstream.commit(*values(0))
    work.commit_as_group(1)
    closed: list[bool] = []

    def close(event: Any) -> None:
        if isinstance(event, PartitionsAssigned) and not closed:
            closed.append(True)
            close_the_gate(work.loop._consumer)

    work.hears = close
    seen: list[int] = []
    simulated_cluster.after(15, lambda: seen.append(work.committed))
    simulated_cluster.after(16, simulated_cluster.rebalance)
    work.run_for(60.0)
    assert work.events(CommitSkipped)
    assert seen == [1]
    assert work.committed == 2


@EVERY_PROTOCOL
def test_after_a_revocation_nothing_of_the_partition_is_committed(simulated_cluster, protocol):
    work = Work(simulated_cluster, protocol, partitions=2)
    work.upstream.commit(*values(0))
    simulated_cluster.after(10, lambda: simulated_cluster.revoke(("orders", 0)))
    simulated_cluster.after(20, lambda: work.upstream.abort(*values(7)))
    work.run_for(60.0)
    assert (work.committed, work.end) == (2, 4)


def test_a_refused_commit_is_repeated_and_no_record_is_lost_or_doubled(simulated_cluster):
    work = Work(simulated_cluster)
    work.upstream.commit(*values(0))
    work.commit_as_group(1)
    for _ in range(3):
        simulated_cluster.refuse("TxnOffsetCommit", "UNKNOWN_MEMBER_ID")
    simulated_cluster.after(15, lambda: work.upstream.commit(*values(1, 2)))
    work.run_for()
    assert len(work.events(TransactionAborted)) == 3
    assert (work.written, work.committed) == (values(1, 2), 5)


def test_after_an_abort_the_position_of_before_is_not_believed(simulated_cluster):
    """The records of an aborted transaction come again late: until then the library had passed them once."""
    work = Work(simulated_cluster, max_records=2)
    work.upstream.commit(*values(0, 1, 2, 3))
    simulated_cluster.refuse("TxnOffsetCommit", "UNKNOWN_MEMBER_ID")

    def late(event: Any) -> None:
        if isinstance(event, TransactionAborted):
            simulated_cluster.delay("Fetch", 3.0)

    work.hears = late
    work.run_for(60.0)
    assert (work.written, work.committed) == (values(0, 1, 2, 3), 5)


def test_offsets_of_the_groups_own_log_are_left_alone(simulated_cluster):
    """There the commit itself would write the next marker."""
    simulated_cluster.create_topic("__consumer_offsets")
    Upstream(simulated_cluster, "__consumer_offsets").abort(*values(7))
    work = Bench(simulated_cluster, copy)
    work.loop._topics = ["__consumer_offsets"]
    simulated_cluster.after(A_WHILE_S, work.loop.stop)
    work.loop.run()
    assert work.events(PartitionsAssigned)
    assert simulated_cluster.committed("billing") == {}


def test_records_that_wait_to_be_handed_over_are_not_passed(simulated_cluster):
    work = Work(simulated_cluster)
    work.upstream.commit(*values(0, 1))
    consumer, member = work.loop._consumer, work.loop._consumer_adapter
    consumer.subscribe(["orders"])
    batch: list[Any] = []
    while len(batch) < 2:
        batch += consumer.consume(2, 1.0)
    member.put_back(batch)
    consumer.adapter.fetching.prefetch()
    assert not member.hand_over_passed()
    assert consumer.consume(2, 1.0) == batch
    assert member.hand_over_passed()
    work.loop.close()


# -- at random -----------------------------------------------------------------------------------------------------


class Story(Work):
    """Transactions of upstream that commit, abort or stay open, among rebalances, refusals, losses and late answers."""

    def __init__(self, cluster: SimulatedCluster, seed: int) -> None:
        self.random = Random(seed)
        self.expected: list[bytes] = []
        self.is_writing = False
        super().__init__(cluster, self.random.choice(PROTOCOLS), transform=self.transform, partitions=2, max_records=7)
        for at in range(60):
            cluster.after(0.5 * at, self.random.choice([self.write, self.write, self.write, self.trouble]))
        cluster.after(40.0, self.settle)

    def transform(self, record: Any) -> list[bytes]:
        self.clock.sleep(self.random.choice([0.0, 0.0, 0.3]))
        return [record.value()]

    def write(self) -> None:
        """Begin a transaction, unless one is open, and end it now or later."""
        if self.is_writing:
            return
        self.is_writing = True
        records = [b"%d-%d" % (len(self.expected), n) for n in range(self.random.randrange(4))]
        self.upstream.producer.begin_transaction()
        for record in records:
            self.upstream.producer.produce("orders", record, partition=self.random.randrange(2))
        self.upstream.producer.flush()
        end = self.random.choice([lambda: self.commit(records), lambda: self.commit(records), self.abort])
        self.cluster.after(self.random.choice([0.0, 0.0, 0.4, 3.0]), end)

    def commit(self, records: list[bytes]) -> None:
        self.upstream.producer.commit_transaction()
        self.expected += records
        self.is_writing = False

    def abort(self) -> None:
        self.upstream.producer.abort_transaction()
        self.is_writing = False

    def trouble(self) -> None:
        cluster = self.cluster
        troubles: list[Callable[[], object]] = [
            lambda: cluster.revoke(("orders", 0)),
            cluster.give_back,
            cluster.lose,
            lambda: cluster.refuse("TxnOffsetCommit", "UNKNOWN_MEMBER_ID", "producer-1"),
            lambda: cluster.lose_reply("EndTxn", "producer-1"),
            lambda: cluster.delay("Fetch", 2.0),
            lambda: cluster.delay("OffsetFetch", 2.0),
            cluster.rebalance,
        ]
        with suppress(BrokerError, ValueError):
            self.random.choice(troubles)()

    def settle(self) -> None:
        with suppress(BrokerError, ValueError):
            self.cluster.give_back()

    @property
    def lags(self) -> list[int]:
        committed, keys = self.cluster.committed("billing"), [PartitionKey("orders", n) for n in range(2)]
        return [self.cluster.brokers.log(key).last_stable_offset - committed.get(key, 0) for key in keys]


@pytest.mark.parametrize("seed", [*range(4), *(pytest.param(n, marks=pytest.mark.soak) for n in range(4, 200))])
def test_at_random_nothing_is_lost_or_doubled_and_the_lag_ends_at_0(seed):
    work = Story(SimulatedCluster(seed=seed), seed)
    work.run_for(150.0)
    assert sorted(work.written) == sorted(work.expected)
    assert work.lags == [0, 0]


OUTAGE_S = 200.0


def run_through(work: Work, begin_outage: Any) -> None:
    """Let markers come just after an outage has begun, and run until some time after it."""
    cluster = work.cluster
    cluster.after(5.0, begin_outage)
    cluster.after(5.5, lambda: work.upstream.abort(*values(0, 1)))
    cluster.after(OUTAGE_S, cluster.faults.withdraw)
    work.run_for(OUTAGE_S + A_WHILE_S)
    assert (work.committed, work.end) == (3, 3)


@pytest.mark.parametrize("request_", ["EndTxn", "TxnOffsetCommit", "AddOffsetsToTxn"])
def test_an_idle_loop_waits_out_an_outage_that_begins_when_it_passes_markers(simulated_cluster, request_):
    def begin_outage() -> None:
        for _ in range(2_000):
            simulated_cluster.lose_request(request_, "producer-1")
            simulated_cluster.lose_request("InitProducerId")

    run_through(Work(simulated_cluster), begin_outage)


def test_an_idle_loop_goes_on_however_often_its_passed_offsets_are_refused(simulated_cluster):
    def begin_outage() -> None:
        for _ in range(2_000):
            simulated_cluster.refuse("TxnOffsetCommit", "ILLEGAL_GENERATION", "producer-1")

    run_through(Work(simulated_cluster), begin_outage)


def test_a_position_that_a_stale_marker_has_moved_after_a_rewind_passes_no_record(simulated_cluster):
    """A marker that the library took before the rewind moves its position, but is no record that shows it is stale."""
    sought = 0

    def seek(raw, *arguments):
        nonlocal sought
        sought += 1
        raw.seek(*arguments)

    def position(raw, partitions):
        places = raw.position(partitions)
        if sought == 1:
            for place in places:
                place.offset = 4
        return places

    consumer = intercepting(simulated_cluster.consumer, seek=seek, position=position)
    clients: Any = SimpleNamespace(
        clock=simulated_cluster.clock, consumer=consumer, producer=simulated_cluster.producer
    )
    work = Work(simulated_cluster, clients=clients)
    work.upstream.commit(*values(0, 1, 2))
    simulated_cluster.refuse("TxnOffsetCommit", "ILLEGAL_GENERATION")

    def hears(event):
        if isinstance(event, TransactionAborted):
            simulated_cluster.delay("Fetch", 10 * LOOK_INTERVAL_S)

    work.hears = hears
    work.run_for()
    assert sought > 0
    assert (work.written, work.committed) == (values(0, 1, 2), 4)
