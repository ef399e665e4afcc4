"""The group coordinator: which members' offsets count, what a transaction hides, and what a restart leaves (P2)."""

from __future__ import annotations

import itertools
import math
from random import Random
from typing import Any

import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from eos_client.testing.simulation.assignors import COOPERATIVE
from eos_client.testing.simulation.brokers import Brokers
from eos_client.testing.simulation.clock import SimulatedClock
from eos_client.testing.simulation.group_requests import (
    JOINING_EPOCH,
    LEAVING_EPOCH,
    ConsumerHeartbeat,
    FetchedOffset,
    JoinAnswer,
    JoinRequest,
)
from eos_client.testing.simulation.model import (
    BrokerError,
    Membership,
    OffsetAndMetadata,
    PartitionKey,
    ProducerIdentity,
)
from eos_client.testing.simulation.settings import BrokerSettings, CommitCheck

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


@pytest.fixture
def bench() -> GroupBench:
    return GroupBench()


# -- plain commits -------------------------------------------------------------------------------------------------


def test_a_members_commit_is_what_the_group_fetches(bench):
    a = bench.join("a")
    assert bench.groups.commit_offsets(GROUP, membership(a), at(5, 0, 1)) == dict.fromkeys(orders(0, 1), "NONE")
    assert bench.committed(0) == FetchedOffset(5)
    assert bench.committed(3) == FetchedOffset(None)
    assert bench.groups.fetch_offsets(GROUP) == dict.fromkeys(orders(0, 1), FetchedOffset(5))


def test_a_refused_commit_writes_nothing(bench):
    a = bench.join("a")
    old = Membership(a.generation - 1, a.member_id)
    assert refusal(bench.groups.commit_offsets, GROUP, old, at(5, 0)) == "ILLEGAL_GENERATION"
    assert bench.committed(0) == FetchedOffset(None)


def test_a_commit_to_a_partition_that_does_not_exist_is_refused_before_and_after_a_restart(bench):
    a = bench.join("a")
    (missing,) = orders(4)
    for _ in range(2):
        assert bench.groups.commit_offsets(GROUP, membership(a), at(5, 0, 4))[missing] == "UNKNOWN_TOPIC_OR_PART"
        assert bench.committed(0) == FetchedOffset(None), "all or nothing"
        bench.groups.restart()


def test_a_classic_member_that_commits_needs_no_heartbeat(bench):
    a = bench.join("a", session_timeout_s=10.0)
    bench.pass_time(9.0)
    bench.groups.commit_offsets(GROUP, membership(a), at(5, 0))
    bench.pass_time(9.0)
    bench.groups.heartbeat(GROUP, membership(a))
    bench.pass_time(10.0)
    assert refusal(bench.groups.heartbeat, GROUP, membership(a)) == "UNKNOWN_MEMBER_ID"


def test_anybody_may_commit_by_hand_where_there_is_no_group_but_no_member_may(bench):
    assert refusal(bench.groups.commit_offsets, GROUP, Membership(1, "a"), at(5, 0)) == "ILLEGAL_GENERATION"
    bench.groups.commit_offsets(GROUP, Membership(), at(5, 0))
    assert bench.committed(0) == FetchedOffset(5)


# -- transactional commits (P2) ------------------------------------------------------------------------------------


def stage(bench: GroupBench, sent: Membership, offsets, producer: ProducerIdentity = PRODUCER) -> None:
    bench.groups.commit_offsets_in_transaction(GROUP, sent, producer, offsets)


@pytest.fixture(params=["classic", "consumer"])
def member(request, bench) -> Membership:
    """A member of a group of either protocol, as its consumer's metadata names it."""
    if request.param == "classic":
        return membership(bench.join("a", instance_id="host-1"), "host-1")
    answer = bench.heartbeat("a", instance_id="host-1")
    return Membership(answer.member_epoch, answer.member_id, "host-1")


