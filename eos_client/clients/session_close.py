"""What becomes of a session's open work when one of its clients is closed.

Once the producer is closed nothing can be rebuilt, and once the consumer is, no outcome can be read. So what is open is
aborted before, and a commit whose outcome is unknown stays so, and is told as that.
"""

from __future__ import annotations

from contextlib import suppress

from eos_client.clients.step_state import Ending
from eos_client.clients.transaction_session import TransactionSession
from eos_client.core.forced_ends import ForcedEnd, end_at_close
from eos_client.core.model import Outcome, record_count
from eos_client.core.transaction_lifecycle import TransactionEvent
from eos_client.errors import EosError
from eos_client.observe import TransactionAborted


def abort_before_close(session: TransactionSession, reason: str) -> None:
    """Abort before both clients are closed, without a rebuild or a rewind.

    A commit whose outcome is unknown is not aborted. Raises what the abort raised; then the coordinator's time-out, or
    the next instance, ends the transaction.
    """
    session.begin_closing()
    session.finish_recording()
    if session.state.outcome_is_pending:
        _leave_unknown(session, reason)
    elif session.state.has_begun:
        try:
            session.call_guard.run_transaction_step(lambda: _abort_for_good(session))
        finally:
            _count_aborted(session, reason, record_count(session.consumer.positions))


def prepare_consumer_close(session: TransactionSession) -> None:
    """Record that the consumer is about to be closed: no outcome can be read by it any more."""
    session.finish_recording()
    session.leave_interrupted_block()
    if session.state.outcome_is_pending:
        _leave_unknown(session, "the consumer was closed")
        session.begin_closing()
        session.tell(TransactionEvent.CLOSING)
    else:
        # An EosError is reported to the block; what a callback has raised waits, because the group is left first.
        with suppress(EosError), session.producer.library.callback_errors.deferred(until_later=True):
            session.resolve_left_block()


def prepare_producer_close(session: TransactionSession) -> None:
    """Record that the producer is about to be closed: no outcome can be resolved with it any more."""
    session.end_service()
    session.finish_recording()
    session.leave_interrupted_block()
    session.finish_leaving()
    work = session.facts()
    match end_at_close(work):
        case ForcedEnd.LEAVE_UNKNOWN:
            _leave_unknown(session, "the producer was closed")
        case ForcedEnd.ABORT:
            if session.consumer.has_unprocessed_records and not (work.in_block or work.is_leaving_block):
                session.fail_next_block("the producer was closed while records of the next block were handed over")
            _abort_and_rewind(session, _why_aborted(session), is_counted=work.counts_as_aborted)


def _why_aborted(session: TransactionSession) -> str:
    if session.block.leaving is not None:
        return f"{session.block.leaving.reason}, and the producer was closed"
    if session.block.is_open:
        return "the producer was closed inside its block"
    held = "the gate held the transaction" if session.state.has_begun else "an abort was not finished"
    return f"the producer was closed while {held}"


def _abort_and_rewind(session: TransactionSession, reason: str, *, is_counted: bool) -> None:
    """Let the records come again, and abort; what an application's callback raises meanwhile changes nothing."""
    records_in = record_count(session.consumer.positions or session.steps.rewound)
    session.rewind(inside_revoke=True)
    try:
        session.call_guard.run_transaction_step(lambda: _abort_for_good(session))
    except EosError as error:
        reason = f"{reason}, and the coordinator aborts it when its time is over: {error}"
    finally:
        session.endings.record(Ending(Outcome.ABORTED, reason))
        if is_counted:
            _count_aborted(session, reason, records_in)


def _count_aborted(session: TransactionSession, reason: str, records_in: int) -> None:
    session.endings.count_aborted(TransactionAborted(reason=reason, rule=None, records_in=records_in))


def _abort_for_good(session: TransactionSession) -> None:
    """Abort what is open, if anything, with no handle left to be replaced; raises what the abort raised."""
    has_begun = session.state.has_begun
    session.tell(TransactionEvent.CLOSING)
    if has_begun:
        session.producer.abort_transaction(keeps_handle=True)


def _leave_unknown(session: TransactionSession, reason: str) -> None:
    if not session.steps.is_left_unknown:
        why = session.steps.why_unknown(session.state.phase)
        session.endings.emit_left_unknown(f"{why} That stays unknown: {reason}")
        session.steps.leave_unknown()  # last: the next close repeats what an exception has interrupted
