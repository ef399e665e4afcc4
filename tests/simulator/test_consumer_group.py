"""A KIP-848 group, one heartbeat at a time: joining, targets, epochs, restarts, and how it is described."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eos_client.testing.simulator.brokers.group_requests import ConsumerHeartbeat
from eos_client.testing.simulator.brokers.model import BrokerError, PartitionKey
from eos_client.testing.simulator.brokers.settings import BrokerSettings, CommitCheck
from eos_client.testing.simulator.brokers.target_assignment import assign
from tests.simulator.consumer_group_client import (
    EXACT,
    MEMBER_LEVEL,
    ORDERS,
    P0,
    P1,
    P2,
    P3,
    PARTITIONS,
    Client,
    new_group,
    refused_codes,
    restarted,
    two_members,
)

# -- joining and the target --------------------------------------------------------------------------------------


def test_a_second_member_takes_half_once_the_first_has_given_it_up():
    _, a, b = two_members()
    assert (a.epoch, a.owned) == (2, {P0, P1})
    assert (b.epoch, b.owned) == (2, {P2, P3})


def test_a_member_without_an_id_gets_one_from_the_seeded_source():
    first, again = (Client(new_group(), "").join().member_id for _ in range(2))
    assert first == again
    assert len(first) == 36


def test_joining_without_topics_is_an_invalid_request():
    with pytest.raises(BrokerError, match="INVALID_REQUEST"):
        Client(new_group(), "a").beat(epoch=0)


def test_the_assignor_moves_as_little_as_possible():
    before = {"a": frozenset({P0, P3}), "b": frozenset({P1}), "gone": frozenset({P2})}
    target = assign(PARTITIONS, {"a": ORDERS, "b": ORDERS}, before, {})
    assert target == {"a": {P0, P3}, "b": {P1, P2}}


def test_the_assignor_gives_a_topic_to_its_subscribers_only():
    refund = PartitionKey("refunds", 0)
    target = assign([*PARTITIONS, refund], {"a": ORDERS, "b": frozenset({"refunds"})}, {}, {})
    assert target == {"a": set(PARTITIONS), "b": {refund}}


def test_a_partition_without_a_subscriber_is_nobodys():
    assert assign(PARTITIONS, {"a": frozenset({"refunds"})}, {}, {}) == {"a": frozenset()}


subscriptions = st.dictionaries(
    st.sampled_from(["a", "b", "c", "d"]), st.frozensets(st.sampled_from(["orders", "refunds"]), min_size=1)
)


numbers = st.dictionaries(st.sampled_from(["orders", "refunds"]), st.integers(0, 7))


@settings(derandomize=True, database=None, deadline=None)
@given(steps=st.lists(st.tuples(subscriptions, numbers), min_size=1, max_size=4), pinned=st.sampled_from(["a", "b"]))
def test_each_assignment_is_complete_even_and_at_rest(steps, pinned):
    target: dict[str, frozenset[PartitionKey]] = {}
    for topics, counts in steps:
        partitions = [PartitionKey(t, n) for t, count in counts.items() for n in range(count)]
        target = assign(partitions, topics, target, {})
        handed_out = sorted(p for owned in target.values() for p in owned)
        assert handed_out == sorted(p for p in partitions if any(p.topic in t for t in topics.values()))
        assert all(p.topic in topics[m] for m, owned in target.items() for p in owned)
        if len(set(topics.values())) == 1:
            sizes = [len(owned) for owned in target.values()]
            assert max(sizes) - min(sizes) <= 1
        assert assign(partitions, topics, target, {}) == target
        pins = dict.fromkeys(partitions, pinned)
        for partition in (p for p in partitions if p.topic in topics.get(pinned, ())):
            assert partition in assign(partitions, topics, target, pins)[pinned]


def test_a_pinned_partition_goes_to_its_member_and_the_others_stay_even():
    group, a, b = two_members()
    group.pin([P0], "b")
    a.settle()
    b.settle()
    a.settle()
    assert P0 in b.owned
    assert (len(a.owned), len(b.owned)) == (2, 2)
    group.pin([P0, P1, P2, P3], "b")
    a.settle()
    b.settle()
    assert (a.owned, b.owned) == (frozenset(), set(PARTITIONS))


def test_an_unpinned_partition_is_the_assignors_again():
    group, a, b = two_members()
    group.pin(PARTITIONS, "b")
    a.settle()
    b.settle()
    group.pin(PARTITIONS, None)
    b.settle()
    a.settle()
    assert (len(a.owned), len(b.owned)) == (2, 2)


def test_a_pin_to_a_stranger_is_refused():
    with pytest.raises(BrokerError, match="UNKNOWN_MEMBER_ID"):
        new_group().pin([P0], "nobody")


def test_a_topic_that_grows_moves_the_group_on_at_the_next_heartbeat():
    counts = {"orders": 1}
    a = Client(new_group(counts), "a").join()
    counts["orders"] = 2
    assert a.beat().assigned == {P0, P1}
    assert a.epoch == 2


def test_a_changed_subscription_takes_the_old_topics_partitions_away():
    a = Client(new_group({"orders": 1, "refunds": 1}), "a").join()
    refund = PartitionKey("refunds", 0)
    assert a.beat(topics=frozenset({"refunds"})).assigned == frozenset()
    assert a.beat(owned=frozenset()).assigned == {refund}


def test_a_changed_subscription_moves_the_group_on_even_to_topics_that_others_read_already():
    group = new_group({"orders": 2, "refunds": 2})
    a = Client(group, "a").join()
    b = Client(group, "b", topics=frozenset({"refunds", "orders"})).join()
    a.settle()
    epoch = group.describe().epoch
    group.heartbeat(ConsumerHeartbeat("b", b.epoch, topics=frozenset({"refunds"})), 0.0)
    assert group.describe().epoch == epoch + 1


# -- epochs ------------------------------------------------------------------------------------------------------


def test_a_member_stays_on_its_epoch_while_it_is_revoking():
    """P1: committing in the revoke callback is always safe since bumps are blocked while revoking."""
    group = new_group()
    a = Client(group, "a").join()
    Client(group, "b").join()
    for _ in range(3):
        a.beat(owned=a.owned)
        group.bump()
        assert a.epoch == 1
        assert refused_codes(a, PARTITIONS) == set()
    assert group.describe().members["a"].awaiting_revocation == {P2, P3}


def test_a_heartbeat_that_says_nothing_of_its_partitions_does_not_end_a_revocation():
    group = new_group()
    a = Client(group, "a").join()
    Client(group, "b").join()
    a.beat()
    a.beat()
    assert a.epoch == 1


def test_a_member_moves_on_once_its_owned_partitions_no_longer_list_the_revoked_ones():
    """P1: when a member finishes revoking, its epoch becomes the target epoch."""
    group = new_group()
    a = Client(group, "a").join()
    Client(group, "b").join()
    assert a.beat().assigned == {P0, P1}
    a.beat(owned=frozenset({P0, P1, P2}))
    assert a.epoch == 1
    a.beat(owned=frozenset({P0, P1}))
    assert a.epoch == 2


def test_the_revocation_epoch_becomes_the_previous_member_epoch():
    """P1: when a member finishes revoking, its revocation epoch becomes the previous member epoch."""
    group = new_group()
    a = Client(group, "a").join()
    group.bump()
    group.bump()
    a.beat()
    assert a.epoch == 3
    Client(group, "b").join()
    a.settle()
    assert a.epoch == 4
    assert MEMBER_LEVEL in refused_codes(a, [P0], epoch=3)
    group.bump()
    a.beat()
    assert MEMBER_LEVEL not in refused_codes(a, [P0], epoch=4)


def test_the_revocation_epoch_starts_at_zero():
    """P1: starts at 0."""
    group = new_group()
    a = Client(group, "a").join()
    group.bump()
    a.beat()
    assert refused_codes(a, PARTITIONS, epoch=1) == {EXACT}
    assert MEMBER_LEVEL in refused_codes(a, PARTITIONS, epoch=0)


def test_a_bump_without_revocation_leaves_the_revocation_epoch():
    """P1: a bump without revocation leaves it."""
    group = new_group()
    a = Client(group, "a").join()
    for _ in range(5):
        group.bump()
        a.beat()
    assert a.epoch == 6
    assert [e for e in range(7) if MEMBER_LEVEL not in refused_codes(a, PARTITIONS, epoch=e)] == [1, 2, 3, 4, 5, 6]


def test_a_silent_bump_changes_the_epoch_and_says_nothing_of_partitions():
    """P1: the strict check refuses harmless commits: the epoch is bumped and the partition is still ours."""
    group = new_group()
    a = Client(group, "a").join()
    group.bump()
    answer = a.beat()
    assert (answer.member_epoch, answer.assigned) == (2, None)
    assert refused_codes(a, PARTITIONS, epoch=1) == {EXACT}


def test_a_target_that_moved_on_while_revoking_asks_for_more_one_epoch_later():
    group, a, b = two_members()
    group.bump()
    group.bump()
    group.pin([P1], "b")
    a.beat()
    group.pin([P0], "b")
    a.beat(owned=frozenset({P0}))
    assert a.epoch == 3
    assert group.describe().members["a"].awaiting_revocation == {P0}
    a.beat(owned=frozenset())
    assert a.epoch == group.describe().epoch == 6
    del b


def test_a_partition_is_given_to_the_next_owner_only_when_the_old_one_is_done_with_it():
    group = new_group()
    a = Client(group, "a").join()
    b = Client(group, "b").join()
    assert b.owned == frozenset()
    a.beat(owned=a.owned)
    assert b.beat().assigned is None
    a.beat(owned=frozenset({P0, P1}))
    assert b.beat().assigned == {P2, P3}
    assert b.epoch == 2


# -- restart and description -------------------------------------------------------------------------------------


def test_a_coordinator_restart_keeps_the_revocation_epoch_and_the_assignment():
    """P1: the revocation epoch is persisted and replayed with the assignment: a coordinator restart keeps it."""
    group, a, _ = two_members()
    group.evict("b")
    commits = [(epoch, p) for epoch in range(-1, 5) for p in PARTITIONS]
    before = [a.commit([p], epoch=epoch) for epoch, p in commits]
    assert {code for codes in before for code in codes.values()} == {"NONE", "STALE_MEMBER_EPOCH"}
    a.group = restarted(group)
    assert [a.commit([p], epoch=epoch) for epoch, p in commits] == before
    assert a.group.describe() == group.describe()
    assert a.group.records() == group.records()


def test_a_coordinator_restart_in_the_middle_of_a_revocation_still_waits_for_it():
    """P1: the revocation epoch is replayed with the member's assignment, partitions pending revocation included."""
    group = new_group()
    a = Client(group, "a").join()
    b = Client(group, "b").join()
    a.beat()
    a.group = b.group = restarted(group)
    assert b.beat(owned=frozenset()).assigned == frozenset()
    a.beat(owned=frozenset({P0, P1}))
    assert b.beat().assigned == {P2, P3}
    assert refused_codes(a, [P3], epoch=1) == set(CommitCheck)