def test_offsets_sent_with_the_present_metadata_count_once_the_transaction_commits(bench, member):
    """P2: offsets are sent with the consumer group metadata (group, generation or epoch, member id, instance id)."""
    stage(bench, member, at(5, 0))
    assert bench.committed(0, require_stable=False) == FetchedOffset(None)
    bench.groups.complete_transaction(GROUP, PRODUCER, committed=True)
    assert bench.committed(0) == FetchedOffset(5)


def test_offsets_of_an_aborted_transaction_are_dropped(bench, member):
    bench.groups.commit_offsets(GROUP, member, at(3, 0))
    stage(bench, member, at(5, 0))
    bench.groups.complete_transaction(GROUP, PRODUCER, committed=False)
    assert bench.committed(0) == FetchedOffset(3)


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ({"generation": 99}, "ILLEGAL_GENERATION"),
        ({"generation": -1}, "ILLEGAL_GENERATION"),
        ({"member_id": "nobody", "instance_id": None}, "UNKNOWN_MEMBER_ID"),
    ],
)
def test_offsets_of_who_is_not_in_the_present_generation_are_refused(bench, member, wrong, code):
    """P2: the coordinator checks them: ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID."""
    sent = Membership(
        wrong.get("generation", member.generation),
        wrong.get("member_id", member.member_id),
        wrong.get("instance_id", member.instance_id),
    )
    assert refusal(stage, bench, sent, at(5, 0)) == code
    assert bench.committed(0) == FetchedOffset(None), "nothing is pending either"


def test_offsets_of_a_replaced_static_process_are_refused(bench):
    """P2: the coordinator checks them: FENCED_INSTANCE_ID."""
    a = bench.join("a", instance_id="host-1")
    bench.join("a", instance_id="host-1")
    assert refusal(stage, bench, membership(a, "host-1"), at(5, 0)) == "FENCED_INSTANCE_ID"


def test_a_zombie_whose_partitions_went_to_another_is_refused(bench):
    """P2: producer per process, fenced by the group."""
    a = bench.join("a")
    bench.groups.evict(GROUP, a.member_id)
    b = bench.join("b")
    stage(bench, membership(b), at(9, 0), ProducerIdentity(8, 0))
    bench.groups.complete_transaction(GROUP, ProducerIdentity(8, 0), committed=True)
    assert refusal(stage, bench, membership(a), at(5, 0)) == "UNKNOWN_MEMBER_ID"
    assert bench.committed(0) == FetchedOffset(9)


def test_one_producer_commits_whatever_partitions_its_process_is_given(bench):
    """P2: one transactional producer serves a process whatever partitions it is assigned."""
    a = bench.join("a")
    b_id = bench.groups.join(GROUP, JoinRequest(TOPICS, client="b"))
    bench.groups.join(GROUP, JoinRequest(TOPICS, client="a", member_id=a.member_id))
    for number, member_id in enumerate([a.member_id, b_id]):
        answer = bench.groups.joined(GROUP, member_id)
        assert answer is not None
        mine = {partition: OffsetAndMetadata(5) for partition in sorted(answer.assigned)}
        stage(bench, membership(answer), mine, ProducerIdentity(number, 0))
        bench.groups.complete_transaction(GROUP, ProducerIdentity(number, 0), committed=True)
    bench.groups.evict(GROUP, b_id)
    again = bench.groups.join(GROUP, JoinRequest(TOPICS, client="a", member_id=a.member_id))
    answer = bench.groups.joined(GROUP, again)
    assert answer is not None
    assert answer.assigned == orders(0, 1, 2, 3)
    stage(bench, membership(answer), at(6, 0, 1, 2, 3), ProducerIdentity(0, 0))
    bench.groups.complete_transaction(GROUP, ProducerIdentity(0, 0), committed=True)
    assert bench.groups.fetch_offsets(GROUP) == dict.fromkeys(orders(0, 1, 2, 3), FetchedOffset(6))


