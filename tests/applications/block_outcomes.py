"""What a member's blocks have said of the records that were processed in them, at once or late."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

BROKEN_OFF = "an exception interrupted the end of the block"
"""The reason of a block whose outcome a later call of its clients finds out."""


@dataclass(frozen=True)
class _Untold:
    """A block that ended without an outcome; a later call of its clients may set one. ``attempts``: its records."""

    txn: Any
    attempts: list[int]
    swallowed: str


class BlockOutcomes:
    """The outcomes of one process's blocks: what is told goes to the oracle, and a skip waits for the next end."""

    def __init__(self, environment: Any) -> None:
        self._environment = environment
        self._held: list[int] = []
        self._untold: list[_Untold] = []

    def ended(self, txn: Any, outcome: str, opened: list[int], swallowed: str) -> None:
        """Take note of what the block says of its records; without an outcome nothing is said yet."""
        attempts, self._held = [*self._held, *opened], []
        if outcome:
            self._told(outcome, attempts, swallowed)
        else:
            self._untold.append(_Untold(txn, attempts, swallowed))

    def forget_held(self) -> None:
        """Expect nothing more of records whose blocks were skipped."""
        self._held = []

    def _told(self, outcome: str, attempts: list[int], swallowed: str) -> None:
        if outcome == "committed" and swallowed:
            self._environment.oracle.note("TOLD", f"a block was committed although {swallowed}")
        if outcome == "skipped":
            self._held = [*attempts, *self._held]
        else:
            self._environment.oracle.told(outcome, attempts)

    def hear_late(self) -> None:
        """Take note of outcomes that calls of the clients have set after the end of their blocks."""
        waiting, self._untold = self._untold, []
        for block in waiting:
            if block.txn.outcome is None:
                self._untold.append(block)
            else:
                self._environment.count(f"{block.txn.outcome.value} told late")
                self._told(block.txn.outcome.value, block.attempts, block.swallowed)

    def producer_closed(self) -> None:
        """Expect an outcome of each block now that the producer is closed, which aborts what the gate held."""
        self.hear_late()
        if self._held:
            self._environment.oracle.told("aborted", self._held)
        self._held = []
        for block in self._untold:
            if block.txn.reason.startswith(BROKEN_OFF):
                self._environment.oracle.note("UNTOLD", f"its producer is closed, and a block says: {block.txn.reason}")
