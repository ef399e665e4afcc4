"""A cooperative member evicted while a revocation waited for its poll: librdkafka tells no loss of the rest."""

from __future__ import annotations

from typing import Any

import pytest

from tests.clients.simulated_stage import SINK, SOURCE, SimulatedStage

SESSION: dict[str, Any] = {"session_timeout_ms": 6000, "heartbeat_interval_ms": 1000}
GAPS_S = (0.3, 0.6, 0.95, 2.1)
WAITS_S = (0.05, 0.1)


class Pair:
    """A member that owns everything, and one that joins; each with a producer of its own."""

    def __init__(self, wait_s):
        self.stage = SimulatedStage("cooperative-sticky", records=0, partitions=4)
        self.wait_s = wait_s
        self.lost: list[Any] = []
        self.old = self.member("old", callbacks={"on_lost": lambda _, gone: self.lost.extend(gone)})
        self.new = self.member("new")

    def member(self, name, **options):
        consumer = self.stage.subscribed(client_id=name, **SESSION, **options)
        return consumer, self.stage.producer(transactional_id=name)

    def block(self, member):
        consumer, producer = member
        with producer.transaction(consumer) as txn:
            for message in consumer.consume(50, self.wait_s):
                txn.produce(SINK, message.value())

    def blocks(self, *members, turns):
        for _ in range(turns):
            for member in members:
                self.block(member)

    def evict_the_old_one_before_it_hears_of_a_revocation(self, gap_s):
        self.blocks(self.old, turns=8)
        self.stage.load(1)
        self.blocks(self.old, turns=3)
        self.blocks(self.new, turns=12)
        self.stage.load(1)
        self.stage.cluster.lose("old")
        self.stage.cluster.advance(gap_s)
        self.blocks(self.new, turns=6)


@pytest.fixture(params=WAITS_S)
def pair(request):
    return Pair(request.param)


@pytest.mark.parametrize("gap_s", GAPS_S)
def test_records_committed_by_the_next_owner_are_not_written_again(pair, gap_s):
    pair.evict_the_old_one_before_it_hears_of_a_revocation(gap_s)
    pair.blocks(pair.old, pair.new, turns=40)
    assert pair.stage.outputs == sorted(pair.stage.inputs)


@pytest.mark.parametrize("gap_s", GAPS_S)
def test_records_committed_by_a_departed_next_owner_are_not_written_again(pair, gap_s):
    pair.evict_the_old_one_before_it_hears_of_a_revocation(gap_s)
    for client in pair.new:
        client.close()
    pair.blocks(pair.old, turns=40)
    pair.stage.load(1)
    pair.blocks(pair.old, turns=10)
    assert pair.stage.outputs == sorted(pair.stage.inputs)
    consumer, _ = pair.old
    assert {(place.topic, place.partition) for place in consumer.assignment()} == {(SOURCE, n) for n in range(4)}


def test_an_unheard_loss_is_reported_as_an_event_and_to_on_lost():
    pair = Pair(0.05)
    pair.evict_the_old_one_before_it_hears_of_a_revocation(0.6)
    pair.blocks(pair.old, pair.new, turns=40)
    told = [sorted(each.partition for each in event.partitions) for event in pair.stage.named("partitions_lost")]
    assert told == [[0, 1]]
    assert sorted(place.partition for place in pair.lost) == [0, 1]
