"""A group coordinator with its brokers, and the requests of classic and KIP-848 members."""

from __future__ import annotations

from random import Random

import pytest

from eos_client.testing.simulator.brokers.brokers import Brokers
from eos_client.testing.simulator.brokers.clock import SimulatedClock
from eos_client.testing.simulator.brokers.group_requests import (
    JOINING_EPOCH,
    ConsumerHeartbeat,
    FetchedOffset,
    JoinAnswer,
    JoinRequest,
)
from eos_client.testing.simulator.brokers.model import (
    BrokerError,
    Membership,
    OffsetAndMetadata,
    PartitionKey,
    ProducerIdentity,
)
from eos_client.testing.simulator.brokers.settings import BrokerSettings

GROUP = "billing"


TOPICS = frozenset({"orders"})


PRODUCER = ProducerIdentity(7, 0)


STABLE = "NONE"


UNSTABLE = "UNSTABLE_OFFSET_COMMIT"


def orders(*numbers: int) -> frozenset[PartitionKey]:
    return frozenset(PartitionKey("orders", number) for number in numbers)


def at(offset: int, *numbers: int) -> dict[PartitionKey, OffsetAndMetadata]:
    """Offsets to commit: ``offset`` in each of these partitions."""
    return {partition: OffsetAndMetadata(offset) for partition in sorted(orders(*numbers))}


def refusal(call, *args, **kwargs) -> str:
    with pytest.raises(BrokerError) as refused:
        call(*args, **kwargs)
    return refused.value.code


class GroupBench:
    """Brokers with one topic of four partitions, and both coordinators."""

    def __init__(self, settings: BrokerSettings | None = None, seed: int = 7) -> None:
        self.clock = SimulatedClock()
        self.brokers = Brokers(self.clock, settings or BrokerSettings(), Random(seed))
        self.brokers.create_topic("orders", 4)
        self.groups = self.brokers.groups

    def join(self, client: str, **changes) -> JoinAnswer:
        """Join a classic group that waits for nobody else."""
        member_id = self.groups.join(GROUP, JoinRequest(**{"topics": TOPICS, "client": client, **changes}))
        answer = self.groups.joined(GROUP, member_id)
        assert answer is not None
        return answer

    def heartbeat(self, member_id: str, epoch: int = JOINING_EPOCH, **changes):
        return self.groups.consumer_heartbeat(
            GROUP, ConsumerHeartbeat(**{"member_id": member_id, "member_epoch": epoch, "topics": TOPICS, **changes})
        )

    def committed(self, number: int, *, require_stable: bool = True) -> FetchedOffset:
        (partition,) = orders(number)
        return self.groups.fetch_offsets(GROUP, [partition], require_stable=require_stable)[partition]

    def pass_time(self, seconds: float) -> None:
        end_s = self.clock.now_s + seconds
        while self.brokers.due_s <= end_s:
            self.clock.set_to(self.brokers.due_s)
            self.brokers.work()
        self.clock.set_to(end_s)


def membership(answer: JoinAnswer, instance_id: str | None = None) -> Membership:
    return Membership(answer.generation, answer.member_id, instance_id)


def stage(bench: GroupBench, sent: Membership, offsets, producer: ProducerIdentity = PRODUCER) -> None:
    bench.groups.commit_offsets_in_transaction(GROUP, sent, producer, offsets)
