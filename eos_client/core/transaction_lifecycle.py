"""The life of a transaction as a table: what may happen next, and what is done about it.

Theory of operation. A transaction of ours is ended by several parties. The application begins it, writes and ends it;
a rebalance callback may come inside nearly every step of that and ends it first; an exception of a signal handler may
interrupt any step between two bytecodes. So the state always names the step that is under way, and it changes *before*
the step is performed. An interrupted step needs no notice of its own: the state still names it, and ``RESUME`` says how
it is completed. An end that was interrupted before anything was sent begins again. After a commit was sent, only its
answer or the group's offsets show its outcome (KAFKA-17754). Every other interrupted step requires a new handle: its
``init_transactions`` aborts whatever is open (KIP-360). ``RECOVERY_RULES`` has a row for the interrupted call itself,
which names the error of the handle; ``RESUME`` performs the action of that row.

``TRANSITIONS`` is the whole table, ``TransactionLifecycle.tell`` the only way the state changes, and an absent row is
an error. The act in a row is what ``clients/transaction_session.py`` performs next; most acts end in another event.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from eos_client.core.model import UnexpectedEventError


class Phase(Enum):
    """The step that is under way, or where the transaction rests between two calls."""

    IDLE = "idle"
    """No transaction has begun. Records may have been handed over."""
    BEGINNING = "beginning"
    OPEN = "open"
    """The transaction takes outputs."""
    HELD = "held"
    """The gate has skipped the last attempt to commit; more work may be added."""
    FLUSHING = "flushing"
    """The outputs are being delivered."""
    SERVING = "serving"
    """Rebalance callbacks that are due are being served."""
    DECIDING = "deciding"
    """The gate is being asked."""
    BEGINNING_TO_COMMIT = "beginning to commit"
    """Nothing was written: the transaction begins only now, to carry the input offsets."""
    COMMITTING = "committing"
    """The input offsets and the commit are being sent."""
    UNKNOWN = "unknown"
    """The commit was not answered; the group's committed offsets are being read."""
    COMMITTED = "committed"
    """The commit is confirmed; the outcome is being recorded."""
    ABORTING = "aborting"
    REBUILDING = "rebuilding"
    """Another handle is being initialised, which aborts whatever was open."""
    ABORTED = "aborted"
    """Nothing of the transaction is left in the log; the consumer is being rewound."""
    COMMITTING_STARTS = "committing starts"
    """A transaction of its own commits the start offsets of newly assigned partitions."""
    BROKEN = "broken"
    """The transaction was given up, and the handle has to be replaced before it is used again."""


class TransactionEvent(Enum):
    """What has happened, or what the application or a rebalance asks for."""

    BEGIN = "begin"
    BEGUN = "begun"
    NOT_BEGUN = "not begun"
    END = "end"
    """The application asks for the end; everything handed over is processed."""
    REVOKED = "revoked"
    """A revocation asks for the end, from inside its callback."""
    FLUSHED = "flushed"
    FLUSHED_IN_CALLBACK = "flushed in callback"
    """Inside a revoke callback no other callback can be served."""
    NOT_FLUSHED = "not flushed"
    NOT_FLUSHED_BY_HANDLE = "not flushed by handle"
    """The outputs cannot be delivered by this handle any more."""
    SERVED = "served"
    DECIDED_COMMIT = "decided commit"
    DECIDED_COMMIT_UNBEGUN = "decided commit, not begun"
    DECIDED_SKIP = "decided skip"
    DECIDED_ABORT = "decided abort"
    ANSWERED = "answered"
    """The coordinator has confirmed the commit."""
    UNANSWERED = "unanswered"
    REFUSED = "refused"
    """The commit was refused for sure, or an output was: the transaction can only be aborted."""
    HANDLE_FINISHED = "handle finished"
    """The handle is of no use any more, and no commit was sent, or it was refused for sure (KIP-360)."""
    NOT_SENT = "not sent"
    """The commit was not sent, or was refused for sure, for a reason that an abort does not fix."""
    FOUND_COMMITTED = "found committed"
    FOUND_ABORTED = "found aborted"
    NOT_FOUND = "not found"
    """The offsets cannot show the outcome, because all of them are another client's."""
    ABORT = "abort"
    """The application, a revocation or a loss asks for the abort."""
    ABORT_CONFIRMED = "abort confirmed"
    REBUILT = "rebuilt"
    RECORDED = "recorded"
    """The end was recorded, and reported to the block that waits for it."""
    ABORT_FAILED = "abort failed"
    COMMIT_STARTS = "commit starts"
    STARTS_COMMITTED = "starts committed"
    CLOSING = "closing"
    """A client is being closed: nothing is begun by it any more, and there is no handle left to be replaced."""
    RESUME = "resume"
    """A step was interrupted: complete it."""


