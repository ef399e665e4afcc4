"""The table of partitions itself: which rows it has, and which of them need attention."""

from __future__ import annotations

import pytest
from confluent_kafka import OFFSET_BEGINNING, OFFSET_END

from eos_client.core.model import UnexpectedEventError
from eos_client.core.partition_events import Departed
from eos_client.core.partition_row import BEGINNING, PartitionRow, ResetPolicy
from eos_client.core.partition_states import ConsumerState, next_state
from tests.core.gate_language import P0, P1
from tests.core.partition_language import BOTH, END, after, reading, settled


def test_what_is_no_event_is_refused():
    with pytest.raises(UnexpectedEventError, match="not an event"):
        next_state(ConsumerState(), "Fetched")  # type: ignore[arg-type]


def test_nothing_is_true_of_an_unknown_partition():
    state = ConsumerState()
    assert state.row(P0) == PartitionRow()
    assert state.row(P0).is_settled
    assert not state.row(P0).was_read
    assert state.row(P0).attempts == 0
    assert not state.call_is_unfinished


def test_the_beginning_of_a_log_is_numbered_as_librdkafka_does():
    assert (BEGINNING, END) == (OFFSET_BEGINNING, OFFSET_END)


def test_a_partition_of_which_nothing_is_true_has_no_row():
    state = after(Departed(BOTH), state=settled(P0, P1))
    assert (dict(state.rows), state.unsettled, dict(state.positions)) == ({}, frozenset(), {})


def test_a_partition_that_is_only_read_needs_no_attention():
    assert reading(P0, P1).unsettled == frozenset()


@pytest.mark.parametrize("policy", ResetPolicy)
def test_each_policy_has_the_spellings_of_librdkafka(policy):
    for spelling in policy.value:
        assert ResetPolicy.of(spelling) is policy
        assert ResetPolicy.of(spelling.upper()) is policy
