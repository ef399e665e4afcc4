"""Which leader epoch a position has, and when a record before the expected offset shows that its log was truncated."""

import pytest

from eos_client.core.leader_epochs import (
    _CHANGES_MAX,
    EpochChanges,
    Misplacement,
    changes_up_to,
    epoch_at,
    with_epoch_at,
)


def read(*records):
    """What is known once each of ``records``, an offset and its epoch, was read in this order."""
    changes: EpochChanges = ()
    for offset, epoch in records:
        changes = with_epoch_at(changes, offset, epoch)
    return changes


def test_each_offset_has_the_epoch_last_read_up_to_it():
    changes = read((10, 0), (11, 0), (20, 3), (21, 3))
    assert [epoch_at(changes, offset) for offset in (9, 10, 19, 20, 99)] == [None, 0, 0, 3, 3]


def test_only_the_changes_of_the_epoch_are_kept():
    assert read((10, 0), (11, 0), (20, 3), (21, 3)) == ((10, 0), (20, 3))


def test_what_is_read_again_further_back_keeps_its_order():
    assert read((20, 3), (5, 0)) == ((5, 0), (20, 3))
    changes = read((20, 3), (5, 0), (12, 1), (20, 4))
    assert changes == ((5, 0), (12, 1), (20, 4))
    assert [epoch_at(changes, offset) for offset in (5, 11, 12, 19, 20)] == [0, 0, 1, 1, 4]


def test_where_a_log_is_read_again_nothing_is_known_of_what_comes_after():
    changes = read((10, 0), (20, 3), (30, 4))
    assert [changes_up_to(changes, offset) for offset in (9, 20, 29)] == [(), changes[:2], changes[:2]]


def test_from_an_offset_without_an_epoch_on_none_is_known():
    changes = read((10, 2), (300, None))
    assert [epoch_at(changes, offset) for offset in (10, 299, 300)] == [2, 2, None]


def test_nothing_is_known_before_anything_was_read():
    assert epoch_at((), 10) is None
    assert read((10, None)) == ()


def test_the_oldest_changes_are_forgotten():
    changes = read(*((number, number) for number in range(_CHANGES_MAX + 1)))
    assert epoch_at(changes, 0) is None
    assert [epoch_at(changes, number) for number in (1, _CHANGES_MAX)] == [1, _CHANGES_MAX]
    assert len(changes) == _CHANGES_MAX


@pytest.mark.parametrize(
    ("expected_epoch", "found_epoch", "were_read", "shows"),
    [
        (0, 1, False, True),
        (0, 1, True, True),
        (1, 1, True, False),
        (1, 0, True, False),
        (None, 1, False, False),
        (0, None, False, False),
        (None, 1, True, True),
        (0, None, True, True),
    ],
)
def test_a_newer_epoch_before_the_expected_offset_shows_a_truncation(expected_epoch, found_epoch, were_read, shows):
    misplacement = Misplacement(200, expected_epoch, 100, found_epoch)
    assert misplacement.shows_truncation(were_read=were_read) is shows
