"""Offsets without records at the end of a partition: which of them count as handed over."""

from __future__ import annotations

import pytest

from eos_client.core.internal_logs import OFFSETS_LOG
from eos_client.core.model import InputPartition
from eos_client.core.passed_offsets import PassedOffset, passed_run, without_offsets_log
from eos_client.core.record_runs import Run

P0 = InputPartition("orders", 0)


def test_what_lies_between_the_next_offset_and_the_passed_one_is_a_gap_without_messages():
    assert passed_run(P0, 10, PassedOffset(12, 3)) == Run(P0, (), 10, 12, ((12, 3),), ((10, 12),))


@pytest.mark.parametrize("next_offset", [None, 12, 13])
def test_nothing_is_passed_at_an_unknown_offset_or_up_to_the_next_one(next_offset):
    assert passed_run(P0, next_offset, PassedOffset(12, 3)) is None


def test_a_commit_of_the_groups_own_log_would_have_no_end():
    assert without_offsets_log(frozenset({P0, InputPartition(OFFSETS_LOG, 7)})) == {P0}
