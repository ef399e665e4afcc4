"""What is true of a producer's handle and of its open transaction, as one immutable value.

Theory of operation. `next_state` is the only way `ProducerState` changes, and the adapter replaces its state by one
assignment. An asynchronous exception may strike anywhere. So the state shows a call whose repetition could do harm
*before* it is made (`HandlePhase.CALLING`), and shows so until the call's outcome is recorded: whoever finds that phase
knows that the call was interrupted, and that nothing shows what it has done.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

from eos_client import errors
from eos_client.core.model import UnexpectedEventError
from eos_client.core.producer_recovery import ProducerFailure, TransactionalRequest

_FINISHING = (
    errors.RebuildProducerError,
    errors.UnknownOutcomeError,
    errors.ProducerFencedError,
    errors.FatalClientError,
)
"""The errors after which the handle takes no more calls."""


class HandlePhase(Enum):
    """Which calls the handle takes."""

    USABLE = "usable"
    """Every call."""
    CALLING = "calling"
    """None: a call is under way, or was interrupted before its outcome was recorded."""
    UNREGISTERED = "unregistered"
    """Those that need no transaction: ``init_transactions`` comes next."""
    ABANDONED = "abandoned"
    """Those that need no transaction, until the handle is destroyed: ``init_transactions`` builds another one."""
    SUSPECT = "suspect"
    """None: all is confirmed, but a late copy of a request could end the next transaction (KAFKA-17754)."""
    FINISHED = "finished"
    """None, after the error in ``why_unusable``: unless the producer is over, ``init_transactions`` builds another."""


_SERVING = frozenset({HandlePhase.UNREGISTERED, HandlePhase.ABANDONED})
_NOT_INITIALISED_AGAIN = frozenset(
    {HandlePhase.CALLING, HandlePhase.ABANDONED, HandlePhase.SUSPECT, HandlePhase.FINISHED}
)


class OpenTransaction(NamedTuple):
    """A transaction that has begun and whose end is not recorded."""

    began_at_s: float
    failure: errors.AbortableError | None = None
    """The first error after which it can only be aborted."""
    commit_may_take_effect: bool = False
    """A commit was sent and not refused."""
    losses_before_offsets: int | None = None
    """How many connections had been lost when its first offsets were sent; None before that."""
    by_pattern_alone: Mapping[str, bool] = {}
    """For each topic whose offsets were sent last, whether only a pattern has matched it."""


class ProducerState(NamedTuple):
    """``why_unusable``: the error of a call that the handle does not take; None while it takes every call."""

    phase: HandlePhase = HandlePhase.USABLE
    why_unusable: errors.EosError | None = None
    is_initialised: bool = False
    """``init_transactions`` of this handle has succeeded."""
    transaction: OpenTransaction | None = None
    offsets_carry_fence: bool = False
    """The transactions carry offsets that a group's membership fences (KIP-447)."""
    losses_before_call: int = 0
    """How many connections had been lost when the last call began."""
    last_failure: ProducerFailure | None = None
    """The last failed call since the last commit."""

    @property
    def refuses_serving(self) -> bool:
        """Whether the handle refuses even calls that need no transaction."""
        return self.why_unusable is not None and self.phase not in _SERVING

    @property
    def may_initialise(self) -> bool:
        """Whether ``init_transactions`` goes on with this handle: another one would ask for another epoch (KIP-360)."""
        return not self.is_initialised and self.phase not in _NOT_INITIALISED_AGAIN

    @property
    def is_in_transaction(self) -> bool:
        """Whether a transaction has begun whose end is not recorded, even if this handle cannot end it."""
        return self.transaction is not None

    @property
    def can_end_transaction(self) -> bool:
        """Whether this handle could still commit or abort the transaction that has begun."""
        return self.transaction is not None and self.phase is HandlePhase.USABLE

    @property
    def may_have_ended(self) -> bool:
        """Whether the transaction that has begun may have been ended, whatever the last call has raised.

        True after an asynchronous exception while the end was under way, or between the end and the return.
        """
        return self.transaction is None or self.phase is HandlePhase.CALLING

    @property
    def commit_took_no_effect(self) -> bool:
        """Whether for certain no commit of the open transaction was sent, or all that were sent were refused."""
        transaction = self.transaction
        return not self.may_have_ended and transaction is not None and not transaction.commit_may_take_effect

    @property
    def transaction_failure(self) -> errors.AbortableError | errors.RebuildProducerError | None:
        """The error after which the open transaction can only be aborted, kept until the abort.

        If the handle must be rebuilt first, also the reason why no transaction can be begun.
        """
        if isinstance(self.why_unusable, errors.RebuildProducerError):
            return self.why_unusable
        return None if self.transaction is None else self.transaction.failure

    @property
    def is_over(self) -> bool:
        """Whether no other handle may follow: the producer was closed, or a newer instance has its id."""
        return isinstance(self.why_unusable, (errors.ClientClosedError, errors.ProducerFencedError))


