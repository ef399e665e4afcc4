"""Which pictures there are, and the page that has one of them as text."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from scripts.pictures import gate, slots, states, timeline

REPOSITORY = Path(__file__).resolve().parents[2]
FOLDER = REPOSITORY / "docs" / "pictures"
README = REPOSITORY / "README.md"
COMMAND = "python -m scripts.pictures"
PICTURES: Mapping[str, Callable[[], str]] = {
    "rebalance": timeline.rebalance,
    "tutorial": timeline.tutorial,
    "gate": gate.gated,
    "gate-by-hand": gate.by_hand_in_rebalance,
    "transaction": states.transaction,
    "slots": slots.slots,
}
_DRAWN = re.compile(r"(<!-- drawn: rebalance -->\n\n?).*?(\n?<!-- end -->\n)", re.DOTALL)


def renewed(page: str) -> str:
    """Return the text of README.md with its picture as it should be."""
    return _DRAWN.sub(lambda found: f"{found[1]}{timeline.in_text()}{found[2]}", page)


def renew_pages() -> None:
    """Write README.md anew."""
    README.write_text(renewed(README.read_text(encoding="utf-8")), encoding="utf-8")
