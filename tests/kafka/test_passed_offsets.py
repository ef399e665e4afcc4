"""The group's lag behind transaction markers and aborted records, on a real broker."""

from __future__ import annotations

from typing import Any

from confluent_kafka import IsolationLevel, Producer

from eos_client import OutputRecord
from eos_client.core.passed_offsets import LOOK_INTERVAL_S
from eos_client.observe import PartitionsAssigned, TransactionCommitted
from tests.kafka.loop_support import ANSWER_S, ONE_PROTOCOL, Job
from tests.support.waiting import wait_for


class Upstream:
    """A transactional producer that writes a job's input, round robin; the markers are there when it has ended one."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._producer = Producer(
            {"bootstrap.servers": job.bootstrap, "transactional.id": f"upstream-{job.group}", "log_level": 0}
        )
        self._producer.init_transactions(ANSWER_S)
        self.committed: list[bytes] = []
        self._number = 0

    def begin(self, count: int) -> list[bytes]:
        self._producer.begin_transaction()
        values = [b"%d" % number for number in range(self._number, self._number + count)]
        for value in values:
            self._producer.produce(self._job.source, value, partition=int(value) % self._job.partitions)
        self._producer.flush()
        self._number += count
        return values

    def commit(self, count: int) -> None:
        self.commit_begun(self.begin(count))

    def commit_begun(self, values: list[bytes]) -> None:
        self._producer.commit_transaction(ANSWER_S)
        self._job.await_settled(self._job.source)
        self.committed += values

    def abort(self, count: int) -> None:
        self.begin(count)
        self._producer.abort_transaction(ANSWER_S)
        self._job.await_settled(self._job.source)


def await_lag_0(job: Job) -> None:
    ends = job.log_ends(job.source, IsolationLevel.READ_COMMITTED)
    wait_for(lambda: job.offsets() == ends, f"the group's offsets at {ends}")


@ONE_PROTOCOL
def test_the_lag_is_0_behind_markers_and_aborted_records_also_after_a_restart(kafka_broker, protocol):
    with Job(kafka_broker) as job:
        upstream = Upstream(job)
        for _ in range(3):
            upstream.commit(40)
            upstream.abort(10)
        first = job.start(kafka=protocol)
        await_lag_0(job)
        assert first.loop.counters.records_in == 120
        first.stop()
        upstream.abort(10)
        second = job.start(kafka=protocol)
        await_lag_0(job)
        upstream.commit(12)
        await_lag_0(job)
        assert second.loop.counters.records_in == 12
        second.stop()
        assert job.values() == upstream.committed


@ONE_PROTOCOL
def test_the_lag_is_that_of_the_open_transaction_and_its_records_are_read_later(kafka_broker, protocol):
    with Job(kafka_broker) as job:
        upstream = Upstream(job)
        upstream.commit(8)
        values = upstream.begin(8)
        running = job.start(kafka=protocol)
        await_lag_0(job)
        assert job.committed() == 12, "two records and a marker of each partition"
        upstream.commit_begun(values)
        await_lag_0(job)
        running.stop()
        assert job.values() == upstream.committed


@ONE_PROTOCOL
def test_two_workers_and_a_rebalance_leave_no_lag(kafka_broker, protocol):
    with Job(kafka_broker) as job:
        job.hasten_rebalances()
        upstream = Upstream(job)
        first = job.start(kafka=protocol)
        upstream.commit(40)
        await_lag_0(job)
        second = job.start(kafka=protocol)
        wait_for(lambda: any(e.partitions for e in second.events.of(PartitionsAssigned)), "a share of the second")
        upstream.abort(8)
        await_lag_0(job)
        upstream.commit(40)
        await_lag_0(job)
        first.stop()
        upstream.abort(8)
        await_lag_0(job)
        second.stop()
        assert job.values() == upstream.committed


@ONE_PROTOCOL
def test_a_loop_that_reads_its_own_output_comes_to_rest(kafka_broker, protocol):
    with Job(kafka_broker, partitions=1) as job:

        def once_more(record: Any) -> list[OutputRecord]:
            return (
                [] if record.headers() else [OutputRecord(job.source, value=record.value(), headers=[("again", b"")])]
            )

        Upstream(job).commit(10)
        running = job.start(once_more, kafka=protocol)
        wait_for(lambda: running.loop.counters.records_in == 20, "the records and their copies")
        await_lag_0(job)
        ends = job.log_ends(job.source)
        commits = running.events.of(TransactionCommitted)
        assert commits[-1].records_in == 0, "the markers of the copies"
        looked_at = running.loop._look_at
        wait_for(lambda: running.loop._look_at > looked_at + 3 * LOOK_INTERVAL_S, "three looks more")
        assert running.events.of(TransactionCommitted) == commits
        assert job.log_ends(job.source) == ends, "a commit of offsets alone writes nothing into the input"
        running.stop()
