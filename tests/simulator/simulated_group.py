"""A group on the simulated cluster: a topic with records, its members, and time that passes while they poll."""

from eos_client.testing.simulator import SimulatedCluster
from tests.support.group_member import GroupMember


def filled_cluster(seed=5, partitions=4):
    """A cluster with ten records in each partition of topic "in"."""
    made = SimulatedCluster(seed=seed)
    made.create_topic("in", partitions)
    for partition in range(partitions):
        made.write("in", [f"{partition}-{n}".encode() for n in range(10)], partition=partition)
    return made


def group_member(cluster, protocol, *, subscribe=True, **settings):
    """A member of group "g", subscribed to topic "in"."""
    return GroupMember(cluster, protocol, "g", "in" if subscribe else "", **settings)


def pump(*members, seconds=1.0, until=lambda: False):
    cluster = members[0].library
    end_s = cluster.clock() + seconds
    while cluster.clock() < end_s and not until():
        for member in members:
            member.poll()


def settle(*members):
    pump(*members, seconds=12.0)
