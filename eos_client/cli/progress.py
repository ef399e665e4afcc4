"""Writes a ``loop_progress`` log line at each interval in which something changed, for a person or a parent process.

The loop's thread owns the Kafka clients. This one reads counters and remembers events; it never calls a client.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import structlog

from eos_client.core.model import InputPartition
from eos_client.observe import Event, EventHook, PartitionsAssigned, PartitionsLost, PartitionsRevoked, log_event

if TYPE_CHECKING:
    from typing_extensions import Self


class LoopProgress:
    """An event hook that also reports the loop's progress, from a thread of its own.

    Give it to the loop as ``hook`` and use it as a context manager around ``run()``.

    :param interval_s: seconds between two reports.
    :param forward: the hook that gets every event after this one.
    """

    def __init__(self, interval_s: float, *, forward: EventHook = log_event) -> None:
        self._interval_s = interval_s
        self._forward = forward
        self._partitions: frozenset[InputPartition] = frozenset()
        self._counters: Callable[[], Mapping[str, int]] = dict
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._report_until_stopped, name="loop-progress", daemon=True)

    def __call__(self, event: Event) -> None:
        """Update the assignment from ``event``, then pass it on."""
        if isinstance(event, PartitionsAssigned):
            self._partitions |= event.partitions
        elif isinstance(event, PartitionsRevoked | PartitionsLost):
            self._partitions -= event.partitions
        self._forward(event)

    def watch(self, counters: Callable[[], Mapping[str, int]]) -> Self:
        """Take the totals from ``counters()``; return self, so that ``with progress.watch(...)`` reads well."""
        self._counters = counters
        return self

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()

    def _report_until_stopped(self) -> None:
        before, at = dict(self._counters()), time.monotonic()
        reported = self._report_on(before, before, self._interval_s)
        running = True
        while running:
            running = not self._stopped.wait(self._interval_s)
            now, elapsed_s = dict(self._counters()), time.monotonic() - at
            report = self._report_on(before, now, elapsed_s)
            # An idle loop has nothing to report after the report that it is idle, nor one that has only ended.
            if report != reported and (running or now != before):
                structlog.get_logger("eos_client").info("loop_progress", **report)
            before, at, reported = now, time.monotonic(), report

    def _report_on(self, before: Mapping[str, int], now: Mapping[str, int], elapsed_s: float) -> dict[str, Any]:
        return {
            "records_in_per_s": _rate("records_in", before, now, elapsed_s),
            "records_out_per_s": _rate("records_out", before, now, elapsed_s),
            "partitions": len(self._partitions),
            **now,
        }


def _rate(name: str, before: Mapping[str, int], now: Mapping[str, int], elapsed_s: float) -> int:
    return round((now.get(name, 0) - before.get(name, 0)) / max(elapsed_s, 1e-3))
