"""The four commit checks compared, over stories of members that filter ownership and a network that loses answers.

The clients here do what KAFKA-19779 asks of them and no more: they commit only what they own at the epoch they send.
Their commits stay under way for as long as hypothesis likes, so they arrive late, again, or after their sender's death.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from eos_client.testing.simulator.brokers.consumer_group import ConsumerGroup, GroupRecord
from eos_client.testing.simulator.brokers.group_requests import ConsumerHeartbeat
from eos_client.testing.simulator.brokers.model import BrokerError, Membership, PartitionKey
from eos_client.testing.simulator.brokers.settings import BrokerSettings, CommitCheck
from eos_client.testing.simulator.brokers.target_assignment import MemberRecord
from tests.verification.tables import table

ORDERS = frozenset({"orders"})
EXACT = CommitCheck.EXACT
MEMBER_LEVEL = CommitCheck.REVOCATION_EPOCH_MEMBER
PARTITION_LEVEL = CommitCheck.REVOCATION_EPOCH_PARTITION
ASSIGNMENT = CommitCheck.ASSIGNMENT_EPOCH
CLIENTS = 3


@dataclass
class Client:
    """A KIP-848 client: gives up first, then takes; keeps its member id for life, as librdkafka does."""

    member_id: str
    instance_id: str | None = None
    epoch: int = 0
    tenures: dict[PartitionKey, int] = field(default_factory=dict)
    to_revoke: set[PartitionKey] = field(default_factory=set)
    to_take: dict[PartitionKey, int] = field(default_factory=dict)
    says_all: bool = True
    revoked_at: int = -1

    @property
    def owned(self):
        return frozenset(self.tenures)

    def lose_all(self):
        self.tenures, self.to_take = {}, {}
        self.to_revoke = set()
        self.epoch, self.says_all = 0, True

    def told(self, answer, tenures):
        self.epoch, self.says_all = answer.member_epoch, False
        if answer.assigned is None:
            return
        self.to_revoke = set(self.owned - answer.assigned)
        self.to_take = {p: tenures[p] for p in answer.assigned if p not in self.tenures}
        if not self.to_revoke:
            self.take()

    def take(self):
        self.says_all = self.says_all or bool(self.to_take)
        self.tenures |= self.to_take
        self.to_take = {}

    def end_revoke_callback(self):
        self.revoked_at = self.epoch
        self.tenures = {p: t for p, t in self.tenures.items() if p not in self.to_revoke}
        self.to_revoke, self.says_all = set(), True
        self.take()


@dataclass(frozen=True)
class Commit:
    """A commit under way. ``tenures``: for each partition, the stretch of ownership during which it was sent."""

    membership: Membership
    tenures: Mapping[PartitionKey, int]
    gated: bool


class CommitCheckStory:
    """A group, its clients, and the truth about who has had what: a tenure ends when the coordinator takes it away.

    A partition that is given up and handed back in one step begins a new tenure: its assignment epoch tells.
    """

    def __init__(self, clients=CLIENTS, static=()):
        self.counts = {"orders": 4}
        self.group = self.new_group()
        self.clients = [Client(f"m{n}", f"worker-{n}" if n in static else None) for n in range(clients)]
        self.tenures: dict[PartitionKey, tuple[tuple[str, int], int]] = {}
        self.ended = 0
        self.flying: list[Commit] = []
        self.arrived = 0
        self.refused: Counter[tuple[CommitCheck, str]] = Counter()

    def new_group(self):
        return ConsumerGroup("billing", lambda topic: self.counts.get(topic, 0), BrokerSettings(), Random(7))

    def members(self):
        return [r for r in self.group.records() if isinstance(r, MemberRecord)]

    def follow(self):
        """Note whose tenures began and ended with the last thing that happened."""
        held = {p: (_place(m), e) for m in self.members() for p, e in [*m.assigned.items(), *m.pending.items()]}
        for partition, (holding, _) in tuple(self.tenures.items()):
            if held.get(partition) != holding:
                del self.tenures[partition]
        for partition in sorted(held):
            if partition not in self.tenures:
                self.ended += 1
                self.tenures[partition] = (held[partition], self.ended)

    def heartbeat(self, client, *, answer_lost=False, silent=False):
        joins = client.epoch == 0
        owned = None if silent and not client.says_all else client.owned
        topics = ORDERS if joins else None
        request = ConsumerHeartbeat(client.member_id, client.epoch, client.instance_id, topics=topics, owned=owned)
        try:
            answer = self.group.heartbeat(request, 0.0)
        except BrokerError:
            client.lose_all()
            return
        finally:
            self.follow()
        if answer_lost:
            client.says_all = True
        else:
            client.told(answer, {p: number for p, (_, number) in self.tenures.items()})

    def evict(self, client):
        if client.member_id in self.group.describe().members:
            self.group.evict(client.member_id)
            self.follow()

    def leave(self, client, epoch):
        if client.epoch > 0 and client.member_id in self.group.describe().members:
            self.group.heartbeat(ConsumerHeartbeat(client.member_id, epoch, client.instance_id), 0.0)
            self.follow()
        client.lose_all()

    def change_target(self, change):
        change()
        self.follow()

    def restart(self):
        records = self.group.records()
        self.group = self.new_group()
        self.group.replay(records, 0.0)

    def send_commit(self, client, partitions):
        named = {p: t for p, t in client.tenures.items() if p in partitions}
        if client.epoch > 0 and named:
            gated = client.revoked_at != client.epoch or bool(client.to_revoke)
            self.flying.append(Commit(Membership(client.epoch, client.member_id), named, gated))

    def arrive(self, commit):
        """Let ``commit`` reach the coordinator; return the verdicts and whether its sender still has all of it."""
        codes = self.group.verdicts(commit.membership, commit.tenures, transactional=True)
        still = all(self.tenures.get(p, (("", 0), 0))[1] == tenure for p, tenure in commit.tenures.items())
        self.arrived += 1
        for check, code in codes.items():
            refused, harmless = code != "NONE", still and code != "UNKNOWN_MEMBER_ID"
            self.refused[check, "ungated"] += refused
            self.refused[check, "ungated, harmless"] += refused and harmless
            self.refused[check, "gated"] += refused and commit.gated
            self.refused[check, "gated, harmless"] += refused and harmless and commit.gated
        return codes, still


def _place(member):
    """Whose a partition is: a static member's new process has its place."""
    return member.instance_id or member.member_id


