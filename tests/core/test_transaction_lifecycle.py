"""Every state of a transaction against every answer a cluster can give: what is told is what the log holds."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from unittest import mock

import pytest

from eos_client.core import transaction_lifecycle
from eos_client.core.error_codes import INTERRUPTED
from eos_client.core.model import UnexpectedEventError
from eos_client.core.producer_recovery import ProducerFailure, RecoveryAction, TransactionalRequest, recovery_for
from eos_client.core.transaction_lifecycle import (
    AT_REST,
    ENDING,
    NEEDS_REBUILD,
    NOTHING_SENT,
    OUTCOME_PENDING,
    TRANSITIONS,
    Act,
    Phase,
    TransactionLifecycle,
    TransactionState,
    Transition,
    next_state,
)
from eos_client.core.transaction_lifecycle import TransactionEvent as Event
from tests.core.lifecycle_diagram import diagram

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "transaction-lifecycle.md"


class Log(Enum):
    """What the coordinator knows of the transaction."""

    NOTHING = "nothing"
    OPEN = "open"
    COMMITTED = "committed"
    ABORTED = "aborted"


IDLE = TransactionState()


@dataclass(frozen=True)
class Situation:
    """One moment. ``act``: what is being performed; ``outer``: the step of the end that a callback has interrupted."""

    state: TransactionState = IDLE
    act: Act = Act.NOTHING
    log: Log = Log.NOTHING
    outer: Phase | None = None


class WrongError(AssertionError):
    """The table lets something happen that loses or doubles records."""


BROKEN_OFF = None
"""No event at all: an exception has struck the step."""

RESULTS_OF = {
    Phase.FLUSHING: (Event.FLUSHED, Event.NOT_FLUSHED, Event.NOT_FLUSHED_BY_HANDLE),
    Phase.SERVING: (Event.SERVED,),
    Phase.DECIDING: (Event.DECIDED_COMMIT, Event.DECIDED_COMMIT_UNBEGUN, Event.DECIDED_SKIP, Event.DECIDED_ABORT),
}


def after_init(log: Log) -> Log:
    """What ``init_transactions`` of another handle leaves."""
    return Log.ABORTED if log is Log.OPEN else log


Result = tuple[Event | None, Log]


def of_begin(situation: Situation) -> Iterator[Result]:
    if situation.log is Log.OPEN:
        raise WrongError("a second transaction begins while one is open")
    yield Event.BEGUN, Log.OPEN
    yield BROKEN_OFF, Log.OPEN
    yield Event.NOT_BEGUN, situation.log


def of_asking_the_gate(situation: Situation) -> Iterator[Result]:
    yield Event.DECIDED_COMMIT if situation.state.has_begun else Event.DECIDED_COMMIT_UNBEGUN, situation.log
    yield Event.DECIDED_SKIP, situation.log
    yield Event.DECIDED_ABORT, situation.log


def of_commit(situation: Situation) -> Iterator[Result]:
    if situation.log is not Log.OPEN:
        raise WrongError(f"a commit is sent for a transaction that is {situation.log.value}")
    yield Event.ANSWERED, Log.COMMITTED
    for lost in (Event.UNANSWERED, BROKEN_OFF):
        yield lost, Log.COMMITTED
        yield lost, Log.OPEN
    yield from ((event, Log.OPEN) for event in (Event.REFUSED, Event.HANDLE_FINISHED, Event.NOT_SENT))


def of_asking_the_log(situation: Situation) -> Iterator[Result]:
    known = after_init(situation.log)
    yield BROKEN_OFF, known
    yield Event.FOUND_COMMITTED if known is Log.COMMITTED else Event.FOUND_ABORTED, known
    yield Event.NOT_FOUND, Log.NOTHING


def of_abort(situation: Situation) -> Iterator[Result]:
    log, has_begun = situation.log, situation.state.has_begun
    if log is Log.COMMITTED:
        raise WrongError("a transaction that was committed is aborted")
    yield Event.ABORT_CONFIRMED, after_init(log) if has_begun else log
    yield BROKEN_OFF, after_init(log)
    if has_begun:
        yield Event.HANDLE_FINISHED, log


def of_rebuild(situation: Situation) -> Iterator[Result]:
    yield Event.REBUILT, after_init(situation.log)
    yield BROKEN_OFF, after_init(situation.log)


def of_noting(situation: Situation) -> Iterator[Result]:
    is_committed = situation.act is Act.RECORD_COMMITTED
    if is_committed != (situation.log is Log.COMMITTED) or situation.log is Log.OPEN:
        raise WrongError(f"{situation.state.phase.value} is told, but the log says {situation.log.value}")
    yield Event.RECORDED, Log.NOTHING


RESULTS = {
    Act.BEGIN: of_begin,
    Act.FLUSH: lambda s: ((event, s.log) for event in (*RESULTS_OF[Phase.FLUSHING], Event.FLUSHED_IN_CALLBACK)),
    Act.SERVE_CALLBACKS: lambda s: [(Event.SERVED, s.log)],
    Act.DECIDE: of_asking_the_gate,
    Act.COMMIT: of_commit,
    Act.RESOLVE_OUTCOME: of_asking_the_log,
    Act.ABORT: of_abort,
    Act.REBUILD: of_rebuild,
    Act.RECORD_COMMITTED: of_noting,
    Act.RECORD_ABORTED: of_noting,
    Act.COMMIT_STARTS: lambda s: [(Event.STARTS_COMMITTED, s.log), (BROKEN_OFF, Log.OPEN)],
}
"""What can come of each act, and what the log holds then; besides, each can be interrupted before it does anything."""


def asked_for(state: TransactionState) -> Iterator[Event]:
    """What may come between two calls."""
    if state.needs_resume:
        yield Event.RESUME
        return
    yield from (Event.END, Event.REVOKED, Event.ABORT, Event.REFUSED, Event.HANDLE_FINISHED)
    if not state.has_begun:
        yield from (Event.BEGIN, Event.COMMIT_STARTS)


def following(situation: Situation) -> Iterator[Situation]:
    """Every situation that may come next."""
    rests = situation.act in {Act.NOTHING, Act.RECORD_HELD}
    if rests and situation.outer is not None:
        yield from back_in_the_outer_step(situation)
        return
    if rests:
        for event in asked_for(situation.state):
            state, act = next_state(situation.state, event)
            yield replace(situation, state=state, act=act)
        return
    for result, log in [(BROKEN_OFF, situation.log), *RESULTS[situation.act](situation)]:
        if result is BROKEN_OFF:
            yield replace(situation, act=Act.NOTHING, log=log, outer=None)
        else:
            state, act = next_state(situation.state, result)
            yield replace(situation, state=state, act=act, log=log)
    if situation.state.phase in ENDING and situation.outer is None:
        for event in (Event.REVOKED, Event.ABORT):
            state, act = next_state(situation.state, event)
            yield Situation(state, act, situation.log, outer=situation.state.phase)


def back_in_the_outer_step(situation: Situation) -> Iterator[Situation]:
    """A callback has ended the transaction inside a step of the end, whose own result comes only now."""
    outer = situation.outer
    if situation.state.needs_resume or outer is None:  # the failure is raised, and the outer step breaks off
        yield replace(situation, outer=None)
        return
    for event in RESULTS_OF[outer]:
        state, act = next_state(situation.state, event)
        if (state, act) != (situation.state, Act.NOTHING):
            raise WrongError(f"{event.value!r} of a step that a callback has overtaken still does something: {act}")
    yield replace(situation, outer=None)


def explore() -> set[Situation]:
    """Every situation that can come about; raises WrongError for one that must not."""
    seen = {Situation()}
    waiting = [Situation()]
    while waiting:
        for situation in following(waiting.pop()):
            is_at_rest = situation.act is Act.NOTHING and situation.state.phase in NOTHING_SENT
            if is_at_rest and situation.state.has_begun != (situation.log is Log.OPEN):
                raise WrongError(f"has_begun is {situation.state.has_begun} while the log says {situation.log.value}")
            if situation not in seen:
                seen.add(situation)
                waiting.append(situation)
    return seen


def test_the_reported_outcome_is_true_for_every_answer_and_every_interruption():
    situations = explore()
    assert {situation.state.phase for situation in situations} == set(Phase) - {Phase.BROKEN}
    assert {situation.act for situation in situations} == set(Act)


MISTAKES: Mapping[str, Mapping[tuple[Phase, Event], Transition]] = {
    "an unanswered commit is aborted": {
        (Phase.COMMITTING, Event.UNANSWERED): Transition(Phase.ABORTING, Act.ABORT),
    },
    "a commit that was interrupted costs the handle only": {
        (Phase.COMMITTING, Event.RESUME): Transition(Phase.REBUILDING, Act.REBUILD),
    },
    "a commit that was interrupted begins again": {
        (Phase.COMMITTING, Event.RESUME): Transition(Phase.FLUSHING, Act.FLUSH),
    },
    "an unknown outcome counts as committed": {
        (Phase.COMMITTING, Event.UNANSWERED): Transition(Phase.COMMITTED, Act.RECORD_COMMITTED),
    },
    "a refused commit counts as aborted already": {
        (Phase.COMMITTING, Event.REFUSED): Transition(Phase.ABORTED, Act.RECORD_ABORTED),
    },
    "an abort that was interrupted is taken for done": {
        (Phase.ABORTING, Event.RESUME): Transition(Phase.ABORTED, Act.RECORD_ABORTED),
    },
    "a failed abort is taken for done": {
        (Phase.ABORTING, Event.HANDLE_FINISHED): Transition(Phase.ABORTED, Act.RECORD_ABORTED),
    },
    "a skip ends the transaction": {
        (Phase.DECIDING, Event.DECIDED_SKIP): Transition(Phase.IDLE),
    },
    "what a callback has ended is committed again": {
        (Phase.IDLE, Event.DECIDED_COMMIT): Transition(Phase.COMMITTING, Act.COMMIT),
    },
    "a transaction of offsets alone is never begun": {
        (Phase.DECIDING, Event.DECIDED_COMMIT_UNBEGUN): Transition(Phase.COMMITTING, Act.COMMIT),
    },
    "a begin that was interrupted is taken for none": {
        (Phase.BEGINNING, Event.RESUME): Transition(Phase.IDLE),
    },
    "starts whose commit was interrupted are taken for none": {
        (Phase.COMMITTING_STARTS, Event.RESUME): Transition(Phase.IDLE),
    },
}


@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES)
def test_the_exploration_finds_a_planted_mistake(mistake):
    with (
        mock.patch.object(transaction_lifecycle, "TRANSITIONS", {**TRANSITIONS, **mistake}),
        pytest.raises((WrongError, UnexpectedEventError)),
    ):
        explore()


def test_each_row_leads_where_it_says_and_an_absent_one_is_an_error_that_names_state_and_event():
    for phase, event in itertools.product(Phase, Event):
        if (phase, event) in TRANSITIONS:
            assert next_state(TransactionState(phase), event)[0].phase is TRANSITIONS[phase, event].to
        else:
            with pytest.raises(UnexpectedEventError, match=rf"is {phase.value} cannot meet '{event.value}'"):
                next_state(TransactionState(phase), event)


@pytest.mark.parametrize("phase", Phase)
def test_what_is_asked_of_a_phase_says_what_resume_does_there(phase):
    state, resumed = TransactionState(phase), TRANSITIONS.get((phase, Event.RESUME))
    assert state.needs_resume == (resumed is not None)
    assert state.needs_rebuild == (resumed is not None and resumed.act is Act.REBUILD)
    resolving = {Act.RESOLVE_OUTCOME, Act.RECORD_COMMITTED}
    assert state.outcome_is_pending == (resumed is not None and resumed.act in resolving)
    takes = {has_begun for has_begun in (False, True) if TransactionState(phase, has_begun).takes_outputs}
    assert takes == ({True} if phase in NOTHING_SENT else set())


@pytest.mark.parametrize("phase", OUTCOME_PENDING)
def test_nobody_can_ask_for_the_end_of_a_transaction_whose_outcome_is_open(phase):
    for event in (Event.BEGIN, Event.END, Event.REVOKED, Event.ABORT, Event.ABORT_FAILED, Event.COMMIT_STARTS):
        assert (phase, event) not in TRANSITIONS


def test_only_a_confirmation_or_the_log_leads_to_committed():
    leads = {event for (_, event), transition in TRANSITIONS.items() if transition.to is Phase.COMMITTED}
    assert leads - {Event.RESUME} == {Event.ANSWERED, Event.FOUND_COMMITTED}


@pytest.mark.parametrize("phase", [*NOTHING_SENT, *NEEDS_REBUILD, Phase.ABORTED])
def test_an_abort_that_fails_leaves_a_handle_that_is_replaced_first(phase):
    state, act = next_state(TransactionState(phase, has_begun=phase is Phase.OPEN), Event.ABORT_FAILED)
    assert (state, act) == (TransactionState(Phase.BROKEN), Act.NOTHING)
    assert next_state(state, Event.RESUME)[1] is Act.REBUILD


@pytest.mark.parametrize("phase", Phase)
def test_a_closed_client_leaves_nothing_open(phase):
    for has_begun in (False, True):
        state, act = next_state(TransactionState(phase, has_begun), Event.CLOSING)
        assert (state.has_begun, act) == (False, Act.NOTHING)
        assert state.phase is (Phase.BROKEN if phase in OUTCOME_PENDING else Phase.IDLE)


def test_a_handle_that_another_session_left_in_doubt_is_replaced_first():
    lifecycle = TransactionLifecycle(is_broken=True)
    assert lifecycle.state.needs_rebuild
    assert lifecycle.tell(Event.RESUME) is Act.REBUILD


@pytest.mark.parametrize(
    ("phase", "request_"),
    [
        (Phase.BEGINNING, TransactionalRequest.BEGIN),
        (Phase.BEGINNING_TO_COMMIT, TransactionalRequest.BEGIN),
        (Phase.COMMITTING, TransactionalRequest.COMMIT),
        (Phase.ABORTING, TransactionalRequest.ABORT),
        (Phase.REBUILDING, TransactionalRequest.INIT),
    ],
)
def test_an_interrupted_step_is_completed_as_the_recovery_table_says_of_its_request(phase, request_):
    action = recovery_for(ProducerFailure(request_, INTERRUPTED)).action
    performed = {RecoveryAction.RESOLVE_UNKNOWN: Act.RESOLVE_OUTCOME, RecoveryAction.REBUILD_PRODUCER: Act.REBUILD}
    assert next_state(TransactionState(phase), Event.RESUME)[1] is performed[action]


def test_a_held_transaction_stays_open_and_takes_more_work():
    lifecycle = TransactionLifecycle()
    for event in (Event.BEGIN, Event.BEGUN, Event.END, Event.FLUSHED, Event.SERVED, Event.DECIDED_SKIP):
        lifecycle.tell(event)
    assert lifecycle.state == TransactionState(Phase.HELD, has_begun=True)
    assert lifecycle.state.phase in AT_REST


def test_the_page_shows_the_table():
    assert diagram() in PAGE.read_text(encoding="utf-8"), "run python -m tests.core.lifecycle_diagram"
