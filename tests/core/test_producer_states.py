"""The state of a producer: every event in every state that events can lead to."""

from __future__ import annotations

from typing import Any

import pytest

from eos_client import errors
from eos_client.core.error_codes import TRANSACTION_UNKNOWN
from eos_client.core.model import UnexpectedEventError
from eos_client.core.producer_recovery import ProducerFailure, TransactionalRequest
from eos_client.core.producer_states import (
    Began,
    CallAnswered,
    CallBegins,
    CallFailed,
    Ended,
    HandleAbandoned,
    HandleBuilt,
    HandleFinished,
    HandlePhase,
    HandleSuspected,
    HandleUnregistered,
    InitBegins,
    MustAbort,
    OffsetsCarryFence,
    OffsetsFollow,
    OpenTransaction,
    ProducerEvent,
    ProducerState,
    Registered,
    ReplacementBegins,
    next_state,
)

R = TransactionalRequest
INTERRUPTED = errors.RebuildProducerError("interrupted")
UNANSWERED = errors.UnknownOutcomeError("interrupted")
ABORTABLE, LATER = errors.AbortableError("abort"), errors.AbortableError("a later one")
CLOSED, UNFIT = errors.ClientClosedError("closed"), errors.ClusterUnfitError("unfit")
FENCED, FATAL = errors.ProducerFencedError("fenced"), errors.FatalClientError("fatal")
NOT_REGISTERED, SENT_TWICE = errors.RebuildProducerError("no init"), errors.RebuildProducerError("sent twice")
FAILURE = ProducerFailure(R.SEND_OFFSETS, "ILLEGAL_GENERATION")
AMBIGUOUS = ProducerFailure(R.COMMIT, "REQUEST_TIMED_OUT", abortable=True)
LOST = ProducerFailure(R.ABORT, TRANSACTION_UNKNOWN, was_registered=True)
INIT_IN_VAIN = ProducerFailure(R.INIT, "UNSUPPORTED_VERSION", fatal=True)

EVENTS: tuple[ProducerEvent, ...] = (
    CallBegins(R.BEGIN, INTERRUPTED, 0),
    CallBegins(R.SEND_OFFSETS, INTERRUPTED, 0),
    CallBegins(R.COMMIT, UNANSWERED, 0),
    CallBegins(R.ABORT, INTERRUPTED, 0),
    InitBegins(0),
    OffsetsFollow(0),
    CallAnswered(),
    CallFailed(R.SEND_OFFSETS, ABORTABLE),
    CallFailed(R.COMMIT, LATER),
    CallFailed(R.COMMIT, UNANSWERED),
    CallFailed(R.ABORT, INTERRUPTED),
    CallFailed(R.PRODUCE, UNFIT),
    CallFailed(R.ABORT, UNFIT, failure=LOST),
    CallFailed(R.INIT, FENCED),
    CallFailed(R.INIT, FATAL),
    MustAbort(ABORTABLE),
    Registered(),
    Began(1.0),
    Ended(R.COMMIT),
    Ended(R.ABORT),
    OffsetsCarryFence(),
    HandleSuspected(SENT_TWICE),
    HandleUnregistered(NOT_REGISTERED),
    HandleAbandoned(NOT_REGISTERED),
    ReplacementBegins(NOT_REGISTERED),
    HandleBuilt(),
    HandleFinished(CLOSED),
)


Steps = list[tuple[ProducerState, ProducerEvent, ProducerState]]


def _key(state: ProducerState) -> tuple[Any, ...]:
    at = state.transaction
    known = at and (*at[:1], id(at.failure), *at[2:4], *at.by_pattern_alone.items())
    return (state.phase, id(state.why_unusable), *state[2:3], known, *state[4:6], id(state.last_failure))


def explored() -> Steps:
    """Return each state that any events lead to, with each event and what follows."""
    found, waiting, steps = {_key(ProducerState())}, [ProducerState()], []
    while waiting:
        state = waiting.pop()
        for event in EVENTS:
            after = next_state(state, event)
            steps.append((state, event, after))
            if (key := _key(after)) not in found:
                found.add(key)
                waiting.append(after)
    return steps


@pytest.fixture(scope="module")
def steps() -> Steps:
    return explored()


def after(*events: ProducerEvent) -> ProducerState:
    state = ProducerState()
    for event in events:
        state = next_state(state, event)
    return state


def test_every_event_is_tried_and_only_they_are_known():
    assert {type(event) for event in EVENTS} == set(ProducerEvent.__args__)
    with pytest.raises(UnexpectedEventError, match="not an event of a producer"):
        next_state(ProducerState(), "committed")  # type: ignore[arg-type]