class CommitChecks(RuleBasedStateMachine):
    """Whatever happens to the group, the four checks keep their promises."""

    def __init__(self):
        super().__init__()
        self.story = CommitCheckStory(static=(2,))

    client_numbers = st.integers(0, CLIENTS - 1)

    @rule(number=client_numbers, answer_lost=st.booleans(), silent=st.booleans())
    def heartbeat(self, number, answer_lost, silent):
        self.story.heartbeat(self.story.clients[number], answer_lost=answer_lost, silent=silent)

    @rule(number=client_numbers)
    def heartbeat_answered(self, number):
        self.story.heartbeat(self.story.clients[number])

    @rule()
    def settle(self):
        for _ in range(3):
            for client in self.story.clients:
                self.story.heartbeat(client)
                client.end_revoke_callback()

    @rule(number=client_numbers)
    def end_revoke_callback(self, number):
        client = self.story.clients[number]
        if client.to_revoke:
            client.end_revoke_callback()

    @rule(number=client_numbers)
    def evict(self, number):
        self.story.evict(self.story.clients[number])

    @rule(number=client_numbers, static=st.booleans())
    def leave(self, number, static):
        client = self.story.clients[number]
        self.story.leave(client, -2 if static and client.instance_id else -1)

    @rule()
    def bump(self):
        self.story.change_target(self.story.group.bump)

    @rule(number=client_numbers, partition=st.integers(0, 5))
    def pin(self, number, partition):
        member_id = self.story.clients[number].member_id
        if member_id in self.story.group.describe().members:
            self.story.change_target(lambda: self.story.group.pin([PartitionKey("orders", partition)], member_id))

    @rule()
    def grow(self):
        self.story.counts["orders"] = min(6, self.story.counts["orders"] + 1)

    @rule()
    def restart(self):
        self.story.restart()

    @rule(number=client_numbers, chosen=st.sets(st.integers(0, 5), min_size=1))
    def send_commit(self, number, chosen):
        self.story.send_commit(self.story.clients[number], {PartitionKey("orders", p) for p in chosen})

    @rule(number=client_numbers)
    def send_commits_one_by_one(self, number):
        client = self.story.clients[number]
        for partition in sorted(client.owned):
            self.story.send_commit(client, {partition})

    @invariant()
    def every_commit_under_way_is_judged_rightly(self):
        """A verdict changes nothing, so every commit may arrive at every moment."""
        active = {m.member_id for m in self.story.members() if m.epoch > 0}
        for commit in self.story.flying:
            codes, still = self.story.arrive(commit)
            accepted = {check for check, code in codes.items() if code == "NONE"}
            assert accepted in (
                set(),
                {PARTITION_LEVEL, ASSIGNMENT},
                {MEMBER_LEVEL, PARTITION_LEVEL, ASSIGNMENT},
                set(CommitCheck),
            ), f"{commit}: exact implies all, member level implies partition level, got {accepted}"
            if not still:
                assert not accepted, f"{commit} is a zombie's"
            elif commit.membership.member_id in active:
                assert {PARTITION_LEVEL, ASSIGNMENT} <= accepted, f"{commit} is harmless and was refused: {codes}"

    @invariant()
    def epochs_keep_their_order(self):
        (group,) = (r for r in self.story.group.records() if isinstance(r, GroupRecord))
        assert group.target_epoch <= group.epoch
        for member in self.story.members():
            if member.epoch > 0:
                epochs = member.commit_epochs
                assert 0 <= epochs.revocation_epoch < member.epoch <= group.target_epoch
                assert all(r <= epochs.revocation_epoch for r in epochs.revocation_epochs.values())
                assert epochs.former_epoch <= epochs.revocation_epoch
                assert all(since <= member.epoch for since in member.assigned.values())

    @invariant()
    def nothing_is_held_twice(self):
        held = [p for m in self.story.members() for p in [*m.assigned, *m.pending]]
        assert len(held) == len(set(held))
        present = {m.member_id for m in self.story.members()}
        owned = [p for c in self.story.clients if c.member_id in present for p in c.owned]
        assert len(owned) == len(set(owned))

    def teardown(self):
        """Left alone, the group comes to rest with every partition owned."""
        for _ in range(12):
            for client in self.story.clients:
                self.story.heartbeat(client)
                client.end_revoke_callback()
        group = self.story.group.describe()
        if all(client.epoch > 0 for client in self.story.clients):
            assert group.state == "Stable"
            assert sum(len(c.owned) for c in self.story.clients) == self.story.counts["orders"]


