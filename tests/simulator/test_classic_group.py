"""Classic consumer groups: rounds, sessions, whose commits count, and restarts of the coordinator."""

from __future__ import annotations

import math

import pytest

from eos_client.testing.simulator.brokers.assignors import COOPERATIVE
from eos_client.testing.simulator.brokers.classic_group import ClassicState
from eos_client.testing.simulator.brokers.group_requests import JoinAnswer
from eos_client.testing.simulator.brokers.model import Membership
from tests.simulator.classic_group_bench import (
    ClassicGroupBench,
    again,
    membership,
    orders,
    refusal,
    said,
)


@pytest.fixture
def bench() -> ClassicGroupBench:
    return ClassicGroupBench()


@pytest.fixture
def two(bench) -> tuple[JoinAnswer, JoinAnswer]:
    """Two members of an eager group, a with {0, 1} and b with {2, 3}."""
    a, b = bench.join(said("a"), said("b"))
    assert (a.assigned, b.assigned) == (orders(0, 1), orders(2, 3))
    return a, b


# -- rounds --------------------------------------------------------------------------------------------------------


def test_a_round_is_complete_only_when_every_member_has_joined_it(bench):
    (a,) = bench.join(said("a"))
    b_id = bench.group.join(said("b"))
    assert bench.group.joined(b_id) is None
    assert refusal(bench.group.heartbeat, membership(a)) == "REBALANCE_IN_PROGRESS"
    bench.group.join(again(a, "a"))
    assert bench.group.joined(a.member_id) == JoinAnswer(a.member_id, 2, orders(0, 1))
    assert bench.group.joined(b_id) == JoinAnswer(b_id, 2, orders(2, 3))


def test_followers_wait_for_the_leader_to_hand_out_the_assignment(bench):
    (a,) = bench.join(said("a"))
    b_id = bench.group.join(said("b"))
    bench.group.join(again(a, "a"))
    assert bench.group.describe().state == "CompletingRebalance"
    assert bench.group.joined(b_id) is None
    assert bench.group.joined(a.member_id) is not None
    assert bench.group.joined(b_id) is not None


def test_a_member_that_missed_its_answer_because_a_round_began_is_told_to_join_again(bench):
    (a,) = bench.join(said("a"))
    bench.group.join(again(a, "a"))
    b_id = bench.group.join(said("b"))
    assert refusal(bench.group.joined, a.member_id) == "REBALANCE_IN_PROGRESS"
    assert bench.group.joined(b_id) is None


def test_an_answer_on_its_way_arrives_though_another_round_begins_at_once(bench):
    (a,) = bench.join(said("a"))
    b_id = bench.group.join(said("b"))
    bench.group.join(again(a, "a"))
    assert bench.group.joined(b_id) is None
    handed_out = bench.group.joined(a.member_id)
    bench.group.force_rebalance()
    answer = bench.group.joined(b_id)
    assert answer is not None
    assert answer.generation == handed_out.generation
    assert answer.assigned == orders(0, 1, 2, 3) - handed_out.assigned
    assert refusal(bench.group.joined, b_id) == "REBALANCE_IN_PROGRESS"


@pytest.mark.parametrize("asks_meanwhile", [True, False])
def test_an_answer_that_a_member_did_not_wait_for_is_not_kept_for_a_later_round(bench, asks_meanwhile):
    (a,) = bench.join(said("a"))
    b_id = bench.group.join(said("b"))
    bench.group.join(again(a, "a"))
    bench.group.joined(a.member_id)
    bench.group.force_rebalance()
    bench.group.join(said("b", member_id=b_id))
    if asks_meanwhile:
        assert bench.group.joined(b_id) is None
    bench.group.join(again(a, "a"))
    bench.group.join(said("c"))
    assert bench.group.state is ClassicState.PREPARING
    assert refusal(bench.group.joined, b_id) == "REBALANCE_IN_PROGRESS"


def test_an_old_generation_may_not_even_send_heartbeats(bench):
    (a,) = bench.join(said("a"))
    bench.join(again(a, "a"))
    assert refusal(bench.group.heartbeat, membership(a)) == "ILLEGAL_GENERATION"


