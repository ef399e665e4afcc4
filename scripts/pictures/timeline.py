"""Transactions along a time line, with the orders in each: what the hand-written loop does, and what eos-client does.

Each bar is a transaction of a run on the simulated cluster, from its first output to its end, and holds the orders
whose invoices it wrote. What became of it, and of each order, is read from the log of the topic.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import groupby

from eos_client import EosConfig, ExactlyOnceLoop, OutputRecord, observe
from eos_client.testing import SimulatedCluster
from eos_client.testing.simulator import StoredRecord
from examples.hand_written_loop import END_S, ORDERS, by_hand, cluster_with_rebalance
from scripts.pictures.svg import Drawing

_COMMIT_INTERVAL_S = 0.5
"""Of the eos-client that is drawn beside the other loop, which commits once a second: its own default is too fine."""
_SHOWN_S = ((7.3, 10.4), (19.3, 22.4))
"""The rebalance and the refused commit."""
_LEFT, _PER_S, _GAP, _LANE, _ORDER = 92.0, 145.0, 40.0, 78.0, 18.0


@dataclass(frozen=True)
class Wrote:
    """A transaction of the output topic: its orders, when it began and ended, and whether it was committed."""

    begun_s: float
    ended_s: float
    orders: tuple[str, ...]
    is_committed: bool


@dataclass(frozen=True)
class Run:
    """What one loop did: its transactions, what befell it, and the orders that it invoiced twice or never."""

    name: str
    wrote: tuple[Wrote, ...]
    moments: tuple[tuple[float, str], ...]
    doubled: frozenset[str]
    lost: frozenset[str]


def number(value: object) -> str:
    """Return the number in the name of an order, such as ``b"order-22"``."""
    return bytes(value if isinstance(value, bytes) else b"").rpartition(b"-")[2].decode()


def recorded(name: str, cluster: SimulatedCluster, moments: Sequence[tuple[float, str]], orders: Sequence[str]) -> Run:
    """Read from the logs of ``cluster`` what a loop has done there."""
    ends = [step.at_s for step in cluster.history if step.request == "EndTxn"]
    committed = {record.offset for record in cluster.read("invoices")}

    def ended(record: StoredRecord) -> float:
        return next((end for end in ends if end >= record.timestamp_ms / 1000), cluster.clock())

    wrote = []
    for end, records in groupby(cluster.read("invoices", read_committed=False), ended):
        found = list(records)
        numbers = tuple(number(record.value) for record in found)
        wrote.append(Wrote(found[0].timestamp_ms / 1000, end, numbers, found[0].offset in committed))
    times = Counter(order for each in wrote if each.is_committed for order in each.orders)
    doubled = frozenset(order for order, count in times.items() if count > 1)
    return Run(name, tuple(wrote), tuple(moments), doubled, frozenset(orders) - times.keys())


@cache
def run_by_hand() -> Run:
    """Run the hand-written loop of the example."""
    cluster = cluster_with_rebalance()
    by_hand(cluster)
    told = {"REBALANCE_IN_PROGRESS": "a partition is revoked", "ILLEGAL_GENERATION": "a commit is refused"}
    moments = [(step.at_s, told[step.result]) for step in cluster.history if step.result in told]
    return recorded("by hand", cluster, _first_of_each(moments), [number(order) for order in ORDERS])


@cache
def run_of_eos_client() -> Run:
    """Run eos-client on the same cluster with the same events."""
    cluster = cluster_with_rebalance()
    moments: list[tuple[float, str]] = []

    def hear(event: observe.Event) -> None:
        match event:
            case observe.TransactionCommitted(inside_revoke=True):
                moments.append((cluster.clock(), "committed inside on_revoke"))
            case observe.TransactionAborted():
                moments.append((cluster.clock(), "aborted, rewound"))

    config = EosConfig({"bootstrap.servers": "simulated"}, group_id="billing", commit_interval_s=_COMMIT_INTERVAL_S)
    loop = ExactlyOnceLoop(
        config, ["orders"], lambda order: OutputRecord("invoices", value=order.value()), clients=cluster, hook=hear
    )
    cluster.after(END_S, loop.stop)
    loop.run()
    return recorded("eos-client", cluster, _first_of_each(moments), [number(order) for order in ORDERS])


def _first_of_each(moments: Sequence[tuple[float, str]]) -> list[tuple[float, str]]:
    first: dict[str, float] = {}
    for at_s, text in moments:
        first.setdefault(text, at_s)
    return [(at_s, text) for text, at_s in first.items()]


def rebalance() -> str:
    """Draw both loops, one above the other."""
    runs = (run_by_hand(), run_of_eos_client())
    widths = [(end - begin) * _PER_S for begin, end in _SHOWN_S]
    drawing = Drawing(
        _LEFT + sum(widths) + _GAP + 16, 2 * _LANE + 64, "One rebalance and one refused commit, in both loops"
    )
    left = _LEFT
    for (begin, end), wide in zip(_SHOWN_S, widths, strict=True):
        for lane, run in enumerate(runs):
            _draw_lane(drawing, run, lane * _LANE + 36, partial(_along, left, begin), (begin, end))
        left += wide + _GAP
    for lane, run in enumerate(runs):
        drawing.text(14, lane * _LANE + 60, run.name, "strong")
    _legend(drawing, 2 * _LANE + 44, *_LEGEND)
    return drawing.svg()


def _along(left: float, begin_s: float, at_s: float) -> float:
    return left + (at_s - begin_s) * _PER_S


def _draw_lane(
    drawing: Drawing, run: Run, top: float, x: Callable[[float], float], shown_s: tuple[float, float]
) -> None:
    begin, end = shown_s
    drawing.line((x(begin), top + 42), (x(end), top + 42), kind="line dashed")
    for at_s, text in run.moments:
        if begin <= at_s <= end:
            drawing.line((x(at_s), top - 8), (x(at_s), top + 42))
            drawing.text(x(at_s), top - 14, text, "small middle")
    free_from = 0.0
    for each in run.wrote:
        if begin <= each.begun_s and each.ended_s <= end:
            left = max(x(each.begun_s), free_from)
            right = max(x(each.ended_s), left + len(each.orders) * _ORDER + 4)
            _draw_transaction(drawing, run, each, (left, right), top)
            free_from = right + 3


def _draw_transaction(drawing: Drawing, run: Run, wrote: Wrote, between: tuple[float, float], top: float) -> None:
    left, right = between
    drawing.box(left, top + 2, right - left, 34, "plain" if wrote.is_committed else "bad dashed")
    step = (right - left - 4) / len(wrote.orders)
    for place, order in enumerate(wrote.orders):
        drawing.box(left + 3 + place * step, top + 7, step - 2, 24, _kind(run, wrote, order), radius=10)
        drawing.text(left + 2 + (place + 0.5) * step, top + 23, order, "small middle")


def _kind(run: Run, wrote: Wrote, order: str) -> str:
    if order in run.doubled:
        return "odd"
    if order in run.lost:
        return "bad"
    return "good" if wrote.is_committed else "plain"


_LEGEND = (
    ("plain", "a transaction, with its orders", 5.0),
    ("bad dashed", "an aborted one", 5.0),
    ("good", "invoiced once", 7.0),
    ("odd", "invoiced twice", 7.0),
    ("bad", "never invoiced", 7.0),
)


def _legend(drawing: Drawing, y: float, *entries: tuple[str, str, float]) -> None:
    left = 14.0
    for kind, text, radius in entries:
        drawing.box(left, y - 11, 22, 14, kind, radius=radius)
        drawing.text(left + 28, y, text, "small")
        left += 52 + len(text) * 6.3


_STORY_S = 22.0
"""How much of the tutorial's last step is drawn."""


