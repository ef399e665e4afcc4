"""A callback that raises inside the library makes it drop the next record uncounted: that record comes all the same."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from eos_client import EosConsumer
from eos_client.errors import InputPositionError
from eos_client.testing import SimulatedCluster
from eos_client.testing.simulator.brokers.model import PartitionKey
from tests.support.protocols import BY_COORDINATOR

PARTITIONS, EACH = 4, 20
WRITTEN_AT_S = 5.0
PLACES = [TopicPartition("orders", number) for number in range(PARTITIONS)]
RAISES = pytest.mark.parametrize("raises", [1, 2, 3, 40])


class OwnError(Exception):
    """What a signal handler raises while the library runs a callback: outside of whatever guards the callback."""


class Reader:
    """An application that goes on after every exception, `raises` of them; `seen` by partition."""

    def __init__(
        self, cluster: SimulatedCluster, raises: int, reset: str = "earliest", protocol: str = "classic"
    ) -> None:
        self.cluster = cluster
        self.raises = raises
        self.seen: dict[int, list[int]] = {number: [] for number in range(PARTITIONS)}
        self.raised = 0
        self.raises_from_s = WRITTEN_AT_S
        self.consumer = EosConsumer(
            {
                "bootstrap.servers": "simulated",
                "group.id": "billing",
                "auto.offset.reset": reset,
                "group.protocol": protocol,
                "statistics.interval.ms": 10,
            },
            factory=lambda settings: cluster.consumer({**settings, "stats_cb": self._report}),
            clock=cluster.clock,
            hook=lambda _: None,
        )

    def _report(self, _: str) -> None:
        if self.raised < self.raises and self.cluster.clock() > self.raises_from_s:
            raise OwnError

    def read(self) -> dict[int, list[int]]:
        for _ in range(100):
            try:
                batch = self.consumer.consume(5, 0.15)
            except OwnError:
                self.raised += 1
                continue
            for message in batch:
                self.seen[message.partition()].append(message.offset())
        assert self.raised == self.raises
        self.consumer.close()
        return self.seen


def all_from(start: int, end: int = EACH) -> dict[int, list[int]]:
    return {number: list(range(start, end)) for number in range(PARTITIONS)}


def being_written(*, written: int = 0) -> SimulatedCluster:
    """Each partition has `written` records, and gets EACH more while callbacks raise."""
    cluster = SimulatedCluster()
    cluster.create_topic("orders", PARTITIONS)
    for number in range(PARTITIONS):
        write(cluster, number, written)
        for later in range(EACH):
            cluster.after(WRITTEN_AT_S + 0.1 + 0.07 * later + 0.013 * number, partial(write, cluster, number, 1))
    return cluster


def write(cluster: SimulatedCluster, partition: int, number: int) -> None:
    if number:
        cluster.write("orders", [b"v"] * number, partition=partition)


def commit(cluster: SimulatedCluster, offset: int) -> None:
    outsider = cluster.consumer({"bootstrap.servers": "simulated", "group.id": "billing", "enable.auto.commit": False})
    outsider.commit(offsets=[TopicPartition(p.topic, p.partition, offset) for p in PLACES], asynchronous=False)
    outsider.close()


@RAISES
@pytest.mark.parametrize("protocol", BY_COORDINATOR)
def test_a_group_without_offsets_reads_from_the_beginning(protocol: str, raises: int) -> None:
    reader = Reader(being_written(), raises, protocol=protocol)
    reader.consumer.subscribe(["orders"])
    assert reader.read() == all_from(0)


@RAISES
@pytest.mark.parametrize("reset", ["earliest", "latest", "error"])
def test_a_group_with_offsets_goes_on_there(reset: str, raises: int) -> None:
    cluster = being_written(written=3)
    commit(cluster, 3)
    reader = Reader(cluster, raises, reset)
    reader.consumer.subscribe(["orders"])
    assert reader.read() == all_from(3, 3 + EACH)


@RAISES
def test_with_latest_a_group_reads_what_came_after_its_first_assignment(raises: int) -> None:
    reader = Reader(being_written(written=3), raises, "latest")
    reader.consumer.subscribe(["orders"])
    assert reader.read() == all_from(3, 3 + EACH)


@RAISES
@pytest.mark.parametrize(("reset", "start"), [("earliest", 0), ("latest", 3)])
def test_an_assignment_by_hand_without_offsets_starts_where_the_reset_says(reset: str, start: int, raises: int) -> None:
    reader = Reader(being_written(written=start), raises, reset)
    reader.consumer.assign(PLACES)
    assert reader.read() == all_from(start, start + EACH)


@RAISES
def test_an_assignment_by_hand_without_offsets_starts_where_the_group_does(raises: int) -> None:
    cluster = being_written(written=3)
    commit(cluster, 3)
    reader = Reader(cluster, raises)
    reader.consumer.assign(PLACES)
    assert reader.read() == all_from(3, 3 + EACH)


@RAISES
def test_an_assignment_by_hand_with_offsets_starts_there(raises: int) -> None:
    reader = Reader(being_written(written=4), raises)
    reader.consumer.assign([TopicPartition(p.topic, p.partition, 4) for p in PLACES])
    assert reader.read() == all_from(4, 4 + EACH)


@RAISES
def test_a_partition_that_was_sought_before_its_first_record_goes_on_there(raises: int) -> None:
    def seek(consumer: Any, partitions: list[TopicPartition]) -> None:
        consumer.assign(partitions)
        for place in partitions:
            consumer.seek(TopicPartition(place.topic, place.partition, 6))

    reader = Reader(being_written(written=6), raises)
    reader.consumer.subscribe(["orders"], on_assign=seek)
    assert reader.read() == all_from(6, 6 + EACH)


@RAISES
def test_records_deleted_at_the_start_of_the_log_do_not_keep_the_rest_back(raises: int) -> None:
    cluster = being_written(written=5)
    for number in range(PARTITIONS):
        cluster.brokers.log(PartitionKey("orders", number)).delete_records(5)
    reader = Reader(cluster, raises)
    reader.consumer.subscribe(["orders"])
    assert reader.read() == all_from(5, 5 + EACH)


@RAISES
def test_with_reset_error_a_missing_offset_is_told_although_the_error_event_was_dropped(raises: int) -> None:
    cluster = being_written()
    cluster.refuse("OffsetFetch", "NOT_COORDINATOR")  # so that the error event comes after a callback has raised
    reader = Reader(cluster, raises, "error")
    reader.raises_from_s = 0.0
    reader.consumer.subscribe(["orders"])
    with pytest.raises(InputPositionError, match="no committed offset"):
        reader.read()
