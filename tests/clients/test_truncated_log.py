"""A log that lost records and has grown again (KIP-320): none of its new records is skipped without a word.

The client library stands between the simulated cluster, which has one leader for ever, and the application: it gives
records their leader epochs, and goes back to where an epoch has ended, as librdkafka does.
"""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import Message, TopicPartition

from eos_client import EosConsumer
from eos_client.core.leader_epochs import epoch_at
from eos_client.errors import InputPositionError
from tests.clients.simulated_stage import SOURCE, SimulatedStage
from tests.support.protocols import PROTOCOLS

EVERY_PROTOCOL = pytest.mark.parametrize("protocol", PROTOCOLS)
TRUNCATED = r"orders\[0\] .*offset 20 \(leader epoch 0 before it\).*offset 10 \(leader epoch 1\).*set it to"


class Elections:
    """A factory of consumers of one partition: the leader of epoch 0 wrote from 0 on, that of epoch n from starts[n-1].

    ``committed_epoch``: with which the group's offset was committed. ``sought``: the seeks, with their epochs.
    ``has_epochs``: without them, records are as from logs of message formats before version 2.
    """

    def __init__(self, stage: SimulatedStage, *starts: int) -> None:
        self._stage = stage
        self.starts = list(starts)
        self.committed_epoch: int | None = 0
        self.sought: list[tuple[int, int | None]] = []
        self.has_epochs = True

    def __call__(self, settings: dict[str, Any]) -> Any:
        self.raw = self._stage.cluster.consumer(settings)
        return ElectedConsumer(self.raw, self)

    def epoch_of(self, offset: int) -> int | None:
        return sum(start <= offset for start in self.starts) if self.has_epochs else None

    def validated(self, place: TopicPartition) -> int:
        """Return the offset of ``place``, or where its leader epoch has ended before that."""
        if place.leader_epoch is None:
            return place.offset
        return min([place.offset, self._stage.written, *self.starts[place.leader_epoch :]])

    def truncate(self, offset: int) -> None:
        """Make a replica that has the log up to ``offset`` the leader; the library goes on there."""
        self.starts.append(offset)
        self.raw.seek(TopicPartition(SOURCE, 0, offset))


