"""The report of an error: its text, its place in the application, and a bounded traceback.

The place is the innermost frame of the application: a library that the application called is none. A transform that is
installed itself, below ``site-packages``, has no such frame: there the innermost one of an installed library counts,
and at last one of the standard library.
"""

from __future__ import annotations

import functools
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from itertools import islice
from pathlib import PurePath
from types import TracebackType
from typing import Any

from eos_client.errors import first_of_group, text_of

ERROR_CHARACTERS_MAX = 1000
TRACEBACK_CHARACTERS_MAX = 4000
_NAME_CHARACTERS_MAX = 80
_PATH_CHARACTERS_MAX = 120
_FRAMES_MAX = 8
_CHAIN_ENDS = 2

_CLIENT = PurePath(__file__).parents[1]
_STANDARD_LIBRARY = PurePath(traceback.__file__).parent
_INSTALLED = frozenset({"site-packages", "dist-packages"})
_RETRY_LIBRARY = "tenacity"  # by which the client calls a transform
_HEADING = "Traceback (most recent call last):"
_CAUSE = "The above exception was the direct cause of the following exception:"
_CONTEXT = "During handling of the above exception, another exception occurred:"
_FIRST_OF_GROUP = "The above exception is the first of the following group:"
_OMITTED = "  ..."


class _Origin(IntEnum):
    """Whose code a frame runs. The lower one is the better place."""

    APPLICATION = 0
    INSTALLED = 1
    STANDARD_LIBRARY = 2
    CLIENT = 3


@dataclass(frozen=True, slots=True)
class ErrorReport:
    """What is told of an error. ``place`` and ``traceback`` are None for one that only the client has raised.

    It is text only: an exception would keep its frames, and what they hold, alive.
    """

    text: str
    place: str | None = None
    traceback: str | None = None


def report_of(error: BaseException) -> ErrorReport:
    """Return what is told of ``error``."""
    return ErrorReport(text_of(error, ERROR_CHARACTERS_MAX), place_of(error), _traceback_of(error))


def text_with_place(error: BaseException) -> str:
    """Return the text of ``error`` with its place behind it, for a message that tells both."""
    place = place_of(error)
    return text_of(error) if place is None else f"{text_of(error)} ({place})"


def add_note(error: BaseException, note: str) -> None:
    """Add ``note`` to the notes of ``error``, as ``add_note`` does, which Python 3.10 lacks."""
    _attributes_of(error).setdefault("__notes__", []).append(note)


def place_of(error: BaseException) -> str | None:
    """Return the innermost frame of the application in ``error``, as ``price.py:12 in price``; None without one.

    An error that has only frames of the client, as one that a serialiser has caused, has the place of its cause; a
    group, which only collects errors, that of its first one.
    """
    chain = _chain_of(error)
    for each in [*(each for each in chain if first_of_group(each) is None), *chain]:
        frames = _places_in(each)
        if frames:
            best = min(origin for origin, _ in frames)
            return _shown([frame for origin, frame in frames if origin is best][-1])
    return None


def _chain_of(error: BaseException) -> list[BaseException]:
    """Return ``error`` and what has caused it, as Python shows it."""
    chain, following = [error], _cause_of(error)
    while following is not None and not any(following is each for each in chain):
        chain.append(following)
        following = _cause_of(following)
    return chain


def _cause_of(error: BaseException) -> BaseException | None:
    first = first_of_group(error)
    if first is not None:
        return first
    cause: BaseException | None = _read("__cause__", error)
    context: BaseException | None = _read("__context__", error)
    return context if cause is None and not _read("__suppress_context__", error) else cause


def _read(name: str, error: BaseException) -> Any:
    """Return an attribute that Python gives every exception, also where the application's class hides it."""
    return BaseException.__dict__[name].__get__(error)


def _attributes_of(error: BaseException) -> dict[str, Any]:
    attributes: dict[str, Any] = _read("__dict__", error)
    return attributes


def _frames_from(entry: TracebackType | None) -> Iterator[TracebackType]:
    while entry is not None:
        yield entry
        entry = entry.tb_next


def _places_in(error: BaseException) -> list[tuple[_Origin, TracebackType]]:
    """Return the frames of ``error`` that may be its place.

    A frame of the standard library that has called the client, as asyncio's have, is none.
    """
    frames = [
        (_origin_of(frame.tb_frame.f_code.co_filename), frame) for frame in _frames_from(_read("__traceback__", error))
    ]
    client = max((at for at, (origin, _) in enumerate(frames) if origin is _Origin.CLIENT), default=-1)
    return [
        (origin, frame)
        for at, (origin, frame) in enumerate(frames)
        if origin < _Origin.STANDARD_LIBRARY or (origin is _Origin.STANDARD_LIBRARY and at > client)
    ]


