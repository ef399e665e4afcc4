"""What a call may hand over: what comes before the first run that may not be, else the reason."""

from __future__ import annotations

from functools import reduce

import pytest
from confluent_kafka import KafkaError
from msgspec.structs import replace

from eos_client.core.hand_over import (
    ForbiddenReset,
    HandOver,
    LogTooShort,
    MissingStart,
    ReplacedTopic,
    StartForgotten,
    TruncatedLog,
    next_hand_over,
    standing_refusal,
)
from eos_client.core.leader_epochs import Misplacement
from eos_client.core.model import CommittedOffset
from eos_client.core.partition_events import (
    Assigned,
    Chosen,
    Fetched,
    HandedOver,
    Interrupted,
    Misplaced,
    Paused,
    Sought,
    StartsFound,
    TopicReplaced,
    Truncated,
)
from eos_client.core.partition_row import SEEK_ATTEMPTS_MAX, ResetPolicy
from eos_client.core.partition_states import ConsumerState, next_state
from eos_client.core.record_runs import Run, runs
from tests.core.fetched_messages import EOF, ONE, ZERO, Message
from tests.core.gate_language import classic

NO_RESET = KafkaError(KafkaError._AUTO_OFFSET_RESET)
(END,) = runs([Message(0, 20, EOF)])
(FORBIDDEN,) = runs([Message(0, 20, NO_RESET)])
TRUNCATION = Misplacement(20, 1, 10, 2)


def run(partition, first, following, epoch=1):
    return Run(partition, tuple(range(first, following)), first, following, ((first, epoch),))


def read(*waiting, partitions=(ZERO, ONE), until=20):
    """A state in which records up to ``until`` were handed over of each partition, and ``waiting`` waits."""
    of_each = [
        event
        for partition in partitions
        for event in (Chosen(partition, 10), HandedOver((run(partition, 10, until),), (), classic(4)))
    ]
    return after(Assigned(frozenset(partitions)), *of_each, Fetched(waiting))


def after(*happened, state=None):
    return reduce(next_state, happened, state or ConsumerState())


# -- what is handed over -----------------------------------------------------------------------------------------------


def test_where_nothing_waits_nothing_is_handed_over():
    assert next_hand_over(ConsumerState(), 10) == HandOver((), ())


def test_as_many_messages_are_handed_over_as_are_asked_for():
    hand_over = next_hand_over(read(run(ZERO, 20, 22), END, run(ONE, 20, 24)), 3)
    assert hand_over == HandOver((run(ZERO, 20, 22), END), (run(ONE, 20, 24),))
    assert hand_over.messages == [20, 21, *END.messages]


def test_what_is_paused_goes_on_waiting():
    state = after(Paused(frozenset({ZERO})), state=read(run(ZERO, 20, 22), run(ONE, 20, 24)))
    assert next_hand_over(state, 10) == HandOver((run(ONE, 20, 24),), (run(ZERO, 20, 22),))


@pytest.mark.parametrize(("runs", "has_errors"), [((), False), ((run(ZERO, 1, 3),), False), ((END,), True)])
def test_whether_error_events_are_handed_over(runs, has_errors):
    assert HandOver(runs, ()).has_errors is has_errors
    assert HandOver((run(ONE, 1, 3), *runs), ()).has_errors is has_errors


# -- what refuses all --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("waiting", [(), (run(ZERO, 20, 22),), (FORBIDDEN,), (run(ZERO, 5, 6, 4),)])
def test_nothing_is_handed_over_after_a_topic_was_replaced(waiting):
    both = Truncated(ZERO, TRUNCATION), TopicReplaced("orders", frozenset())
    state = after(*both, state=read(*waiting))
    assert next_hand_over(state, 10) == HandOver((), waiting, ReplacedTopic("orders"))


@pytest.mark.parametrize("waiting", [(), (run(ONE, 20, 22),), (FORBIDDEN,), (run(ONE, 5, 6),)])
def test_nothing_is_handed_over_after_a_log_was_truncated(waiting):
    state = after(Truncated(ZERO, TRUNCATION), state=read(*waiting))
    assert next_hand_over(state, 10) == HandOver((), waiting, TruncatedLog(ZERO, TRUNCATION))


@pytest.mark.parametrize("waiting", [(), (run(ONE, 20, 22),)])
def test_nothing_is_handed_over_beside_a_partition_without_a_start(waiting):
    before = after(Assigned(frozenset({ZERO})), state=read(*waiting, partitions=(ONE,)))
    state = after(Interrupted({ZERO: 0, ONE: 22}), StartsFound({ZERO: None}), state=no_reset(before))
    state = after(Fetched(waiting), state=replace(state, waiting=()))
    assert next_hand_over(state, 10) == HandOver((), state.waiting, MissingStart(ZERO))
    assert standing_refusal(after(Chosen(ZERO, 5), state=state)) is None