def test_every_commit_that_exact_accepts_the_others_accept_and_none_accepts_a_zombies():
    """P1: a property test compares them: what `exact` accepts, the others accept; no variant accepts a zombie."""
    run_state_machine_as_test(
        CommitChecks,
        settings=settings(
            derandomize=True, database=None, deadline=None, max_examples=100, stateful_step_count=40, print_blob=False
        ),
    )


def churn(seed, rounds, *, clients=4):
    """Let members come and go, heartbeats race with commits, and count what each check refuses."""
    random = Random(seed)
    story = CommitCheckStory(clients)
    for _ in range(rounds):
        client = random.choice(story.clients)
        event = random.random()
        if client.epoch == 0 and event < 0.2:
            story.evict(client)  # its session ends, so that it can join again
        elif event < 0.05:
            story.leave(client, -1)
        elif event < 0.07:
            story.change_target(story.group.bump)
        elif event < 0.5:
            story.heartbeat(client, answer_lost=random.random() < 0.3)
            if random.random() < 0.5:
                client.end_revoke_callback()
        else:
            story.send_commit(client, client.owned - client.to_revoke)
        for commit in story.flying:
            story.arrive(commit)
        story.flying = [c for c in story.flying if random.random() < 0.3]
    return story


def test_of_harmless_commits_the_partition_level_refuses_none_and_the_member_level_none_of_a_gated_client():
    """P1: strict refuses harmless commits; result of the client recipe: zero refused commits."""
    story = churn(11, 6_000)
    heads = ["ungated", "ungated, harmless", "gated", "gated, harmless"]
    counts = {head: {check: story.refused[check, head] for check in CommitCheck} for head in heads}
    rows = [[check.value, *[counts[head][check] for head in heads]] for check in CommitCheck]
    print(table([f"refused of {story.arrived}", *heads], rows))
    harmless, gated = counts["ungated, harmless"], counts["gated, harmless"]
    assert harmless[EXACT] > harmless[MEMBER_LEVEL] > harmless[PARTITION_LEVEL] == harmless[ASSIGNMENT] == 0
    assert gated[MEMBER_LEVEL] == 0
    assert gated[EXACT] < harmless[EXACT]


