"""The states of a transaction as a program sees them, with the ways between them that the table of transitions has.

The steps of an end are one state here. `_GROUPS` says which phases of the table belong to which state, `_STATES` and
`_WAYS` where states and lines are drawn. The lines and their words are those of the table: one that is missing in
either is an error.
"""

from __future__ import annotations

from collections.abc import Mapping

from eos_client.core.transaction_lifecycle import ENDING, TRANSITIONS, Phase, TransactionEvent
from scripts.pictures.svg import Drawing

_GROUPS: Mapping[str, tuple[Phase, ...]] = {
    "none": (Phase.IDLE,),
    "open": (Phase.BEGINNING, Phase.OPEN),
    "held": (Phase.HELD,),
    "ending": (*ENDING, Phase.BEGINNING_TO_COMMIT, Phase.COMMITTING),
    "unknown": (Phase.UNKNOWN,),
    "committed": (Phase.COMMITTED,),
    "aborting": (Phase.ABORTING, Phase.REBUILDING),
    "aborted": (Phase.ABORTED,),
}
_LEFT_OUT = {
    # What follows an exception in the middle of a step, or the closing of a client.
    *(TransactionEvent.RESUME, TransactionEvent.ABORT_FAILED, TransactionEvent.CLOSING),
    # The way back to the beginning, and a step that changed nothing.
    *(TransactionEvent.RECORDED, TransactionEvent.NOT_BEGUN, TransactionEvent.NOT_SENT),
    # The start offsets of new partitions are committed apart.
    *(TransactionEvent.COMMIT_STARTS, TransactionEvent.STARTS_COMMITTED),
    TransactionEvent.NOT_FOUND,  # UnknownOutcomeError
}
_STATES = {
    "none": (96.0, 176.0, 128.0, "no transaction", "plain"),
    "open": (290.0, 176.0, 76.0, "open", "plain"),
    "held": (392.0, 84.0, 150.0, "SKIPPED: held", "held"),
    "ending": (524.0, 176.0, 232.0, "flush, ask the gate, commit", "plain"),
    "committed": (880.0, 84.0, 150.0, "COMMITTED", "good"),
    "unknown": (880.0, 176.0, 230.0, "unknown: read the offsets", "odd"),
    "aborting": (210.0, 330.0, 230.0, "abort, or rebuild producer", "bad"),
    "aborted": (880.0, 330.0, 170.0, "ABORTED: rewound", "bad"),
}
_WAYS: Mapping[tuple[str, str], tuple[tuple[tuple[float, float], ...], tuple[float, float], str]] = {
    ("none", "open"): (((160, 176), (252, 176)), (206, 169), "middle"),
    ("none", "ending"): (((96, 189), (96, 218), (480, 218), (480, 189)), (288, 212), "middle"),
    ("open", "ending"): (((328, 176), (408, 176)), (368, 169), "middle"),
    ("ending", "open"): (((440, 189), (440, 201), (290, 201), (290, 189)), (365, 198), "middle"),
    ("ending", "held"): (((540, 163), (540, 92), (467, 92)), (548, 130), ""),
    ("held", "open"): (((317, 84), (290, 84), (290, 163)), (282, 128), "end"),
    ("held", "ending"): (((440, 97), (440, 163)), (432, 134), "end"),
    ("ending", "committed"): (((634, 163), (634, 84), (805, 84)), (734, 77), "middle"),
    ("ending", "unknown"): (((640, 176), (765, 176)), (708, 169), "middle"),
    ("unknown", "committed"): (((880, 163), (880, 97)), (872, 134), "end"),
    ("unknown", "aborted"): (((880, 189), (880, 317)), (872, 276), "end"),
    ("aborting", "aborted"): (((325, 330), (795, 330)), (620, 323), "middle"),
}
_EARLY = ("none", "open", "held", "ending")
_FRAME = (20.0, 44.0, 632.0, 200.0)


def _ways() -> dict[tuple[str, str], list[str]]:
    """Return the ways between two states, with the events that lead along them."""
    state_of = {phase: state for state, phases in _GROUPS.items() for phase in phases}
    ways: dict[tuple[str, str], list[str]] = {}
    for (start, event), transition in TRANSITIONS.items():
        between = state_of.get(start, ""), state_of.get(transition.to, "")
        if event not in _LEFT_OUT and between[0] != between[1]:
            events = ways.setdefault(between, [])
            events.extend([event.value] if event.value not in events else [])
    return ways


def transaction() -> str:
    """Draw the states and the ways between them; what leads to an abort comes from a frame around those before it."""
    drawing = Drawing(1010, 364, "The states of a transaction")
    drawing.box(*_FRAME, "plain dashed", radius=8)
    drawing.text(32, 36, "before a broker has answered the commit", "small faint")
    ways = _ways()
    aborts = [event for start in _EARLY for event in ways.pop((start, "aborting"), [])]
    drawing.arrow((200, 244), (200, 317))
    words = list(dict.fromkeys(aborts))
    for line, shown in enumerate((words[: len(words) // 2], words[len(words) // 2 :])):
        drawing.text(212, 266 + line * 18, " / ".join(shown) + (" /" if line == 0 else ""), "small")
    for way, events in ways.items():
        points, (x, y), kind = _WAYS[way]
        drawing.arrow(*points)
        drawing.text(x, y, " / ".join(events), f"small {kind}".strip())
    for x, y, width, text, kind in _STATES.values():
        drawing.label(x, y, text, kind, width=width)
    return drawing.svg()