def no_reset(state):
    return replace(state, reset_policy=ResetPolicy.ERROR)


# -- a partition that may not be read on -------------------------------------------------------------------------------


@pytest.mark.parametrize("is_unknown", [False, True])
def test_an_event_that_forbids_to_read_on_refuses_what_comes_after_it(is_unknown):
    state = after(Assigned(frozenset({ZERO, ONE})), Fetched((FORBIDDEN, run(ONE, 20, 22)))) if is_unknown else None
    state = state or read(FORBIDDEN, run(ONE, 20, 22))
    refusal = ForbiddenReset(ZERO, FORBIDDEN.messages[0], is_unknown)
    assert next_hand_over(state, 10) == HandOver((), state.waiting, refusal)


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        (None, StartForgotten(ZERO, None)),
        ({ZERO: CommittedOffset(7, "")}, StartForgotten(ZERO, 7)),
        ({}, ForbiddenReset(ZERO, FORBIDDEN.messages[0], start_is_unknown=True)),
    ],
)
def test_the_group_may_know_a_start_that_the_library_has_forgotten(answer, found):
    forbidden = ForbiddenReset(ZERO, FORBIDDEN.messages[0], start_is_unknown=True)
    assert forbidden.given_committed(answer) == found


@pytest.mark.parametrize("answer", [None, {ZERO: CommittedOffset(7, "")}])
def test_a_start_that_was_known_was_not_forgotten(answer):
    forbidden = ForbiddenReset(ZERO, FORBIDDEN.messages[0], start_is_unknown=False)
    assert forbidden.given_committed(answer) is forbidden


@pytest.mark.parametrize("before", [END, run(ONE, 20, 22)])
def test_what_comes_before_such_an_event_is_handed_over_first(before):
    misplaced = run(ONE, 5, 6, 4)
    hand_over = next_hand_over(read(before, FORBIDDEN, misplaced), 10)
    assert hand_over == HandOver((before,), (FORBIDDEN, misplaced))


def test_a_run_that_begins_too_early_wins_over_an_event_after_it():
    hand_over = next_hand_over(read(run(ONE, 5, 6, 4), FORBIDDEN), 10)
    assert isinstance(hand_over.refusal, TruncatedLog)


# -- a run that begins too early ---------------------------------------------------------------------------------------


def test_records_of_a_newer_epoch_show_that_the_log_was_truncated():
    state = read(run(ZERO, 5, 6, 4), run(ONE, 20, 22))
    truncation = Misplacement(20, 1, 5, 4)
    hand_over = next_hand_over(state, 10)
    assert hand_over == HandOver((), state.waiting, TruncatedLog(ZERO, truncation), Truncated(ZERO, truncation))


def test_a_truncation_is_known_at_once_but_refuses_only_the_next_call():
    before, misplaced = run(ONE, 20, 22), run(ZERO, 5, 6, 4)
    hand_over = next_hand_over(read(before, misplaced), 10)
    assert hand_over == HandOver((before,), (misplaced,), None, Truncated(ZERO, Misplacement(20, 1, 5, 4)))


@pytest.mark.parametrize("before", [(), (run(ONE, 20, 22), END)])
@pytest.mark.parametrize("end", [None, 20, 30])
def test_a_partition_of_which_earlier_records_came_is_sought_again(before, end):
    later = run(ONE, 22, 23)
    asked = next_hand_over(read(*before, run(ZERO, 5, 6), later, run(ZERO, 6, 7)), 10)
    assert (asked.runs, asked.refusal, asked.event) == (before, None, None)
    assert asked.misplaced is not None
    assert asked.misplaced.run == run(ZERO, 5, 6)
    assert asked.given_log_end(end) == HandOver(before, (later,), event=Misplaced(ZERO))


@pytest.mark.parametrize("before", [(), (run(ONE, 20, 22), END)])
@pytest.mark.parametrize(("end", "attempts"), [(19, 0), (None, SEEK_ATTEMPTS_MAX)])
def test_a_log_that_ends_too_early_is_refused_where_its_turn_comes(before, end, attempts):
    state = after(*[Misplaced(ZERO), Sought(ZERO, 20)] * attempts, state=read())
    state = after(Fetched((*before, run(ZERO, 5, 6), run(ONE, 22, 23))), state=state)
    hand_over = next_hand_over(state, 10).given_log_end(end)
    refusal = None if before else LogTooShort(ZERO, 20, 5)
    assert hand_over == HandOver(before, (run(ZERO, 5, 6), run(ONE, 22, 23)), refusal)


def test_without_a_run_that_begins_too_early_the_end_of_a_log_changes_nothing():
    hand_over = next_hand_over(read(run(ZERO, 20, 22)), 10)
    assert hand_over.given_log_end(5) is hand_over
