"""Writes a ``loop_progress`` log line at each interval in which something changed, for a person or a parent process.

The loop's thread owns the Kafka clients. This one reads counters and remembers events; it never calls a client.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import structlog

from eos_client.core.model import InputPartition
from eos_client.observe import Event, EventHook, PartitionsAssigned, PartitionsLost, PartitionsRevoked, log_event


class LoopProgress:
    """An event hook that also reports the loop's progress, from a thread of its own.

    Give it to the loop as ``hook``, and run the loop inside of `watch`.

    :param interval_s: seconds between two reports.
    :param forward: the hook that gets every event after this one.
    """

    def __init__(self, interval_s: float, *, forward: EventHook = log_event) -> None:
        self._interval_s = interval_s
        self._forward = forward
        self._partitions: frozenset[InputPartition] = frozenset()
        self._stopped = threading.Event()

    def __call__(self, event: Event) -> None:
        """Update the assignment from ``event``, then pass it on."""
        if isinstance(event, PartitionsAssigned):
            self._partitions |= event.partitions
        elif isinstance(event, PartitionsRevoked | PartitionsLost):
            self._partitions -= event.partitions
        self._forward(event)

    @contextmanager
    def watch(self, counters: Callable[[], Mapping[str, int]]) -> Iterator[None]:
        """Report the totals that ``counters()`` returns, until the block is left."""
        thread = threading.Thread(target=self._report, args=(counters,), name="loop-progress", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._stopped.set()
            thread.join()

    def _report(self, counters: Callable[[], Mapping[str, int]]) -> None:
        before, at = dict(counters()), time.monotonic()
        reported = self._report_on(before, before, self._interval_s)
        running = True
        while running:
            running = not self._stopped.wait(self._interval_s)
            now, elapsed_s = dict(counters()), time.monotonic() - at
            report = self._report_on(before, now, elapsed_s)
            # An idle loop has nothing to report after the report that it is idle, nor one that has only ended.
            if report != reported and (running or now != before):
                structlog.get_logger("eos_client").info("loop_progress", **report)
            before, at, reported = now, time.monotonic(), report

    def _report_on(self, before: Mapping[str, int], now: Mapping[str, int], elapsed_s: float) -> dict[str, Any]:
        rates = {
            f"{name}_per_s": round((now.get(name, 0) - before.get(name, 0)) / max(elapsed_s, 1e-3))
            for name in ("records_in", "records_out")
        }
        return {**rates, "partitions": len(self._partitions), **now}