class Act(Enum):
    """What the session performs next. NOTHING: the transition is complete."""

    NOTHING = "nothing"
    BEGIN = "begin_transaction"
    FLUSH = "flush the outputs"
    SERVE_CALLBACKS = "serve callbacks"
    DECIDE = "let the gate decide"
    COMMIT = "send offsets and commit"
    RESOLVE_OUTCOME = "rebuild, then read the outcome"
    ABORT = "abort_transaction"
    REBUILD = "rebuild the producer"
    RECORD_COMMITTED = "record the commit"
    RECORD_ABORTED = "rewind and record the abort"
    RECORD_HELD = "record and report the skip"
    COMMIT_STARTS = "commit the start offsets"


@dataclass(frozen=True, slots=True)
class Transition:
    """One row: where an event leads, and what is done there."""

    to: Phase
    act: Act = Act.NOTHING


AT_REST = (Phase.IDLE, Phase.OPEN, Phase.HELD)
ENDING = (Phase.FLUSHING, Phase.SERVING, Phase.DECIDING)
"""The end has begun and nothing was sent: an end that is interrupted here is begun again, or ended by a revocation."""
NOTHING_SENT = (*AT_REST, *ENDING)
OUTCOME_PENDING = (Phase.COMMITTING, Phase.UNKNOWN, Phase.COMMITTED)
"""A commit may have taken effect, and its outcome is not recorded yet."""
NEEDS_REBUILD = (
    Phase.BEGINNING,
    Phase.BEGINNING_TO_COMMIT,
    Phase.ABORTING,
    Phase.REBUILDING,
    Phase.COMMITTING_STARTS,
    Phase.BROKEN,
)
"""If the step was interrupted or has failed, only another handle ends the transaction for certain."""


@dataclass(frozen=True, slots=True)
class TransactionState:
    """``has_begun``: whether the producer has an open transaction, as far as this side knows."""

    phase: Phase = Phase.IDLE
    has_begun: bool = False

    @property
    def takes_outputs(self) -> bool:
        """Whether a transaction is open, and nothing of its end was sent."""
        return self.has_begun and self.phase in NOTHING_SENT

    @property
    def needs_resume(self) -> bool:
        """Whether a step is under way; between two calls, it was interrupted or has failed, and RESUME comes first."""
        return self.phase not in NOTHING_SENT

    @property
    def needs_rebuild(self) -> bool:
        """Whether RESUME has to replace the handle."""
        return self.phase in NEEDS_REBUILD

    @property
    def outcome_is_pending(self) -> bool:
        """Whether RESUME has to find out, or to record, what became of a commit."""
        return self.phase in OUTCOME_PENDING


_BEGUN = {Phase.OPEN: True, Phase.COMMITTING: True}
_BEGUN_OR_NOT = (Phase.HELD, *ENDING, Phase.ABORTING)


_Rows = dict[tuple[Phase, TransactionEvent], Transition]


def _rows(phases: Iterable[Phase], event: TransactionEvent, to: Phase, act: Act = Act.NOTHING) -> _Rows:
    return {(phase, event): Transition(to, act) for phase in phases}


