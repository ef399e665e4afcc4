"""A log that was truncated below what was committed, and has grown again: no record of it is skipped without a word.

A broker that comes back leads its partitions under a new leader epoch. An offset that is committed with the old epoch,
although the new one began before it, is what an unclean election leaves behind.
"""

import contextlib
import os
import re
import signal
from functools import partial

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from eos_client import EosConsumer
from eos_client.errors import InputPositionError
from tests.kafka.kafka_support import Stage
from tests.support.waiting import WAIT_S, wait_for
from tests.verification.answers import settled
from tests.verification.protocols import GroupProtocol, patient_config

pytestmark = pytest.mark.kafka

OLD, LOST, NEW = 10, 10, 15
BOTH = (GroupProtocol.KIP_848, GroupProtocol.COOPERATIVE)


@pytest.fixture(scope="module")
def restarted(brokers):
    """A broker, and a topic with records of two leader epochs: OLD records, then NEW ones and one as many as LOST."""
    broker = brokers.mortal()
    with Stage(broker.bootstrap_servers) as stage:
        stage.load([OLD, 0])
        broker.restart()
        stage.load([LOST + NEW, 0])
        epochs = [m.leader_epoch() for m in stage.collect(stage.raw_consumer(), OLD + LOST + NEW)]
        assert len(set(epochs)) == 2
        assert epochs[OLD - 1] != epochs[OLD]
        yield broker, stage.source, epochs[0], epochs[-1]


def of_a_group_at(restarted, unique_name, protocol, offset, epoch, reset="earliest"):
    """A consumer whose group has committed `offset` with the leader epoch `epoch`."""
    broker, topic, *_ = restarted
    config = {"bootstrap.servers": broker.bootstrap_servers, "group.id": unique_name("group")}
    outsider = Consumer(config)
    committed = [TopicPartition(topic, 0, offset, leader_epoch=epoch), TopicPartition(topic, 1, 0)]
    settled(lambda: outsider.commit(offsets=committed, asynchronous=False))
    outsider.close()
    consumer = EosConsumer({**config, **protocol.consumer_config, "auto.offset.reset": reset})
    consumer.subscribe([topic])
    return consumer


def handed_over(consumer, count=1):
    """The offsets that are handed over, at least `count` of them."""
    got: list[int] = []
    wait_for(lambda: len(got) >= count, "records", lambda: got.extend(m.offset() for m in consumer.consume(100, 0.2)))
    return got


@pytest.mark.parametrize(
    ("protocol", "reset"),
    [
        *((protocol, "earliest") for protocol in BOTH),
        (GroupProtocol.KIP_848, "latest"),
        (GroupProtocol.KIP_848, "error"),
    ],
)
def test_a_committed_offset_that_a_truncated_log_has_passed_again_is_an_error(restarted, unique_name, protocol, reset):
    _, topic, old, new = restarted
    consumer = of_a_group_at(restarted, unique_name, protocol, OLD + LOST, old, reset)
    named = rf"offset {OLD + LOST} \(leader epoch {old}"
    found = rf"offset {OLD} \(leader epoch {new}\)" if reset != "error" else rf"end offset is {OLD} "
    try:
        for _ in range(2):
            with pytest.raises(
                InputPositionError, match=rf"{re.escape(topic)}\[0\] .*{named}.*{found}.*truncated.*set it"
            ):
                handed_over(consumer)
    finally:
        consumer.close()


@pytest.mark.parametrize("protocol", BOTH)
def test_an_offset_before_an_election_that_lost_nothing_is_read_on(restarted, unique_name, protocol):
    _, _, old, _ = restarted
    for offset, epoch in ((OLD - 1, old), (OLD, old), (OLD + LOST, -1)):
        consumer = of_a_group_at(restarted, unique_name, protocol, offset, epoch)
        expected = list(range(offset, OLD + LOST + NEW))
        assert handed_over(consumer, len(expected)) == expected
        consumer.close()


# -- an unclean election -----------------------------------------------------------------------------------------------


class UncleanElection:
    """A topic on brokers 1, which leads, and 2; broker 3 answers while one of them is frozen."""

    def __init__(self, cluster, topic):
        self._cluster = cluster
        self.topic = topic
        config = {"min.insync.replicas": "1", "unclean.leader.election.enable": "true"}
        new = NewTopic(topic, 1, replica_assignment=[[1, 2]], config=config)
        admin = self._admin()
        admin.create_topics([new])[topic].result(WAIT_S)
        settings = {
            "bootstrap.servers": cluster.bootstrap_servers,
            "acks": 1,
            "topic.metadata.refresh.interval.ms": 500,
        }
        self._producer = Producer(settings)
        self._await(lambda partition: partition.leader == 1 and len(partition.isrs) == 2, "the topic")

    def _admin(self):
        """A client that knows broker 3 only: another one might ask the frozen broker."""
        return AdminClient({"bootstrap.servers": self._cluster.brokers[3].bootstrap_servers, "log_level": 0})

    def _await(self, is_so, what):
        def found():
            topic = settled(lambda: self._admin().list_topics(self.topic, timeout=WAIT_S)).topics[self.topic]
            return topic.partitions and is_so(topic.partitions[0])

        wait_for(found, what)

    def write(self, count):
        for number in range(count):
            self._producer.produce(self.topic, str(number), partition=0)
        assert not self._producer.flush(WAIT_S)

    @contextlib.contextmanager
    def frozen(self, node):
        pid = self._cluster.brokers[node].pid
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)

    def lose(self, count, meanwhile):
        """Write records that only the leader has, and make the follower the leader after `meanwhile`."""
        with contextlib.ExitStack() as leader:
            with self.frozen(2):
                self._await(lambda partition: partition.isrs == [1], "the follower to count as out of sync")
                self.write(count)
                meanwhile()
                leader.enter_context(self.frozen(1))
            self._await(lambda partition: partition.leader == 2, "the follower to lead")
        self._await(lambda partition: len(partition.isrs) == 2, "the former leader to follow")


@pytest.mark.soak
def test_an_unclean_election_ends_who_reads_and_who_comes_back_later(brokers, unique_name):
    cluster = brokers.cluster().running
    election = UncleanElection(cluster, unique_name("truncated"))
    election.write(OLD)
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "auto.offset.reset": "earliest"}

    def member(protocol, group):
        made = EosConsumer({**settings, **patient_config(protocol), "group.id": group})
        made.subscribe([election.topic])
        return made

    groups = {unique_name("group"): protocol for protocol in BOTH}
    readers = {group: member(protocol, group) for group, protocol in groups.items()}

    def read_and_commit(count, up_to):
        for reader in readers.values():
            handed_over(reader, count)
            settled(partial(reader.commit, asynchronous=False))
            (committed,) = settled(partial(reader.committed, [TopicPartition(election.topic, 0)], WAIT_S))
            assert committed.offset == up_to  # else it is right to read what comes at these offsets

    read_and_commit(OLD, OLD)
    election.lose(LOST, lambda: read_and_commit(LOST, OLD + LOST))
    election.write(LOST + NEW)
    for group, protocol in groups.items():
        for reader in (readers[group], member(protocol, group)):
            named = rf"offset {OLD + LOST} \(leader epoch 0 before it\).*offset {OLD} \(leader epoch"
            with pytest.raises(InputPositionError, match=named):
                pytest.fail(f"handed over to {protocol}: {handed_over(reader)}")
            reader.close()
