"""Offsets without records at the end of a partition: which of them count as handed over."""

from __future__ import annotations

from functools import reduce

import pytest

from eos_client.core.internal_logs import OFFSETS_LOG
from eos_client.core.model import InputPartition
from eos_client.core.partition_events import Assigned, Chosen, Fetched, HandedOver, Interrupted, Sought
from eos_client.core.partition_states import ConsumerState, next_state
from eos_client.core.passed_offsets import (
    PassedOffset,
    passed_before_a_record,
    passed_run,
    passed_runs,
    positions_to_read,
    without_offsets_log,
)
from eos_client.core.record_runs import Run
from tests.core.gate_language import P0, P1, P2, classic

ALL = frozenset({P0, P1, P2})


def test_what_lies_between_the_next_offset_and_the_passed_one_is_a_gap_without_messages():
    assert passed_run(P0, 10, PassedOffset(12, 3)) == Run(P0, (), 10, 12, ((12, 3),), ((10, 12),))


@pytest.mark.parametrize("next_offset", [None, 12, 13])
def test_nothing_is_passed_at_an_unknown_offset_or_up_to_the_next_one(next_offset):
    assert passed_run(P0, next_offset, PassedOffset(12, 3)) is None


def test_a_commit_of_the_groups_own_log_would_have_no_end():
    assert without_offsets_log(frozenset({P0, InputPartition(OFFSETS_LOG, 7)})) == {P0}


def after(*happened):
    return reduce(next_state, happened, ConsumerState())


def records(partition, first, following):
    return Run(partition, tuple(range(first, following)), first, following, ((first, None),))


def test_no_position_is_read_where_records_wait_or_a_seek_has_brought_nothing_yet():
    end = Run(P0, ("the end",), is_error=True)
    sought = Chosen(P2, 5), HandedOver((records(P2, 5, 9),), (), classic(4)), Interrupted({P2: 9}), Sought(P2, 9)
    state = after(*sought, Interrupted({P2: 12}), Sought(P2, 9), Fetched((end, records(P1, 3, 4))))
    assert positions_to_read(state, ALL) == (frozenset({P2}), frozenset({P0}))
    assert positions_to_read(state, frozenset({P1})) == (frozenset(), frozenset())


def test_the_position_in_the_groups_own_log_is_not_read():
    assert positions_to_read(ConsumerState(), frozenset({InputPartition(OFFSETS_LOG, 7)})).partitions == frozenset()


def test_what_is_passed_before_a_record_is_judged_as_a_first_record():
    state = after(Assigned(frozenset({P0})), Chosen(P1, 5))
    passed = {P0: PassedOffset(12, 3), P1: PassedOffset(7, 2)}
    first = passed_before_a_record(state, passed)
    assert first == (Run(P0, (), 12, 12, ((12, 3),)),)
    assert passed_runs(state, passed, first) == (Run(P1, (), 5, 7, ((7, 2),), ((5, 7),)),)


def test_what_was_judged_as_a_first_record_is_passed_by_a_later_look():
    state, passed = after(Chosen(P0, 5)), {P0: PassedOffset(7, 2)}
    assert passed_runs(state, passed, [Run(P0, (), 7, 7, ((7, 2),))]) == ()
    assert len(passed_runs(state, passed, ())) == 1
    assert passed_runs(state, {P0: PassedOffset(5, 2)}, ()) == ()
