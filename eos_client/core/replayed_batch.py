"""Compares a micro-batch that is run again with the rows that it held when its slots were committed.

The comparison comes before any slot is written: writing the remaining slots with rows of a different run of the query
would lose and duplicate records.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from eos_client.core.batch_ledger import LedgerEntry, SlotContent, joined, token_of
from eos_client.errors import BatchContentError

_NAMED_MAX = 5


@dataclass(frozen=True, slots=True)
class ReplayedBatch:
    """Batch ``batch_id`` with the ledger's ``entries`` by slot, as a starting query has found them.

    ``whole``: the content of all slots together, which may be known where the content of each is not.
    """

    batch_id: int
    entries: Mapping[int, LedgerEntry]
    whole: SlotContent | None = None

    @property
    def committed(self) -> list[int]:
        """The slots that have committed the batch."""
        return [slot for slot, entry in sorted(self.entries.items()) if entry.has_committed(self.batch_id)]

    @property
    def token(self) -> str:
        """The token that confirms ending this batch with its present rows; no other batch has the same token."""
        entries = [f"{slot} {self.entries[slot].encode()}" for slot in self.committed]
        return token_of(str(self.batch_id), repr(self.whole), *entries)

    def _other_slots(self, found: Mapping[int, SlotContent]) -> list[int]:
        """Return the committed slots whose rows differ now; all of them where only the whole can be compared."""
        known = {slot: self.entries[slot].content for slot in self.committed}
        other = [slot for slot, content in known.items() if content not in {None, found[slot]}]
        if not other and len(self.committed) == len(self.entries) and self.whole not in {None, joined(found.values())}:
            return self.committed
        return other

    def refusal(self, found: Mapping[int, SlotContent]) -> BatchContentError | None:
        """Return the error for different rows ``found``, by slot; None where they are the same."""
        if not (other := self._other_slots(found)):
            return None
        committed_slots = ", ".join(map(str, self.committed))
        rest = [slot for slot in self.entries if slot not in self.committed]
        now = sum(found[slot].rows for slot in rest)
        written = f", and slots {', '.join(map(str, rest))} write the {now} rows that they have now" if rest else ""
        return BatchContentError(
            f"batch {self.batch_id} was committed with other rows than this run of it has, in "
            f"{self._named(other, found)}. Nothing was written now. The query is not deterministic (rand(), uuid(), a "
            'changed source or lookup): make it so, or set stable_input="stage" for later batches. If this batch '
            f'cannot have its old rows back, start once with accept_batch="{self.token}": slots '
            f"{committed_slots} keep what they have committed{written}. Then a record of those slots that only this "
            "run has is lost, and one whose slot has changed is written twice."
        )

    def _named(self, other: Sequence[int], found: Mapping[int, SlotContent]) -> str:
        named = []
        for slot in other[:_NAMED_MAX]:
            content = self.entries[slot].content
            rows_then = "" if content is None else f"{content.rows} rows then, "
            named.append(f"slot {slot} ({rows_then}{found[slot].rows} rows now)")
        more = f" and {len(other) - _NAMED_MAX} more" if len(other) > _NAMED_MAX else ""
        return ", ".join(named) + more
