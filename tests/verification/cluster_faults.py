"""What is done to the brokers of a cluster of three while a run goes on: leaders that move, brokers that are killed."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from kafka import TopicPartition
from kafka.admin import KafkaAdminClient
from kafka.errors import KafkaError

from eos_client.testing import EmbeddedKafkaCluster

BROKERS = (1, 2, 3)
TRANSACTIONS_TOPIC = "__transaction_state"
GROUPS_TOPIC = "__consumer_offsets"
MOVE_EVERY_S = 1.0
STANDS_S, DOWN_S = (4.0, 8.0), (1.0, 6.0)
IN_SYNC_POLL_S = 0.2


class ClusterFault(Protocol):
    """What disturbs the brokers for some time."""

    def act(self, stopping: threading.Event) -> None:
        """Do so until ``stopping`` is set."""


@contextmanager
def acting(*faults: ClusterFault) -> Iterator[None]:
    """Let ``faults`` act while the block runs, each in a thread of its own."""
    stopping = threading.Event()
    threads = [threading.Thread(target=each.act, args=(stopping,), daemon=True) for each in faults]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stopping.set()
        for thread in threads:
            thread.join()


class LeaderMover:
    """Lets the leaders of all partitions of ``topics`` move to the next replica, every second."""

    def __init__(self, bootstrap: str, topics: Collection[str]) -> None:
        self._bootstrap, self._topics = bootstrap, topics
        self.moves, self.refused = 0, 0

    def act(self, stopping: threading.Event) -> None:
        """Do so until ``stopping`` is set."""
        admin: Any = KafkaAdminClient(bootstrap_servers=self._bootstrap.split(","))
        described: Any = admin.describe_topics(list(self._topics))
        counts = {topic["name"]: len(topic["partitions"]) for topic in described}
        turn = 0
        while not stopping.wait(MOVE_EVERY_S):
            turn += 1
            replicas = {
                TopicPartition(topic, number): [BROKERS[(turn + number + each) % len(BROKERS)] for each in range(3)]
                for topic, count in counts.items()
                for number in range(count)
            }
            try:
                admin.alter_partition_reassignments(replicas)
                admin.elect_leaders(0, {t: list(range(c)) for t, c in counts.items()}, raise_errors=False)
                self.moves += 1
            except KafkaError:  # the controller is busy: it is asked again in a second
                self.refused += 1
        admin.close()


class BrokerKiller:
    """Kills a broker (SIGKILL) and starts it again, one after the other; the seed says which.

    What a leader has written and not replicated is cut off from its log when it comes back. The next broker is killed
    only when all replicas are in sync again, so that nothing that was acknowledged is lost. So they are in the end.
    """

    def __init__(self, cluster: EmbeddedKafkaCluster | None, seed: int) -> None:
        self._cluster = cluster
        self._random = random.Random(seed)
        self.kills = 0

    def act(self, stopping: threading.Event) -> None:
        """Do so until ``stopping`` is set."""
        cluster = self._cluster
        while cluster is not None and not stopping.wait(self._random.uniform(*STANDS_S)):
            broker = cluster.brokers[self._random.choice(BROKERS)]
            broker.kill()
            self.kills += 1
            stopping.wait(self._random.uniform(*DOWN_S))
            broker.restart()
            while not _is_in_sync(cluster.bootstrap_servers):
                time.sleep(IN_SYNC_POLL_S)


def _is_in_sync(bootstrap: str) -> bool:
    try:
        admin = KafkaAdminClient(bootstrap_servers=bootstrap.split(","))
        described: Any = admin.describe_topics()
        admin.close()
    except KafkaError:
        return False
    partitions = [partition for topic in described for partition in topic["partitions"]]
    return all(len(each["isr_nodes"]) == len(each["replica_nodes"]) for each in partitions)
