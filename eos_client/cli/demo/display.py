"""Shows the demo: a live table on a terminal, plain lines elsewhere, and the closing tables."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console, Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from eos_client.cli.demo.verdict import Check, Findings
from eos_client.cli.demo.worker import Worker
from eos_client.cli.live_screen import LiveScreen, figures_table
from eos_client.errors import EosError

if TYPE_CHECKING:
    from typing_extensions import Self

_PLAIN_INTERVAL_S = 2.0
_RECENT_NOTES_MAX = 6
_TICK_S = 0.05
_STALL_LIMIT_S = 240.0  # Spark starts, perhaps on a machine with other things to do


class StalledError(EosError):
    """The workers, or the stream, make no progress."""


@dataclass
class Display:
    """What the demo shows while it runs: how far it is, in records, what has happened, and what the workers do.

    Use it as a context manager. A StalledError ends the run, which is shown as given up.
    """

    console: Console
    workers: Sequence[Worker]
    total: int
    loaded: int = 0
    committed: int = 0
    read_by_spark: int = 0
    notes: list[tuple[float, str]] = field(default_factory=list)
    given_up: bool = False
    _started_at: float = field(default_factory=time.monotonic)
    _shown_at: float = 0.0
    _screen: LiveScreen = field(init=False)

    def __post_init__(self) -> None:
        self._screen = LiveScreen(self.console)

    def __enter__(self) -> Self:
        self._screen.__enter__()
        return self

    def __exit__(self, _kind: object, error: object, _traceback: object) -> bool:
        self._screen.__exit__()
        if not isinstance(error, StalledError):
            return False
        self.given_up = True
        self.emit(f"given up: {error}")
        return True

    def until(self, reached: Callable[[], bool], look: Callable[[], None]) -> None:
        """Call ``look`` and refresh until ``reached`` returns True; raises StalledError when there is no progress."""
        moved_at, before = time.monotonic(), (self.committed, self.read_by_spark)
        while not reached():
            time.sleep(_TICK_S)
            look()
            self.refresh()
            if before != (now := (self.committed, self.read_by_spark)):
                moved_at, before = time.monotonic(), now
            elif time.monotonic() - moved_at > _STALL_LIMIT_S:
                raise StalledError(f"nothing moved for {_STALL_LIMIT_S:g} s at {self.committed:,} records")

    @property
    def elapsed_s(self) -> float:
        """Seconds since the demo began."""
        return time.monotonic() - self._started_at

    def emit(self, text: str) -> None:
        """Show an event that happened now; the closing table repeats it."""
        self.notes.append((self.elapsed_s, text))
        if not self._screen.is_live:
            self.console.print(Text(f"{self.elapsed_s:5.1f} s  {text}"), soft_wrap=True)
        self.refresh()

    def refresh(self) -> None:
        """Show the present state: at once on a terminal, every two seconds elsewhere."""
        if self._screen.is_live:
            self._screen.show(self._picture())
        elif self.loaded and time.monotonic() - self._shown_at >= _PLAIN_INTERVAL_S:
            self._shown_at = time.monotonic()
            self.console.print(Text(f"{self.elapsed_s:5.1f} s    {self._state_line()}"), soft_wrap=True)

    def _state_line(self) -> str:
        rate = sum(worker.records_per_s for worker in self.workers)
        parts = [f"{self.committed:,} of {self.total:,} committed ({self.loaded:,} loaded), {rate:,} records/s"]
        parts += [
            f"{worker.name} {worker.state} gen {worker.generation_id} owns {worker.partitions}: "
            f"{worker.committed} committed, {worker.skipped} skipped, {worker.aborted} aborted"
            for worker in self.workers
            if worker.lives
        ]
        return " | ".join(parts)

    def _picture(self) -> RenderableType:
        return Group(
            Text(f"{self.elapsed_s:5.1f} s   loaded {self.loaded:,}   committed {self.committed:,}"),
            ProgressBar(total=self.total, completed=self.committed, width=min(self.console.width, 88)),
            workers_table(self.workers),
            *(Text(f"{at:5.1f} s  {text}", style="dim") for at, text in self.notes[-_RECENT_NOTES_MAX:]),
        )

    def show_verdict(self, checks: Sequence[Check], *audited: Findings, source: str = "the cluster") -> bool:
        """Print what happened, who did what, and ``checks``; return whether all of them hold and nothing was given up.

        :param audited: what was found in each output; the first one's figures are those of the demo.
        :param source: what the figures were read from.
        """
        print_ = self.console.print
        happened = Table("when", "what happened", box=box.SIMPLE_HEAD, pad_edge=False)
        for at, text in self.notes:
            happened.add_row(f"{at:.1f} s", Text(text))
        print_(happened)
        if self.workers:
            print_(workers_table(self.workers))
        verdict = Table("verdict", "", f"read back from {source}", box=box.SIMPLE_HEAD, pad_edge=False)
        for claim, holds, figures in checks:
            verdict.add_row(claim, Text("yes", style="green") if holds else Text("NO", style="bold red"), Text(figures))
        print_(verdict)
        lines = [f"  {example}" for findings in audited for example in findings.examples]
        if audited[0].hidden is not None:
            hidden = f"{audited[0].hidden:,} more outputs are in the log, of aborted transactions"
            lines.insert(0, f"{hidden}: no read_committed reader sees them.")
        print_(Text("\n".join(lines)))
        passed = not self.given_up and all(holds for _claim, holds, _figures in checks)
        summary = f"{'EXACTLY ONCE' if passed else 'NOT EXACTLY ONCE'}: {audited[0].inputs:,} records"
        print_(Text(f"{summary} in {self.elapsed_s:.0f} s", style="bold green" if passed else "bold red"))
        return passed


def workers_table(workers: Sequence[Worker]) -> Table:
    """Return what each worker is and has done, with totals."""
    headings = ("gen", "owns", "records", "rec/s", "commits", "skips", "aborts", "rebal.", "starts")
    table = figures_table("worker", "state", figures=headings)
    table.padding = (0, 0)  # or 80 columns would not hold it
    counts = [
        (w.records_in, w.records_per_s, w.committed, w.skipped, w.aborted, w.rebalances, w.lives) for w in workers
    ]
    for worker, counted in zip(workers, counts, strict=True):
        generation = str(worker.generation_id) if worker.generation_id > 0 else ""
        table.add_row(worker.name, worker.state, generation, str(worker.partitions), *(f"{n:,}" for n in counted))
    table.add_section()
    table.add_row("all", "", "", "", *(f"{sum(column):,}" for column in zip(*counts, strict=True)), style="bold")
    return table
