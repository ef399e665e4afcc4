"""Shows the demo: a live table on a terminal, plain lines elsewhere, and the closing tables."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from eos_client.cli.demo.verdict import Verdict
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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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
            *_figures(worker),
        )
    table.add_section()
    totals = [sum(column) for column in zip(*map(_counts, workers), strict=True)]
    table.add_row("all", "", "", "", *(f"{figure:,}" for figure in totals), style="bold")
    return table


def _figures(worker: Worker) -> list[str]:
    return [f"{figure:,}" for figure in _counts(worker)]


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
    console: Console,
    display: Display,
    verdict: Verdict,
    worker_complaints: Sequence[str],
    end_to_end: StreamVerdict | None = None,
) -> bool:
    """Print what happened, who did what, and the verdict; return whether all of it is as promised."""
    happened = Table("when", "what happened", box=box.SIMPLE_HEAD, pad_edge=False)
    for at, text in display.notes:
        happened.add_row(f"{at:.1f} s", text)
    console.print(happened)
    console.print(workers_table(display.workers))
    stopped = "; ".join(worker_complaints) or "exit status 0 on SIGTERM"
    checks = Table("verdict", "", "read back from the cluster", box=box.SIMPLE_HEAD, pad_edge=False)
    of_spark = () if end_to_end is None else end_to_end.checks
    clean_stop = ("workers stopped cleanly", not worker_complaints, stopped)
    for claim, holds, figures in (*verdict.checks, clean_stop, *of_spark):
        checks.add_row(claim, _mark(holds), figures)
    console.print(checks)
    console.print(
        f"{verdict.hidden:,} more outputs are in the log, of aborted transactions: no read_committed reader sees them.",
        *(f"  {example}" for example in verdict.findings.examples),
        *(f"  {example}" for example in (() if end_to_end is None else end_to_end.findings.examples)),
        sep="\n",
        highlight=False,
    )
    passed = verdict.is_exactly_once and not worker_complaints and all(holds for _claim, holds, _figures in of_spark)
    summary = f"{'EXACTLY ONCE' if passed else 'NOT EXACTLY ONCE'}: {verdict.findings.inputs:,} records"
    style = "bold green" if passed else "bold red"
    console.print(Text(f"{summary} in {display.elapsed_s:.0f} s", style=style))
    return passed


def _mark(holds: bool) -> Text:
    return Text("yes", style="green") if holds else Text("NO", style="bold red")
