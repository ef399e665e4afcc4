"""A game of one group member against its coordinator, with the gate as referee of every commit.

The game knows the truth (who owns what, which callbacks are still queued); the gate is told only what a member is told
and asked at any moment. docs/decisions/membership-and-generations.md has what the three protocols show in callbacks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum, auto

from eos_client.core.commit_gate import (
    RULES,
    CommitAttempt,
    CommitDecision,
    GateAssigned,
    GateLost,
    GateRule,
    GateScope,
    GateSettings,
    HoldEnded,
    RevocationEnded,
    RevocationStarted,
    RuleName,
    WorkEnded,
)
from eos_client.core.model import GroupGeneration, InputPartition, InputPosition
from tests.core.gate_language import P0, P1, P2, VariantGate

Partitions = frozenset[InputPartition]
Action = Callable[[Partitions, float], None]
ALL: Partitions = frozenset((P0, P1, P2))
HOLD_LIMIT_S = 5.0


class Protocol(Enum):
    """How a group rebalances."""

    KIP_848 = auto()
    COOPERATIVE = auto()
    EAGER = auto()


class Game:
    """One member. Every method is something that can happen; an AssertionError is a broken promise."""

    def __init__(self, protocol: Protocol, scope: GateScope, rules: Iterable[GateRule] = RULES) -> None:
        self.protocol = protocol
        self.member_epochs = protocol is Protocol.KIP_848
        self.scope = scope
        self.gate = VariantGate(GateSettings(scope=scope, hold_limit_s=HOLD_LIMIT_S), rules)
        self.number = self.shown = self.sessions = 1
        self.owned: Partitions = ALL  # what the coordinator counts as ours
        self.assigned: Partitions = ALL  # what our callbacks have told us
        self.work: dict[InputPartition, InputPosition] = {}
        self.broken: Partitions = frozenset()  # consumed, then out of our hands, not committed
        self.waiting: list[Callable[[], None]] = []  # rebalance callbacks that the client library has queued
        self.revoking: tuple[Partitions, int] | None = None  # and the session in which the revocation was asked for
        self.revocations: set[int] = set()
        self.held_too_long: set[int] = set()
        self.commits = 0
        self.proven = self.generation
        self.gate.tell(GateAssigned(ALL))

    @property
    def generation(self) -> GroupGeneration:
        member_id = "m1" if self.shown > 0 or self.member_epochs else ""
        return GroupGeneration(self.shown, member_id, "billing", is_member_epoch=self.member_epochs)

    @property
    def outside(self) -> bool:
        return self.revoking is None

    def possible(self) -> list[Action]:
        """Return what can happen now; what is listed twice happens more often."""
        steady = not self.waiting and self.shown > 0
        possible: list[Action] = [self.ask] * 8
        if self.outside:
            possible += [self.consume] * 8 + [self.poll] * 8
            if steady:
                possible += [self.give] * 4 + [self.take] * 4
            if steady and self.shown in self.revocations:
                possible += [self.acknowledge] * 8
            if self.shown <= 0 and not self.waiting:
                possible += [self.rejoin] * 8
            if steady and self.member_epochs:
                possible += [self.another_member_rebalances]
        else:
            possible += [self.return_from_on_revoke] * 4
        if self.shown > 0:
            possible += [self.evict]
            if self.member_epochs:
                possible += [self.evict_and_rejoin]
        return possible

    # -- the application -------------------------------------------------------------------------------------------

    def consume(self, chosen: Partitions, _: float) -> None:
        for partition in chosen & self.assigned:
            known = self.work.get(partition, InputPosition(0, 0, self.proven))
            self.work[partition] = InputPosition(0, known.next_offset + 1, known.generation)
        self.broken |= (chosen & self.assigned) - self.owned

    def poll(self, *_: object) -> None:
        """Serve what is queued, up to a revocation, which the application meets inside its callback."""
        while self.waiting and self.outside:
            self.waiting.pop(0)()
        if self.outside:
            self.proven = self.generation

    def ask(self, _: Partitions, held_for_s: float) -> None:
        served = self.generation.same_membership(self.proven)
        ruling = self.gate.decide(CommitAttempt(dict(self.work), self.generation, served, held_for_s))
        if ruling.decision is CommitDecision.COMMIT:
            self._judge_commit()
            self._settle()
        elif ruling.decision is CommitDecision.ABORT:
            self._settle()
            if ruling.rule is RuleName.HELD_TOO_LONG:
                self.gate.tell(HoldEnded())
                if self.member_epochs:
                    self.held_too_long.add(self.shown)
        elif ruling.decision is CommitDecision.SKIP:
            assert held_for_s <= HOLD_LIMIT_S, "a hold outlived its limit"
            assert self.outside, "a commit in the revoke callback was put off"
        else:
            assert not served, "callbacks were to be served again"
            self.poll()

    def _judge_commit(self) -> None:
        if not self.work:
            return
        self.commits += 1
        assert self.shown > 0, f"an unfenced commit of {set(self.work)}"
        assert self.generation.member_id, f"an anonymous commit of {set(self.work)}"
        assert self.owned.issuperset(self.work), f"{set(self.work) - self.owned} belong to another member"
        assert self.broken.isdisjoint(self.work), f"{self.broken} were out of our hands since they were consumed"
        if self.outside and self.scope is GateScope.MEMBER:
            assert self.shown not in self.revocations - self.held_too_long, (
                f"committed at revocation generation {self.shown}"
            )

    def _settle(self) -> None:
        self.gate.tell(WorkEnded())
        self.work = {}
        self.broken = frozenset()

    # -- the coordinator and the client library ----------------------------------------------------------------------

    def _new_generation(self) -> None:
        self.number += 1
        self.shown = self.number

    def another_member_rebalances(self, *_: object) -> None:
        """The epoch moves without any callback (a silent bump)."""
        self._new_generation()

    def give(self, chosen: Partitions, _: float) -> None:
        new = chosen - self.owned
        self.owned |= new
        self._new_generation()
        self.waiting.append(lambda: self._on_assign(new))

    def _on_assign(self, partitions: Partitions) -> None:
        self.assigned |= partitions
        self.gate.tell(GateAssigned(partitions))

    def take(self, chosen: Partitions, _: float) -> None:
        """A revocation is due. Ours until acknowledged; what the callback shows depends on the protocol."""
        leaving = self.owned if self.protocol is Protocol.EAGER else chosen & self.owned
        if self.protocol is Protocol.COOPERATIVE:
            self._new_generation()
        session = self.sessions
        if leaving:
            self.waiting.append(lambda: self._on_revoke(leaving, session))

    def _on_revoke(self, partitions: Partitions, session: int) -> None:
        self.revoking = (partitions, session)
        self.gate.tell(RevocationStarted(partitions))

    def return_from_on_revoke(self, *_: object) -> None:
        assert self.revoking is not None
        (partitions, session), self.revoking = self.revoking, None
        uncommitted = partitions.intersection(self.work)
        self.assigned -= partitions
        self.broken |= uncommitted
        if session == self.sessions:  # or it was taken from us already, and perhaps given to us anew
            self.owned -= partitions
        self.gate.tell(RevocationEnded(partitions, self.generation, uncommitted))
        self.revocations.add(self.shown)
        self.held_too_long.discard(self.shown)

    def acknowledge(self, *_: object) -> None:
        """The heartbeat or the rejoin after a revocation: only now does the group show the next generation."""
        self._new_generation()

    def evict(self, *_: object) -> None:
        """The session ends, perhaps behind a revoke callback that waits or runs; others own everything now."""
        gone, self.owned = self.owned, frozenset()
        self.sessions += 1
        self.broken |= frozenset(self.work)
        self.shown = 0 if self.member_epochs else -1
        self.waiting.append(lambda: self._on_lost(gone))

    def evict_and_rejoin(self, chosen: Partitions, _: float) -> None:
        """As above, and the next thing that the client library shows is the new epoch, with callbacks still queued."""
        self.evict()
        self._new_generation()
        self.owned = chosen
        self.waiting.append(lambda: self._on_assign(chosen))

    def rejoin(self, *_: object) -> None:
        self._new_generation()

    def _on_lost(self, gone: Partitions) -> None:
        partitions = gone & self.assigned
        self.assigned -= partitions
        self.revocations = set()  # of a session that is over
        self.gate.tell(GateLost(partitions, partitions.intersection(self.work)))

    def check(self) -> None:
        """The gate knows what its member knows."""
        assert self.gate.state.assigned == self.assigned
        assert self.gate.state.revoking is not self.outside
