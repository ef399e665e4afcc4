"""The parts that the program's live displays share: a place on the terminal, and tables of figures."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console, RenderableType
from rich.live import Live
from rich.table import Table

if TYPE_CHECKING:
    from typing_extensions import Self

_REFRESHES_PER_S = 8


class LiveScreen(AbstractContextManager["LiveScreen"]):
    """Shows one picture in place while it is entered, on a terminal; lines of the process appear above it.

    Elsewhere it shows nothing, and ``is_live`` says so.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live: Live | None = None

    def __enter__(self) -> Self:
        if self._console.is_terminal and not self._console.is_dumb_terminal:
            # Standard output may be a file, which is no place for what belongs onto the terminal.
            self._live = Live(
                console=self._console,
                refresh_per_second=_REFRESHES_PER_S,
                transient=True,
                redirect_stdout=sys.stdout.isatty(),
            )
            self._live.start()
            self._console.show_cursor()  # a process that is killed could not bring it back
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    @property
    def is_live(self) -> bool:
        """Whether `show` shows anything."""
        return self._live is not None

    def show(self, picture: RenderableType) -> None:
        """Let ``picture`` take the place of the one before."""
        if self._live is not None:
            self._live.update(picture)


def figures_table(*texts: str, figures: Sequence[str]) -> Table:
    """Return an empty table with columns for ``texts``, then for ``figures``, to the right."""
    table = Table(*texts, box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 0, 0, 1))
    for heading in figures:
        table.add_column(heading, justify="right")
    return table