@functools.lru_cache(1000)
def _origin_of(file: str) -> _Origin:
    path = PurePath(file)
    if path.is_relative_to(_CLIENT):
        return _Origin.CLIENT
    if not _INSTALLED.isdisjoint(path.parts):
        return _Origin.CLIENT if _RETRY_LIBRARY in path.parts else _Origin.INSTALLED
    if path.is_relative_to(_STANDARD_LIBRARY) or file.startswith("<frozen "):
        return _Origin.STANDARD_LIBRARY
    return _Origin.APPLICATION


def _shown(entry: TracebackType) -> str:
    code = entry.tb_frame.f_code
    path = PurePath(code.co_filename)
    name = f"{path.parent.name}/{path.name}" if path.name == "__init__.py" else path.name
    file = _end_of(name, _NAME_CHARACTERS_MAX)
    return f"{file}:{entry.tb_lineno} in {code.co_name[:_NAME_CHARACTERS_MAX]}"


def _end_of(text: str, characters_max: int) -> str:
    return text if len(text) <= characters_max else f"...{text[-characters_max:]}"


def _traceback_of(error: BaseException) -> str | None:
    """Return the traceback of ``error`` and its causes, the first cause first; None where it has no place.

    Each has an equal share of the characters. Of a long chain, the two outermost and the two innermost are kept, and
    how many are not is told.
    """
    chain = _chain_of(error)
    if not any(map(_places_in, chain)):
        return None
    kept = chain if len(chain) <= 2 * _CHAIN_ENDS else [*chain[:_CHAIN_ENDS], *chain[-_CHAIN_ENDS:]]
    characters_max = TRACEBACK_CHARACTERS_MAX // len(kept) - len(_CAUSE) - 2
    lines: list[str] = []
    for at, each in enumerate(reversed(kept)):
        if at == _CHAIN_ENDS and len(chain) > len(kept):
            lines.append(f"\n... {len(chain) - len(kept)} exceptions between these are left out ...\n")
        elif lines:
            lines.append(_relation_to_cause(each))
        lines += _lines_of(each, characters_max)
    return "\n".join(lines)


def _relation_to_cause(error: BaseException) -> str:
    if first_of_group(error) is not None:
        return _FIRST_OF_GROUP
    return _CONTEXT if _read("__cause__", error) is None else _CAUSE


def _text_with_notes(error: BaseException) -> str:
    notes = _attributes_of(error).get("__notes__")
    shown = [note for note in notes if isinstance(note, str)] if isinstance(notes, list) else []
    return "\n".join([text_of(error), *shown])


def _lines_of(error: BaseException, characters_max: int) -> list[str]:
    """Return what Python prints of ``error`` alone, but for the client's own frames around the first other one.

    A long text is cut, and then the outer frames for which no characters are left.
    """
    text, places = _text_with_notes(error)[: characters_max // 2], _places_in(error)
    if not places:
        return [text]
    _, first = places[0]
    left = characters_max - sum(len(line) + 1 for line in (_HEADING, _OMITTED, text))
    shown: list[str] = []
    for frame in reversed(_summaries_from(first)):
        lines = _lines_of_frame(frame)
        left -= sum(len(line) + 1 for line in lines)
        if left < 0:
            return [_HEADING, _OMITTED, *shown, text]
        shown[:0] = lines
    is_whole = next(islice(_frames_from(first), _FRAMES_MAX, None), None) is None
    return [_HEADING, *shown, text] if is_whole else [_HEADING, _OMITTED, *shown, text]


def _summaries_from(first: TracebackType) -> list[traceback.FrameSummary]:
    """Return the innermost frames, without their source where it cannot be read: it may have been replaced."""
    try:
        return list(traceback.extract_tb(first, limit=-_FRAMES_MAX))
    except Exception:  # noqa: BLE001  # of a loader
        walked = list(traceback.walk_tb(first))[-_FRAMES_MAX:]
        codes = [(frame.f_code, line) for frame, line in walked]
        return [traceback.FrameSummary(code.co_filename, line, code.co_name, line="") for code, line in codes]


def _lines_of_frame(frame: traceback.FrameSummary) -> list[str]:
    file, name = _end_of(frame.filename, _PATH_CHARACTERS_MAX), frame.name[:_NAME_CHARACTERS_MAX]
    place = f'  File "{file}", line {frame.lineno}, in {name}'
    return [place, f"    {frame.line[:_PATH_CHARACTERS_MAX]}"] if frame.line else [place]
