"""A member of a group on the simulated cluster, and what its rebalance callbacks saw."""

from typing import Any

from eos_client.testing.simulated_clients.group_metadata import decode
from eos_client.testing.simulated_cluster import SimulatedCluster
from tests.support.protocols import settings_of


def filled_cluster(seed=5, partitions=4):
    """A cluster with ten records in each partition of topic "in"."""
    made = SimulatedCluster(seed=seed)
    made.create_topic("in", partitions)
    for partition in range(partitions):
        made.write("in", [f"{partition}-{n}".encode() for n in range(10)], partition=partition)
    return made


class Member:
    """A subscribed consumer and what its callbacks saw: (kind, partitions, generation in it)."""

    def __init__(self, cluster, protocol, *, without=(), subscribe=True, **settings):
        given = {k.replace("_", "."): v for k, v in settings.items()}
        self.cluster = cluster
        self.consumer = cluster.consumer(
            {
                "bootstrap.servers": "simulated",
                "group.id": "g",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                **settings_of(protocol),
                **given,
            }
        )
        self.seen: list[Any] = []
        self.got: list[Any] = []
        self.inside: Any = lambda kind, partitions: None
        names = [n for n in ("on_assign", "on_revoke", "on_lost") if n not in without]
        if subscribe:
            self.consumer.subscribe(["in"], **{n: self._noting(n) for n in names})

    def _noting(self, name):
        def callback(consumer, partitions):
            numbers = [p.partition for p in partitions]
            self.seen.append((name, numbers, self.generation))
            self.inside(name, partitions)

        return callback

    @property
    def membership(self):
        return decode(self.consumer.consumer_group_metadata())[1]

    @property
    def generation(self):
        return self.membership.generation

    @property
    def owned(self):
        return sorted(p.partition for p in self.consumer.assignment())

    def told(self, since=0):
        return [(name, numbers) for name, numbers, _ in self.seen[since:]]


def pump(*members, seconds=1.0, until=lambda: False):
    cluster = members[0].cluster
    end_s = cluster.clock() + seconds
    while cluster.clock() < end_s and not until():
        for member in members:
            member.got += member.consumer.consume(50, 0.02)


def settle(*members):
    pump(*members, seconds=12.0)