@dataclass(frozen=True, slots=True)
class CallBegins:
    """``request`` is about to be made; ``interruption`` is the error that holds if it is interrupted."""

    request: TransactionalRequest
    interruption: errors.EosError
    losses: int


@dataclass(frozen=True, slots=True)
class InitBegins:
    """``init_transactions`` is about to be requested; repeating it does no harm."""

    losses: int


@dataclass(frozen=True, slots=True)
class OffsetsFollow:
    """Offsets of these topics are about to be sent."""

    losses: int
    by_pattern_alone: Mapping[str, bool] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CallAnswered:
    """The call under way has returned, and changes nothing else."""


@dataclass(frozen=True, slots=True)
class CallFailed:
    """``request`` has failed with ``error``.

    ``failure``: as the recovery table sees it; None for an error that has its name already.
    """

    request: TransactionalRequest
    error: errors.EosError
    failure: ProducerFailure | None = None

    @property
    def commit_took_no_effect(self) -> bool:
        """Whether no commit can have taken effect."""
        if self.failure is None:
            return not isinstance(self.error, errors.UnknownOutcomeError)
        return self.failure.commit_took_no_effect


@dataclass(frozen=True, slots=True)
class MustAbort:
    """The transaction cannot be committed, for a reason of our own."""

    error: errors.AbortableError


@dataclass(frozen=True, slots=True)
class Registered:
    """``init_transactions`` has succeeded."""


@dataclass(frozen=True, slots=True)
class Began:
    """A transaction has begun."""

    at_s: float


@dataclass(frozen=True, slots=True)
class Ended:
    """``request`` has ended the transaction."""

    request: TransactionalRequest


@dataclass(frozen=True, slots=True)
class OffsetsCarryFence:
    """From now on the transactions carry offsets that a group's membership fences."""


@dataclass(frozen=True, slots=True)
class HandleSuspected:
    """The handle has ended its transaction, and may have sent a request twice."""

    why: errors.EosError


@dataclass(frozen=True, slots=True)
class HandleUnregistered:
    """The handle needs ``init_transactions`` before its next transaction."""

    why: errors.EosError


@dataclass(frozen=True, slots=True)
class HandleAbandoned:
    """The handle is abandoned; its transaction counts as open until the next one is built."""

    why: errors.EosError


@dataclass(frozen=True, slots=True)
class ReplacementBegins:
    """Another handle is about to be built: its ``init_transactions`` ends the transaction of this one (KIP-360)."""

    why: errors.EosError


@dataclass(frozen=True, slots=True)
class HandleBuilt:
    """The next handle is there."""


@dataclass(frozen=True, slots=True)
class HandleFinished:
    """The handle takes no more calls."""

    why: errors.EosError


ProducerEvent = (
    CallBegins
    | InitBegins
    | OffsetsFollow
    | CallAnswered
    | CallFailed
    | MustAbort
    | Registered
    | Began
    | Ended
    | OffsetsCarryFence
    | HandleSuspected
    | HandleUnregistered
    | HandleAbandoned
    | ReplacementBegins
    | HandleBuilt
    | HandleFinished
)


def next_state(state: ProducerState, event: ProducerEvent) -> ProducerState:
    """Return the state after ``event``. Pure; every change of a producer's state is a case here."""
    change = _CHANGES.get(type(event))
    if change is None:
        raise UnexpectedEventError(f"{event!r} is not an event of a producer")
    after = change(state, event)
    if isinstance(state.why_unusable, errors.ClientClosedError):  # for good, whatever a call that is under way says
        return after._replace(phase=state.phase, why_unusable=state.why_unusable)
    return after


