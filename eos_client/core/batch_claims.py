"""A sink's ledger in the database that it writes to: which driver may write, and which attempt has committed.

Theory of operation. Each slot has a row with its `LedgerEntry`, and one more row is the batch-complete marker. A driver
that starts *claims* all rows of its sink in one database transaction, which raises their run number. A task writes its
rows and moves its slot's row in one transaction, and only if the row still shows the task's run and the entry that the
task has read. So a task of an older driver, and the slower of two attempts at one slot, commit nothing: the row is the
one order in which all of them stand, whatever they know of each other. Nobody holds a lock while rows are written; the
row is locked from its move to the end of the transaction.

What may be written is decided as in Kafka (`batch_ledger`, `batch_ledger_start`). The run number takes the place of the
lease and of the producer's epoch. A COMMIT without an answer is looked up in the row: it shows the attempt's token.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum

from eos_client import errors
from eos_client.core.batch_ledger import LedgerEntry
from eos_client.core.batch_ledger_start import StartPlan, StartQuestion, marker_of, plan_start
from eos_client.core.ledger_words import DATABASE_WORDS


@dataclass(frozen=True, slots=True)
class SlotRow:
    """What the row of a slot, or of the marker, shows.

    ``attempt``: the token of the transaction that has moved it last. ``owner``: the driver that has claimed it, for
    people who read the table.
    """

    entry: LedgerEntry
    attempt: str = ""
    owner: str = ""


@dataclass(frozen=True, slots=True)
class Claim:
    """The rows that a claim leaves, and the plan that they follow from.

    The plan's entries name no run: what is derived from them, such as the token of a batch, must fit the next claim.
    """

    run: int
    marker: SlotRow
    slots: Mapping[int, SlotRow]
    plan: StartPlan


def plan_claim(
    question: StartQuestion, found: Mapping[int, SlotRow], marker: SlotRow | None, owner: str, *, held_run: int | None
) -> Claim:
    """Return what all rows show once they are claimed; ``found`` by slot.

    ``held_run``: a driver that takes up its work again after an error names its run, and takes nothing from a newer
    one; None for a driver that starts. Raises RunFencedError, and the BatchLedgerError of a refusal.
    """
    marker_entry = None if marker is None else marker.entry
    if held_run is not None:
        check_run(marker_entry, held_run)
    entries = {slot: row.entry for slot, row in found.items()}
    plan = plan_start(replace(question, entries=entries, marker=marker_entry), words=DATABASE_WORDS)
    known = [entry.run for entry in (*entries.values(), *([] if marker_entry is None else [marker_entry]))]
    if question.record is not None:
        known.append(question.record.run)
    run = 1 + max(known, default=0)
    if plan.commits:
        whole = min(entry.next_batch for entry in plan.entries.values())
        claimed = LedgerEntry(whole, question.identity, plan.content, run)
    else:
        claimed = marker_of(marker_entry, question.identity, run)
    moved = {**{slot: row.entry for slot, row in found.items()}, **plan.commits}
    slots = {
        # An attempt's token stays with what it has committed: whoever looks for it may look after the claim.
        slot: SlotRow(
            replace(entry, run=run), found[slot].attempt if slot in found and slot not in plan.commits else "", owner
        )
        for slot, entry in moved.items()
    }
    unclaimed = {slot: replace(entry, run=0) for slot, entry in plan.entries.items()}
    return Claim(run, SlotRow(claimed, owner=owner), slots, replace(plan, entries=unclaimed))


def check_run(found: LedgerEntry | None, run: int) -> None:
    """Raise unless ``found`` was claimed by ``run``: RunFencedError for a newer one's, LedgerRegressionError else."""
    if found is not None and found.run > run:
        raise errors.RunFencedError(f"run {found.run} has taken over from run {run}. Let this query end.")
    if found is None or found.run < run:
        raise errors.LedgerRegressionError(
            f"the ledger does not know run {run}, which has claimed it: {DATABASE_WORDS.went_back}, or the database "
            "has failed over to a server that lacks its last transactions. Find out why, then start the query again."
        )


class MoveOutcome(Enum):
    """What became of an attempt whose move was not confirmed."""

    COMMITTED = "committed"
    COMMITTED_ELSEWHERE = "committed_elsewhere"
    """Another attempt at the same slot and batch has committed it."""
    NOT_COMMITTED = "not_committed"


def outcome_of(found: SlotRow | None, batch_id: int, attempt: str) -> MoveOutcome:
    """Return what the row, which no transaction holds any more, shows of ``attempt`` at ``batch_id``."""
    if found is None or not found.entry.has_committed(batch_id):
        return MoveOutcome.NOT_COMMITTED
    return MoveOutcome.COMMITTED if found.attempt == attempt else MoveOutcome.COMMITTED_ELSEWHERE