def test_a_member_that_leaves_makes_the_others_join_again(bench, two):
    a, b = two
    bench.group.leave(a.member_id)
    assert refusal(bench.group.heartbeat, membership(b)) == "REBALANCE_IN_PROGRESS"
    assert bench.join(again(b, "b")) == [JoinAnswer(b.member_id, 2 + 1, orders(0, 1, 2, 3))]
    assert refusal(bench.group.leave, a.member_id) == "UNKNOWN_MEMBER_ID"


def test_a_group_that_its_last_member_left_is_empty_one_generation_later(bench):
    (a,) = bench.join(said("a"))
    bench.group.leave(a.member_id)
    assert (bench.group.state, bench.group.generation, bench.group.due_s) == (ClassicState.EMPTY, 2, math.inf)


def test_a_follower_that_joins_again_with_nothing_new_gets_the_present_round(bench, two):
    _, b = two
    bench.group.join(again(b, "b"))
    assert bench.group.state is ClassicState.STABLE
    assert bench.group.joined(b.member_id) == b


@pytest.mark.parametrize("news", [{"topics": frozenset({"payments"})}, {"owned": orders(2)}])
def test_a_follower_that_joins_again_with_something_new_begins_a_round(bench, two, news):
    _, b = two
    bench.group.join(again(b, "b", **news))
    assert bench.group.state is ClassicState.PREPARING


def test_a_forced_rebalance_makes_all_join_again_and_a_second_one_changes_nothing(bench, two):
    a, b = two
    bench.group.force_rebalance()
    bench.group.force_rebalance()
    assert refusal(bench.group.heartbeat, membership(a)) == "REBALANCE_IN_PROGRESS"
    a2, b2 = bench.join(again(a, "a"), again(b, "b"))
    assert {a2.generation, b2.generation} == {a.generation + 1}


def test_a_rebalance_forced_during_a_round_leaves_those_who_have_joined_it_waiting(bench, two):
    a, _ = two
    bench.group.force_rebalance()
    bench.group.join(again(a, "a"))
    bench.group.force_rebalance()
    assert bench.group.joined(a.member_id) is None


def test_an_unknown_member_is_told_so_by_every_request(bench, two):
    nobody = Membership(two[0].generation, "nobody")
    assert refusal(bench.group.join, said("a", member_id="nobody")) == "UNKNOWN_MEMBER_ID"
    assert refusal(bench.group.joined, "nobody") == "UNKNOWN_MEMBER_ID"
    assert refusal(bench.group.heartbeat, nobody) == "UNKNOWN_MEMBER_ID"
    assert refusal(bench.group.evict, "nobody") == "UNKNOWN_MEMBER_ID"
    assert refusal(bench.group.pin, orders(0), "nobody") == "UNKNOWN_MEMBER_ID"


# -- cooperative ---------------------------------------------------------------------------------------------------


def test_a_cooperative_group_moves_a_partition_in_two_rounds(bench):
    (a,) = bench.join(said("a", assignor=COOPERATIVE))
    first = {"assignor": COOPERATIVE, "owned": a.assigned}
    a, b = bench.join(again(a, "a", **first), said("b", assignor=COOPERATIVE))
    assert (a.assigned, b.assigned) == (orders(0, 1), frozenset()), "2 and 3 are still in a's hands"
    assert bench.group.describe().members[a.member_id].awaiting_revocation == orders(2, 3)
    a2, b2 = bench.join(again(a, "a", assignor=COOPERATIVE, owned=a.assigned), again(b, "b", assignor=COOPERATIVE))
    assert (a2.assigned, b2.assigned) == (orders(0, 1), orders(2, 3))
    assert a2.generation == b2.generation == a.generation + 1


# -- pins ----------------------------------------------------------------------------------------------------------


