"""Reports a loop's progress: a live view on a terminal, else a short line at each interval, or fields for a program.

The loop's thread owns the Kafka clients. This one reads counters and remembers events; it never calls a client.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Protocol

import structlog
from rich.console import Console

from eos_client.cli.live_screen import LiveScreen
from eos_client.cli.logs import LogFormat
from eos_client.cli.run_figures import Seen, Snapshot, rates_between
from eos_client.cli.run_words import plain_line, screen, stopping_line, summary_line
from eos_client.loop.until_end import READ_TO_THE_END
from eos_client.observe import Counters, Event, EventHook, log_event

_TICK_S = 0.1
_PLAIN_INTERVAL_S = {LogFormat.CONSOLE: 10.0, LogFormat.JSON: 1.0}
_LIVE_INTERVAL_S = 1.0


Line = tuple[str, Mapping[str, object]]
"""A line of the log: its event and its fields."""


@dataclass(frozen=True)
class LogWords:
    """How the log tells of a loop."""

    report: Callable[[Snapshot], Line]
    """Makes the line at each interval in which something has changed."""
    stopping: Callable[[str], Line]
    """Makes the line that names the signal that has asked the loop to end, and says how to end it at once."""
    ended: Callable[[Snapshot], Line]
    """Makes the line about the whole run."""


FOR_A_PROGRAM = LogWords(
    report=lambda now: ("loop_progress", now.as_fields()),
    stopping=lambda reason: (
        "loop_stopping",
        {"reason": reason, "advice": "a second signal ends the process at once"},
    ),
    ended=lambda now: ("job_done" if now.stop_reason == READ_TO_THE_END else "loop_summary", now.as_summary()),
)
"""Fields. A loop that has ended by itself, at the end of the input, has ``job_done`` as its last line."""

FOR_A_PERSON = LogWords(
    report=lambda now: (plain_line(now), {}),
    stopping=lambda reason: (stopping_line(reason), {}),
    ended=lambda now: (summary_line(now, is_done=now.stop_reason == READ_TO_THE_END), {}),
)
"""The same in short sentences."""


class LiveView:
    """A view on a terminal, which stays in place below the lines of the log, and replaces the reports."""

    def __init__(self, console: Console, title: str) -> None:
        self.screen = LiveScreen(console)
        self._title = title

    def show(self, now: Snapshot) -> None:
        """Show what is the case."""
        self.screen.show(screen(now, self._title))


def _log(line: Line) -> None:
    event, fields = line
    structlog.get_logger("eos_client").info(event, **fields)


class Watched(Protocol):
    """What is read of a loop that is watched, or of a relay."""

    @property
    def stop_reason(self) -> str | None:
        """Why it has been asked to end, None while it has not."""
        ...

    @property
    def counters(self) -> Counters:
        """Its totals."""
        ...


class LoopProgress:
    """An event hook that also reports the loop's progress, from a thread of its own.

    Give it to the loop as ``hook``, and run the loop inside of `watch`.

    :param interval_s: seconds between two reports.
    :param forward: the hook that gets every event after this one.
    :param words: how the log tells of it.
    :param view: what shows the progress several times a second, in place of the reports.
    """

    def __init__(
        self,
        interval_s: float,
        *,
        forward: EventHook = log_event,
        words: LogWords = FOR_A_PROGRAM,
        view: LiveView | None = None,
    ) -> None:
        self._interval_s = interval_s
        self._forward = forward
        self._words = words
        self._view = view
        self._seen = Seen()
        self._began_at = time.monotonic()
        self._stopped = threading.Event()

    def __call__(self, event: Event) -> None:
        """Take note of ``event``, then pass it on."""
        self._seen = self._seen.after(event, time.monotonic())
        self._forward(event)

    @contextmanager
    def watch(self, loop: Watched) -> Iterator[None]:
        """Report how ``loop`` gets on, until the block is left."""
        self._loop = loop
        self._began_at = time.monotonic()
        thread = threading.Thread(target=self._report, name="loop-progress", daemon=True)
        try:
            with nullcontext() if self._view is None else self._view.screen:
                thread.start()
                try:
                    yield
                finally:
                    self._stopped.set()
                    thread.join()
        finally:
            if self._seen.is_started:
                _log(self._words.ended(self._snapshot(self._loop.counters.as_dict(), (0, 0))))

    def _report(self) -> None:
        before, at = self._loop.counters.as_dict(), time.monotonic()
        rates, reported, is_stopping = (0, 0), self._snapshot(before, (0, 0)), False
        running = True
        while running:
            running = not self._stopped.wait(min(_TICK_S, self._interval_s))
            if running and not is_stopping and (reason := self._loop.stop_reason) is not None:
                is_stopping = True
                self._tell_stop(reason)
            counted = self._loop.counters.as_dict()
            if not running or time.monotonic() - at >= self._interval_s:
                rates = rates_between(before, counted, time.monotonic() - at)
                now = self._snapshot(counted, rates)
                # An idle loop has nothing to report after the report that it is idle, nor one that has only ended.
                is_news = now != reported and (running or (counted != before and not self._seen.is_started))
                if is_news and self._view is None:
                    _log(self._words.report(now))
                before, at, reported = counted, time.monotonic(), now
            if self._view is not None:
                self._view.show(self._snapshot(counted, rates))

    def _tell_stop(self, reason: str) -> None:
        if reason in signal.Signals.__members__:  # and no error, whose transaction is aborted already
            _log(self._words.stopping(reason))

    def _snapshot(self, totals: Mapping[str, int], rates: tuple[int, int]) -> Snapshot:
        now_s, seen = time.monotonic(), self._seen
        return Snapshot(
            elapsed_s=now_s - self._began_at,
            in_per_s=rates[0],
            out_per_s=rates[1],
            totals=totals,
            seen=seen,
            held_s=None if seen.held_since_s is None else round(now_s - seen.held_since_s),
            stop_reason=self._loop.stop_reason,
        )


def progress_of(title: str, log_format: LogFormat, interval_s: float | None, *, quiet: bool) -> LoopProgress:
    """Return the progress of the loop that ``title`` names, for whoever reads stderr.

    :param interval_s: seconds between two reports; None: 10, 1 for a program.
    :param quiet: nothing is shown in place. Reports are no warnings, so that a quiet log leaves them out by itself.
    """
    plain_s = interval_s or _PLAIN_INTERVAL_S[log_format]
    if log_format is LogFormat.JSON:
        return LoopProgress(plain_s)
    console = Console(stderr=True)
    if quiet or not sys.stderr.isatty() or console.is_dumb_terminal:
        return LoopProgress(plain_s, words=FOR_A_PERSON)
    return LoopProgress(_LIVE_INTERVAL_S, words=FOR_A_PERSON, view=LiveView(console, title))