class ElectedConsumer:
    def __init__(self, raw: Any, elections: Elections) -> None:
        self._raw = raw
        self._elections = elections

    def __getattr__(self, name: str) -> Any:
        return getattr(self._raw, name)

    def consume(self, count: int, timeout: float) -> list[Any]:
        return [self._elected(message) for message in self._raw.consume(count, timeout)]

    def poll(self, timeout: float) -> Any:
        message = self._raw.poll(timeout)
        return message and self._elected(message)

    def position(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        return [
            TopicPartition(p.topic, p.partition, p.offset, leader_epoch=self._elections.epoch_of(p.offset - 1))
            if p.offset > 0
            else p
            for p in self._raw.position(partitions)
        ]

    def _elected(self, message: Any) -> Any:
        if message.error() is not None:
            return message
        return Message(
            topic=message.topic(),
            partition=message.partition(),
            offset=message.offset(),
            value=message.value(),
            leader_epoch=self._elections.epoch_of(message.offset()) if self._elections.has_epochs else -1,
        )

    def commit(self, *, offsets: list[TopicPartition], asynchronous: bool) -> Any:
        for place in offsets:
            self._elections.committed_epoch = place.leader_epoch
        return self._raw.commit(offsets=offsets, asynchronous=asynchronous)

    def committed(self, partitions: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        epoch = self._elections.committed_epoch
        return [
            TopicPartition(p.topic, p.partition, p.offset, leader_epoch=-1 if epoch is None else epoch)
            for p in self._raw.committed(partitions, timeout)
        ]

    def seek(self, place: TopicPartition) -> None:
        self._elections.sought.append((place.offset, place.leader_epoch))
        self._raw.seek(TopicPartition(place.topic, place.partition, self._elections.validated(place)))


def staged(protocol: str, *, records: int, committed: int | None = None) -> SimulatedStage:
    stage = SimulatedStage(protocol, records=records, partitions=1)
    if committed is not None:
        member = stage.cluster.consumer({"bootstrap.servers": "simulated", "group.id": "billing"})
        member.commit(offsets=[TopicPartition(SOURCE, 0, committed)], asynchronous=False)
        member.close()
    return stage


def until_refused(stage: SimulatedStage, consumer: EosConsumer, match: str = TRUNCATED) -> list[int]:
    """Read on until the position is refused, and see that it stays so; returns the offsets that were handed over."""
    got: list[int] = []

    def read() -> None:
        got.extend(message.offset() for message in consumer.consume(5, 0.2))

    for _ in range(2):
        with pytest.raises(InputPositionError, match=match):
            stage.wait_for(lambda: False, read)
    return got


# -- a worker that was stopped meanwhile -------------------------------------------------------------------------------


@EVERY_PROTOCOL
def test_a_log_that_was_truncated_while_nobody_read_it_is_an_error_and_stays_one(protocol):
    stage = staged(protocol, records=25, committed=20)
    elections = Elections(stage, 10)
    consumer = stage.subscribed(factory=elections)
    assert until_refused(stage, consumer) == []
    assert elections.sought[0] == (20, 0)
    assert stage.committed() == 20


def with_markers(stage: SimulatedStage, count: int) -> None:
    """Write aborted transactions, of a record and a marker each."""
    producer = stage.cluster.producer({"transactional.id": "upstream"})
    producer.init_transactions()
    for _ in range(count):
        producer.begin_transaction()
        producer.produce(SOURCE, b"aborted", partition=0)
        producer.flush()
        producer.abort_transaction()


def wait_idly(stage: SimulatedStage, consumer: EosConsumer) -> None:
    """Poll in vain for a second."""
    ends_at = stage.cluster.clock() + 1.0
    while stage.cluster.clock() < ends_at:
        assert consumer.poll(0.1) is None


@EVERY_PROTOCOL
def test_markers_behind_the_start_are_not_passed_before_the_log_was_validated(protocol):
    """The log lost its records from 10 on, and has grown again: 10 to 19 are records, 20 to 25 are none."""
    stage = staged(protocol, records=20, committed=20)
    with_markers(stage, 3)
    elections = Elections(stage, 10)
    consumer = stage.subscribed(factory=elections)
    wait_idly(stage, consumer)
    assert not consumer.adapter.hand_over_passed()
    assert elections.sought == [(20, 0)]
    assert until_refused(stage, consumer) == []


@EVERY_PROTOCOL
def test_markers_are_committed_with_the_leader_epoch_that_they_were_written_under(protocol):
    stage = staged(protocol, records=20, committed=15)
    with_markers(stage, 1)
    elections = Elections(stage, 21)
    consumer = stage.subscribed(factory=elections)
    stage.collect(consumer, 5)
    wait_idly(stage, consumer)
    assert consumer.adapter.hand_over_passed()
    ((partition, position),) = consumer.adapter.positions.items()
    assert (position.first_offset, position.next_offset, position.leader_epoch) == (15, 22, 1)
    assert position.record_count == 5
    assert epoch_at(consumer.adapter.state.row(partition).epochs, 22) == 1


def test_a_library_that_starts_over_behind_passed_markers_is_sought_behind_them():
    stage = staged("consumer", records=20, committed=15)
    with_markers(stage, 1)
    elections = Elections(stage, 21)
    consumer = stage.subscribed(factory=elections)
    stage.collect(consumer, 5)
    wait_idly(stage, consumer)
    assert consumer.adapter.hand_over_passed()
    elections.raw.seek(TopicPartition(SOURCE, 0, 0))
    wait_idly(stage, consumer)
    assert elections.sought == [(22, 1)]


@EVERY_PROTOCOL
def test_an_offset_that_was_committed_plainly_is_validated_too(protocol):
    stage = staged(protocol, records=20)
    elections = Elections(stage)
    elections.committed_epoch = None
    consumer = stage.subscribed(factory=elections)
    stage.collect(consumer, 20)
    consumer.commit(asynchronous=False)
    consumer.close()
    stage.load(15)
    elections.starts = [10]
    assert until_refused(stage, stage.subscribed(factory=elections)) == []


def test_an_election_that_lost_nothing_is_asked_about_once(stage_at_20):
    elections = Elections(stage_at_20, 20)
    consumer = stage_at_20.subscribed(factory=elections)
    assert [message.offset() for message in stage_at_20.collect(consumer, 5)] == list(range(20, 25))
    assert elections.sought == [(20, 0)]


@pytest.mark.parametrize(("starts", "epoch"), [((10,), 1), ((10,), None), ((), 0)])
def test_where_nothing_shows_an_election_no_start_is_sought(stage_at_20, starts, epoch):
    elections = Elections(stage_at_20, *starts)
    elections.committed_epoch = epoch
    consumer = stage_at_20.subscribed(factory=elections)
    assert [message.offset() for message in stage_at_20.collect(consumer, 5)] == list(range(20, 25))
    assert elections.sought == []


def test_a_start_at_the_wrong_offset_is_sought_with_the_committed_epoch(stage_at_20):
    elections = Elections(stage_at_20, 20)
    consumer = stage_at_20.consumer(factory=elections)

    def start_over(_: Any, partitions: list[TopicPartition]) -> None:
        elections.raw.incremental_assign([TopicPartition(p.topic, p.partition, 0) for p in partitions])

    elections.committed_epoch = 0
    consumer.subscribe([SOURCE], on_assign=start_over)
    assert [message.offset() for message in stage_at_20.collect(consumer, 5)] == list(range(20, 25))
    assert elections.sought == [(20, 0)]


def test_a_committed_offset_beyond_the_end_is_an_error_before_the_log_grows_again(stage_at_20):
    stage = staged("consumer", records=10, committed=20)
    consumer = stage.subscribed(factory=Elections(stage))
    assert until_refused(stage, consumer, r"orders\[0\] .*offset 20, which lies beyond the end") == []


@pytest.fixture
def stage_at_20() -> SimulatedStage:
    return staged("consumer", records=25, committed=20)


# -- a worker that reads it --------------------------------------------------------------------------------------------


@EVERY_PROTOCOL
def test_a_log_that_is_truncated_while_it_is_read_is_an_error_and_stays_one(protocol):
    stage = staged(protocol, records=20)
    elections = Elections(stage)
    consumer = stage.subscribed(factory=elections)
    stage.collect(consumer, 20)
    stage.load(15)
    elections.truncate(10)
    assert until_refused(stage, consumer) == []
    assert elections.sought == []


@EVERY_PROTOCOL
def test_a_truncation_inside_a_transaction_aborts_it_and_commits_nothing(protocol):
    stage = staged(protocol, records=20)
    elections = Elections(stage)
    consumer, producer = stage.subscribed(factory=elections), stage.producer()
    elections.committed_epoch = None

    def one_block() -> None:
        with producer.transaction(consumer) as txn:
            for message in stage.collect(consumer, 20):
                txn.produce(stage.sink, message.value())
            stage.load(15)
            elections.truncate(10)
            stage.collect(consumer, 1)

    with pytest.raises(InputPositionError, match=TRUNCATED):
        one_block()
    assert (stage.committed(), stage.outputs) == (None, [])
    until_refused(stage, consumer)


def test_a_truncation_of_what_was_not_read_yet_is_no_error(stage_of_20):
    stage, elections, consumer = stage_of_20
    stage.collect(consumer, 5)
    elections.starts.append(10)
    stage.load(15)
    assert [message.offset() for message in stage.collect(consumer, 30)] == list(range(5, 35))


def test_the_application_may_choose_where_a_truncated_log_is_read_on(stage_of_20):
    stage, elections, consumer = stage_of_20
    stage.collect(consumer, 20)
    stage.load(15)
    elections.truncate(10)
    until_refused(stage, consumer)
    consumer.seek(TopicPartition(SOURCE, 0, 10))
    assert [message.offset() for message in stage.collect(consumer, 25)] == list(range(10, 35))


def test_a_library_that_starts_over_in_the_same_log_is_sought_to_where_it_was(stage_of_20):
    stage, elections, consumer = stage_of_20
    elections.starts = [5, 12]
    stage.collect(consumer, 15)
    elections.raw.seek(TopicPartition(SOURCE, 0, 0))
    assert [message.offset() for message in stage.collect(consumer, 5)] == list(range(15, 20))
    assert elections.sought == [(15, 2)]


def test_without_epochs_a_library_that_goes_back_is_not_sought_forward(stage_of_20):
    stage, elections, consumer = stage_of_20
    elections.has_epochs = False
    stage.collect(consumer, 20)
    stage.load(15)
    elections.truncate(10)
    match = r"offset 20 \(leader epoch unknown before it\).*offset 10 \(leader epoch unknown\)"
    assert until_refused(stage, consumer, match) == []


def test_a_rewind_carries_the_leader_epoch_of_what_it_goes_back_to(stage_of_20):
    stage, elections, consumer = stage_of_20
    elections.starts = [5, 12]
    producer = stage.producer()

    def aborted(count: int) -> None:
        with producer.transaction(consumer):
            stage.collect(consumer, count)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        aborted(18)
    with producer.transaction(consumer):
        stage.collect(consumer, 9)
    for count in (2, 7):
        with pytest.raises(ZeroDivisionError):
            aborted(count)
    with producer.transaction(consumer):
        stage.collect(consumer, 5)
    with pytest.raises(ZeroDivisionError):
        aborted(1)
    assert elections.sought == [(0, 0), (9, 1), (9, 1), (14, 2)]
    assert [message.offset() for message in stage.collect(consumer, 6)] == list(range(14, 20))


@pytest.fixture
def stage_of_20() -> tuple[SimulatedStage, Elections, EosConsumer]:
    stage = staged("consumer", records=20)
    elections = Elections(stage)
    elections.committed_epoch = None
    return stage, elections, stage.subscribed(factory=elections)
