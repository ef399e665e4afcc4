"""A KIP-848 group, one heartbeat at a time."""

from __future__ import annotations

import math
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eos_client.testing.simulation.consumer_group import ConsumerGroup
from eos_client.testing.simulation.group_requests import ConsumerHeartbeat
from eos_client.testing.simulation.model import BrokerError, Membership, PartitionKey
from eos_client.testing.simulation.settings import BrokerSettings, CommitCheck
from eos_client.testing.simulation.target_assignment import assign

PARTITIONS = tuple(PartitionKey("orders", number) for number in range(4))
P0, P1, P2, P3 = PARTITIONS
ORDERS = frozenset({"orders"})

EXACT = CommitCheck.EXACT
MEMBER_LEVEL = CommitCheck.REVOCATION_EPOCH_MEMBER
PARTITION_LEVEL = CommitCheck.REVOCATION_EPOCH_PARTITION
ASSIGNMENT = CommitCheck.ASSIGNMENT_EPOCH


class Client:
    """A member's side of the conversation: it does at once what it is told, unless a test takes the steps itself."""

    def __init__(self, group, member_id, instance_id=None, topics=ORDERS):
        self.group = group
        self.member_id = member_id
        self.instance_id = instance_id
        self.topics = topics
        self.epoch = 0
        self.owned: frozenset[PartitionKey] = frozenset()

    def beat(self, now_s=0.0, *, owned=None, epoch=None, topics=None):
        sent = self.epoch if epoch is None else epoch
        answer = self.group.heartbeat(
            ConsumerHeartbeat(self.member_id, sent, self.instance_id, topics=topics, owned=owned), now_s
        )
        self.epoch = answer.member_epoch
        return answer

    def join(self, now_s=0.0):
        answer = self.beat(now_s, epoch=0, topics=self.topics, owned=frozenset())
        self.member_id, self.owned = answer.member_id, answer.assigned
        return self

    def settle(self, now_s=0.0):
        """Heartbeat until nothing changes."""
        for _ in range(4):
            answer = self.beat(now_s, owned=self.owned)
            self.owned = self.owned & answer.assigned
            answer = self.beat(now_s, owned=self.owned)
            self.owned = answer.assigned
        return self

    def commit(self, partitions, *, epoch=None, transactional=False, member_id=None):
        membership = Membership(
            self.epoch if epoch is None else epoch, self.member_id if member_id is None else member_id, None
        )
        return self.group.verdicts(membership, partitions, transactional=transactional)


def new_group(counts=None, **settings):
    topics = {"orders": 4} if counts is None else counts
    return ConsumerGroup("billing", lambda topic: topics.get(topic, 0), BrokerSettings(**settings), Random(1))


def two_members():
    """A at epoch 2 with two partitions, B at epoch 2 with the other two; A was alone at epoch 1."""
    group = new_group()
    a = Client(group, "a").join()
    b = Client(group, "b").join()
    a.settle()
    b.settle()
    return group, a, b


def refused_codes(client, partitions, **how):
    return {check for check, code in client.commit(partitions, **how).items() if code != "NONE"}


# -- joining and the target --------------------------------------------------------------------------------------


def test_the_first_member_gets_every_partition_at_the_first_epoch():
    a = Client(new_group(), "a").join()
    assert (a.epoch, a.owned) == (1, frozenset(PARTITIONS))


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


def test_another_member_joining_another_topic_is_a_silent_bump():
    """P1: the epoch is bumped while a heartbeat is in flight and the partition is still ours."""
    group = new_group({"orders": 4, "refunds": 2})
    a = Client(group, "a").join()
    Client(group, "b", topics=frozenset({"refunds"})).join()
    assert a.beat().assigned is None
    assert (a.epoch, a.owned) == (2, set(PARTITIONS))


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


# -- commits -----------------------------------------------------------------------------------------------------


def test_a_commit_of_a_revoked_partition_at_the_old_epoch_is_refused_by_every_check():
    """P1: a zombie commit names a partition owned at the epoch sent and reassigned since; no variant accepts it."""
    _, a, b = two_members()
    assert P3 in b.owned
    assert refused_codes(a, [P3], epoch=1) == set(CommitCheck)


def test_an_earlier_revocation_is_remembered_after_a_later_one():
    """P1: partition level: the largest epoch at which that partition was revoked, for each partition."""
    group, a, _ = two_members()
    group.pin([P1], "b")
    a.settle()
    assert P1 not in a.owned
    for sent in (1, 2):
        assert refused_codes(a, [P1], epoch=sent) == set(CommitCheck)
    assert refused_codes(a, [P3], epoch=1) == set(CommitCheck)
    assert PARTITION_LEVEL not in refused_codes(a, [P3], epoch=2)


