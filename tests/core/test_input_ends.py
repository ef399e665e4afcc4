"""The ends at which a loop stops that reads its input to the end."""

from __future__ import annotations

from eos_client.core.input_ends import InputEnds
from eos_client.core.model import InputPartition

FIRST, SECOND = InputPartition("orders", 0), InputPartition("orders", 1)
BOTH = frozenset({FIRST, SECOND})
BEGINNING = -2


def ends_of(**ends: tuple[int, int]) -> InputEnds:
    made = InputEnds()
    for name, span in ends.items():
        made.record({"first": FIRST, "second": SECOND}[name], *span)
    return made


def test_a_partition_is_behind_until_its_offset_is_the_end() -> None:
    ends = ends_of(first=(0, 5), second=(3, 7))
    assert ends.behind({FIRST: 4, SECOND: 7}) == {FIRST}
    assert ends.behind({FIRST: BEGINNING, SECOND: 6}) == BOTH
    assert ends.behind({FIRST: 5, SECOND: 9}) == frozenset()


def test_where_there_is_nothing_to_read_no_offset_is_behind() -> None:
    assert ends_of(first=(0, 0), second=(7, 7)).behind({FIRST: BEGINNING, SECOND: 0}) == frozenset()


def test_the_end_is_that_of_the_first_look() -> None:
    ends = ends_of(first=(0, 5))
    ends.record(FIRST, 0, 100)
    assert ends.behind({FIRST: 4}) == {FIRST}
    assert ends.behind({FIRST: 5}) == frozenset()


def test_what_was_deleted_since_is_not_waited_for_and_nothing_newer_is() -> None:
    ends = ends_of(first=(0, 5))
    for start in (5, 6):
        ends.record(FIRST, start, 100)
        assert ends.behind({FIRST: 2}) == frozenset()


def test_a_partition_that_leaves_gets_a_new_end_when_it_comes_back() -> None:
    ends = ends_of(first=(0, 5), second=(0, 5))
    assert ends.lacking(BOTH) == frozenset()
    assert ends.lacking(frozenset({FIRST})) == frozenset()
    assert ends.behind({SECOND: 0}) == frozenset()
    assert ends.lacking(BOTH) == {SECOND}
    ends.record(SECOND, 0, 9)
    assert ends.behind({SECOND: 5}) == {SECOND}


def test_only_what_has_something_to_read_must_be_committed() -> None:
    assert ends_of(first=(0, 5), second=(7, 7)).to_be_committed == {FIRST}


def test_what_is_behind_stands_still_where_its_offset_was_the_same_at_the_last_look() -> None:
    ends = ends_of(first=(0, 5), second=(0, 5))
    assert ends.standing_still({FIRST: 1, SECOND: 1}) == frozenset()
    assert ends.standing_still({FIRST: 1, SECOND: 2}) == {FIRST}
    assert ends.standing_still({FIRST: 5, SECOND: 2}) == {SECOND}
    assert ends.standing_still({FIRST: 5, SECOND: 2}) == {SECOND}


def test_an_offset_behind_the_end_may_be_beyond_the_end_of_the_log() -> None:
    ends = ends_of(first=(0, 5), second=(7, 7))
    assert ends.beyond({FIRST: 6, SECOND: 30}) == {FIRST}
    assert ends.beyond({FIRST: 5, SECOND: 7}) == frozenset()