@pytest.mark.parametrize("seed", [1, 2])
def test_two_stories_of_one_seed_are_the_same(seed):
    first, again = churn(seed, 500), churn(seed, 500)
    assert (first.arrived, first.refused, first.group.records()) == (
        again.arrived,
        again.refused,
        again.group.records(),
    )


def story_of_one_revocation():
    """A has two partitions, commits both, and must give one to B; the broker has moved on, the commits come late."""
    story = CommitCheckStory(clients=2)
    a, b = story.clients
    story.heartbeat(a)
    story.heartbeat(b)
    story.send_commit(a, {PartitionKey("orders", 0)})
    story.send_commit(a, {PartitionKey("orders", 3)})
    kept, lost = story.flying
    story.heartbeat(a)
    return story, a, b, kept, lost


def test_a_commit_inside_the_revoke_callback_is_safe_with_every_check():
    """P1: client recipe 1: committing in the revoke callback is always safe since bumps are blocked while revoking."""
    story, a, _, _, _ = story_of_one_revocation()
    assert a.to_revoke
    story.change_target(story.group.bump)
    story.heartbeat(a, silent=True)
    story.send_commit(a, a.owned)
    codes, still = story.arrive(story.flying[-1])
    assert still
    assert set(codes.values()) == {"NONE"}


def test_a_client_that_skips_commits_on_the_revocation_epoch_is_never_refused():
    """P1: client recipe 2: before every other commit compare: still on it -> skip. Result: zero refused commits."""
    story, a, b, _, _ = story_of_one_revocation()
    a.end_revoke_callback()
    story.heartbeat(a, answer_lost=True)
    story.heartbeat(b)
    story.send_commit(a, a.owned)
    hasty = story.flying[-1]
    codes, still = story.arrive(hasty)
    assert (hasty.gated, still) == (False, True)
    assert {check for check, code in codes.items() if code != "NONE"} == {EXACT, MEMBER_LEVEL}
    story.heartbeat(a)
    story.send_commit(a, a.owned)
    patient = story.flying[-1]
    codes, _ = story.arrive(patient)
    assert patient.gated
    assert set(codes.values()) == {"NONE"}


def test_holding_or_blocking_until_the_epoch_moves_needs_one_answered_heartbeat():
    """P1: two alternatives: hold commits of non-revoked partitions until the epoch moves; block in poll until then."""
    story, a, _, kept, _ = story_of_one_revocation()
    a.end_revoke_callback()
    revocation_epoch = a.epoch
    story.heartbeat(a)
    assert a.epoch > revocation_epoch
    held = Commit(Membership(a.epoch, a.member_id), kept.tenures, gated=True)
    codes, _ = story.arrive(held)
    assert set(codes.values()) == {"NONE"}


def test_the_member_level_refuses_a_kept_partition_that_the_partition_level_accepts():
    """P1: less precise: show the difference between both levels in a test."""
    story, a, b, kept, lost = story_of_one_revocation()
    a.end_revoke_callback()
    story.heartbeat(a)
    story.heartbeat(b)
    codes, still = story.arrive(kept)
    assert still
    assert {check for check, code in codes.items() if code != "NONE"} == {EXACT, MEMBER_LEVEL}
    codes, still = story.arrive(lost)
    assert not still
    assert "NONE" not in codes.values()
