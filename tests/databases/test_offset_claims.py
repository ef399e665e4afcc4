"""Who may claim a row, and who may move it: every rule, and no interleaving lets a superseded owner move one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eos_client.core.model import GroupGeneration, InputPartition
from eos_client.core.offset_claims import NO_OFFSET, ClaimRefusedError, Move, Position, claim, why_not_moved

P0, P1 = InputPartition("orders", 0), InputPartition("orders", 1)


def generation(number: int, member: str = "a") -> GroupGeneration:
    return GroupGeneration(number, member, "billing")


def test_a_claim_raises_the_fence_and_keeps_the_offset():
    row = Position(7, fence=3, generation=5, owner="a", leader_epoch=2, attempt="eos-x-1")
    assert claim(row, generation(6), "b") == Position(7, 4, 6, "b", 2, "eos-x-1")


@pytest.mark.parametrize("known", [5, 6])
def test_the_same_generation_and_newer_ones_may_claim(known):
    assert claim(Position(7, generation=5), generation(known), "b").generation == known


@pytest.mark.parametrize("known", [-1, 0, 4])
def test_an_older_generation_may_not(known):
    with pytest.raises(ClaimRefusedError, match="generation 5 of the group by a"):
        claim(Position(7, generation=5, owner="a"), generation(known), "b")


def test_who_is_no_member_claims_not_even_a_new_row():
    with pytest.raises(ClaimRefusedError):
        claim(Position(NO_OFFSET), generation(-1), "b")


def test_a_move_changes_the_offset_and_the_attempt_alone():
    row = Position(7, 4, 6, "b", 2, "eos-x-1")
    assert Move(row, 9, 3, "eos-x-2").result == Position(9, 4, 6, "b", 3, "eos-x-2")


CLAIMED = Position(7, fence=4, owner="a")


@pytest.mark.parametrize(
    ("row", "why"),
    [
        (CLAIMED, ""),
        (Position(7, fence=4, owner="other", attempt="t", generation=9), ""),
        (Position(7, fence=5, owner="b"), "claimed again, by b"),
        (Position(7, fence=5), "another member"),
        (Position(8, fence=4), "shows offset 8, and not 7"),
        (None, "is gone"),
    ],
)
def test_a_row_that_shows_something_else_is_not_moved(row, why):
    found = {P1: Position(0)} if row is None else {P0: row, P1: Position(0)}
    said = why_not_moved({P0: Move(CLAIMED, 9, None, "t"), P1: Move(Position(0), 1, None, "t")}, found)
    assert why in said
    assert bool(said) == bool(why)


OWNERS = 3
STEPS = st.lists(
    st.tuples(st.sampled_from(["claims", "moves", "ages"]), st.integers(0, OWNERS - 1), st.integers(1, 3)), max_size=40
)


@given(STEPS)
def test_no_interleaving_lets_a_superseded_owner_move_a_row(steps):
    """Owners claim under the generation that they know, move from what they have claimed, and hear of others late."""
    row, last_claim, moved = Position(0), None, [0]
    knows = [1] * OWNERS
    holds: list[Position | None] = [None] * OWNERS
    for what, owner, number in steps:
        if what == "ages":
            knows[owner] += number
        elif what == "claims":
            try:
                row = holds[owner] = claim(row, generation(knows[owner]), str(owner))
            except ClaimRefusedError:
                assert knows[owner] < row.generation
            else:
                last_claim = owner
        elif (held := holds[owner]) is not None:
            move = Move(held, held.next_offset + number, None, "t")
            refused = why_not_moved({P0: move}, {P0: row})
            assert bool(refused) == (owner != last_claim)
            if not refused:
                assert row.next_offset == move.claimed.next_offset  # no gap, and nothing twice
                row = holds[owner] = move.result
                moved.append(row.next_offset)
    assert moved == sorted(moved)
    assert row.next_offset == moved[-1]
