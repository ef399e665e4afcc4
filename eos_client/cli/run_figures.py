"""What a loop has done so far, for somebody who watches it: its events folded into one value, and snapshots of that."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from eos_client.core.model import InputPartition, Partitions
from eos_client.observe import (
    CommitSkipped,
    Event,
    LagMeasured,
    LoopStarted,
    PartitionsAssigned,
    PartitionsLost,
    PartitionsRevoked,
    RecordDeadLettered,
    RecordSkipped,
    TransactionAborted,
    TransactionCommitted,
)

_RATES = ("records_in", "records_out")


@dataclass(frozen=True, slots=True)
class Seen:
    """What the events of a loop have told. Each event makes a new value, so that any thread may read one.

    ``lag``: offsets that are not committed, of the partitions for which that is known. ``held_since_s``: since when the
    gate has kept the open transaction from its commit, None where it does not. ``last_abort``: the reason of it.
    """

    is_started: bool = False
    partitions: Partitions = frozenset()
    lag: Mapping[InputPartition, int] = field(default_factory=dict)
    held_since_s: float | None = None
    last_abort: str | None = None
    dead_letters: int = 0
    skipped_records: int = 0

    def after(self, event: Event, now_s: float) -> Seen:
        """Return what is known once ``event`` has happened, at ``now_s``."""
        return replace(self, **self._changes(event, now_s))

    def _changes(self, event: Event, now_s: float) -> dict[str, Any]:
        changes: dict[str, Any] = {}
        match event:
            case LoopStarted():
                changes = {"is_started": True}
            case PartitionsAssigned():
                changes = {"partitions": self.partitions | event.partitions}
            case PartitionsRevoked() | PartitionsLost():
                left = self.partitions - event.partitions
                changes = {"partitions": left, "lag": {each: n for each, n in self.lag.items() if each in left}}
            case LagMeasured():
                changes = {"lag": dict(event.records)}
            case CommitSkipped():
                changes = {"held_since_s": now_s - event.held_for_s}
            case TransactionCommitted():
                changes = {"held_since_s": None}
            case TransactionAborted():
                changes = {"held_since_s": None, "last_abort": event.reason}
            case RecordDeadLettered():
                changes = {"dead_letters": self.dead_letters + 1}
            case RecordSkipped():
                changes = {"skipped_records": self.skipped_records + 1}
        return changes


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A loop at one moment. ``totals`` are its counters; ``stop_reason``: why it stops, None while it runs.

    Two snapshots are equal if nothing but time has passed between them.
    """

    elapsed_s: float = field(compare=False)
    in_per_s: int = 0
    out_per_s: int = 0
    totals: Mapping[str, int]
    seen: Seen
    held_s: int | None = None
    stop_reason: str | None = None

    @property
    def lag_records(self) -> int | None:
        """The lag of all partitions together; None where that of no partition is known."""
        return sum(self.seen.lag.values()) if self.seen.lag else None

    def total(self, name: str) -> int:
        """Return the counter ``name``."""
        return self.totals.get(name, 0)

    def as_fields(self) -> dict[str, Any]:
        """Return what a program reads of it: rates, partitions, lag and hold where there is one, and all counters."""
        seen = self.seen
        known = {"lag_records": self.lag_records, "held_s": self.held_s}
        return {
            "records_in_per_s": self.in_per_s,
            "records_out_per_s": self.out_per_s,
            "partitions": len(seen.partitions),
            **{name: value for name, value in known.items() if value is not None},
            "dead_letters": seen.dead_letters,
            **self.totals,
        }

    def as_summary(self) -> dict[str, Any]:
        """Return what a program reads of a run that has ended."""
        return {"elapsed_s": round(self.elapsed_s, 3), "dead_letters": self.seen.dead_letters, **self.totals}


def rates_between(before: Mapping[str, int], now: Mapping[str, int], elapsed_s: float) -> tuple[int, int]:
    """Return the records in and out a second between two readings of the counters."""
    read, written = (round((now.get(each, 0) - before.get(each, 0)) / max(elapsed_s, 1e-3)) for each in _RATES)
    return read, written
