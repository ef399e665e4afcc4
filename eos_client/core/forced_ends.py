"""Decides how open work ends where the application did not ask for its end: in a rebalance, and when it closes.

One transaction cannot be split, so what happens to one of its partitions happens to all of it.
"""

from __future__ import annotations

from enum import Enum

import msgspec

from eos_client.core.transaction_lifecycle import TransactionState


class ForcedEnd(Enum):
    """What is done with the open work."""

    NONE = "none"
    """Nothing: there is none, or it ends by itself."""
    RESUME = "resume"
    """The step that was interrupted is completed: it finds out what became of a commit."""
    COMMIT = "commit"
    ABORT = "abort"
    LEAVE_UNKNOWN = "leave unknown"
    """The outcome of a commit can no longer be resolved, and is reported as unknown."""


class WorkFacts(msgspec.Struct, frozen=True, gc=False):
    """What is true of a session's work at that moment."""

    transaction: TransactionState
    has_records: bool
    """Records were handed over that are not committed; in a rebalance: of the partitions that leave."""
    is_unprocessed: bool = False
    """More outputs may follow for what was handed over or written."""
    in_block: bool = False
    """A block is open."""
    is_leaving_block: bool = False
    """A block that was left does not know its outcome yet."""
    is_held: bool = False
    """The gate has skipped a commit of it."""
    is_abort_unfinished: bool = False
    """An abort has failed or was interrupted, and is not counted yet."""
    is_closing: bool = False
    """The session takes no further work."""

    @property
    def has_begun(self) -> bool:
        """Whether a block or a transaction is open, or work is held: records outside of that have no outputs yet."""
        return self.in_block or self.is_held or self.transaction.has_begun

    @property
    def counts_as_aborted(self) -> bool:
        """Whether an abort that ends it is counted: it has work, or an earlier abort was not counted."""
        has_work = self.transaction.has_begun or self.has_records
        return self.is_abort_unfinished or (has_work and not self.is_closing)


def end_at_revocation(work: WorkFacts) -> ForcedEnd:
    """Decide inside the callback that revokes partitions.

    Processed work is committed, because the next owner would process it again (KAFKA-19779). Records that were taken
    outside a block have no outputs yet, and stay uncommitted.
    """
    if (standing := _end_without_choice(work)) is not None:
        return standing
    if not work.is_unprocessed:
        return ForcedEnd.COMMIT
    return ForcedEnd.ABORT if work.has_begun else ForcedEnd.NONE


def end_after_failed_callback(work: WorkFacts) -> ForcedEnd:
    """Decide after the application's own revoke callback has failed: nobody knows what it has left undone."""
    standing = _end_without_choice(work)
    return ForcedEnd.ABORT if standing is None else standing


def _end_without_choice(work: WorkFacts) -> ForcedEnd | None:
    """Return what is done where nothing is to be chosen; an abort that was interrupted ends in its own step."""
    if not work.has_records or work.is_closing:
        return ForcedEnd.NONE
    if not work.transaction.needs_resume:
        return None
    return ForcedEnd.NONE if work.transaction.needs_rebuild else ForcedEnd.RESUME


def end_at_departure(work: WorkFacts) -> ForcedEnd:
    """Decide when partitions have left with records that were not committed before."""
    is_lost = work.has_records and work.has_begun and not work.transaction.outcome_is_pending
    return ForcedEnd.ABORT if is_lost else ForcedEnd.NONE


def end_at_close(work: WorkFacts) -> ForcedEnd:
    """Decide when the producer is closed: it can neither commit nor find out any more."""
    if work.transaction.outcome_is_pending:
        return ForcedEnd.LEAVE_UNKNOWN
    is_open = work.in_block or work.transaction.has_begun or work.transaction.needs_resume
    is_aborted = work.is_leaving_block or (is_open and work.counts_as_aborted)
    return ForcedEnd.ABORT if is_aborted else ForcedEnd.NONE
