"""Which leader epoch a position has, and when a record before the expected offset shows that its log was truncated."""

import pytest

from eos_client.core.leader_epochs import _CHANGES_MAX, LeaderEpochs, Misplacement
from eos_client.core.model import InputPartition

P0, P1 = InputPartition("orders", 0), InputPartition("orders", 1)


@pytest.fixture
def epochs():
    return LeaderEpochs()


def test_each_offset_has_the_epoch_that_was_last_read_up_to_it(epochs):
    for offset, epoch in ((10, 0), (11, 0), (20, 3), (21, 3)):
        epochs.record(P0, offset, epoch)
    assert [epochs.at(P0, offset) for offset in (9, 10, 19, 20, 99)] == [None, 0, 0, 3, 3]
    assert epochs.at(P1, 10) is None


def test_what_is_read_again_further_back_keeps_its_order(epochs):
    for offset, epoch in ((20, 3), (5, 0), (12, 1), (20, 4)):
        epochs.record(P0, offset, epoch)
    assert [epochs.at(P0, offset) for offset in (5, 11, 12, 19, 20)] == [0, 0, 1, 1, 4]


def test_from_an_offset_without_an_epoch_on_none_is_known(epochs):
    epochs.record(P0, 10, 2)
    epochs.record(P0, 300, None)
    assert [epochs.at(P0, offset) for offset in (10, 299, 300)] == [2, 2, None]


def test_what_is_forgotten_is_not_known(epochs):
    for partition in (P0, P1):
        epochs.record(partition, 1, 1)
    epochs.forget([P0])
    assert (epochs.at(P0, 1), epochs.at(P1, 1)) == (None, 1)


def test_the_oldest_changes_are_forgotten(epochs):
    for number in range(_CHANGES_MAX + 1):
        epochs.record(P0, number, number)
    assert epochs.at(P0, 0) is None
    assert [epochs.at(P0, number) for number in (1, _CHANGES_MAX)] == [1, _CHANGES_MAX]


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