def test_a_pin_begins_a_round_in_which_the_partition_changes_hands_and_unpinning_gives_it_back(bench, two):
    a, b = two
    bench.group.pin(orders(0), b.member_id)
    a2, b2 = bench.join(again(a, "a"), again(b, "b"))
    assert (a2.assigned, b2.assigned) == (orders(1), orders(0, 2, 3))
    bench.group.pin(orders(0), None)
    a3, b3 = bench.join(again(a, "a"), again(b, "b"))
    assert (a3.assigned, b3.assigned) == (orders(0, 1), orders(2, 3))


# -- time-outs -----------------------------------------------------------------------------------------------------


def test_a_silent_member_is_removed_when_its_session_ends(bench, two):
    a, b = two
    bench.pass_time(9.0)
    bench.group.heartbeat(membership(b))
    bench.pass_time(1.0)
    assert list(bench.group.describe().members) == [b.member_id]
    assert refusal(bench.group.heartbeat, membership(a)) == "UNKNOWN_MEMBER_ID"


def test_a_member_that_does_not_join_within_the_rebalance_timeout_is_left_behind(bench):
    a, b = bench.join(
        said("a", rebalance_timeout_s=30.0, session_timeout_s=60.0),
        said("b", rebalance_timeout_s=30.0, session_timeout_s=60.0),
    )
    bench.group.force_rebalance()
    b_joins = again(b, "b", rebalance_timeout_s=30.0, session_timeout_s=60.0)
    bench.group.join(b_joins)
    bench.pass_time(29.0)
    assert bench.group.joined(b.member_id) is None
    bench.pass_time(1.0)
    answer = bench.group.joined(b.member_id)
    assert answer is not None
    assert answer.assigned == orders(0, 1, 2, 3)
    assert refusal(bench.group.heartbeat, membership(a)) == "UNKNOWN_MEMBER_ID"


def test_a_member_that_waits_for_the_others_owes_no_heartbeat_until_the_round_is_complete(bench):
    a, b = bench.join(said("a", session_timeout_s=20.0), said("b", session_timeout_s=5.0))
    bench.group.force_rebalance()
    bench.group.join(again(b, "b", session_timeout_s=5.0))
    bench.pass_time(19.0)
    assert set(bench.group.describe().members) == {a.member_id, b.member_id}
    bench.pass_time(1.0)
    assert set(bench.group.describe().members) == {b.member_id}, "a was silent; b is the round's only member now"
    bench.pass_time(4.0)
    assert bench.group.joined(b.member_id) is not None
    bench.pass_time(5.0)
    assert bench.group.is_empty


def test_joining_again_keeps_the_session_alive(bench, two):
    _, b = two
    bench.pass_time(9.0)
    bench.group.join(again(b, "b"))
    bench.pass_time(5.0)
    assert list(bench.group.describe().members) == [b.member_id]


def test_a_leader_that_never_asks_for_its_assignment_holds_the_group_up_only_until_a_time_out(bench):
    (a,) = bench.join(said("a"))
    b_id = bench.group.join(said("b"))
    bench.group.join(again(a, "a"))
    assert bench.group.joined(b_id) is None
    bench.pass_time(9.0)
    assert bench.group.joined(b_id) is None
    bench.pass_time(1.0)
    assert refusal(bench.group.joined, b_id) == "REBALANCE_IN_PROGRESS"
    assert bench.group.join(said("b", member_id=b_id)) == b_id
    answer = bench.group.joined(b_id)
    assert answer is not None
    assert answer.assigned == orders(0, 1, 2, 3)


def test_a_member_that_never_asks_for_its_assignment_is_removed_after_the_rebalance_timeout(bench):
    long = {"session_timeout_s": 900.0, "rebalance_timeout_s": 30.0}
    (a,) = bench.join(said("a", **long))
    b_id = bench.group.join(said("b", **long))
    bench.group.join(again(a, "a", **long))
    assert bench.group.joined(a.member_id) is not None
    bench.pass_time(30.0)
    assert b_id not in bench.group.describe().members
    assert a.member_id in bench.group.describe().members


def test_an_evicted_member_is_unknown_from_then_on(bench, two):
    a, _ = two
    bench.group.evict(a.member_id)
    assert refusal(bench.group.heartbeat, membership(a)) == "UNKNOWN_MEMBER_ID"


