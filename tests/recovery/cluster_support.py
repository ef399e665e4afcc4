"""What the tests of moved and killed coordinators share: jobs on replicated topics, and who coordinates what.

Everything here is raw confluent-kafka, never the client.
"""

import threading
import uuid
from contextlib import contextmanager
from typing import NamedTuple

from confluent_kafka import ElectionType, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.kafka.loop_support import ANSWER_S, Job
from tests.kafka.round_trips import read_committed, write_in_transaction
from tests.support.waiting import wait_for
from tests.verification.answers import settled

_METADATA_S = 1.0
_FEED_RECORDS, _FEED_TICK_S = 40, 0.04


class Place(NamedTuple):
    """A partition of an internal topic, whose leader is the coordinator of all that hashes to it."""

    topic: str
    partition: int


def java_hash(text):
    """What a broker takes of a group or a transactional.id to find its partition: the size of Java's hash."""
    found = 0
    for char in text:
        found = (31 * found + ord(char)) & 0xFFFF_FFFF
    return min(found, (1 << 32) - found)


class Coordinators:
    """Who coordinates which group and which transactional.id in a cluster, as its metadata say."""

    def __init__(self, cluster):
        self.cluster = cluster
        self._admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})

    def of_transactions(self, transactional_id):
        return self._place("__transaction_state", transactional_id)

    def of_group(self, group):
        return self._place("__consumer_offsets", group)

    def leader(self, place):
        """The node that leads the partition; -1 while none does."""
        return self._partitions(place.topic)[place.partition].leader

    def preferred(self, place):
        return self._partitions(place.topic)[place.partition].replicas[0]

    def await_moved(self, place, node):
        wait_for(lambda: self.leader(place) not in {node, -1}, f"{place} is led by another than broker {node}")

    def await_missed(self, node):
        wait_for(lambda: node not in self._metadata().brokers, f"broker {node} is missed by the others")

    def create_internal_topics(self):
        """They come into being with the first transaction and the first group."""
        topic = "first-of-all"
        settled(lambda: self._admin.create_topics([NewTopic(topic, 1, 3)])[topic].result(ANSWER_S))
        write_in_transaction(self.cluster.bootstrap_servers, topic, b"first")
        read_committed(self.cluster.bootstrap_servers, topic)

    def create_topics(self, names, partitions, config, leader):
        """Create topics all of which are led by that node; returns when every broker has heard of them."""
        replicas = sorted(self.cluster.brokers, key=lambda node: node != leader)
        topics = [
            NewTopic(name, partitions, replica_assignment=[replicas] * partitions, config=config) for name in names
        ]
        settled(lambda: [future.result(ANSWER_S) for future in self._admin.create_topics(topics).values()])
        for broker in self.cluster.brokers.values():
            # A new client asks the broker that it is given, and no other.
            asking = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
            wait_for(
                lambda asking=asking: set(names) <= settled(lambda: asking.list_topics(timeout=ANSWER_S)).topics.keys(),
                f"{names} are known to {broker.bootstrap_servers}",
            )

    def await_in_sync(self):
        """Wait until every replica of every partition is in sync: until then one more death may be one too many."""

        def in_sync():
            partitions = [p for topic in self._topics().values() for p in topic.partitions.values()]
            return all(set(p.replicas) == set(p.isrs) for p in partitions)

        wait_for(in_sync, "all replicas are in sync", timeout_s=2 * ANSWER_S)

    def elect_preferred(self, *places):
        """Let the preferred replicas lead, those of all internal topics by default."""
        chosen = places or [
            Place(name, number)
            for name, topic in self._topics().items()
            if name.startswith("__")
            for number in topic.partitions
        ]
        partitions = [TopicPartition(*place) for place in chosen]
        settled(lambda: self._admin.elect_leaders(ElectionType.PREFERRED, partitions).result(ANSWER_S))
        for place in chosen:
            wait_for(
                lambda place=place: self.leader(place) == self.preferred(place), f"{place} is led by the preferred"
            )

    def reset(self):
        """All brokers run, in sync, and lead what they prefer to: a start for the next test, whatever came before."""
        for broker in self.cluster.brokers.values():
            if not broker.running:
                broker.restart()
        self.await_in_sync()
        self.elect_preferred()

    def _place(self, topic, name):
        return Place(topic, java_hash(name) % len(self._partitions(topic)))

    def _partitions(self, topic):
        return self._topics()[topic].partitions

    def _topics(self):
        return self._metadata().topics

    def _metadata(self):
        # A question to a broker that dies is not answered, nor asked of another: it is better asked anew.
        return settled(lambda: self._admin.list_topics(timeout=_METADATA_S))


class SpreadJob(Job):
    """A job with one broker for its transactions, another (or the same) for its group and a third for its topics.

    So what happens to one of them happens to nothing else. Its topics survive the loss of any one broker.
    """

    def __init__(self, coordinators, *, together=False):
        self._coordinators = coordinators
        self._together = together
        self.transactional_id = ""
        self.places = {}
        super().__init__(coordinators.cluster)

    def create_topics(self, *names, **config):
        if not self.transactional_id:
            self._choose_coordinators()
        coordinating = {self._coordinators.leader(place) for place in self.places.values()}
        leader = next(node for node in self._coordinators.cluster.brokers if node not in coordinating)
        settings = {"min.insync.replicas": "2"} | {key.replace("_", "."): str(value) for key, value in config.items()}
        self._coordinators.create_topics(names, self.partitions, settings, leader)

    def _choose_coordinators(self):
        group = self._coordinators.of_group(self.group)
        for _ in range(100):
            self.transactional_id = f"pinned-{uuid.uuid4().hex[:10]}"
            transactions = self._coordinators.of_transactions(self.transactional_id)
            if (self._coordinators.leader(transactions) == self._coordinators.leader(group)) is self._together:
                self.places = {"transactions": transactions, "group": group}
                return
        raise AssertionError("no transactional.id has the coordinator that is wanted")

    @contextmanager
    def fed(self):
        """Load records steadily while the block runs."""
        ending, failures = threading.Event(), []

        def feed():
            try:
                while not ending.wait(_FEED_TICK_S):
                    self.load(_FEED_RECORDS)
            except BaseException as error:  # noqa: BLE001  # raised below, in the test's own thread
                failures.append(error)

        feeding = threading.Thread(target=feed, name="feeds-the-job", daemon=True)
        feeding.start()
        try:
            yield
        finally:
            ending.set()
            feeding.join(2 * ANSWER_S)
        for failure in failures:
            raise AssertionError("the input could not be written") from failure
