"""Shows the demo: a live table on a terminal, plain lines elsewhere, and the closing tables."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from eos_client.cli.demo.verdict import Check, Verdict
from eos_client.cli.demo.worker import Worker
from eos_client.cli.demo_spark.verdict import StreamVerdict

if TYPE_CHECKING:
    from typing_extensions import Self

_PLAIN_INTERVAL_S = 2.0
_RECENT_NOTES_MAX = 6


@dataclass
class Progress:
    """How far the run is, in records."""

    total: int
    loaded: int = 0
    committed: int = 0


@dataclass
class Display:
    """What the demo shows while it runs. ``emit`` shows an event, ``refresh`` the present state."""

    console: Console
    workers: Sequence[Worker]
    progress: Progress
    notes: list[tuple[float, str]] = field(default_factory=list)
    _started_at: float = field(default_factory=time.monotonic)
    _shown_at: float = 0.0
    _live: Live | None = None

    def __enter__(self) -> Self:
        if self.console.is_terminal:
            self._live = Live(console=self.console, refresh_per_second=8, transient=True)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    @property
    def elapsed_s(self) -> float:
        """Seconds since the demo began."""
        return time.monotonic() - self._started_at

    def emit(self, text: str) -> None:
        """Show an event that happened now; the closing table repeats it."""
        self.notes.append((self.elapsed_s, text))
        if self._live is None:
            self.console.print(f"{self.elapsed_s:5.1f} s  {text}", highlight=False, soft_wrap=True)
        self.refresh()

    def refresh(self) -> None:
        """Show the present state: at once on a terminal, every two seconds elsewhere."""
        if self._live is not None:
            self._live.update(self._screen())
        elif self.progress.loaded and time.monotonic() - self._shown_at >= _PLAIN_INTERVAL_S:
            self._shown_at = time.monotonic()
            self.console.print(f"{self.elapsed_s:5.1f} s    {self._state_line()}", highlight=False, soft_wrap=True)

    def _state_line(self) -> str:
        rate = sum(worker.tally.records_per_s for worker in self.workers)
        progress = self.progress
        parts = [
            f"{progress.committed:,} of {progress.total:,} committed ({progress.loaded:,} loaded), {rate:,} records/s"
        ]
        for worker in self.workers:
            if worker.tally.lives:
                tally = worker.tally
                parts.append(
                    f"{worker.name} {worker.state} gen {tally.generation_id} owns {tally.partitions}: "
                    f"{tally.committed} committed, {tally.skipped} skipped, {tally.aborted} aborted"
                )
        return " | ".join(parts)

    def _screen(self) -> RenderableType:
        progress = self.progress
        notes = deque(self.notes, maxlen=_RECENT_NOTES_MAX)
        return Group(
            Text(f"{self.elapsed_s:5.1f} s   loaded {progress.loaded:,}   committed {progress.committed:,}"),
            ProgressBar(total=progress.total, completed=progress.committed, width=min(self.console.width, 88)),
            workers_table(self.workers),
            *(Text(f"{at:5.1f} s  {text}", style="dim") for at, text in notes),
        )


def workers_table(workers: Sequence[Worker]) -> Table:
    """Return what each worker is and has done, with totals."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 0, 0, 1))
    table.add_column("worker")
    table.add_column("state")
    for heading in ("gen", "owns", "records", "rec/s", "commits", "skips", "aborts", "rebal.", "starts"):
        table.add_column(heading, justify="right")
    for worker in workers:
        tally = worker.tally
        table.add_row(
            worker.name,
            worker.state,
            str(tally.generation_id) if tally.generation_id > 0 else "",
            str(tally.partitions),
            *(f"{figure:,}" for figure in _counts(worker)),
        )
    table.add_section()
    totals = [sum(column) for column in zip(*map(_counts, workers), strict=True)]
    table.add_row("all", "", "", "", *(f"{figure:,}" for figure in totals), style="bold")
    return table


def _counts(worker: Worker) -> tuple[int, ...]:
    tally = worker.tally
    return (
        tally.records_in,
        tally.records_per_s,
        tally.committed,
        tally.skipped,
        tally.aborted,
        tally.rebalances,
        tally.lives,
    )


def show_outcome(
    display: Display, verdict: Verdict, worker_complaints: Sequence[str], end_to_end: StreamVerdict | None = None
) -> bool:
    """Print what happened, who did what, and the verdict; return whether all of it is as promised."""
    stopped = "; ".join(worker_complaints) or "exit status 0 on SIGTERM"
    checks = [*verdict.checks, ("workers stopped cleanly", not worker_complaints, stopped)]
    examples = list(verdict.findings.examples)
    if end_to_end is not None:
        checks += end_to_end.checks
        examples += end_to_end.findings.examples
    return show_verdict(display, checks, verdict.hidden, examples, verdict.findings.inputs)


def show_verdict(
    display: Display, checks: Sequence[Check], hidden: int, examples: Sequence[str], records: int, given_up: str = ""
) -> bool:
    """Print what happened, who did what, and ``checks``; return whether all of them hold and nothing was given up."""
    console = display.console
    happened = Table("when", "what happened", box=box.SIMPLE_HEAD, pad_edge=False)
    for at, text in display.notes:
        happened.add_row(f"{at:.1f} s", text)
    console.print(happened)
    if display.workers:
        console.print(workers_table(display.workers))
    told = Table("verdict", "", "read back from the cluster", box=box.SIMPLE_HEAD, pad_edge=False)
    for claim, holds, figures in checks:
        told.add_row(claim, Text("yes", style="green") if holds else Text("NO", style="bold red"), figures)
    console.print(told)
    console.print(
        f"{hidden:,} more outputs are in the log, of aborted transactions: no read_committed reader sees them.",
        *(f"  {example}" for example in examples),
        sep="\n",
        highlight=False,
    )
    passed = not given_up and all(holds for _claim, holds, _figures in checks)
    summary = f"{'EXACTLY ONCE' if passed else 'NOT EXACTLY ONCE'}: {records:,} records"
    console.print(Text(f"{summary} in {display.elapsed_s:.0f} s", style="bold green" if passed else "bold red"))
    return passed