def test_the_member_level_refuses_what_the_partition_level_accepts_a_kept_partition_at_the_old_epoch():
    """P1: less precise: after P1 is revoked and the broker has bumped, P2 at the old epoch is refused."""
    _, a, _ = two_members()
    assert P0 in a.owned
    assert refused_codes(a, [P0], epoch=1) == {EXACT, MEMBER_LEVEL}


def test_a_partition_of_another_member_is_accepted_at_an_equal_epoch():
    """P1: a commit naming a partition never owned at that epoch is a client bug; brokers do not catch it."""
    _, a, b = two_members()
    assert P3 in b.owned
    assert refused_codes(a, [P3]) == set()


def test_a_commit_before_the_partition_came_is_refused_by_its_assignment_epoch():
    """P1: what shipped: assignment(p) <= client <= broker."""
    group = new_group()
    a = Client(group, "a").join()
    b = Client(group, "b").join()
    a.settle()
    group.bump()
    b.beat()
    assert (b.epoch, group.describe().members["b"].assigned) == (3, {P2, P3})
    assert refused_codes(b, [P2], epoch=2) == {EXACT, ASSIGNMENT}


def test_a_partition_pending_revocation_may_be_committed_at_an_older_epoch():
    """P1: what shipped: looked up among the assigned partitions, then among those pending revocation."""
    group = new_group()
    a = Client(group, "a").join()
    group.bump()
    a.beat()
    Client(group, "b").join()
    a.beat()
    assert P3 in group.describe().members["a"].awaiting_revocation
    assert refused_codes(a, [P3], epoch=1) == {EXACT}


def test_a_transactional_commit_is_refused_with_an_illegal_generation():
    """P1: errors: ILLEGAL_GENERATION for transactional ones."""
    group, a, _ = two_members()
    with pytest.raises(BrokerError, match="ILLEGAL_GENERATION"):
        group.validate_commit(Membership(1, "a"), [P0, P3], transactional=True)
    group.validate_commit(Membership(1, "a"), [P0], transactional=True)
    del a


def test_a_plain_commit_is_refused_as_stale():
    """P1: errors: STALE_MEMBER_EPOCH for plain commits."""
    group, _, _ = two_members()
    with pytest.raises(BrokerError, match="STALE_MEMBER_EPOCH"):
        group.validate_commit(Membership(1, "a"), [P3], transactional=False)


@pytest.mark.parametrize("validation", CommitCheck)
def test_the_switch_chooses_the_check(validation):
    """P1: the simulated cluster has all variants."""
    group = new_group(commit_validation=validation)
    a = Client(group, "a").join()
    Client(group, "b").join()
    a.settle()
    codes = a.commit([P0], epoch=1)
    if codes[validation] == "NONE":
        group.validate_commit(Membership(1, "a"), [P0], transactional=False)
    else:
        with pytest.raises(BrokerError, match=codes[validation]):
            group.validate_commit(Membership(1, "a"), [P0], transactional=False)


@pytest.mark.parametrize("transactional", [False, True])
def test_a_commit_of_an_evicted_member_is_refused_by_its_id(transactional):
    """P1: a member no longer in the group is fenced by its id."""
    group, _, _ = two_members()
    group.evict("a")
    with pytest.raises(BrokerError, match="UNKNOWN_MEMBER_ID"):
        group.validate_commit(Membership(2, "a"), [P0], transactional=transactional)


def test_an_anonymous_transactional_commit_is_accepted_unchecked():
    group, _, _ = two_members()
    group.validate_commit(Membership(), PARTITIONS, transactional=True)


def test_an_anonymous_plain_commit_is_refused_while_the_group_has_members():
    group, _, _ = two_members()
    with pytest.raises(BrokerError, match="UNKNOWN_MEMBER_ID"):
        group.validate_commit(Membership(), [P0], transactional=False)


def test_an_administrator_may_commit_to_an_empty_group():
    group, _, _ = two_members()
    group.evict("a")
    group.evict("b")
    group.validate_commit(Membership(), PARTITIONS, transactional=False)


def test_a_members_id_without_an_epoch_is_refused():
    group, _, _ = two_members()
    with pytest.raises(BrokerError, match="ILLEGAL_GENERATION"):
        group.validate_commit(Membership(-1, "a"), [P0], transactional=True)


