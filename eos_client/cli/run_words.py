"""Says in words, or in a table of 80 columns, what a running loop does; everything comes from one snapshot."""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import shorten

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from eos_client.cli.live_screen import figures_table
from eos_client.cli.printable import printable
from eos_client.cli.run_figures import Snapshot

_PARTITIONS_SHOWN_MAX = 8
_REASON_LENGTH_MAX = 150
_MANY = 100_000
_COUNTED = (("aborted", "abort"), ("dead_letters", "dead letter"), ("skipped_records", "skipped record"))


def counted(count: int, what: str) -> str:
    """Return ``3 aborts`` for 3 and ``abort``."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def plain_line(now: Snapshot) -> str:
    """Return one short line: first how fast and how far behind, then what is out of the ordinary, then totals."""
    parts = [f"{counted(now.in_per_s, 'record')}/s", *_lag(now), *_irregular(now), _committed(now)]
    if not now.seen.partitions:
        parts.insert(0, "no partitions")
    return ", ".join(parts)


def summary_line(now: Snapshot, *, is_done: bool) -> str:
    """Return what the whole run has done. ``is_done``: it has ended by itself."""
    how = "read to the end" if is_done else "ended"
    written = f"{now.total('records_out'):,} out"
    return ", ".join([f"{how} after {_duration(now.elapsed_s)}: {_committed(now)}", written, *_irregular(now)])


def stopping_line(reason: str) -> str:
    """Return what the first Ctrl-C, or another signal, does, and how to end at once."""
    again = "Ctrl-C again" if reason == "SIGINT" else "a second signal"
    return (
        f"{reason}: finishing the open transaction and leaving the group. {again} ends at once: then the "
        "transaction is aborted, and its records are processed again"
    )


def screen(now: Snapshot, title: str) -> RenderableType:
    """Return what a terminal shows while the loop runs, at most 80 columns wide."""
    parts: list[RenderableType] = [
        Text(printable(f"{title}   {_state(now)}   {_duration(now.elapsed_s)}"), overflow="ellipsis", no_wrap=True),
        _totals_table(now),
    ]
    if now.seen.lag:
        parts.append(_lag_table(now))
    if now.seen.last_abort is not None:
        reason = shorten(printable(now.seen.last_abort), _REASON_LENGTH_MAX, placeholder=" ...")
        parts.append(Text(f"last abort: {reason}", style="yellow"))
    return Group(*parts)


def _state(now: Snapshot) -> str:
    if now.stop_reason is not None:
        return f"finishing ({now.stop_reason})"
    if now.held_s is not None:
        return f"held for {now.held_s} s"
    return "running" if now.seen.partitions else "joining"


def _totals_table(now: Snapshot) -> Table:
    table = figures_table(figures=("records/s", "committed", "out", "commits", "lag", "held", "aborts", "dead letters"))
    lag = "" if now.lag_records is None else _figure(now.lag_records)
    held = "" if now.held_s is None else f"{now.held_s} s"
    counts = [_figure(now.total(name)) for name in ("records_in", "records_out", "committed")]
    troubles = _figure(now.total("aborted")), _figure(now.seen.dead_letters)
    table.add_row(f"{now.in_per_s:,}", *counts, lag, held, *troubles)
    return table


def _figure(count: int) -> str:
    """Return ``count``, from 100,000 on in thousands or millions, so that eight of them fit."""
    if count < _MANY:
        return f"{count:,}"
    return f"{count // 1000:,}k" if count < 1000 * _MANY else f"{count // 1_000_000:,}M"


def _lag_table(now: Snapshot) -> Table:
    """Return the lag by partition; of many partitions, those that are furthest behind."""
    lag = now.seen.lag
    shown = sorted(lag, key=lambda each: (-lag[each], each))[:_PARTITIONS_SHOWN_MAX]
    table = figures_table("partition", figures=("lag",))
    for partition in sorted(shown):
        table.add_row(Text(printable(str(partition)), overflow="ellipsis", no_wrap=True), f"{lag[partition]:,}")
    if left := lag.keys() - shown:
        table.add_row(f"{len(left)} more", f"{sum(lag[each] for each in left):,}")
    return table


def _lag(now: Snapshot) -> Iterator[str]:
    if now.lag_records is not None:
        yield f"lag {now.lag_records:,}"


def _irregular(now: Snapshot) -> Iterator[str]:
    if now.held_s is not None:
        yield f"held for {now.held_s} s"
    counts = {**now.totals, "dead_letters": now.seen.dead_letters, "skipped_records": now.seen.skipped_records}
    for name, what in _COUNTED:
        if count := counts.get(name, 0):
            yield counted(count, what)


def _committed(now: Snapshot) -> str:
    return f"{counted(now.total('records_in'), 'record')} in {counted(now.total('committed'), 'commit')}"


def _duration(seconds: float) -> str:
    if seconds < 60:  # noqa: PLR2004
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"
