"""The four commit checks, asked about one member that has been through two rebalances."""

from __future__ import annotations

import pytest

from eos_client.testing.simulator.brokers.commit_validation import CommitEpochs, accepts, refusal_code, verdicts
from eos_client.testing.simulator.brokers.model import PartitionKey
from eos_client.testing.simulator.brokers.settings import CommitCheck

P1, P2, P3, FOREIGN = (PartitionKey("orders", number) for number in range(4))
# P1 was taken away at epoch 4, P2 is kept since epoch 2, P3 came at epoch 6; the member is at epoch 7.
MEMBER = CommitEpochs(7, {P2: 2, P3: 6}, revocation_epoch=4, revocation_epochs={P1: 4})

EXACT = CommitCheck.EXACT
MEMBER_LEVEL = CommitCheck.REVOCATION_EPOCH_MEMBER
PARTITION_LEVEL = CommitCheck.REVOCATION_EPOCH_PARTITION
ASSIGNMENT = CommitCheck.ASSIGNMENT_EPOCH
RELAXED = (MEMBER_LEVEL, PARTITION_LEVEL, ASSIGNMENT)


def epochs_accepted(validation, partition, member=MEMBER):
    return [sent for sent in range(-1, 10) if accepts(validation, member, sent, [partition])]


def test_the_strict_check_accepts_the_present_epoch_only():
    """P1: strict check: client == broker."""
    assert epochs_accepted(EXACT, P2) == [7]


def test_the_partition_level_check_accepts_from_behind_the_last_revocation_of_that_partition():
    """P1: partition level: accept iff revocation(p, m) < client <= broker."""
    assert epochs_accepted(PARTITION_LEVEL, P1) == [5, 6, 7]
    assert epochs_accepted(PARTITION_LEVEL, P2) == [1, 2, 3, 4, 5, 6, 7]


def test_the_member_level_check_accepts_from_behind_the_members_last_revocation():
    """P1: member level: accept iff revocation(m) < client <= broker."""
    for partition in (P1, P2, P3):
        assert epochs_accepted(MEMBER_LEVEL, partition) == [5, 6, 7]


def test_the_member_level_is_an_upper_bound_of_the_partition_level():
    """P1: one integer per member, upper bound of the above."""
    for partition in (P1, P2, P3, FOREIGN):
        assert set(epochs_accepted(MEMBER_LEVEL, partition)) <= set(epochs_accepted(PARTITION_LEVEL, partition))
    assert MEMBER.revocation_epoch >= max(MEMBER.revocation_epochs.values())


def test_the_assignment_check_accepts_from_the_epoch_at_which_the_partition_came():
    """P1: what shipped: assignment(p) <= client <= broker."""
    assert epochs_accepted(ASSIGNMENT, P2) == [2, 3, 4, 5, 6, 7]
    assert epochs_accepted(ASSIGNMENT, P3) == [6, 7]


def test_the_assignment_check_refuses_a_partition_that_is_gone_at_every_older_epoch():
    """P1: what shipped: assignment(p) <= client <= broker, and the partition must be held."""
    assert epochs_accepted(ASSIGNMENT, P1) == [7]
    assert epochs_accepted(ASSIGNMENT, FOREIGN) == [7]


@pytest.mark.parametrize("validation", CommitCheck)
def test_no_check_asks_for_ownership_at_an_equal_epoch(validation):
    """P1: a partition never owned at that epoch is a client bug; brokers do not catch it at an equal epoch."""
    assert accepts(validation, MEMBER, 7, [P1, FOREIGN])


@pytest.mark.parametrize("validation", CommitCheck)
def test_no_check_accepts_an_epoch_that_the_broker_has_not_reached(validation):
    """P1: client <= broker."""
    assert not accepts(validation, MEMBER, 8, [P2])


@pytest.mark.parametrize("validation", CommitCheck)
@pytest.mark.parametrize("sent", [-1, 0])
def test_no_check_accepts_an_epoch_at_which_nobody_is_a_member(validation, sent):
    """P1: revocation < client, and it starts at 0."""
    newcomer = CommitEpochs(1, {P1: 1})
    assert not accepts(validation, newcomer, sent, [P1])


@pytest.mark.parametrize("validation", [PARTITION_LEVEL, ASSIGNMENT])
def test_one_bad_partition_fails_the_whole_commit(validation):
    """P1: one partition that the member no longer had at that epoch refuses the request."""
    assert accepts(validation, MEMBER, 4, [P2])
    assert not accepts(validation, MEMBER, 4, [P2, P1])


@pytest.mark.parametrize("validation", [MEMBER_LEVEL, PARTITION_LEVEL])
def test_a_member_that_came_back_under_its_old_id_keeps_its_old_commits_refused(validation):
    """P1: no variant accepts a zombie, not even one of an earlier life of the same member id."""
    back = CommitEpochs(9, {P1: 9}, revocation_epoch=6, former_epoch=6)
    assert epochs_accepted(validation, P1, back) == [7, 8, 9]


def test_whatever_the_strict_check_accepts_the_others_accept():
    """P1: every commit that `exact` accepts, the others accept."""
    for partitions in ([P1], [P2], [P3], [FOREIGN], [P1, P2, P3, FOREIGN], []):
        accepted = [sent for sent in range(-1, 10) if accepts(EXACT, MEMBER, sent, partitions)]
        assert accepted == [7]
        assert all(accepts(validation, MEMBER, 7, partitions) for validation in RELAXED)


def test_a_refused_plain_commit_is_stale_and_a_refused_transactional_one_is_of_an_illegal_generation():
    """P1: errors: STALE_MEMBER_EPOCH for plain commits, ILLEGAL_GENERATION for transactional ones."""
    assert refusal_code(transactional=False) == "STALE_MEMBER_EPOCH"
    assert refusal_code(transactional=True) == "ILLEGAL_GENERATION"
    assert set(verdicts(MEMBER, 8, [P2], transactional=False).values()) == {"STALE_MEMBER_EPOCH"}
    assert set(verdicts(MEMBER, 8, [P2], transactional=True).values()) == {"ILLEGAL_GENERATION"}


@pytest.mark.parametrize("transactional", [False, True])
def test_a_member_that_is_gone_is_refused_by_its_id(transactional):
    """P1: a member no longer in the group is fenced by its id."""
    assert set(verdicts(None, 7, [P2], transactional=transactional).values()) == {"UNKNOWN_MEMBER_ID"}


def test_the_verdicts_of_one_commit_stand_side_by_side():
    """P1: the simulated cluster has all variants."""
    assert verdicts(MEMBER, 4, [P2], transactional=False) == {
        EXACT: "STALE_MEMBER_EPOCH",
        MEMBER_LEVEL: "STALE_MEMBER_EPOCH",
        PARTITION_LEVEL: "NONE",
        ASSIGNMENT: "NONE",
    }