@pytest.mark.parametrize("sent", [0, 5])
def test_an_epoch_never_reached_or_never_held_is_refused(sent):
    group, _, _ = two_members()
    with pytest.raises(BrokerError, match="ILLEGAL_GENERATION"):
        group.validate_commit(Membership(sent, "a"), [P0], transactional=True)


# -- fencing and lost answers ------------------------------------------------------------------------------------


def test_a_heartbeat_from_the_future_is_fenced():
    _, a, _ = two_members()
    with pytest.raises(BrokerError, match="FENCED_MEMBER_EPOCH"):
        a.beat(epoch=7)


def test_a_heartbeat_of_an_older_epoch_is_fenced():
    group, a, _ = two_members()
    group.bump()
    a.beat()
    with pytest.raises(BrokerError, match="FENCED_MEMBER_EPOCH"):
        a.beat(epoch=1, owned=a.owned)


def test_a_member_whose_answer_was_lost_goes_on_from_the_epoch_before():
    group, a, _ = two_members()
    group.bump()
    a.beat()
    a.epoch = 2
    assert a.beat(owned=a.owned).assigned == a.owned
    assert a.epoch == 3


@pytest.mark.parametrize("owned", [None, frozenset(PARTITIONS)])
def test_the_epoch_before_is_fenced_unless_the_member_lists_what_it_may_own(owned):
    group, a, _ = two_members()
    group.bump()
    a.beat()
    with pytest.raises(BrokerError, match="FENCED_MEMBER_EPOCH"):
        a.beat(epoch=2, owned=owned)


def test_a_join_whose_answer_was_lost_may_be_repeated():
    group = new_group()
    a = Client(group, "a").join()
    a.join()
    assert (a.epoch, a.owned, group.describe().epoch) == (1, set(PARTITIONS), 1)


def test_a_member_that_moved_on_since_cannot_join_again_before_its_session_has_ended():
    group, a, _ = two_members()
    group.bump()
    a.beat()
    with pytest.raises(BrokerError, match="FENCED_MEMBER_EPOCH"):
        a.join()
    group.evict("a")
    a.join()


def test_a_heartbeat_of_a_stranger_is_refused():
    with pytest.raises(BrokerError, match="UNKNOWN_MEMBER_ID"):
        Client(new_group(), "a").beat(epoch=3)


# -- leaving, silence, static members ----------------------------------------------------------------------------


def test_a_member_that_leaves_frees_its_partitions():
    group, a, b = two_members()
    a.beat(epoch=-1)
    assert "a" not in group.describe().members
    assert b.settle().owned == set(PARTITIONS)


def test_a_member_that_keeps_silent_for_a_session_is_evicted():
    group = new_group(group_consumer_session_timeout_s=10.0)
    a = Client(group, "a").join(now_s=0.0)
    Client(group, "b").join(now_s=4.0)
    a.beat(5.0)
    assert group.due_s(5.0) == 14.0
    group.expire(13.9)
    assert sorted(group.describe().members) == ["a", "b"]
    group.expire(14.0)
    assert sorted(group.describe().members) == ["a"]
    assert group.due_s(14.0) == 15.0


def test_an_empty_group_waits_for_nobody():
    assert new_group().due_s(0.0) == math.inf


def test_a_time_that_has_passed_is_due_now():
    group = new_group()
    Client(group, "a").join()
    assert group.due_s(1000.0) == 1000.0


def test_a_member_that_gives_up_nothing_in_its_rebalance_timeout_is_evicted():
    group = new_group(group_consumer_session_timeout_s=1000.0)
    a = Client(group, "a").join()
    Client(group, "b").join()
    a.beat(10.0)
    a.beat(200.0)
    assert group.due_s(200.0) == 310.0
    group.expire(310.0)
    assert sorted(group.describe().members) == ["b"]


def test_a_member_says_how_long_it_may_take_to_give_partitions_up():
    group = new_group(group_consumer_session_timeout_s=1000.0)
    a = Client(group, "a").join()
    Client(group, "b").join()
    group.heartbeat(ConsumerHeartbeat("a", a.epoch, rebalance_timeout_s=20.0), 10.0)
    assert group.due_s(10.0) == 30.0


def test_a_member_that_gave_up_in_time_is_not_evicted():
    group = new_group(group_consumer_session_timeout_s=1000.0)
    a = Client(group, "a").join()
    Client(group, "b").join()
    a.beat(10.0)
    a.beat(200.0, owned=frozenset({P0, P1}))
    group.expire(310.0)
    assert sorted(group.describe().members) == ["a", "b"]


