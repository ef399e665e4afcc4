"""A KIP-848 group under test, and a member's side of the conversation with its coordinator."""

from __future__ import annotations

from random import Random

from eos_client.testing.simulator.brokers.consumer_group import ConsumerGroup
from eos_client.testing.simulator.brokers.group_requests import ConsumerHeartbeat
from eos_client.testing.simulator.brokers.model import Membership, PartitionKey
from eos_client.testing.simulator.brokers.settings import BrokerSettings, CommitCheck

PARTITIONS = tuple(PartitionKey("orders", number) for number in range(4))


P0, P1, P2, P3 = PARTITIONS


ORDERS = frozenset({"orders"})


EXACT = CommitCheck.EXACT


MEMBER_LEVEL = CommitCheck.REVOCATION_EPOCH_MEMBER


PARTITION_LEVEL = CommitCheck.REVOCATION_EPOCH_PARTITION


ASSIGNMENT = CommitCheck.ASSIGNMENT_EPOCH


class Client:
    """A member's side of the conversation: it does at once what it is told, unless a test takes the steps itself."""

    def __init__(self, group, member_id, instance_id=None, topics=ORDERS):
        self.group = group
        self.member_id = member_id
        self.instance_id = instance_id
        self.topics = topics
        self.epoch = 0
        self.owned: frozenset[PartitionKey] = frozenset()

    def beat(self, now_s=0.0, *, owned=None, epoch=None, topics=None):
        sent = self.epoch if epoch is None else epoch
        answer = self.group.heartbeat(
            ConsumerHeartbeat(self.member_id, sent, self.instance_id, topics=topics, owned=owned), now_s
        )
        self.epoch = answer.member_epoch
        return answer

    def join(self, now_s=0.0):
        answer = self.beat(now_s, epoch=0, topics=self.topics, owned=frozenset())
        self.member_id, self.owned = answer.member_id, answer.assigned
        return self

    def settle(self, now_s=0.0):
        """Heartbeat until nothing changes."""
        for _ in range(4):
            answer = self.beat(now_s, owned=self.owned)
            self.owned = self.owned & answer.assigned
            answer = self.beat(now_s, owned=self.owned)
            self.owned = answer.assigned
        return self

    def commit(self, partitions, *, epoch=None, transactional=False, member_id=None):
        membership = Membership(
            self.epoch if epoch is None else epoch, self.member_id if member_id is None else member_id, None
        )
        return self.group.verdicts(membership, partitions, transactional=transactional)


def new_group(counts=None, **settings):
    topics = {"orders": 4} if counts is None else counts
    return ConsumerGroup("billing", lambda topic: topics.get(topic, 0), BrokerSettings(**settings), Random(1))


def two_members():
    """A at epoch 2 with two partitions, B at epoch 2 with the other two; A was alone at epoch 1."""
    group = new_group()
    a = Client(group, "a").join()
    b = Client(group, "b").join()
    a.settle()
    b.settle()
    return group, a, b


def refused_codes(client, partitions, **how):
    return {check for check, code in client.commit(partitions, **how).items() if code != "NONE"}


def restarted(group, now_s=0.0):
    again = new_group()
    again.replay(group.records(), now_s)
    return again