def test_a_handle_refuses_calls_with_a_reason_or_takes_all(steps: Steps):
    for _, event, state in steps:
        assert (state.why_unusable is None) is (state.phase is HandlePhase.USABLE), event


def test_an_interrupted_call_is_seen_until_something_else_is_known(steps: Steps):
    for state, event, following in steps:
        if state.phase is HandlePhase.CALLING and following.phase is not HandlePhase.CALLING:
            assert not isinstance(event, (InitBegins, OffsetsFollow, MustAbort, OffsetsCarryFence)), event


def test_only_an_answer_makes_a_handle_that_refuses_calls_usable(steps: Steps):
    for state, event, following in steps:
        if state.phase is not HandlePhase.USABLE and following.phase is HandlePhase.USABLE:
            of_a_call = isinstance(event, (CallAnswered, CallFailed, Began, Ended))
            assert isinstance(event, Registered) or (of_a_call and state.phase is HandlePhase.CALLING), event


def test_a_closed_producer_stays_closed_whatever_its_call_answers(steps: Steps):
    for state, event, following in steps:
        if state.why_unusable is CLOSED:
            assert (following.phase, following.why_unusable) == (state.phase, CLOSED), event


def test_a_call_gives_its_own_reason_while_it_is_under_way():
    assert after(CallBegins(R.COMMIT, UNANSWERED, 0)).why_unusable is UNANSWERED
    assert after(Began(3.0)).transaction == OpenTransaction(3.0)


def test_a_commit_of_no_known_effect_is_never_said_to_have_none(steps: Steps):
    """Until the next transaction; a refusal of the very commit shows that it had none."""
    for state, event, following in steps:
        if following.commit_took_no_effect and not state.commit_took_no_effect:
            is_refusal = isinstance(event, CallFailed) and event.commit_took_no_effect
            is_answer = isinstance(event, (CallAnswered, CallFailed, Registered))
            had_no_commit = state.transaction is not None and not state.transaction.commit_may_take_effect
            leaves_calling = is_answer or isinstance(
                event, (HandleSuspected, HandleUnregistered, HandleFinished, HandleAbandoned)
            )
            assert isinstance(event, Began) or is_refusal or (had_no_commit and leaves_calling), event


def test_a_transaction_lasts_until_its_end_or_the_next_handle(steps: Steps):
    for state, event, following in steps:
        if state.is_in_transaction and not following.is_in_transaction:
            assert isinstance(event, (Ended, ReplacementBegins)), event
        if following.is_in_transaction and not state.is_in_transaction:
            assert isinstance(event, Began), event


def test_the_first_reason_to_abort_stays_until_the_transaction_ends():
    later = CallFailed(R.PRODUCE, LATER)
    assert after(Began(1.0), later).transaction_failure is LATER
    state = after(Began(1.0), MustAbort(ABORTABLE), later)
    assert state.transaction_failure is ABORTABLE
    assert next_state(state, Ended(R.ABORT)).transaction_failure is None
    assert after(MustAbort(ABORTABLE)).transaction_failure is None, "nothing is open"


def test_where_the_cluster_is_unfit_the_library_itself_gives_the_reason():
    state = after(Began(1.0), MustAbort(ABORTABLE), CallFailed(R.COMMIT, UNFIT))
    assert state.transaction_failure is None
    assert state.can_end_transaction


def test_an_output_that_is_not_taken_lets_no_failed_transaction_commit():
    """The library would commit after it."""
    unfit = CallFailed(R.PRODUCE, UNFIT)
    assert after(Began(1.0), MustAbort(ABORTABLE), unfit).transaction_failure is ABORTABLE


@pytest.mark.parametrize("error", [INTERRUPTED, UNANSWERED, FENCED, FATAL])
def test_these_errors_finish_the_handle(error: errors.EosError):
    state = after(Began(1.0), CallBegins(R.COMMIT, UNANSWERED, 0), CallFailed(R.COMMIT, error))
    assert (state.phase, state.why_unusable) == (HandlePhase.FINISHED, error)
    assert state.is_in_transaction
    assert not state.can_end_transaction


@pytest.mark.parametrize("failure", [LOST, INIT_IN_VAIN], ids=["lost", "init in vain"])
def test_a_failure_may_finish_the_handle_whatever_the_class_of_its_error(failure: ProducerFailure):
    state = after(CallFailed(failure.request, UNFIT, failure=failure))
    assert (state.phase, state.why_unusable) == (HandlePhase.FINISHED, UNFIT)