def test_a_refused_heartbeat_does_not_prolong_a_session():
    group = new_group(group_consumer_session_timeout_s=10.0)
    a = Client(group, "a").join()
    with pytest.raises(BrokerError, match="FENCED_MEMBER_EPOCH"):
        a.beat(9.0, epoch=7)
    group.expire(10.0)
    assert group.describe().state == "Empty"


def test_a_member_back_under_its_old_id_cannot_be_harmed_by_its_old_commits():
    """P1: no variant accepts a zombie: clients come back under the id they had."""
    group, a, b = two_members()
    group.evict("a")
    b.settle()
    a.join()
    assert refused_codes(a, [P0], epoch=2, member_id="a") == set(CommitCheck)


def test_an_instance_in_use_cannot_be_taken_over():
    group = new_group()
    Client(group, "a", "worker-1").join()
    with pytest.raises(BrokerError, match="UNRELEASED_INSTANCE_ID"):
        Client(group, "a2", "worker-1").join()


def test_a_static_member_that_went_away_for_a_while_keeps_its_partitions():
    group = new_group()
    a = Client(group, "a", "worker-1").join()
    b = Client(group, "b").join()
    a.settle()
    b.settle()
    a.beat(epoch=-2)
    assert b.settle().owned == {P2, P3}
    back = Client(group, "a2", "worker-1").join()
    assert (back.owned, back.epoch, group.describe().epoch) == ({P0, P1}, 2, 2)
    assert sorted(group.describe().members) == ["a2", "b"]


def test_a_static_member_that_stays_away_for_a_session_is_evicted():
    group = new_group(group_consumer_session_timeout_s=10.0)
    a = Client(group, "a", "worker-1").join()
    a.beat(5.0, epoch=-2)
    group.expire(14.9)
    assert group.describe().state == "Stable"
    group.expire(15.0)
    assert group.describe().state == "Empty"


def test_the_process_that_lost_its_instance_is_fenced():
    group = new_group()
    a = Client(group, "a", "worker-1").join()
    a.beat(epoch=-2)
    Client(group, "a2", "worker-1").join()
    with pytest.raises(BrokerError, match="FENCED_INSTANCE_ID"):
        a.beat(epoch=1)
    with pytest.raises(BrokerError, match="FENCED_INSTANCE_ID"):
        a.beat(epoch=-1)
    with pytest.raises(BrokerError, match="UNKNOWN_MEMBER_ID"):
        group.validate_commit(Membership(1, "a", "worker-1"), [P0], transactional=True)


def test_an_instance_that_nobody_knows_cannot_go_on():
    with pytest.raises(BrokerError, match="UNKNOWN_MEMBER_ID"):
        Client(new_group(), "a", "worker-1").beat(epoch=1)


def test_a_static_member_that_leaves_while_revoking_cannot_commit_those_partitions_later():
    """P1: a zombie commit, of a member that came back as the same instance and under the same id."""
    group = new_group()
    a = Client(group, "a", "worker-1").join()
    b = Client(group, "b").join()
    a.beat()
    a.beat(epoch=-2)
    assert b.settle().owned == {P2, P3}
    a.join()
    assert refused_codes(a, [P3], epoch=1) == set(CommitCheck)


def test_a_static_member_cannot_commit_later_what_it_lost_while_it_was_away():
    """P1: a zombie commit, of partitions that the target took away between two processes of one instance."""
    group = new_group()
    a = Client(group, "a", "worker-1").join()
    b = Client(group, "b").join()
    a.settle()
    b.settle()
    a.beat(epoch=-2)
    group.pin([P0], "b")
    assert P0 not in b.settle().owned
    a.join()
    assert P0 in b.settle().owned
    assert refused_codes(a, [P0], epoch=2) == set(CommitCheck)


def test_a_pin_follows_a_static_member_to_its_new_process():
    group = new_group()
    a = Client(group, "a", "worker-1").join()
    b = Client(group, "b").join()
    group.pin(PARTITIONS, "a")
    a.settle()
    b.settle()
    a.beat(epoch=-2)
    back = Client(group, "a2", "worker-1").join()
    group.bump()
    assert back.settle().owned == set(PARTITIONS)


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


def restarted(group, now_s=0.0):
    again = new_group()
    again.replay(group.records(), now_s)
    return again


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
