"""Classic members come, go, freeze and commit at any moment: one owner for each partition, offsets never go back."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from eos_client.testing.simulator.brokers.assignors import COOPERATIVE
from eos_client.testing.simulator.brokers.group_requests import (
    JoinAnswer,
    JoinRequest,
)
from eos_client.testing.simulator.brokers.model import (
    BrokerError,
    OffsetAndMetadata,
    PartitionKey,
    ProducerIdentity,
)
from tests.simulator.group_bench import (
    GROUP,
    TOPICS,
    UNSTABLE,
    GroupBench,
    membership,
    orders,
)


@pytest.fixture
def bench() -> GroupBench:
    return GroupBench()


class Process:
    """A careful client: it commits only what it owns, with the metadata it owns it by, and joins when told to."""

    def __init__(self, number: int, assignor: str) -> None:
        self.client = f"c{number}"
        self.producer = ProducerIdentity(number, 0)
        self.assignor = assignor
        self.member_id = ""
        self.owned: frozenset[PartitionKey] = frozenset()
        self.answer: JoinAnswer | None = None
        self.waits = False

    @property
    def request(self) -> JoinRequest:
        return JoinRequest(
            TOPICS, self.member_id, client=self.client, assignor=self.assignor, owned=self.owned, session_timeout_s=10.0
        )


class ClassicGroupMachine(RuleBasedStateMachine):
    """Members come, go, freeze and commit in transactions; rounds begin at any moment; the coordinator restarts."""

    def __init__(self) -> None:
        super().__init__()
        self.bench = GroupBench()
        self.assignor = COOPERATIVE
        self.numbers = itertools.count()
        self.processes: list[Process] = []
        self.frontier: dict[PartitionKey, int] = {}
        self.generations = [0]

    @rule(eager=st.booleans())
    @precondition(lambda self: not self.processes)
    def choose_assignor(self, eager):
        if not self.bench.groups.describe(GROUP).members:
            self.assignor = "range" if eager else COOPERATIVE

    @rule()
    @precondition(lambda self: len(self.processes) < 4)
    def start_process(self):
        self.processes.append(Process(next(self.numbers), self.assignor))

    @rule(data=st.data())
    @precondition(lambda self: self.processes)
    def kill_process(self, data):
        self.processes.remove(data.draw(st.sampled_from(self.processes)))

    @rule(data=st.data())
    @precondition(lambda self: self.processes)
    def live(self, data):
        """One process does what is next for it: join, ask for its assignment, or send a heartbeat."""
        self.step(data.draw(st.sampled_from(self.processes)))

    @rule()
    @precondition(lambda self: self.processes)
    def all_live(self):
        """Long enough for a round or two."""
        for _ in range(5):
            for process in self.processes:
                self.step(process)

    def step(self, process: Process) -> None:
        groups = self.bench.groups
        try:
            if process.waits:
                answer = groups.joined(GROUP, process.member_id)
                if answer is not None:
                    self.take(process, answer)
            elif process.answer is None:
                self.join(process)
            else:
                groups.heartbeat(GROUP, membership(process.answer))
        except BrokerError as refused:
            self.refused(process, refused.code)

    def refused(self, process: Process, code: str) -> None:
        if code == "REBALANCE_IN_PROGRESS":
            process.owned = process.owned if process.assignor == COOPERATIVE else frozenset()
        else:
            assert code in {"UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION"}
            process.member_id = process.member_id if code == "ILLEGAL_GENERATION" else ""
            process.owned = frozenset()
        process.waits, process.answer = False, None

    def join(self, process: Process) -> None:
        process.member_id = self.bench.groups.join(GROUP, process.request)
        process.waits = True

    def take(self, process: Process, answer: JoinAnswer) -> None:
        process.waits, process.answer = False, answer
        gave_up = process.owned - answer.assigned
        process.owned = answer.assigned
        if gave_up and process.assignor == COOPERATIVE:
            process.answer = None

    @rule()
    @precondition(lambda self: any(p.answer and p.owned for p in self.processes))
    def commit_in_transactions(self):
        """Every process reads from where the group stands, as a new owner does, and commits one further."""
        for process in self.processes:
            if process.answer is not None and process.owned:
                self.commit(process, process.answer)

    def commit(self, process: Process, answer: JoinAnswer) -> None:
        starts = self.bench.groups.fetch_offsets(GROUP, process.owned)
        offsets = {partition: OffsetAndMetadata((start.offset or 0) + 1) for partition, start in starts.items()}
        try:
            self.bench.groups.commit_offsets_in_transaction(GROUP, membership(answer), process.producer, offsets)
        except BrokerError as refused:
            self.refused(process, refused.code)
            return
        pending = self.bench.groups.fetch_offsets(GROUP, process.owned)
        assert {fetched.code for fetched in pending.values()} == {UNSTABLE}
        self.bench.groups.complete_transaction(GROUP, process.producer, committed=True)

    @rule(seconds=st.sampled_from([0.1, 4.0, 11.0]))
    @precondition(lambda self: self.bench.groups.describe(GROUP).members)
    def pass_time(self, seconds):
        self.bench.pass_time(seconds)

    @rule()
    @precondition(lambda self: self.bench.groups.describe(GROUP).members)
    def force_rebalance(self):
        self.bench.groups.force_rebalance(GROUP)

    @rule(data=st.data(), partition=st.sampled_from(sorted(orders(0, 1, 2, 3))))
    @precondition(lambda self: self.bench.groups.describe(GROUP).members)
    def pin_or_unpin(self, data, partition):
        members = sorted(self.bench.groups.describe(GROUP).members)
        self.bench.groups.pin(GROUP, [partition], data.draw(st.sampled_from([None, *members])))

    @rule(data=st.data())
    @precondition(lambda self: self.bench.groups.describe(GROUP).members)
    def evict(self, data):
        self.bench.groups.evict(GROUP, data.draw(st.sampled_from(sorted(self.bench.groups.describe(GROUP).members))))

    @rule()
    @precondition(lambda self: self.bench.groups.describe(GROUP).members)
    def restart(self):
        self.bench.groups.restart()
        self.generations.append(0)

    @invariant()
    def no_partition_is_given_to_two(self):
        members = self.bench.groups.describe(GROUP).members.values()
        given = [partition for member in members for partition in member.assigned]
        assert len(given) == len(set(given))

    @invariant()
    def no_partition_has_two_owners_whose_commits_count(self):
        description = self.bench.groups.describe(GROUP)
        present = [p for p in self.processes if p.answer and p.answer.generation == description.epoch]
        present = [p for p in present if p.member_id in description.members]
        owned = [partition for process in present for partition in process.owned]
        assert len(owned) == len(set(owned))

    @invariant()
    def generations_never_go_back(self):
        epoch = self.bench.groups.describe(GROUP).epoch
        assert epoch >= self.generations[-1]
        self.generations.append(epoch)

    @invariant()
    def committed_offsets_never_go_back(self):
        for partition, committed in self.bench.groups.fetch_offsets(GROUP).items():
            assert committed.offset is not None
            assert committed.offset >= self.frontier.get(partition, 0)
            self.frontier[partition] = committed.offset

    def teardown(self):
        """Left alone, the living share all partitions."""
        for _ in range(60):
            for process in self.processes:
                self.step(process)
            self.bench.pass_time(1.0)
        if self.processes:
            owned = sorted(partition for process in self.processes for partition in process.owned)
            assert owned == sorted(orders(0, 1, 2, 3))


ClassicGroupMachine.TestCase.settings = hypothesis_settings(max_examples=60, stateful_step_count=30, deadline=None)


TestClassicGroupMachine = ClassicGroupMachine.TestCase
