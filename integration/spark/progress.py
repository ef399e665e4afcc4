"""The sink's progress for the application: totals since the query started, and the last batch."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from eos_client.integration.spark.status import SlotOutcome, SlotStatus
from eos_client.observe import SparkBatchWritten

_DONE_ELSEWHERE = frozenset({SlotOutcome.SKIPPED, SlotOutcome.SIBLING_DONE})
_COUNTED = ("rows", "slots_written", "slots_skipped", "handles_started", "tasks_repeated", "commits_resolved")


class StepClock:
    """Seconds by step, summed over repeated attempts."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._at = time.perf_counter()

    def lap(self, step: str) -> None:
        """Count the time since the last lap, or the beginning, as spent on ``step``."""
        now = time.perf_counter()
        self.seconds[step] = round(self.seconds.get(step, 0.0) + now - self._at, 6)
        self._at = now


@dataclass(slots=True)
class SinkProgress:
    """Totals of one run of the sink; `SparkBatchWritten` has the same of each batch. ``seconds``: by step.

    ``leases_renewed``: how often the driver has taken its lease again.
    """

    sink_id: str
    query_id: str
    last_batch_id: int = -1
    batches: int = 0
    rows: int = 0
    slots_written: int = 0
    slots_skipped: int = 0
    handles_started: int = 0
    tasks_repeated: int = 0
    commits_resolved: int = 0
    leases_renewed: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    last: SparkBatchWritten | None = None

    def count(self, batch_id: int, statuses: Sequence[SlotStatus], seconds: dict[str, float]) -> SparkBatchWritten:
        """Count a whole batch; returns its event."""
        skipped = sum(s.outcome in _DONE_ELSEWHERE for s in statuses)
        longest: dict[str, float] = {}
        for status in statuses:
            for step, spent_s in status.seconds.items():
                longest[f"task_{step}"] = max(longest.get(f"task_{step}", 0.0), spent_s)
        event = SparkBatchWritten(
            sink_id=self.sink_id,
            batch_id=batch_id,
            rows=sum(s.rows for s in statuses),
            slots_written=len(statuses) - skipped,
            slots_skipped=skipped,
            handles_started=sum(not s.reused for s in statuses),
            tasks_repeated=sum(s.repeated for s in statuses),
            commits_resolved=sum(s.resolved for s in statuses),
            duration_s=round(sum(seconds.values()), 6),
            seconds={**seconds, **longest},
        )
        self.last_batch_id = batch_id
        self.batches += 1
        for name in _COUNTED:
            setattr(self, name, getattr(self, name) + getattr(event, name))
        for step, spent_s in event.seconds.items():
            self.seconds[step] = self.seconds.get(step, 0.0) + spent_s
        self.last = event
        return event

    def as_dict(self) -> dict[str, Any]:
        """Return all totals by name."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name != "last"}