# -- commits -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("transactional", [False, True])
def test_a_commit_at_any_but_the_present_generation_is_refused(bench, two, transactional):
    """P2: the coordinator checks them: ILLEGAL_GENERATION."""
    a, _ = two
    bench.group.validate_commit(membership(a), transactional=transactional)
    for generation in (-1, 0, a.generation - 1, a.generation + 1):
        wrong = Membership(generation, a.member_id)
        assert refusal(bench.group.validate_commit, wrong, transactional=transactional) == "ILLEGAL_GENERATION"


@pytest.mark.parametrize("transactional", [False, True])
def test_a_commit_of_an_unknown_member_is_refused(bench, two, transactional):
    """P2: the coordinator checks them: UNKNOWN_MEMBER_ID."""
    nobody = Membership(two[0].generation, "nobody")
    assert refusal(bench.group.validate_commit, nobody, transactional=transactional) == "UNKNOWN_MEMBER_ID"


def test_an_anonymous_commit_is_accepted_only_in_a_transaction(bench, two):
    """P2: what real brokers leave open: generation -1 without a member id passes unfenced."""
    bench.group.validate_commit(Membership(), transactional=True)
    assert refusal(bench.group.validate_commit, Membership(), transactional=False) == "UNKNOWN_MEMBER_ID"


def test_an_administrator_may_commit_to_an_empty_group(bench):
    (a,) = bench.join(said("a"))
    bench.group.leave(a.member_id)
    bench.group.validate_commit(Membership(), transactional=False)
    bench.group.validate_commit(Membership(-1, "an administrator"), transactional=False)
    assert refusal(bench.group.validate_commit, membership(a), transactional=False) == "UNKNOWN_MEMBER_ID"


@pytest.mark.parametrize("transactional", [False, True])
def test_the_present_generation_may_commit_while_a_round_is_prepared(bench, two, transactional):
    a, _ = two
    bench.group.force_rebalance()
    bench.group.validate_commit(membership(a), transactional=transactional)


def test_between_a_round_and_its_assignment_only_transactional_commits_are_served(bench):
    (a,) = bench.join(said("a"))
    bench.group.join(again(a, "a"))
    assert bench.group.state is ClassicState.COMPLETING
    new = Membership(a.generation + 1, a.member_id)
    assert refusal(bench.group.validate_commit, new, transactional=False) == "REBALANCE_IN_PROGRESS"
    bench.group.validate_commit(new, transactional=True)
    assert refusal(bench.group.validate_commit, membership(a), transactional=True) == "ILLEGAL_GENERATION"


# -- restarts ------------------------------------------------------------------------------------------------------


def test_a_restart_forgets_a_round_that_was_under_way(bench, two):
    a, b = two
    c_id = bench.group.join(said("c"))
    bench.group.join(again(a, "a"))
    bench.restart()
    bench.group.heartbeat(membership(b))
    assert refusal(bench.group.joined, a.member_id) == "REBALANCE_IN_PROGRESS"
    assert refusal(bench.group.joined, c_id) == "UNKNOWN_MEMBER_ID"


def test_a_follower_that_missed_its_answer_in_a_restart_asks_again_and_gets_it(bench, two):
    _, b = two
    bench.restart()
    bench.group.join(again(b, "b"))
    assert bench.group.joined(b.member_id) == b


def test_sessions_begin_anew_after_a_restart(bench, two):
    bench.pass_time(9.0)
    bench.restart()
    bench.pass_time(9.0)
    assert len(bench.group.describe().members) == 2
    bench.pass_time(1.0)
    assert bench.group.is_empty


def test_a_group_that_was_empty_is_empty_after_a_restart(bench, two):
    for answer in two:
        bench.group.leave(answer.member_id)
    generation = bench.group.generation
    bench.restart()
    assert (bench.group.is_empty, bench.group.generation) == (True, generation)


def test_a_group_without_a_complete_round_leaves_nothing_behind(bench):
    bench.group.join(said("a"))
    assert bench.group.records() == ()
