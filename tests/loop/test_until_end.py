"""A loop that reads its input to the end that it has, and stops there, committed."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from eos_client.core.passed_offsets import LOOK_INTERVAL_S
from eos_client.errors import ClusterUnfitError, TransformError
from eos_client.loop.until_end import READ_TO_THE_END
from eos_client.observe import CommitSkipped, LoopStopped, PartitionsAssigned, PartitionsRevoked
from eos_client.testing.simulator import PartitionKey, SimulatedCluster
from eos_client.testing.simulator.brokers.model import OffsetAndMetadata
from tests.loop.bench import BROKERS, LETTERS, Bench, numbers, values
from tests.support.interception import close_the_gate
from tests.support.protocols import PROTOCOLS, settings_of

EVERY_PROTOCOL = pytest.mark.parametrize("protocol", PROTOCOLS)
LIMIT_S = 600.0
JOINS = 400


class BatchJob(Bench):
    """A loop that copies what is there, and where it has stopped."""

    def __init__(self, cluster: SimulatedCluster, protocol: str = PROTOCOLS[0], transform: Any = None, **options: Any):
        copy = transform or (lambda record: [record.value()])
        super().__init__(cluster, copy, consumer=settings_of(protocol) | options.pop("consumer", {}), **options)

    def read_to_the_end(self) -> bool:
        """Run; returns what the loop has returned."""
        self.cluster.after(LIMIT_S, partial(self.loop.stop, "the loop does not end"))
        return self.loop.run(until_end=True)

    @property
    def reason(self) -> str:
        (stopped,) = self.events(LoopStopped)
        reason: str = stopped.reason
        return reason

    def offsets(self, topic: str = "orders") -> dict[int, int]:
        return {
            key.partition: offset for key, offset in self.cluster.committed("billing").items() if key.topic == topic
        }

    def transaction(self, *records: bytes, partition: int = 0) -> Any:
        """A transaction that has written ``records`` and is open."""
        producer = self.cluster.producer({"transactional.id": "upstream"})
        producer.init_transactions()
        producer.begin_transaction()
        for record in records:
            producer.produce("orders", record, partition=partition)
        producer.flush()
        return producer


def slow(cluster: SimulatedCluster) -> Any:
    def copy(record: Any) -> list[bytes]:
        cluster.clock.sleep(1.0)
        return [record.value()]

    return copy


@EVERY_PROTOCOL
def test_it_reads_every_partition_to_the_end_and_stops_committed(simulated_cluster, protocol):
    job = BatchJob(simulated_cluster, protocol, partitions=3)
    job.load(700)
    job.load(5, partition=2)
    assert job.read_to_the_end()
    assert len(job.written) == 705
    assert job.offsets() == {0: 700, 2: 5}
    assert job.reason == READ_TO_THE_END
    assert job.clock() < 10


@EVERY_PROTOCOL
def test_an_empty_topic_ends_it_at_once(simulated_cluster, protocol):
    job = BatchJob(simulated_cluster, protocol, partitions=2)
    assert job.read_to_the_end()
    assert job.clock() < 10


@EVERY_PROTOCOL
def test_where_all_was_read_before_there_is_nothing_to_do(simulated_cluster, protocol):
    job = BatchJob(simulated_cluster, protocol)
    job.load(5)
    member = simulated_cluster.consumer(BROKERS | {"group.id": "billing"})
    member.commit(offsets=[TopicPartition("orders", 0, 5)], asynchronous=False)
    member.close()
    assert job.read_to_the_end()
    assert (job.written, job.offsets()) == ([], {0: 5})
    assert job.clock() < 10


def test_it_ends_behind_markers_and_aborted_records(simulated_cluster):
    job = BatchJob(simulated_cluster)
    job.transaction(*values(0, 1)).commit_transaction()
    job.transaction(*values(7)).abort_transaction()
    assert job.read_to_the_end()
    assert (job.written, job.offsets()) == (values(0, 1), {0: 5})


def test_an_open_transaction_is_not_waited_for(simulated_cluster):
    job = BatchJob(simulated_cluster)
    job.load(3)
    job.transaction(*values(7))
    assert job.read_to_the_end()
    assert (job.written, job.offsets()) == (numbers(3), {0: 3})


def test_what_is_written_meanwhile_does_not_keep_it(simulated_cluster):
    def slowly(record: Any) -> list[bytes]:
        simulated_cluster.clock.sleep(0.2)
        job.load(1)
        return [record.value()]

    job = BatchJob(simulated_cluster, transform=slowly)
    job.load(20)
    assert job.read_to_the_end()
    assert 20 <= job.offsets()[0] == len(job.written) < 40
    assert job.clock() < 20


def test_with_latest_it_ends_where_it_starts(simulated_cluster):
    job = BatchJob(simulated_cluster, consumer={"auto.offset.reset": "latest"})
    job.load(5)
    assert job.read_to_the_end()
    assert (job.written, job.offsets()) == ([], {0: 5})


def test_what_retention_has_deleted_is_not_waited_for(simulated_cluster):
    job = BatchJob(simulated_cluster)
    job.load(5)
    simulated_cluster.brokers.log(PartitionKey("orders", 0)).delete_records(5)
    assert job.read_to_the_end()
    assert job.written == []


def test_nor_what_it_deletes_meanwhile(simulated_cluster):
    job = BatchJob(simulated_cluster)
    job.load(5)
    log = simulated_cluster.brokers.log(PartitionKey("orders", 0))

    def delete(event: Any) -> None:
        if isinstance(event, PartitionsAssigned):
            simulated_cluster.delay("Fetch", 5.0)
            simulated_cluster.after(3.0, lambda: log.delete_records(5))

    job.hears = delete
    assert job.read_to_the_end()


# -- what goes wrong -----------------------------------------------------------------------------------------------


def test_a_transform_that_fails_ends_it_with_its_error(simulated_cluster):
    def divide(record: Any) -> list[bytes]:
        return [b"%d" % (1 // int(record.value()))]

    job = BatchJob(simulated_cluster, transform=divide)
    job.load(3)
    with pytest.raises(TransformError, match="ZeroDivisionError"):
        job.read_to_the_end()
    assert job.offsets() == {}


def test_dead_letters_count_as_read(simulated_cluster):
    def divide(record: Any) -> list[bytes]:
        return [b"%d" % (1 // int(record.value()))]

    job = BatchJob(simulated_cluster, transform=divide, **LETTERS)
    job.load(3)
    assert job.read_to_the_end()
    assert (job.offsets(), simulated_cluster.values("letters")) == ({0: 3}, values(0))


def test_a_record_whose_output_is_refused_is_processed_again_first(simulated_cluster):
    job = BatchJob(simulated_cluster)
    job.load(3)
    for _ in range(2):
        simulated_cluster.refuse("TxnOffsetCommit", "UNKNOWN_MEMBER_ID")
    assert job.read_to_the_end()
    assert (job.written, job.offsets()) == (numbers(3), {0: 3})


def test_stopped_before_the_end_it_says_so(simulated_cluster):
    def stop(record: Any) -> list[bytes]:
        job.loop.stop()
        return [record.value()]

    job = BatchJob(simulated_cluster, transform=stop, max_records=1)
    job.load(3)
    assert not job.read_to_the_end()
    assert job.reason == "stop() was called"


def test_without_until_end_it_runs_on_and_says_that_it_was_stopped(simulated_cluster):
    job = BatchJob(simulated_cluster)
    job.load(3)
    simulated_cluster.after(60.0, job.loop.stop)
    assert not job.loop.run()
    assert job.offsets() == {0: 3}


def test_it_stops_only_when_a_closed_gate_has_let_the_commit_pass(simulated_cluster):
    def close(record: Any) -> list[bytes]:
        close_the_gate(job.loop._consumer)
        simulated_cluster.after(10.0, simulated_cluster.rebalance)
        return [record.value()]

    job = BatchJob(simulated_cluster, transform=close, hold_limit_s=30.0)
    job.load(1)
    assert job.read_to_the_end()
    assert job.events(CommitSkipped)
    assert (job.written, job.offsets()) == (numbers(1), {0: 1})


@EVERY_PROTOCOL
def test_an_offset_beyond_the_end_of_the_log_is_no_end(simulated_cluster, protocol):
    """A log that was truncated: the owner of the partition raises that, and no member takes it for read."""
    job = BatchJob(simulated_cluster, protocol, transform=slow(simulated_cluster), partitions=2)
    job.load(3)
    job.load(300, partition=1)

    def revoke(event: Any) -> None:
        if isinstance(event, PartitionsAssigned) and not job.events(PartitionsRevoked):
            simulated_cluster.revoke(("orders", 1))

    job.hears = revoke
    simulated_cluster.after(60.0, lambda: commit_elsewhere(simulated_cluster, 1, 400))
    assert not job.read_to_the_end()
    assert job.reason == "the loop does not end"


def test_ends_that_cannot_be_read_are_asked_for_again(simulated_cluster):
    job = BatchJob(simulated_cluster)
    job.load(3)
    for _ in range(4):
        simulated_cluster.lose_reply("ListOffsets")
    assert job.read_to_the_end()
    assert job.offsets() == {0: 3}


def test_a_deleted_topic_is_the_known_error(simulated_cluster):
    job = BatchJob(simulated_cluster)
    job.load(3)

    def delete(event: Any) -> None:
        if isinstance(event, PartitionsAssigned):
            simulated_cluster.delete_topic("orders")

    job.hears = delete
    with pytest.raises(ClusterUnfitError, match="orders"):
        job.read_to_the_end()


# -- more members --------------------------------------------------------------------------------------------------


def commit_elsewhere(cluster: SimulatedCluster, partition: int, offset: int) -> None:
    """Let another member of the group have read ``partition`` up to ``offset``."""
    key = PartitionKey("orders", partition)
    cluster.brokers.groups.offsets.commit("billing", {key: OffsetAndMetadata(offset)})


@EVERY_PROTOCOL
def test_a_partition_that_has_left_is_waited_for(simulated_cluster, protocol):
    job = BatchJob(simulated_cluster, protocol, transform=slow(simulated_cluster), partitions=2, max_records=1)
    job.load(10)
    job.load(10, partition=1)
    simulated_cluster.after(3.0, lambda: simulated_cluster.revoke(("orders", 1)))
    simulated_cluster.after(60.0, simulated_cluster.give_back)
    assert job.read_to_the_end()
    assert job.events(PartitionsRevoked)
    assert job.clock() > 60
    assert job.offsets() == {0: 10, 1: 10}
    assert len(job.written) == 20


@EVERY_PROTOCOL
def test_what_is_written_meanwhile_to_a_partition_that_comes_back_does_not_keep_it(simulated_cluster, protocol):
    def slowly(record: Any) -> list[bytes]:
        simulated_cluster.clock.sleep(1.0)
        job.load(1, partition=1)
        return [record.value()]

    job = BatchJob(simulated_cluster, protocol, transform=slowly, partitions=2, max_records=1)
    job.load(20)
    job.load(2, partition=1)
    simulated_cluster.after(3.0, lambda: simulated_cluster.revoke(("orders", 1)))
    simulated_cluster.after(10.0, simulated_cluster.give_back)
    assert job.read_to_the_end()
    assert job.offsets()[0] == 20
    assert job.offsets()[1] >= 2


@EVERY_PROTOCOL
def test_a_member_without_partitions_waits_for_those_who_have_them(simulated_cluster, protocol):
    job = BatchJob(simulated_cluster, protocol, transform=slow(simulated_cluster), max_records=1)
    job.load(10)
    simulated_cluster.after(3.0, lambda: simulated_cluster.revoke(("orders", 0)))
    simulated_cluster.after(200.0, lambda: commit_elsewhere(simulated_cluster, 0, 10))
    assert job.read_to_the_end()
    assert 200 <= job.clock() < 203
    assert len(job.written) < 10


@EVERY_PROTOCOL
def test_the_partitions_of_a_member_that_was_killed_are_read(simulated_cluster, protocol):
    job = BatchJob(simulated_cluster, protocol, partitions=2)
    settings = BROKERS | settings_of(protocol) | {"group.id": "billing", "client.id": "killed"}
    other = simulated_cluster.consumer(settings)
    other.subscribe(["orders"])
    while not other.assignment():
        other.poll(1.0)
    job.load(5)
    job.load(5, partition=1)
    simulated_cluster.kill("killed")
    assert job.read_to_the_end()
    assert job.offsets() == {0: 5, 1: 5}


@EVERY_PROTOCOL
def test_a_member_that_has_not_joined_yet_waits(simulated_cluster, protocol):
    """A group may take long to rebalance: its other members have to come back first."""
    job = BatchJob(simulated_cluster, protocol)
    job.load(3)
    request = "ConsumerGroupHeartbeat" if protocol == PROTOCOLS[0] else "JoinGroup"
    for _ in range(JOINS):
        simulated_cluster.refuse(request, "COORDINATOR_LOAD_IN_PROGRESS")
    assert job.read_to_the_end()
    assert job.clock() > 30
    assert (job.reason, job.written) == (READ_TO_THE_END, numbers(3))


@EVERY_PROTOCOL
def test_of_a_pattern_only_the_own_partitions_are_waited_for(simulated_cluster, protocol):
    job = BatchJob(
        simulated_cluster, protocol, transform=slow(simulated_cluster), partitions=2, max_records=1, topics=("^ord.*",)
    )
    job.load(10)
    job.load(10, partition=1)
    simulated_cluster.after(3.0, lambda: simulated_cluster.revoke(("orders", 1)))
    assert job.read_to_the_end()
    offsets = job.offsets()
    assert offsets[0] == 10
    assert offsets.get(1, 0) < 10


# -- what it asks --------------------------------------------------------------------------------------------------


class Asked:
    """When a job has asked for the group's committed offsets. ``unanswered``: how many questions get no answer."""

    def __init__(self, job: BatchJob, unanswered: int = 0) -> None:
        self.moments: list[float] = []
        library = job.loop._consumer_adapter.library
        ask = library.committed_offsets

        def asking(partitions: Any) -> Any:
            self.moments.append(job.clock())
            return None if len(self.moments) <= unanswered else ask(partitions)

        setattr(library, "committed_offsets", asking)  # noqa: B010  # a method


def test_while_records_come_it_does_not_ask_what_is_committed(simulated_cluster):
    job = BatchJob(simulated_cluster, transform=slow(simulated_cluster), max_records=1)
    job.load(40)
    asked = Asked(job)
    assert job.read_to_the_end()
    assert [moment > 1.0 for moment in asked.moments].count(True) == 1, "apart from where it starts"


def test_it_asks_at_most_once_a_second(simulated_cluster):
    job = BatchJob(simulated_cluster)
    job.load(3)
    simulated_cluster.delay("Fetch", 20.0)
    asked = Asked(job)
    assert job.read_to_the_end()
    assert 10 < len(asked.moments) <= job.clock() / LOOK_INTERVAL_S + 3


def test_it_does_not_stop_before_the_group_has_said_what_is_committed(simulated_cluster):
    job = BatchJob(simulated_cluster)
    job.load(3)
    asked = Asked(job, unanswered=4)
    assert job.read_to_the_end()
    assert len(asked.moments) > 4