def test_a_producer_of_an_older_epoch_is_refused(bench, member):
    """P2: fatal against abortable: a fenced producer cannot stage offsets."""
    stage(bench, member, at(5, 0), ProducerIdentity(7, 1))
    bench.groups.complete_transaction(GROUP, ProducerIdentity(7, 1), committed=True)
    assert refusal(stage, bench, member, at(6, 0), ProducerIdentity(7, 0)) == "INVALID_PRODUCER_EPOCH"
    bench.groups.restart()
    assert refusal(stage, bench, member, at(6, 0), ProducerIdentity(7, 0)) == "INVALID_PRODUCER_EPOCH"


def test_a_late_offset_commit_of_a_timed_out_transaction_is_refused(bench, member):
    """The marker of the abort carries the bumped epoch."""
    stage(bench, member, at(5, 0), ProducerIdentity(7, 0))
    bench.groups.complete_transaction(GROUP, ProducerIdentity(7, 1), committed=False)
    assert refusal(stage, bench, member, at(6, 0), ProducerIdentity(7, 0)) == "INVALID_PRODUCER_EPOCH"
    assert bench.committed(0) == FetchedOffset(None)


def test_offsets_for_a_partition_that_does_not_exist_are_refused_whole(bench, member):
    assert refusal(stage, bench, member, at(5, 0, 4)) == "UNKNOWN_TOPIC_OR_PART"
    assert bench.committed(0).code == STABLE


def test_anonymous_offsets_are_accepted_unchecked(bench, member):
    """P2: what real brokers leave open: generation -1 without a member id passes unfenced."""
    stage(bench, Membership(), at(5, 0))
    bench.groups.complete_transaction(GROUP, PRODUCER, committed=True)
    assert bench.committed(0) == FetchedOffset(5)


def test_a_classic_member_may_commit_anothers_partition_at_the_present_generation(bench):
    """What real brokers leave open: no ownership check."""
    a = bench.join("a")
    b_id = bench.groups.join(GROUP, JoinRequest(TOPICS, client="b"))
    bench.groups.join(GROUP, JoinRequest(TOPICS, client="a", member_id=a.member_id))
    mine = bench.groups.joined(GROUP, a.member_id)
    theirs = bench.groups.joined(GROUP, b_id)
    assert mine is not None
    assert theirs is not None
    (number,) = (min(theirs.assigned).partition,)
    stage(bench, membership(mine), at(5, number))


def test_a_rebalance_does_not_hold_transactional_offsets_up(bench):
    a = bench.join("a")
    bench.groups.force_rebalance(GROUP)
    assert refusal(bench.groups.heartbeat, GROUP, membership(a)) == "REBALANCE_IN_PROGRESS"
    stage(bench, membership(a), at(5, 0))
    bench.groups.join(GROUP, JoinRequest(TOPICS, client="a", member_id=a.member_id))
    completing = Membership(a.generation + 1, a.member_id)
    assert refusal(bench.groups.commit_offsets, GROUP, completing, at(5, 0)) == "REBALANCE_IN_PROGRESS"
    stage(bench, completing, at(6, 0))
    bench.groups.complete_transaction(GROUP, PRODUCER, committed=True)
    assert bench.committed(0) == FetchedOffset(6)


def test_after_a_refused_commit_the_transaction_is_aborted_and_the_next_one_goes_on(bench, member):
    """P2: commit failed: abort, rewind, go on."""
    stage(bench, member, at(3, 1))
    assert refusal(stage, bench, Membership(99, member.member_id), at(5, 0)) == "ILLEGAL_GENERATION"
    bench.groups.complete_transaction(GROUP, PRODUCER, committed=False)
    assert bench.groups.fetch_offsets(GROUP) == {}, "back to where the group began"
    stage(bench, member, at(5, 0, 1))
    bench.groups.complete_transaction(GROUP, PRODUCER, committed=True)
    assert bench.groups.fetch_offsets(GROUP) == dict.fromkeys(orders(0, 1), FetchedOffset(5))