def test_a_handle_that_must_be_rebuilt_says_so_instead_of_the_abort():
    assert after(Began(1.0), MustAbort(ABORTABLE), HandleSuspected(SENT_TWICE)).transaction_failure is SENT_TWICE
    assert after(Began(1.0), MustAbort(ABORTABLE), HandleFinished(CLOSED)).transaction_failure is ABORTABLE


@pytest.mark.parametrize(("refusal", "is_over"), [(CLOSED, True), (FENCED, True), (FATAL, False), (INTERRUPTED, False)])
def test_no_handle_follows_after_a_close_or_a_fence(refusal: errors.EosError, is_over: bool):
    assert after(HandleFinished(refusal)).is_over is is_over


def test_a_sent_commit_may_have_ended_the_transaction_until_it_is_answered():
    state = after(Began(1.0), CallBegins(R.COMMIT, UNANSWERED, 0))
    assert state.may_have_ended
    assert not state.commit_took_no_effect
    refused = next_state(state, CallFailed(R.COMMIT, LATER))
    assert not refused.may_have_ended
    assert refused.commit_took_no_effect
    assert not next_state(state, CallAnswered()).commit_took_no_effect, "an answer that is no refusal"
    for other in (CallFailed(R.PRODUCE, LATER), CallFailed(R.COMMIT, LATER, AMBIGUOUS)):
        assert not next_state(state, other).commit_took_no_effect
    assert next_state(refused, Began(2.0)).commit_took_no_effect


def test_losses_count_from_the_first_offsets_and_patterns_are_of_the_last():
    state = after(Began(1.0), OffsetsFollow(2, {"t": True}), OffsetsFollow(3, {"u": False}))
    assert state.transaction is not None
    assert state.transaction.losses_before_offsets == 2
    assert state.transaction.by_pattern_alone == {"u": False}
    assert after(OffsetsFollow(2, {"t": True})).transaction is None


@pytest.mark.parametrize("event", [CallBegins(R.ABORT, INTERRUPTED, 4), InitBegins(4)])
def test_each_call_counts_the_losses_before_it(event: Any):
    assert after(event).losses_before_call == 4


def test_the_last_failure_is_known_until_a_commit():
    failed = after(CallFailed(R.SEND_OFFSETS, ABORTABLE, failure=FAILURE))
    assert failed.last_failure is FAILURE
    assert next_state(failed, CallFailed(R.COMMIT, LATER)).last_failure is FAILURE
    assert next_state(failed, Ended(R.ABORT)).last_failure is FAILURE
    assert next_state(failed, Ended(R.COMMIT)).last_failure is None


def test_offsets_stay_fenced_by_the_group_once_they_are(steps: Steps):
    assert not after(Began(1.0)).offsets_carry_fence
    assert all(following.offsets_carry_fence for state, _, following in steps if state.offsets_carry_fence)
    assert after(OffsetsCarryFence()).offsets_carry_fence


def test_the_next_handle_has_no_transaction_and_one_without_an_init_may():
    replaced = after(Began(1.0), ReplacementBegins(NOT_REGISTERED))
    assert (replaced.phase, replaced.transaction) == (HandlePhase.ABANDONED, None)
    assert next_state(replaced, HandleBuilt()).phase is HandlePhase.UNREGISTERED
    for event in (HandleUnregistered(NOT_REGISTERED), HandleAbandoned(NOT_REGISTERED)):
        assert after(Began(1.0), event).is_in_transaction
    assert after(HandleUnregistered(NOT_REGISTERED), Registered()) == ProducerState(is_initialised=True)


def test_an_init_goes_on_with_its_handle_until_that_is_initialised_or_given_up(steps: Steps):
    """A new handle asks for its id without naming an epoch (KIP-360), so two of them may fence each other."""
    given_up = {HandlePhase.CALLING, HandlePhase.ABANDONED, HandlePhase.SUSPECT, HandlePhase.FINISHED}
    assert ProducerState().may_initialise
    assert not after(Registered()).may_initialise
    assert after(Registered(), ReplacementBegins(NOT_REGISTERED), HandleBuilt()).may_initialise
    for state, event, following in steps:
        assert following.may_initialise is (not following.is_initialised and following.phase not in given_up), event
        if following.is_initialised and not state.is_initialised:
            assert isinstance(event, Registered)
        if state.is_initialised and not following.is_initialised:
            assert isinstance(event, (HandleAbandoned, ReplacementBegins))


def test_only_a_handle_without_an_init_serves_calls_while_it_is_unusable(steps: Steps):
    assert not ProducerState().refuses_serving
    for _, event, state in steps:
        serves = state.phase in {HandlePhase.USABLE, HandlePhase.UNREGISTERED, HandlePhase.ABANDONED}
        assert state.refuses_serving is not serves, event
