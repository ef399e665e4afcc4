"""What an application does after a call that an exception has interrupted holds, whatever that call had booked."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from confluent_kafka import KafkaException, TopicPartition

from tests.clients.struck_steps import StepStrike, strides, struck_runs
from tests.clients.test_interrupted_calls import EACH, PARTITIONS, ReadingApplication
from tests.support.protocols import BY_COORDINATOR

EVERY_STEP = 331


class Reading(ReadingApplication):
    """An application that has records in hand, and whose next call is interrupted at a step."""

    taken = 6

    def __init__(self, protocol: str, **settings) -> None:
        super().__init__(group_protocol=protocol, **settings)
        self.in_hand: list[Any] = []
        while len(self.in_hand) < self.taken:
            self.in_hand += self.consumer.consume(self.taken - len(self.in_hand), 0.05)
        self.take(self.in_hand)

    def interrupted(self, call, strike, steps=None):
        act = self.polls if call == "poll" else self.consumes(3)
        with strike.armed(steps):
            self.does(act)
        return self

    @property
    def partition(self):
        """That of the first record in hand."""
        return self.in_hand[0].partition()

    def place(self, offset):
        return TopicPartition("in", self.partition, offset)

    def next_offsets(self):
        """The offset of the next record of each partition."""
        found: dict[int, int] = {}
        for _ in range(100):
            for message in self.consumer.consume(7, 0.05):
                found.setdefault(message.partition(), message.offset())
        return found


def interrupted(protocol: str, call: str, first: int, *, stage: Any = Reading) -> Iterator[tuple[Any, StepStrike]]:
    """For each step: an application of ``stage`` whose call was struck there, and the strike."""
    return struck_runs(
        lambda strike, steps=None: stage(protocol).interrupted(call, strike, steps), EVERY_STEP, first=first
    )


every_call = pytest.mark.parametrize("call", ["poll", "consume"])
every_protocol = pytest.mark.parametrize("protocol", BY_COORDINATOR)
from_the_first = strides(EVERY_STEP)


@from_the_first
@every_call
@every_protocol
@pytest.mark.parametrize("offset", [0, 20])
def test_a_seek_after_an_interrupted_call_sets_the_next_record(protocol, call, first, offset):
    for reader, strike in interrupted(protocol, call, first):
        reader.consumer.seek(reader.place(offset))
        reader.seen[reader.partition].clear()
        reader.reads_to_the_end()
        assert reader.seen[reader.partition] == list(range(offset, EACH)), f"step {strike.number}, {strike.struck}"


@from_the_first
@every_call
@every_protocol
def test_records_that_a_seek_goes_back_before_are_not_committed(protocol, call, first):
    for reader, strike in interrupted(protocol, call, first):
        reader.consumer.seek(reader.place(0))
        with suppress(KafkaException):  # where nothing else is in hand
            reader.consumer.commit(asynchronous=False)
        committed = {key.partition: offset for key, offset in reader.cluster.committed("g").items()}
        assert committed.get(reader.partition, 0) == 0, f"step {strike.number}, {strike.struck}"


@from_the_first
@every_call
@every_protocol
def test_records_put_back_after_an_interrupted_call_are_delivered_again(protocol, call, first):
    for reader, strike in interrupted(protocol, call, first):
        came = [(partition, list(offsets)) for partition, offsets in reader.seen.items()]
        reader.consumer.adapter.put_back(reader.in_hand)
        for message in reader.in_hand:
            reader.seen[message.partition()].remove(message.offset())
        reader.reads_to_the_end()
        for partition, offsets in reader.seen.items():
            assert sorted(offsets) == list(range(EACH)), f"step {strike.number}, {strike.struck}: {came}, {partition}"


@from_the_first
@every_call
@every_protocol
def test_position_after_an_interrupted_call_is_the_next_record(protocol, call, first):
    for reader, strike in interrupted(protocol, call, first):
        told = {p.partition: p.offset for p in reader.consumer.position([TopicPartition("in", p) for p in (0, 1)])}
        known = {partition: offset for partition, offset in told.items() if offset >= 0}
        came = reader.next_offsets()
        assert known.items() <= came.items(), f"step {strike.number}, {strike.struck}"
        assert reader.partition in known


class ByHand(Reading):
    """The same with partitions that the application assigns itself."""

    def subscribes(self):
        self.consumer.assign([TopicPartition("in", p, 0) for p in (0, 1)])


@from_the_first
@every_call
@every_protocol
@pytest.mark.parametrize("assigns", ["assign", "incremental_assign"])
def test_a_manual_assignment_after_an_interrupted_call_sets_the_next_record(protocol, call, first, assigns):
    for reader, strike in interrupted(protocol, call, first, stage=ByHand):
        if assigns == "assign":
            reader.consumer.assign([reader.place(20)])
        else:
            reader.consumer.incremental_unassign([reader.place(0)])
            reader.consumer.incremental_assign([reader.place(20)])
        assert reader.next_offsets()[reader.partition] == 20, f"step {strike.number}, {strike.struck}"


@from_the_first
@every_call
@every_protocol
def test_a_seek_in_a_callback_of_an_interrupted_call_sets_the_next_record(protocol, call, first):
    seeks: list[object] = []

    class Seeking(Reading):
        taken = EACH * PARTITIONS  # callbacks are served behind records

        def __init__(self, protocol):
            super().__init__(protocol, error_cb=self.error_cb)
            self.through = False
            self.cluster.report_error("_TRANSPORT")

        def error_cb(self, _):
            self.consumer.seek(self.place(0))
            self.through = True

    for reader, strike in interrupted(protocol, call, first, stage=Seeking):
        if reader.through and strike.struck:
            seeks.append(strike.number)
            assert reader.next_offsets()[reader.partition] == 0, f"step {strike.number}, {strike.struck}"
    assert seeks