# -- pending offsets (P2) ------------------------------------------------------------------------------------------


def test_a_new_owner_is_told_to_wait_while_a_transaction_may_move_the_offset(bench, member):
    """P2: offset fetch while a transactional commit is pending: UNSTABLE_OFFSET_COMMIT, only for that partition."""
    bench.groups.commit_offsets(GROUP, member, at(3, 0, 1))
    stage(bench, member, at(5, 0))
    assert bench.committed(0).code == UNSTABLE
    assert bench.committed(0).offset is None
    assert bench.committed(1) == FetchedOffset(3)
    bench.groups.complete_transaction(GROUP, PRODUCER, committed=True)
    assert bench.committed(0) == FetchedOffset(5)


def test_a_fetch_without_require_stable_returns_the_offset_before_the_pending_one(bench, member):
    bench.groups.commit_offsets(GROUP, member, at(3, 0))
    stage(bench, member, at(5, 0))
    assert bench.committed(0, require_stable=False) == FetchedOffset(3)


def test_offsets_stay_unstable_over_a_restart_until_the_marker_comes(bench, member):
    stage(bench, member, at(5, 0))
    bench.groups.restart()
    assert bench.committed(0).code == UNSTABLE
    bench.groups.complete_transaction(GROUP, PRODUCER, committed=True)
    assert bench.committed(0) == FetchedOffset(5)


def transaction_of_a_process_that_dies(bench: GroupBench, timeout_s: float) -> ProducerIdentity:
    transactions = bench.brokers.transactions
    producer = transactions.init_producer_id("billing-1", timeout_s)
    a = bench.join("a")
    transactions.add_offsets("billing-1", producer, GROUP)
    transactions.verify_offsets("billing-1", producer, GROUP)
    stage(bench, membership(a), at(5, 0), producer)
    return producer


def test_the_pending_offsets_of_a_dead_process_go_when_its_transaction_times_out(bench):
    """P2: a pending transaction of a dead process ends by its timeout."""
    transaction_of_a_process_that_dies(bench, timeout_s=10.0)
    bench.pass_time(8.0)
    assert bench.committed(0).code == UNSTABLE
    bench.pass_time(4.0)
    assert bench.committed(0) == FetchedOffset(None)


def test_the_pending_offsets_of_a_dead_process_go_at_once_when_its_id_is_initialised_again(bench):
    """P2: or at once when its transactional.id is initialised again."""
    dead = transaction_of_a_process_that_dies(bench, timeout_s=60.0)
    refusal(bench.brokers.transactions.init_producer_id, "billing-1", 60.0)
    assert bench.committed(0) == FetchedOffset(None)
    assert refusal(stage, bench, Membership(), at(6, 0), dead) == "INVALID_PRODUCER_EPOCH"


# -- both protocols ------------------------------------------------------------------------------------------------


def test_a_consumer_group_learns_what_it_owns_by_heartbeats_and_is_fenced_by_epoch(bench):
    a = bench.heartbeat("a")
    assert a.assigned == orders(0, 1, 2, 3)
    stage(bench, Membership(a.member_epoch, "a"), at(5, 0))
    assert refusal(bench.heartbeat, "a", a.member_epoch + 5, topics=None) == "FENCED_MEMBER_EPOCH"


@pytest.mark.parametrize("check", [CommitCheck.EXACT, CommitCheck.ASSIGNMENT_EPOCH])
def test_a_silent_bump_makes_only_the_exact_check_refuse_the_epoch_before(check):
    bench = GroupBench(BrokerSettings(commit_validation=check))
    a = bench.heartbeat("a")
    bench.groups.force_rebalance(GROUP)
    bumped = bench.heartbeat("a", a.member_epoch, topics=None)
    assert bumped.member_epoch > a.member_epoch
    sent = Membership(a.member_epoch, "a")
    if check is CommitCheck.EXACT:
        assert refusal(bench.groups.commit_offsets, GROUP, sent, at(5, 0)) == "STALE_MEMBER_EPOCH"
        assert refusal(stage, bench, sent, at(5, 0)) == "ILLEGAL_GENERATION"
    else:
        bench.groups.commit_offsets(GROUP, sent, at(5, 0))


