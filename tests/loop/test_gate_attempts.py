"""Asking the gate when its answer keeps being "serve callbacks first"."""

from types import SimpleNamespace
from typing import Any

from eos_client.clients.gate_attempts import GateAttempts
from eos_client.core.commit_gate import Assigned, CommitDecision, CommitGate, GateSettings
from eos_client.core.model import UNJOINED, GroupGeneration, InputPartition, InputPosition
from eos_client.ports import MembershipSnapshot

ORDERS = InputPartition("orders", 0)
LIMIT_S = 5.0


class RestlessConsumer:
    """A member whose generation has moved again at each look."""

    def __init__(self):
        self.gate = CommitGate(GateSettings(hold_limit_s=LIMIT_S))
        self.gate.observe(Assigned(frozenset({ORDERS})))
        self.proven = UNJOINED
        self.generation_id = 1
        self.served = 0

    def snapshot(self):
        self.generation_id += 1
        return MembershipSnapshot(b"", GroupGeneration(self.generation_id, "m"))

    def serve_callbacks(self, *, drain):
        assert drain
        self.served += 1


def test_a_generation_that_keeps_moving_is_a_skip_and_ends_at_the_hold_limit():
    consumer: Any = RestlessConsumer()
    now = SimpleNamespace(s=0.0)
    attempts = GateAttempts(consumer, lambda _: None, lambda: now.s)
    positions = {ORDERS: InputPosition(0, 1, GroupGeneration(1, "m"))}

    ruling, snapshot = attempts.verdict(lambda: positions, lambda: True)
    assert ruling.decision is CommitDecision.SERVE_CALLBACKS
    assert consumer.served > 0
    attempts.skipped(ruling, snapshot)

    now.s = LIMIT_S + 0.1
    ruling, _ = attempts.verdict(lambda: positions, lambda: True)
    assert (ruling.decision, ruling.row) == (CommitDecision.ABORT, 7)
