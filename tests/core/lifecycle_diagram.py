"""Draws the lifecycle of a transaction from its table: python -m tests.core.lifecycle_diagram renews its page."""

from __future__ import annotations

from pathlib import Path

from eos_client.core.transaction_lifecycle import ENDING, TRANSITIONS, Act, Phase, TransactionEvent, Transition

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "transaction-lifecycle.md"
FIRST, LAST = "<!-- drawn from the table -->\n", "<!-- end of the drawing -->\n"
FROM_EVERYWHERE = (TransactionEvent.ABORT_FAILED, TransactionEvent.CLOSING)
"""They would draw a line from each state."""


def _stays(start: Phase, event: TransactionEvent, transition: Transition) -> bool:
    """Whether it is the late result of a step that a callback has interrupted."""
    return transition.to is start and transition.act is Act.NOTHING and event not in FROM_EVERYWHERE


def _changes(start: Phase, event: TransactionEvent, transition: Transition) -> bool:
    return event not in FROM_EVERYWHERE and not _stays(start, event, transition)


def _start(start: Phase, event: TransactionEvent, transition: Transition) -> str:
    """Return ``start``, or the group of it where all of the group do the same."""
    is_shared = start in ENDING and all(TRANSITIONS.get((phase, event)) == transition for phase in ENDING)
    return "ENDING" if is_shared else start.name


def _edges() -> list[str]:
    labels: dict[tuple[str, Phase], list[str]] = {}
    for (start, event), transition in TRANSITIONS.items():
        if _changes(start, event, transition):
            events = labels.setdefault((_start(start, event, transition), transition.to), [])
            if event.value not in events:
                events.append(event.value)
    return [f"    {start} --> {to.name}: {' / '.join(events)}" for (start, to), events in labels.items()]


def _names() -> list[str]:
    alone = [f"    {phase.name}: {phase.value}" for phase in Phase if phase not in ENDING]
    grouped = [f"        {phase.name}: {phase.value}" for phase in ENDING]
    return [*alone, "    state ENDING {", *grouped, "    }"]


def _table() -> list[str]:
    starts: dict[tuple[TransactionEvent, Transition], list[str]] = {}
    for (start, event), transition in TRANSITIONS.items():
        if not _stays(start, event, transition):
            starts.setdefault((event, transition), []).append(start.value)
    rows = [
        f"| {', '.join(phases)} | {event.value} | {transition.to.value} | {transition.act.value} |"
        for (event, transition), phases in starts.items()
    ]
    return [*rows, _late_results()]


def _late_results() -> str:
    """Return one row for all results that change nothing."""
    ignored = [(start, event) for (start, event), to in TRANSITIONS.items() if _stays(start, event, to)]
    phases, events = list(dict.fromkeys(p for p, _ in ignored)), list(dict.fromkeys(e for _, e in ignored))
    assert len(ignored) == len(phases) * len(events), "a state ignores other results than the others"
    results = ", ".join(f"*{event.value}*" for event in events)
    return f"| {', '.join(p.value for p in phases)} | {results} | the same state | nothing |"


def diagram() -> str:
    """Return the drawing and the whole table as Markdown."""
    drawing = ["```mermaid", "stateDiagram-v2", *_names(), "    [*] --> IDLE", *_edges(), "```"]
    table = ["| in | event | leads to | act |", "| --- | --- | --- | --- |", *_table()]
    return "\n".join([*drawing, "", *table, ""])


def main() -> None:
    """Draw the page anew."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(FIRST)
    _, _, after = rest.partition(LAST)
    PAGE.write_text(f"{before}{FIRST}{diagram()}{LAST}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
