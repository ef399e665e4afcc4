"""A rebalance as requests and rulings, under eos-client and under the loop that is written by hand.

Both run on the simulated cluster, and nothing is drawn by hand. The arrows are the requests that the simulated brokers
served, the notes are the events of the loop and the rulings of its gate, in the order in which they happened. The other
instance of the application is a scripted member, whose requests are not recorded: its arrow is drawn when it has got
the partition.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from unittest import mock

from eos_client import EosConfig, ExactlyOnceLoop, OutputRecord, observe
from eos_client.core.commit_gate import CommitAttempt, CommitDecision, CommitRuling
from eos_client.core.model import format_partitions
from eos_client.testing import SimulatedCluster
from eos_client.testing.simulator import BrokerSettings, Delivered, PeerMember
from examples.hand_written_loop import by_hand, cluster_with_rebalance
from scripts.pictures.sequence import Arrow, Note, drawn

_REVOKED_AT_S, _END_S = 3.25, 6.0
_LATE_S = 0.45
"""How late the heartbeat arrives that tells the coordinator of the revocation: until then the gate is closed."""
_LOOP, _GROUP, _TRANSACTIONS, _OTHER = "loop", "group", "transactions", "other"
_COORDINATORS = {_GROUP: "group coordinator", _TRANSACTIONS: "transaction coordinator"}
_ARROWS = {
    "ConsumerGroupHeartbeat": (_GROUP, "heartbeat"),
    "Heartbeat": (_GROUP, "heartbeat"),
    "JoinGroup": (_GROUP, "join again"),
    "SyncGroup": (_GROUP, "new assignment"),
    "OffsetFetch": (_GROUP, "committed offsets?"),
    "TxnOffsetCommit": (_GROUP, "offsets of the transaction"),
    "EndTxn": (_TRANSACTIONS, "commit"),
}
_COLOURS = {CommitDecision.COMMIT: "good", CommitDecision.SKIP: "held", CommitDecision.ABORT: "bad"}


@dataclass(frozen=True)
class TakenOver:
    """The other instance of the application has got a partition."""

    partition: str


Step = Delivered | CommitRuling | observe.Event | TakenOver


def steps() -> list[Step]:
    """Run the loop; return requests, rulings and events from the last ordinary commit to the next one."""
    cluster = SimulatedCluster(settings=BrokerSettings(group_consumer_heartbeat_interval_s=0.5))
    cluster.create_topic("orders", partitions=2)
    cluster.create_topic("invoices")
    told: list[Step] = []
    served = 0
    others: list[PeerMember] = []

    def tell(step: Step) -> None:
        nonlocal served
        told.extend(cluster.history[served:])
        served = len(cluster.history)
        taken = {TakenOver(f"{key.topic}[{key.partition}]") for other in others for key in other.owned}
        told.extend(taken.difference(told))
        told.append(step)

    def hear(event: observe.Event) -> None:
        tell(event)
        if isinstance(event, observe.PartitionsRevoked) and cluster.clock() < _END_S:
            cluster.delay("ConsumerGroupHeartbeat", _LATE_S)

    config = EosConfig(
        {"bootstrap.servers": "simulated"},
        group_id="billing",
        consumer={"group.protocol": "consumer"},
        commit_interval_s=0.2,
    )
    loop = ExactlyOnceLoop(
        config, ["orders"], lambda order: OutputRecord("invoices", value=order.value()), clients=cluster, hook=hear
    )
    for number in range(60):
        cluster.after(1 + number / 15, partial(cluster.write, "orders", [b"%d" % number], partition=number % 2))
    cluster.after(_REVOKED_AT_S, lambda: others.append(cluster.revoke(("orders", 1))))
    cluster.after(_END_S, loop.stop)
    decide = loop.gate.decide

    def decided(attempt: CommitAttempt) -> CommitRuling:
        tell(ruling := decide(attempt))
        return ruling

    with mock.patch.object(loop.gate, "decide", decided):
        loop.run()
    return _around_the_revocation(told)


def _around_the_revocation(told: list[Step]) -> list[Step]:
    revoked = next(n for n, step in enumerate(told) if isinstance(step, observe.PartitionsRevoked))
    commits = [n for n, step in enumerate(told) if isinstance(step, observe.TransactionCommitted)]
    *_, before, _inside = (n for n in commits if n < revoked)
    after = next(n for n in commits if n > revoked)
    return told[before + 1 : after + 1]


def _note(step: Step) -> Note | None:
    match step:
        case CommitRuling(decision=decision, rule=rule):
            return Note(_LOOP, f"gate: {decision.name} ({rule})", _COLOURS.get(decision, "plain"))
        case observe.PartitionsRevoked(partitions=partitions, generation=generation):
            return Note(_LOOP, f"{format_partitions(partitions)} given up on generation {generation.generation_id}")
        case observe.CommitSkipped(held_for_s=held_for_s):
            return Note(_LOOP, f"commit skipped, held for {held_for_s:.2f} s")
        case observe.TransactionCommitted(records_in=records, generation=generation, inside_revoke=inside):
            where = "inside on_revoke" if inside else f"on generation {generation.generation_id}"
            return Note(_LOOP, f"{records} records committed {where}")
    return None


def gated() -> str:
    """Draw a loop of eos-client."""
    rows = [row for row in _rows(steps()) if row is not None]
    participants = {_LOOP: "eos-client", **_COORDINATORS, _OTHER: "other instance"}
    return drawn("One rebalance under eos-client: requests, rulings of the gate, events", participants, rows)


def _rows(told: list[Step]) -> Iterator[Arrow | Note | None]:
    """Name the partitions in the heartbeat whose response revoked them, and in the one that acknowledged that."""
    revoked, partitions = next(
        (n, format_partitions(s.partitions)) for n, s in enumerate(told) if isinstance(s, observe.PartitionsRevoked)
    )
    heartbeats = [n for n, step in enumerate(told) if isinstance(step, Delivered) and "Heartbeat" in step.request]
    before, after = max(n for n in heartbeats if n < revoked), min(n for n in heartbeats if n > revoked)
    for n, step in enumerate(told):
        match step:
            case Delivered() if n == before:
                yield Arrow(_LOOP, _GROUP, f"heartbeat ({step.result}: revoke {partitions})")
            case Delivered() if n == after:
                yield Arrow(_LOOP, _GROUP, f"heartbeat: {partitions} given up ({step.result})")
            case Delivered():
                yield _arrow(step)
            case TakenOver(partition):
                yield Arrow(_GROUP, _OTHER, partition)
            case _:
                yield _note(step)


def by_hand_in_rebalance() -> str:
    """Draw the loop that is written by hand: from the rebalance to the end of its next transaction."""
    cluster = cluster_with_rebalance()
    by_hand(cluster)
    first = next(n for n, step in enumerate(cluster.history) if step.result == "REBALANCE_IN_PROGRESS")
    last = next(n for n, step in enumerate(cluster.history) if n > first and step.request == "EndTxn")
    counted = Counter(cluster.values("invoices"))
    doubled = ", ".join(order.decode() for order, times in counted.items() if times > 1)
    arrows = [arrow for arrow in map(_arrow, cluster.history[first : last + 1]) if arrow is not None]
    rows: list[Arrow | Note] = [*arrows, Note(_LOOP, f"invoiced twice in the end: {doubled}", "odd")]
    return drawn("The same rebalance under a loop by hand", {_LOOP: "loop by hand", **_COORDINATORS}, rows)


def _arrow(step: Delivered) -> Arrow | None:
    if step.request not in _ARROWS:
        return None
    receiver, text = _ARROWS[step.request]
    return Arrow(_LOOP, receiver, f"{text} ({step.result})")
