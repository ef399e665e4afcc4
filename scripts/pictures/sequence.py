"""Draws who asks whom as lines between participants, with notes, from the top to the bottom."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from scripts.pictures.svg import CHARACTER, Drawing

_APART, _ROW, _TOP = 236.0, 30.0, 62.0


@dataclass(frozen=True)
class Arrow:
    """A request, with its result, or something that is handed over."""

    sender: str
    receiver: str
    text: str
    kind: str = ""


@dataclass(frozen=True)
class Note:
    """What happens at one participant."""

    at: str
    text: str
    kind: str = "plain"


def drawn(title: str, participants: Mapping[str, str], steps: Iterable[Arrow | Note]) -> str:
    """Return the picture; ``participants`` gives each name its heading, from left to right."""
    rows = list(steps)
    x = {name: 150.0 + place * _APART for place, name in enumerate(participants)}
    bottom = _TOP + len(rows) * _ROW + 6
    drawing = Drawing(max(x.values()) + 150, bottom + 14, title)
    for name, heading in participants.items():
        drawing.line((x[name], 44), (x[name], bottom))
        drawing.label(x[name], 28, heading, "held" if name == next(iter(participants)) else "plain")
    for place, row in enumerate(rows):
        y = _TOP + place * _ROW + 12
        match row:
            case Note():
                drawing.label(max(x[row.at], len(row.text) * CHARACTER / 2 + 20), y, row.text, row.kind)
            case Arrow():
                start, end = x[row.sender], x[row.receiver]
                drawing.arrow((start, y + 4), (end, y + 4))
                drawing.text(start + _APART / 2, y - 2, row.text, "small middle")
    return drawing.svg()
