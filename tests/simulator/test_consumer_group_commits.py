"""Whose commits a KIP-848 group accepts, at which epoch, under each commit check."""

from __future__ import annotations

import pytest

from eos_client.testing.simulator.brokers.model import BrokerError, Membership
from eos_client.testing.simulator.brokers.settings import CommitCheck
from tests.simulator.consumer_group_client import (
    ASSIGNMENT,
    EXACT,
    MEMBER_LEVEL,
    P0,
    P1,
    P2,
    P3,
    PARTITION_LEVEL,
    PARTITIONS,
    Client,
    new_group,
    refused_codes,
    two_members,
)

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


def test_an_anonymous_plain_commit_is_refused_while_the_group_has_members():
    group, _, _ = two_members()
    with pytest.raises(BrokerError, match="UNKNOWN_MEMBER_ID"):
        group.validate_commit(Membership(), [P0], transactional=False)


def test_an_administrator_may_commit_to_an_empty_group():
    group, _, _ = two_members()
    group.evict("a")
    group.evict("b")
    group.validate_commit(Membership(), PARTITIONS, transactional=False)


# -- leaving, silence, static members ----------------------------------------------------------------------------


def test_a_member_back_under_its_old_id_cannot_be_harmed_by_its_old_commits():
    """P1: no variant accepts a zombie: clients come back under the id they had."""
    group, a, b = two_members()
    group.evict("a")
    b.settle()
    a.join()
    assert refused_codes(a, [P0], epoch=2, member_id="a") == set(CommitCheck)


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
