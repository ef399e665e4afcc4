"""The values that decisions are made of."""

from __future__ import annotations

import dataclasses

import pytest
from msgspec.structs import replace

from eos_client.core.model import (
    GAPS_MAX,
    UNJOINED,
    GroupGeneration,
    InputPartition,
    InputPosition,
    Outcome,
    ProducerLimits,
    record_count,
)


@pytest.mark.parametrize(
    ("generation_id", "member_id", "active"),
    [(1, "m", True), (2**31 - 1, "m", True), (0, "m", False), (-1, "m", False), (-1, "", False), (7, "", False)],
)
def test_only_a_member_id_at_a_positive_generation_is_an_active_member(generation_id, member_id, active):
    assert GroupGeneration(generation_id, member_id).is_active_member is active


def test_a_client_that_has_not_joined_is_no_active_member():
    assert not UNJOINED.is_active_member


def test_a_membership_is_its_number_and_its_member_id_and_nothing_else():
    one = GroupGeneration(5, "m", "billing", is_member_epoch=True)
    assert one.same_membership(GroupGeneration(5, "m"))
    assert not one.same_membership(dataclasses.replace(one, generation_id=6))
    assert not one.same_membership(dataclasses.replace(one, member_id="n"))


def test_the_values_of_the_core_are_frozen():
    for value, field, refusal in (
        (GroupGeneration(1, "m"), "generation_id", dataclasses.FrozenInstanceError),
        (InputPosition(1, 2, UNJOINED), "next_offset", AttributeError),
        (ProducerLimits(), "commit_timeout_s", dataclasses.FrozenInstanceError),
    ):
        with pytest.raises(refusal):
            setattr(value, field, 9)


def test_values_name_themselves_in_messages():
    assert str(InputPartition("orders", 3)) == "orders[3]"
    assert str(GroupGeneration(5, "m")) == "generation 5 of member m"
    assert str(UNJOINED) == "generation -1 of member <none>"


def test_an_outcome_is_committed_skipped_or_aborted():
    assert [each.value for each in Outcome] == ["committed", "skipped", "aborted"]


def test_positions_count_the_records_from_the_first_offset_to_before_the_next():
    ten, three = InputPosition(10, 20, UNJOINED), InputPosition(0, 3, UNJOINED)
    assert record_count({}) == 0
    assert record_count({InputPartition("orders", 0): ten, InputPartition("orders", 1): three}) == 13
    assert record_count({InputPartition("orders", 0): replace(ten, gaps=((12, 13), (15, 18)))}) == 6


def every_other_record(count: int) -> InputPosition:
    """Records 0, 2, 4 and so on, each handed over alone."""
    work = InputPosition(0, 1, UNJOINED)
    for number in range(1, count):
        work = work.followed_by(InputPosition(2 * number, 2 * number + 1, UNJOINED))
    return work


def test_work_that_is_never_committed_keeps_few_gaps_and_counts_all():
    work = every_other_record(5 * GAPS_MAX)
    assert len(work.gaps) == GAPS_MAX
    assert work.record_count == 5 * GAPS_MAX


def test_the_end_of_work_with_many_gaps_can_be_taken_back_and_repeated():
    work = every_other_record(5 * GAPS_MAX)
    less = work.between(0, work.next_offset - 10)
    assert less.record_count == 5 * GAPS_MAX - 5
    again = work.followed_by(InputPosition(less.next_offset + 1, work.next_offset, UNJOINED))
    assert (again.first_offset, again.next_offset) == (0, work.next_offset)


def test_a_part_from_among_many_gaps_counts_no_less_than_its_records():
    work = every_other_record(3 * GAPS_MAX)
    assert work.between(2, work.next_offset).record_count >= 3 * GAPS_MAX - 1
    assert work.between(0, GAPS_MAX + 1).record_count >= GAPS_MAX // 2