@cache
def run_of_tutorial() -> Run:
    """Run what the last step of the tutorial tests: a partition that leaves and comes back, and a lost answer."""
    cluster = SimulatedCluster(seed=0)
    cluster.create_topic("orders", partitions=2)
    cluster.create_topic("invoices")
    moments: list[tuple[float, str]] = []

    def hear(event: observe.Event) -> None:
        match event:
            case observe.PartitionsRevoked() if cluster.clock() < _STORY_S:
                moments.append((cluster.clock(), "orders[1] is revoked"))
            case observe.PartitionsAssigned(partitions=partitions) if len(partitions) > 1 and moments:
                moments.append((cluster.clock(), "it comes back"))
            case observe.OutcomeResolved(outcome=outcome):
                moments.append((cluster.clock(), f"a lost answer is read: {outcome}"))

    loop = ExactlyOnceLoop(
        EosConfig({"bootstrap.servers": "simulated"}, group_id="billing"),
        ["orders"],
        lambda order: OutputRecord("invoices", value=order.value()),
        clients=cluster,
        hook=hear,
    )
    numbers = range(20)
    for second in numbers:
        cluster.after(second, partial(cluster.write, "orders", [b"%d" % second], partition=second % 2))
    cluster.after(5, lambda: cluster.revoke(("orders", 1)))
    cluster.after(10, cluster.give_back)
    cluster.after(15, lambda: cluster.lose_reply("EndTxn"))
    cluster.after(60, loop.stop)
    loop.run()
    return recorded("invoices", cluster, _first_of_each(moments), [str(each) for each in numbers])


def tutorial() -> str:
    """Draw the last step of the tutorial."""
    run = run_of_tutorial()
    per_s = 42.0
    title = "Twenty orders, a partition that leaves and comes back, a lost answer: each order is invoiced once"
    drawing = Drawing(_LEFT + _STORY_S * per_s + 16, _LANE + 64, title)
    drawing.text(14, 60, run.name, "strong")
    _draw_lane(drawing, run, 36, lambda at_s: _LEFT + at_s * per_s, (0, _STORY_S))
    _legend(drawing, _LANE + 44, _LEGEND[0], _LEGEND[2])
    return drawing.svg()


def in_text() -> str:
    """Return the same picture as text, for a page that can show no other."""
    lines = []
    for (begin, end), what in zip(_SHOWN_S, ("a partition is revoked", "a commit is refused"), strict=True):
        lines.append(what)
        for run in (run_by_hand(), run_of_eos_client()):
            shown = [_in_text(each) for each in run.wrote if begin <= each.begun_s and each.ended_s <= end]
            lines.append(f"    {run.name:<10}  {' '.join(shown)}")
    return "\n".join(["```text", *lines, "[committed]  xabortedx", "```", ""])


def _in_text(wrote: Wrote) -> str:
    orders = " ".join(wrote.orders)
    return f"[{orders}]" if wrote.is_committed else f"x{orders}x"
