"""Which offsets a group has: plain commits, transactional ones, and what pends (P2)."""

from __future__ import annotations

import pytest

from eos_client.testing.simulator.brokers.group_requests import (
    FetchedOffset,
    JoinRequest,
)
from eos_client.testing.simulator.brokers.model import (
    Membership,
    OffsetAndMetadata,
    ProducerIdentity,
)
from tests.simulator.group_bench import (
    GROUP,
    PRODUCER,
    STABLE,
    TOPICS,
    UNSTABLE,
    GroupBench,
    at,
    membership,
    orders,
    refusal,
    stage,
)
from tests.support.protocols import BY_COORDINATOR


@pytest.fixture
def bench() -> GroupBench:
    return GroupBench()


# -- plain commits -------------------------------------------------------------------------------------------------


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


@pytest.fixture(params=BY_COORDINATOR)
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


def test_the_pending_offsets_of_a_dead_process_go_at_once_when_its_id_is_initialised_again(bench):
    """P2: or at once when its transactional.id is initialised again."""
    dead = transaction_of_a_process_that_dies(bench, timeout_s=60.0)
    refusal(bench.brokers.transactions.init_producer_id, "billing-1", 60.0)
    assert bench.committed(0) == FetchedOffset(None)
    assert refusal(stage, bench, Membership(), at(6, 0), dead) == "INVALID_PRODUCER_EPOCH"