def test_members_of_one_protocol_are_kept_out_of_a_group_of_the_other(bench):
    a = bench.join("a")
    assert refusal(bench.heartbeat, "b") == "GROUP_ID_NOT_FOUND"
    bench.groups.leave(GROUP, a.member_id)
    b = bench.heartbeat("b")
    assert b.assigned == orders(0, 1, 2, 3), "an empty group may change its protocol"
    assert refusal(bench.groups.join, GROUP, JoinRequest(TOPICS)) == "INCONSISTENT_GROUP_PROTOCOL"
    assert refusal(bench.groups.heartbeat, GROUP, membership(a)) == "UNKNOWN_MEMBER_ID"
    bench.heartbeat("b", LEAVING_EPOCH, topics=None)
    assert bench.join("c").assigned == orders(0, 1, 2, 3)


def test_committed_offsets_outlive_a_change_of_protocol(bench):
    a = bench.join("a")
    bench.groups.commit_offsets(GROUP, membership(a), at(5, 0))
    bench.groups.leave(GROUP, a.member_id)
    bench.heartbeat("b")
    assert bench.committed(0) == FetchedOffset(5)


def test_an_anonymous_commit_founds_a_group_without_members_and_a_restart_keeps_it(bench):
    nobody, somebody = Membership(-1, ""), Membership(3, "somebody")
    assert refusal(bench.groups.commit_offsets, GROUP, somebody, at(5, 0)) == "ILLEGAL_GENERATION"
    assert bench.groups.commit_offsets(GROUP, nobody, at(5, 0)) == dict.fromkeys(at(5, 0), STABLE)
    assert bench.groups.describe(GROUP).state == "Empty"
    assert refusal(bench.groups.commit_offsets, GROUP, somebody, at(5, 0)) == "UNKNOWN_MEMBER_ID"
    bench.groups.restart()
    assert refusal(bench.groups.commit_offsets, GROUP, somebody, at(5, 0)) == "UNKNOWN_MEMBER_ID"


def test_a_heartbeat_to_a_group_nobody_founded_is_refused(bench):
    assert refusal(bench.heartbeat, "a", 3) == "GROUP_ID_NOT_FOUND"
    assert refusal(bench.groups.heartbeat, GROUP, Membership(1, "a")) == "UNKNOWN_MEMBER_ID"
    assert refusal(bench.groups.join, GROUP, JoinRequest(TOPICS, member_id="a")) == "UNKNOWN_MEMBER_ID"


def test_a_refused_first_member_founds_no_group(bench):
    assert refusal(bench.groups.join, GROUP, JoinRequest(TOPICS, assignor="fair")) == "INCONSISTENT_GROUP_PROTOCOL"
    assert bench.groups.describe(GROUP).state == "Dead"
    assert bench.heartbeat("a").assigned == orders(0, 1, 2, 3)


# -- scripts, time and restarts ------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_script_may_evict_pin_and_rebalance_in_either_protocol(bench, protocol):
    if protocol == "classic":
        a_id = bench.join("a").member_id
        b_id = bench.groups.join(GROUP, JoinRequest(TOPICS, client="b"))
    else:
        a_id, b_id = bench.heartbeat("a").member_id, bench.heartbeat("b").member_id
    bench.groups.pin(GROUP, orders(0, 1, 2, 3), b_id)
    bench.groups.force_rebalance(GROUP)
    bench.groups.evict(GROUP, a_id)
    assert list(bench.groups.describe(GROUP).members) == [b_id]
    assert refusal(bench.groups.evict, GROUP, a_id) == "UNKNOWN_MEMBER_ID"


