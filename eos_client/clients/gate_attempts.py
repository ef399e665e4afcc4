"""Commit decisions: a fresh snapshot of our membership, how long the work has been held, and the event of each skip."""

from __future__ import annotations

from collections.abc import Callable

from eos_client.confluent.consumer.confluent_consumer import ConfluentConsumer
from eos_client.core.commit_gate import CommitAttempt, CommitDecision, CommitRuling, GateRule, HoldEnded
from eos_client.core.model import InputPositions
from eos_client.observe import CommitSkipped, EventHook
from eos_client.ports import MembershipSnapshot

_SERVE_ROUNDS_MAX = 3


class GateAttempts:
    """The attempts to commit one piece of work, from its first skip to its end."""

    def __init__(self, consumer: ConfluentConsumer, hook: EventHook, clock: Callable[[], float]) -> None:
        self._consumer = consumer
        self._hook = hook
        self._clock = clock
        self._held_since: float | None = None

    @property
    def is_held(self) -> bool:
        """Whether the gate has kept the work back."""
        return self._held_since is not None

    @property
    def held_for_s(self) -> float:
        """Seconds since the first skip; 0.0 without one."""
        return 0.0 if self._held_since is None else self._clock() - self._held_since

    def decide(self, positions: InputPositions) -> tuple[CommitRuling, MembershipSnapshot]:
        """Let the gate decide on ``positions`` under our membership as it is now."""
        snapshot = self._consumer.snapshot()
        attempt = CommitAttempt(
            positions=positions,
            snapshot=snapshot.generation,
            callbacks_served=snapshot.generation.same_membership(self._consumer.membership.synced_generation),
            held_for_s=self.held_for_s,
        )
        ruling = self._consumer.gate.decide(attempt)
        if ruling.rule is GateRule.HELD_TOO_LONG:
            self._consumer.gate.observe(HoldEnded())
        return ruling, snapshot

    def decide_after_callbacks(
        self, positions: Callable[[], InputPositions], is_still_due: Callable[[], bool]
    ) -> tuple[CommitRuling, MembershipSnapshot]:
        """Let the gate decide, and serve callbacks for as long as it wants them served first.

        ``is_still_due``: whether there is anything left to decide on after callbacks were served. A generation that
        moves again each time counts as a skip, which ends at the hold limit like any other.
        """
        ruling, snapshot = self.decide(positions())
        for _ in range(_SERVE_ROUNDS_MAX):
            if ruling.decision is not CommitDecision.SERVE_CALLBACKS:
                break
            self._consumer.fetching.serve_callbacks(drain=True)
            if not is_still_due():
                break
            ruling, snapshot = self.decide(positions())
        hold_limit_s = self._consumer.gate.settings.hold_limit_s
        if ruling.decision is CommitDecision.SERVE_CALLBACKS and self.held_for_s > hold_limit_s:
            ruling = CommitRuling(
                CommitDecision.ABORT,
                GateRule.HELD_TOO_LONG,
                "the generation kept moving for longer than the hold limit",
            )
        return ruling, snapshot

    def record(self, ruling: CommitRuling, snapshot: MembershipSnapshot) -> None:
        """Record a ruling: the work is held, or its attempts have ended."""
        if ruling.decision in {CommitDecision.COMMIT, CommitDecision.ABORT}:
            self.ended()
        else:
            self.skipped(ruling, snapshot)

    def skipped(self, ruling: CommitRuling, snapshot: MembershipSnapshot) -> None:
        """Record and report that nothing was sent."""
        if self._held_since is None:
            self._held_since = self._clock()
        revocation = self._consumer.gate.state.revocation
        self._hook(
            CommitSkipped(
                generation=snapshot.generation,
                revocation_generation=revocation.generation if revocation else snapshot.generation,
                held_for_s=self.held_for_s,
                reason=ruling.reason,
            )
        )

    def ended(self) -> None:
        """Record that the work was committed, aborted or given up."""
        self._held_since = None