def _call_begins(state: ProducerState, event: CallBegins) -> ProducerState:
    state = state._replace(phase=HandlePhase.CALLING, why_unusable=event.interruption, losses_before_call=event.losses)
    if event.request is TransactionalRequest.COMMIT:
        return _with_transaction(state, commit_may_take_effect=True)
    return state


def _offsets_follow(state: ProducerState, event: OffsetsFollow) -> ProducerState:
    if state.transaction is None:  # the client library refuses the call
        return state
    before = state.transaction.losses_before_offsets
    losses = event.losses if before is None else before
    return _with_transaction(state, losses_before_offsets=losses, by_pattern_alone=event.by_pattern_alone)


def _answered(state: ProducerState) -> ProducerState:
    if state.phase is not HandlePhase.CALLING:
        return state
    return state._replace(phase=HandlePhase.USABLE, why_unusable=None)


def _call_failed(state: ProducerState, event: CallFailed) -> ProducerState:
    state = _answered(state)
    if event.failure is not None:
        state = state._replace(last_failure=event.failure)
    if event.request is TransactionalRequest.COMMIT and event.commit_took_no_effect:
        state = _with_transaction(state, commit_may_take_effect=False)
    is_finished = event.failure is not None and event.failure.finishes_handle
    if is_finished or isinstance(event.error, _FINISHING):
        return _finished(state, event.error)
    if isinstance(event.error, errors.AbortableError):
        return _must_abort(state, MustAbort(event.error))
    if isinstance(event.error, errors.ClusterUnfitError) and event.request is not TransactionalRequest.PRODUCE:
        # librdkafka fails the transaction itself, and repeats this reason in each later call. A refused produce() is
        # the exception: librdkafka would still commit, so the reason to abort stays.
        return _with_transaction(state, failure=None)
    return state


def _must_abort(state: ProducerState, event: MustAbort) -> ProducerState:
    known = state.transaction and state.transaction.failure
    return _with_transaction(state, failure=known or event.error)


def _began(state: ProducerState, event: Began) -> ProducerState:
    return _answered(state)._replace(transaction=OpenTransaction(event.at_s))


def _ended(state: ProducerState, event: Ended) -> ProducerState:
    state = _answered(state)._replace(transaction=None)
    return state._replace(last_failure=None) if event.request is TransactionalRequest.COMMIT else state


def _finished(state: ProducerState, why: errors.EosError) -> ProducerState:
    return state._replace(phase=HandlePhase.FINISHED, why_unusable=why)


def _abandoned(state: ProducerState, event: HandleAbandoned | ReplacementBegins) -> ProducerState:
    return state._replace(phase=HandlePhase.ABANDONED, why_unusable=event.why, is_initialised=False)


def _built(state: ProducerState, _: HandleBuilt) -> ProducerState:
    return state._replace(phase=HandlePhase.UNREGISTERED) if state.phase is HandlePhase.ABANDONED else state


def _with_transaction(state: ProducerState, **changes: Any) -> ProducerState:
    if state.transaction is None:
        return state
    return state._replace(transaction=state.transaction._replace(**changes))


_CHANGES: Mapping[type, Callable[[ProducerState, Any], ProducerState]] = {
    CallBegins: _call_begins,
    InitBegins: lambda state, event: state._replace(losses_before_call=event.losses),
    OffsetsFollow: _offsets_follow,
    CallAnswered: lambda state, _: _answered(state),
    CallFailed: _call_failed,
    MustAbort: _must_abort,
    Registered: lambda state, _: state._replace(phase=HandlePhase.USABLE, why_unusable=None, is_initialised=True),
    Began: _began,
    Ended: _ended,
    OffsetsCarryFence: lambda state, _: state._replace(offsets_carry_fence=True),
    HandleSuspected: lambda state, event: state._replace(phase=HandlePhase.SUSPECT, why_unusable=event.why),
    HandleUnregistered: lambda state, event: state._replace(phase=HandlePhase.UNREGISTERED, why_unusable=event.why),
    HandleAbandoned: _abandoned,
    ReplacementBegins: lambda state, event: _abandoned(state, event)._replace(transaction=None),
    HandleBuilt: _built,
    HandleFinished: lambda state, event: _finished(state, event.why),
}
