"""Whatever an application does with an assignment, each partition is handed over from where it stands, without gaps."""

from typing import Any

from confluent_kafka import TopicPartition
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from eos_client.testing.simulator import SimulatedCluster

PARTITIONS = 3
partitions = st.integers(0, PARTITIONS - 1)
sizes = st.integers(1, 8)


def place(partition, offset=None):
    return TopicPartition("in", partition) if offset is None else TopicPartition("in", partition, offset)


class Assignment(RuleBasedStateMachine):
    """A model of positions: ``next`` holds, for each assigned partition, the offset that must come next."""

    @initialize(seed=st.integers(0, 9))
    def begin(self, seed):
        self.cluster = SimulatedCluster(seed=seed, request_timeout_s=0.05)
        self.cluster.create_topic("in", PARTITIONS)
        config = {"bootstrap.servers": "simulated", "group.id": "g", "enable.auto.commit": False}
        self.consumer = self.cluster.consumer(config)
        self.written = dict.fromkeys(range(PARTITIONS), 0)
        self.next: dict[int, int] = {}
        self.paused: set[int] = set()
        self.topic_is_known = False

    def check(self, messages):
        for message in messages:
            partition = message.partition()
            assert message.error() is None
            assert partition not in self.paused
            assert message.offset() == self.next[partition]
            self.next[partition] += 1

    @rule(partition=partitions, number=sizes)
    def write(self, partition, number):
        self.cluster.write("in", [b"x"] * number, partition=partition)
        self.written[partition] += number

    @rule()
    def poll(self):
        message = self.consumer.poll(0.005)
        self.check([] if message is None else [message])

    @rule(number=sizes, wait_ms=st.integers(0, 30))
    def consume(self, number, wait_ms):
        self.check(self.consumer.consume(number, wait_ms / 1000))

    @rule(wait_ms=st.integers(1, 50))
    def do_something_else(self, wait_ms):
        self.cluster.advance(wait_ms / 1000)

    @rule(partition=partitions, share=st.floats(0, 1))
    def assign(self, partition, share):
        if partition in self.next:
            self.consumer.incremental_unassign([place(partition)])
            del self.next[partition]
        else:
            self.next[partition] = round(share * self.written[partition])
            self.consumer.incremental_assign([place(partition, self.next[partition])])
            self.topic_is_known = True

    @precondition(lambda self: self.next)
    @rule(data=st.data(), share=st.floats(0, 1))
    def seek(self, data, share):
        partition = data.draw(st.sampled_from(sorted(self.next)))
        self.next[partition] = round(share * self.written[partition])
        self.consumer.seek(place(partition, self.next[partition]))

    @rule(partition=partitions)
    def pause_or_resume(self, partition):
        if partition in self.paused:
            self.consumer.resume([place(partition)])
            self.paused.discard(partition)
        else:
            self.consumer.pause([place(partition)])
            if self.topic_is_known:  # before, there is nothing that could be paused
                self.paused.add(partition)

    @rule(kind=st.sampled_from(["delay", "lose_reply", "duplicate", "refuse"]))
    def disturb_a_fetch(self, kind):
        given: dict[str, tuple[Any, ...]] = {"delay": (0.02,), "refuse": ("NOT_LEADER_FOR_PARTITION",)}
        getattr(self.cluster, kind)("Fetch", *given.get(kind, ()))

    def teardown(self):
        if not hasattr(self, "cluster"):
            return
        self.consumer.resume([place(p) for p in sorted(self.paused)])
        self.paused.clear()
        for _ in range(200):
            self.check(self.consumer.consume(100, 1.0))
            if all(self.next[p] == self.written[p] for p in self.next):
                break
        assert {p: self.next[p] for p in self.next} == {p: self.written[p] for p in self.next}
        found = self.consumer.position([place(p) for p in sorted(self.next)])
        assert all(p.offset in (-1001, self.next[p.partition]) for p in found)


TestAssignment = Assignment.TestCase
TestAssignment.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