def test_a_script_that_names_an_unknown_group_is_told_so(bench):
    assert refusal(bench.groups.evict, "nobody", "a") == "GROUP_ID_NOT_FOUND"
    assert refusal(bench.groups.pin, "nobody", orders(0), "a") == "GROUP_ID_NOT_FOUND"
    assert refusal(bench.groups.force_rebalance, "nobody") == "GROUP_ID_NOT_FOUND"
    assert bench.groups.describe("nobody").state == "Dead"


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_silent_member_is_evicted_in_either_protocol_and_then_nothing_is_due(bench, protocol):
    if protocol == "classic":
        bench.join("a", session_timeout_s=45.0)
    else:
        bench.heartbeat("a")
    assert bench.groups.due_s == 45.0
    bench.pass_time(45.0)
    assert not bench.groups.describe(GROUP).members
    assert bench.groups.due_s == math.inf


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_restart_keeps_members_pins_and_offsets_in_either_protocol(bench, protocol):
    if protocol == "classic":
        a = bench.join("a")
        sent = membership(a)
    else:
        sent = Membership(bench.heartbeat("a").member_epoch, "a")
    bench.groups.commit_offsets(GROUP, sent, at(5, 0))
    before = bench.groups.describe(GROUP)
    bench.groups.restart()
    assert bench.groups.describe(GROUP) == before
    assert bench.committed(0) == FetchedOffset(5)
    bench.groups.commit_offsets(GROUP, sent, at(6, 0))
    assert bench.committed(0) == FetchedOffset(6)


def test_a_pin_outlives_a_restart(bench):
    a = bench.join("a")
    bench.groups.pin(GROUP, orders(3), a.member_id)
    bench.groups.restart()
    b_id = bench.groups.join(GROUP, JoinRequest(TOPICS, client="b"))
    bench.groups.join(GROUP, JoinRequest(TOPICS, client="a", member_id=a.member_id))
    answer = bench.groups.joined(GROUP, a.member_id)
    assert answer is not None
    assert answer.assigned == orders(0, 1, 3)
    assert bench.groups.joined(GROUP, b_id) == JoinAnswer(b_id, 2, orders(2))


def test_what_one_gave_up_in_a_round_that_a_restart_forgot_is_not_left_without_an_owner(bench):
    def join(client: str, member_id: str = "", owned: frozenset[PartitionKey] = frozenset()) -> Any:
        request = JoinRequest(TOPICS, member_id, client=client, assignor=COOPERATIVE, owned=owned)
        return bench.groups.join(GROUP, request)

    a = bench.join("a", assignor=COOPERATIVE)
    b_id = join("b")
    join("a", a.member_id, a.assigned)
    kept = bench.groups.joined(GROUP, a.member_id).assigned
    join("a", a.member_id, kept)
    bench.groups.restart()
    assert refusal(bench.groups.joined, GROUP, a.member_id) == "REBALANCE_IN_PROGRESS"
    join("a", a.member_id, kept)
    join("b", b_id)
    assert bench.groups.joined(GROUP, a.member_id).assigned == kept
    assert bench.groups.joined(GROUP, b_id).assigned == a.assigned - kept


def test_a_group_in_its_very_first_round_is_lost_in_a_restart(bench):
    member_id = bench.groups.join(GROUP, JoinRequest(TOPICS, client="a"))
    bench.groups.restart()
    assert bench.groups.describe(GROUP).state == "Dead"
    assert refusal(bench.groups.joined, GROUP, member_id) == "UNKNOWN_MEMBER_ID"
    assert bench.join("a").generation == 1


def test_one_seed_gives_one_story():
    def story(seed: int) -> list[object]:
        bench = GroupBench(seed=seed)
        classic = bench.join("a")
        bench.groups.leave(GROUP, classic.member_id)
        return [classic, bench.heartbeat(""), bench.groups.describe(GROUP)]

    assert story(1) == story(1)
    assert story(1) != story(2)


# -- any story -----------------------------------------------------------------------------------------------------


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