def test_a_coordinator_restart_keeps_what_it_knows_of_members_that_left():
    """P1: no variant accepts a zombie, not even after a restart."""
    group, a, _ = two_members()
    group.evict("a")
    a.group = restarted(group)
    a.join()
    assert refused_codes(a, [P0], epoch=2) == set(CommitCheck)


def test_a_coordinator_restart_begins_every_session_anew():
    group = new_group(group_consumer_session_timeout_s=10.0)
    Client(group, "a").join(now_s=0.0)
    assert restarted(group, now_s=9.0).due_s(9.0) == 9.0 + BrokerSettings().group_consumer_session_timeout_s


def test_the_description_tells_state_epoch_and_who_has_what():
    group = new_group()
    assert (group.describe().state, group.describe().epoch) == ("Empty", 0)
    a = Client(group, "a").join()
    assert group.describe().state == "Stable"
    Client(group, "b").join()
    a.beat()
    told = group.describe()
    assert (told.protocol, told.state, told.epoch) == ("consumer", "Reconciling", 2)
    assert told.members["a"].epoch == 1
    assert told.members["a"].assigned == {P0, P1}
    assert told.members["a"].awaiting_revocation == {P2, P3}


def test_a_group_is_reconciling_until_every_member_has_heard_of_the_new_epoch():
    group = new_group()
    a = Client(group, "a").join()
    group.bump()
    assert group.describe().state == "Reconciling"
    a.beat()
    assert group.describe().state == "Stable"


def test_a_group_is_reconciling_until_the_last_partition_is_taken():
    group = new_group()
    a = Client(group, "a").join()
    b = Client(group, "b").join()
    a.settle()
    assert (a.epoch, b.epoch, group.describe().state) == (2, 2, "Reconciling")
    b.beat()
    assert group.describe().state == "Stable"


def test_a_member_is_described_with_its_client_and_its_instance():
    group = new_group()
    group.heartbeat(ConsumerHeartbeat("a", 0, "worker-1", "billing-7", ORDERS), 0.0)
    told = group.describe().members["a"]
    assert (told.member_id, told.instance_id, told.client) == ("a", "worker-1", "billing-7")


def test_a_member_may_leave_out_what_it_owns_when_it_joins():
    group = new_group()
    group.heartbeat(ConsumerHeartbeat("a", 0, topics=ORDERS), 0.0)
    assert group.heartbeat(ConsumerHeartbeat("a", 0, topics=ORDERS), 0.0).assigned == set(PARTITIONS)


def test_a_heartbeat_that_repeats_everything_is_answered_with_the_assignment():
    a = Client(new_group(), "a").join()
    assert a.beat(owned=a.owned).assigned == a.owned
    assert a.beat().assigned is None
