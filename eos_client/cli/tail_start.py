"""Where ``eos-client tail`` begins: what was typed, and the offset of each partition that it comes to."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone

from eos_client.cli.failures import CommandLineError

_AGE = re.compile(r"(?P<count>\d+)(?P<unit>[smhd])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_WINDOW_FACTOR = 4


@dataclass(frozen=True, slots=True)
class TailStart:
    """Where to begin: at most one of these. ``since_ms``: a time in milliseconds since 1970; ``last``: records."""

    only_new: bool = False
    offset: int | None = None
    since_ms: int | None = None
    last: int | None = None


def tail_start(*, only_new: bool, offset: int | None, since: str | None, last: int | None, now_s: float) -> TailStart:
    """Return what the options of the command say.

    :raises CommandLineError: there is more than one, or ``since`` is no time.
    """
    given = {"--new": only_new or None, "--from-offset": offset, "--since": since, "--last": last}
    named = [option for option, value in given.items() if value is not None]
    if len(named) > 1:
        raise CommandLineError(f"{' and '.join(named)} contradict each other: keep one")
    return TailStart(only_new, offset, None if since is None else time_of(since, now_s), last)


def time_of(text: str, now_s: float) -> int:
    """Return the time of ``15m`` (s, m, h, d before now) or ``2026-11-30T17:00``, in milliseconds since 1970.

    A time without an offset is local.

    :raises CommandLineError: it is neither.
    """
    if age := _AGE.fullmatch(text):
        return round((now_s - int(age["count"]) * _SECONDS[age["unit"]]) * 1000)
    try:
        moment = datetime.fromisoformat(re.sub("Z$", "+00:00", text))
    except ValueError as error:
        raise CommandLineError(
            f"--since {text!r} is no time: give an age such as 30s, 15m, 2h or 1d, or a time such as "
            "2026-11-30T17:00 or 2026-11-30T17:00:00Z"
        ) from error
    return round(moment.astimezone(timezone.utc).timestamp() * 1000)


def within(wanted: Mapping[int, int], starts: Mapping[int, int], ends: Mapping[int, int]) -> dict[int, int]:
    """Return the ``wanted`` offsets, each moved to the beginning or the end of its partition if it is outside."""
    return {each: min(max(offset, starts[each]), ends[each]) for each, offset in wanted.items()}


def start_of_last(count: int, start: int, end: int, offsets_between: Callable[[int, int], Iterable[int]]) -> int:
    """Return the offset of the ``count``-th last record between ``start`` and ``end``, or of the first one.

    Markers and aborted records take offsets too, so a window at the end is read, and a larger one if it has too few.

    :param offsets_between: reads the offsets of the records from one offset to before another.
    """
    size = count
    while True:
        begin = max(start, end - size)
        found = deque(offsets_between(begin, end), maxlen=count)
        if len(found) == count or begin == start:
            return found[0] if found else end
        size *= _WINDOW_FACTOR
