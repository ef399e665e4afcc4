"""Asks the gate whether one piece of work may be committed, and remembers how long it has been held."""

from __future__ import annotations

from collections.abc import Callable

from eos_client.clients.long_steps import EndedMeanwhileError
from eos_client.confluent.consumer.confluent_consumer import ConfluentConsumer
from eos_client.core.commit_gate import CommitAttempt, CommitDecision, CommitRuling, GatePolicy, HoldEnded
from eos_client.core.model import InputPositions, Partitions
from eos_client.observe import CommitSkipped, EventHook
from eos_client.ports import MembershipSnapshot

_SERVE_ROUNDS_MAX = 3
_WAIT_SLICE_S = 0.02


class CommitDecisions:
    """The rulings on the attempts of one piece of work, from its first skip to its end."""

    def __init__(
        self, consumer: ConfluentConsumer, hook: EventHook, clock: Callable[[], float], *, of_transaction: bool = False
    ) -> None:
        """Begin with nothing held. ``of_transaction``: whether the work has outputs too, and ends as a whole."""
        self._consumer = consumer
        self._of_transaction = of_transaction
        self._hook = hook
        self._clock = clock
        self._held_since: float | None = None

    @property
    def is_held(self) -> bool:
        """Whether the gate has skipped a commit of the work."""
        return self._held_since is not None

    @property
    def held_for_s(self) -> float:
        """Seconds since the first skip; 0.0 without one."""
        return 0.0 if self._held_since is None else self._clock() - self._held_since

    def decide(
        self,
        positions: InputPositions,
        snapshot: MembershipSnapshot | None = None,
        *,
        departed: Partitions = frozenset(),
        generation_unstable: bool = False,
    ) -> tuple[CommitRuling, MembershipSnapshot]:
        """Let the gate decide on ``positions`` under ``snapshot``, or our membership as it is now.

        ``departed`` and ``generation_unstable``: as in `CommitAttempt`.
        """
        if snapshot is None:
            snapshot = self._consumer.snapshot()
        gate = self._consumer.gate
        attempt = CommitAttempt(
            positions=positions,
            snapshot=snapshot.generation,
            generation_is_synced=snapshot.generation.same_membership(self._consumer.membership.state.synced_generation),
            held_for_s=self.held_for_s,
            generation_unstable=generation_unstable,
            departed=departed,
            replaced_topic=self._replaced_topic(),
            may_be_readmitted=self._consumer.membership.may_be_readmitted(snapshot.generation),
        )
        ruling = gate.decide(attempt)
        if ruling.ends_hold:
            gate.tell(HoldEnded())
        return ruling, snapshot

    def _replaced_topic(self) -> str | None:
        """Return a topic whose records are in the transaction without their offsets."""
        return self._consumer.state.replaced_topic if self._of_transaction else None

    def decide_after_callbacks(
        self,
        positions: Callable[[], InputPositions],
        *,
        is_still_due: Callable[[], bool] = lambda: True,
        departed: Callable[[], Partitions] = frozenset,
    ) -> tuple[CommitRuling, MembershipSnapshot]:
        """Let the gate decide, and serve callbacks for as long as it wants them served first.

        ``is_still_due``: whether there is anything left to decide on after callbacks were served, else
        EndedMeanwhileError is raised. ``departed``: as in `CommitAttempt`.
        """
        ruling, snapshot = self.decide(positions(), departed=departed())
        for round_number in range(1, _SERVE_ROUNDS_MAX + 1):
            if ruling.decision is not CommitDecision.SERVE_CALLBACKS:
                break
            self._consumer.fetching.serve_callbacks(drain=True)
            if not is_still_due():
                raise EndedMeanwhileError
            is_last = round_number == _SERVE_ROUNDS_MAX
            ruling, snapshot = self.decide(positions(), departed=departed(), generation_unstable=is_last)
        return ruling, snapshot

    def decide_and_wait(
        self,
        positions: Callable[[], InputPositions],
        *,
        is_still_due: Callable[[], bool],
        on_skip: Callable[[], None],
    ) -> tuple[CommitRuling, MembershipSnapshot]:
        """Let the gate decide after callbacks; with the policy BLOCK, poll until it opens or its hold limit is over.

        ``is_still_due``: as in ``decide_after_callbacks``. ``on_skip`` is called before such a wait.
        """
        ruling, snapshot = self.decide_after_callbacks(positions, is_still_due=is_still_due)
        blocks = self._consumer.gate.settings.policy is GatePolicy.BLOCK
        if ruling.decision is not CommitDecision.SKIP or not blocks:
            return ruling, snapshot
        on_skip()
        self.record_skip(ruling, snapshot)
        while ruling.decision is CommitDecision.SKIP:
            self._consumer.fetching.wait_while_paused(_WAIT_SLICE_S)
            if not is_still_due():
                raise EndedMeanwhileError
            ruling, snapshot = self.decide_after_callbacks(positions, is_still_due=is_still_due)
        return ruling, snapshot

    def record(self, ruling: CommitRuling, snapshot: MembershipSnapshot) -> None:
        """Record a ruling: the work is held, or its attempts have ended."""
        if ruling.decision is CommitDecision.SKIP:
            self.record_skip(ruling, snapshot)
        else:
            self.end_hold()

    def record_skip(self, ruling: CommitRuling, snapshot: MembershipSnapshot) -> None:
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

    def end_hold(self) -> None:
        """Record that the work was committed, aborted or given up."""
        self._held_since = None