def _ended_meanwhile(*events: TransactionEvent) -> _Rows:
    """Return rows for results that are out of date: a callback inside the step has ended the transaction."""
    return {(phase, event): Transition(phase) for phase in AT_REST for event in events}


TRANSITIONS: Mapping[tuple[Phase, TransactionEvent], Transition] = {
    **_rows((Phase.IDLE, Phase.HELD, *ENDING), TransactionEvent.BEGIN, Phase.BEGINNING, Act.BEGIN),
    (Phase.BEGINNING, TransactionEvent.BEGUN): Transition(Phase.OPEN),
    (Phase.BEGINNING, TransactionEvent.NOT_BEGUN): Transition(Phase.IDLE),
    # The end: flush, serve callbacks, ask the gate, commit (KAFKA-19779). A revocation commits in its callback.
    **_rows(NOTHING_SENT, TransactionEvent.END, Phase.FLUSHING, Act.FLUSH),
    **_rows(NOTHING_SENT, TransactionEvent.REVOKED, Phase.FLUSHING, Act.FLUSH),
    (Phase.FLUSHING, TransactionEvent.FLUSHED): Transition(Phase.SERVING, Act.SERVE_CALLBACKS),
    (Phase.FLUSHING, TransactionEvent.FLUSHED_IN_CALLBACK): Transition(Phase.DECIDING, Act.DECIDE),
    (Phase.FLUSHING, TransactionEvent.NOT_FLUSHED): Transition(Phase.ABORTING, Act.ABORT),
    (Phase.FLUSHING, TransactionEvent.NOT_FLUSHED_BY_HANDLE): Transition(Phase.REBUILDING, Act.REBUILD),
    (Phase.SERVING, TransactionEvent.SERVED): Transition(Phase.DECIDING, Act.DECIDE),
    (Phase.DECIDING, TransactionEvent.DECIDED_COMMIT): Transition(Phase.COMMITTING, Act.COMMIT),
    (Phase.DECIDING, TransactionEvent.DECIDED_COMMIT_UNBEGUN): Transition(Phase.BEGINNING_TO_COMMIT, Act.BEGIN),
    (Phase.DECIDING, TransactionEvent.DECIDED_SKIP): Transition(Phase.HELD, Act.RECORD_HELD),
    (Phase.DECIDING, TransactionEvent.DECIDED_ABORT): Transition(Phase.ABORTING, Act.ABORT),
    **_ended_meanwhile(
        TransactionEvent.FLUSHED,
        TransactionEvent.NOT_FLUSHED,
        TransactionEvent.NOT_FLUSHED_BY_HANDLE,
        TransactionEvent.SERVED,
        TransactionEvent.DECIDED_COMMIT,
        TransactionEvent.DECIDED_COMMIT_UNBEGUN,
        TransactionEvent.DECIDED_SKIP,
        TransactionEvent.DECIDED_ABORT,
    ),
    (Phase.BEGINNING_TO_COMMIT, TransactionEvent.BEGUN): Transition(Phase.COMMITTING, Act.COMMIT),
    (Phase.BEGINNING_TO_COMMIT, TransactionEvent.NOT_BEGUN): Transition(Phase.IDLE),
    # The answer to a commit. Without one it may still take effect: never abort, read the outcome (KAFKA-17754).
    (Phase.COMMITTING, TransactionEvent.ANSWERED): Transition(Phase.COMMITTED, Act.RECORD_COMMITTED),
    (Phase.COMMITTING, TransactionEvent.UNANSWERED): Transition(Phase.UNKNOWN, Act.RESOLVE_OUTCOME),
    (Phase.COMMITTING, TransactionEvent.REFUSED): Transition(Phase.ABORTING, Act.ABORT),
    (Phase.COMMITTING, TransactionEvent.HANDLE_FINISHED): Transition(Phase.REBUILDING, Act.REBUILD),
    (Phase.COMMITTING, TransactionEvent.NOT_SENT): Transition(Phase.OPEN),
    (Phase.UNKNOWN, TransactionEvent.FOUND_COMMITTED): Transition(Phase.COMMITTED, Act.RECORD_COMMITTED),
    (Phase.UNKNOWN, TransactionEvent.FOUND_ABORTED): Transition(Phase.ABORTED, Act.RECORD_ABORTED),
    (Phase.UNKNOWN, TransactionEvent.NOT_FOUND): Transition(Phase.IDLE),
    (Phase.COMMITTED, TransactionEvent.RECORDED): Transition(Phase.IDLE),
    # The abort. A loss never commits. A failed abort costs the handle, because its transaction stays open (KIP-360).
    **_rows(NOTHING_SENT, TransactionEvent.ABORT, Phase.ABORTING, Act.ABORT),
    **_rows(NOTHING_SENT, TransactionEvent.REFUSED, Phase.ABORTING, Act.ABORT),
    **_rows(NOTHING_SENT, TransactionEvent.HANDLE_FINISHED, Phase.REBUILDING, Act.REBUILD),
    (Phase.ABORTING, TransactionEvent.ABORT_CONFIRMED): Transition(Phase.ABORTED, Act.RECORD_ABORTED),
    (Phase.ABORTING, TransactionEvent.HANDLE_FINISHED): Transition(Phase.REBUILDING, Act.REBUILD),
    (Phase.REBUILDING, TransactionEvent.REBUILT): Transition(Phase.ABORTED, Act.RECORD_ABORTED),
    (Phase.ABORTED, TransactionEvent.RECORDED): Transition(Phase.IDLE),
    # Start offsets are committed in a transaction of their own, so never while another one is open.
    **_rows(
        (Phase.IDLE, Phase.HELD, *ENDING), TransactionEvent.COMMIT_STARTS, Phase.COMMITTING_STARTS, Act.COMMIT_STARTS
    ),
    (Phase.COMMITTING_STARTS, TransactionEvent.STARTS_COMMITTED): Transition(Phase.IDLE),
    # Interrupted and failed steps, and work that is given up.
    **_rows(NEEDS_REBUILD, TransactionEvent.RESUME, Phase.REBUILDING, Act.REBUILD),
    **_rows((Phase.COMMITTING, Phase.UNKNOWN), TransactionEvent.RESUME, Phase.UNKNOWN, Act.RESOLVE_OUTCOME),
    (Phase.COMMITTED, TransactionEvent.RESUME): Transition(Phase.COMMITTED, Act.RECORD_COMMITTED),
    (Phase.ABORTED, TransactionEvent.RESUME): Transition(Phase.ABORTED, Act.RECORD_ABORTED),
    **_rows((*NOTHING_SENT, *NEEDS_REBUILD, Phase.ABORTED), TransactionEvent.ABORT_FAILED, Phase.BROKEN),
    **_rows((*NOTHING_SENT, *NEEDS_REBUILD, Phase.ABORTED), TransactionEvent.CLOSING, Phase.IDLE),
    **_rows(OUTCOME_PENDING, TransactionEvent.CLOSING, Phase.BROKEN),
}


def next_state(state: TransactionState, event: TransactionEvent) -> tuple[TransactionState, Act]:
    """Return the state after ``event`` and what is to be performed there. Raises UnexpectedEventError."""
    transition = TRANSITIONS.get((state.phase, event))
    if transition is None:
        raise UnexpectedEventError(f"a transaction that is {state.phase.value} cannot meet {event.value!r}")
    carried = state.has_begun and transition.to in _BEGUN_OR_NOT
    return TransactionState(transition.to, _BEGUN.get(transition.to, carried)), transition.act


class TransactionLifecycle:
    """The state of one session's transaction. ``tell`` is the only way that it changes."""

    def __init__(self, *, is_broken: bool = False) -> None:
        """``is_broken``: another session has left a step of the handle unfinished."""
        self.state = TransactionState(Phase.BROKEN if is_broken else Phase.IDLE)

    def tell(self, event: TransactionEvent) -> Act:
        """Apply ``event``; returns the act to perform next."""
        self.state, act = next_state(self.state, event)
        return act
