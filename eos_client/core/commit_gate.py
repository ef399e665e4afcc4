"""The commit gate (KAFKA-19779): may these offsets be committed now?

Theory of operation. A member that commits a partition it no longer owns either has its work refused or, at an equal
epoch, steals the partition: no broker checks ownership then. So the member commits inside the revoke callback, where
the epoch cannot move, remembers the generation of that revocation and sends nothing for as long as the group still
shows it. Revoked and lost are different events: revoked work is committed first, lost work never is. A classic
group that assigns all revoked partitions to us again has undone the revocation, in whichever generation.
The generation may also have moved before the callback: if the reply with an assignment is lost, a KIP-848 coordinator
revokes it in the next epoch, and the client library reports assignment and revocation together. The epoch then moves no
further, and the gate would stay closed: the hold limit ends that. ``NOT_OURS`` refuses what is not assigned to us.
``RULES`` is the whole decision, first match wins; ``CommitGate.tell`` is the only way its state changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from enum import Enum

from eos_client.core.model import UNJOINED, WITHOUT_A_FENCE, GroupGeneration, InputPositions, Partitions


class CommitDecision(Enum):
    """What to do with the uncommitted work now."""

    COMMIT = "commit"
    SKIP = "skip"
    ABORT = "abort"
    SERVE_CALLBACKS = "serve_callbacks"
    """Not decided yet: empty the library's queue, so that every callback in it is served, then ask again."""


class GateScope(Enum):
    """Which commits are skipped after a revocation."""

    MEMBER = "member"
    """Every commit of the member (KAFKA-19779's rule; right for every broker)."""
    PARTITION = "partition"
    """Only commits that name a revoked partition (enough where KIP-1251 runs: brokers from 4.3, KIP-848 groups)."""


class GatePolicy(Enum):
    """What the application does while the gate is closed. The transaction stays open under all three."""

    SKIP = "skip"
    """Go on; try again when the next commit is due."""
    HOLD = "hold"
    """Go on. A loop commits as soon as the generation moves; a ``with`` block commits when it ends, as under SKIP."""
    BLOCK = "block"
    """Consume nothing more; stay in poll until the generation moves, then commit."""


class CommitValidation(Enum):
    """Which check the group's coordinator is known to run. Only the counters use it: which skips were needed."""

    UNKNOWN = "unknown"
    EXACT = "exact"
    """``client == broker`` for KIP-848 groups up to 4.2: the broker may be one epoch ahead while we still see ours."""
    CLASSIC = "classic"
    """``client == broker``, where the generation moves only when every member has rejoined."""
    ASSIGNMENT_EPOCH = "assignment_epoch"
    """KIP-1251, KIP-848 groups from 4.3: retained partitions are accepted at their older epoch."""


@dataclass(frozen=True, slots=True)
class GateAssigned:
    """The group gave us ``partitions``."""

    partitions: Partitions


@dataclass(frozen=True, slots=True)
class RevocationStarted:
    """The revoke callback for ``partitions`` has begun; they are still ours until it returns."""

    partitions: Partitions


@dataclass(frozen=True, slots=True)
class RevocationEnded:
    """The revoke callback returns. ``uncommitted``: partitions whose records were consumed and not committed in it."""

    partitions: Partitions
    generation: GroupGeneration
    uncommitted: Partitions = frozenset()


@dataclass(frozen=True, slots=True)
class GateLost:
    """``partitions`` are gone without a chance to commit. ``uncommitted``: those with uncommitted records."""

    partitions: Partitions
    uncommitted: Partitions = frozenset()


@dataclass(frozen=True, slots=True)
class WorkEnded:
    """All consumed records were committed, or aborted and rewound: nothing is open."""


@dataclass(frozen=True, slots=True)
class HoldEnded:
    """The hold limit has aborted held work, and the gate reopens: no new generation follows the last revocation."""


GateEvent = GateAssigned | RevocationStarted | RevocationEnded | GateLost | WorkEnded | HoldEnded


@dataclass(frozen=True, slots=True)
class Revocation:
    """The last revocation. Commits at its generation are skipped."""

    generation: GroupGeneration
    partitions: Partitions


@dataclass(frozen=True, slots=True)
class GateState:
    """Everything that the gate remembers."""

    assigned: Partitions = frozenset()
    revoking: bool = False
    """Set inside a revoke callback; any later one clears it, too: an exception may have skipped `RevocationEnded`."""
    revocation: Revocation | None = None
    lost_work: Partitions = frozenset()
    revoked_work: Partitions = frozenset()


def next_state(state: GateState, event: GateEvent) -> GateState:
    """Apply one event. Pure; every change of the gate's state is a case here."""
    match event:
        case GateAssigned(partitions):
            assigned = state.assigned | partitions
            in_force = _revocation_in_force(state.revocation, assigned)
            return replace(state, assigned=assigned, revoking=False, revocation=in_force)
        case RevocationStarted():
            return replace(state, revoking=True)
        case RevocationEnded(partitions, generation, uncommitted):
            return replace(
                state,
                assigned=state.assigned - partitions,
                revoking=False,
                revocation=Revocation(generation, partitions),
                revoked_work=state.revoked_work | (uncommitted & partitions),
            )
        case GateLost(partitions, uncommitted):
            return replace(
                state,
                assigned=state.assigned - partitions,
                revoking=False,
                revocation=None,
                lost_work=state.lost_work | (uncommitted & partitions),
            )
        case WorkEnded():
            return replace(state, lost_work=frozenset(), revoked_work=frozenset())
        case HoldEnded():
            revocation = state.revocation
            # A KIP-848 group's epoch had moved before the callback, and stays.
            is_over = revocation is not None and revocation.generation.is_member_epoch
            return replace(state, revocation=None if is_over else revocation)
    raise TypeError(f"{event!r} is not a gate event; known are {GateEvent}")


def _revocation_in_force(revocation: Revocation | None, assigned: Partitions) -> Revocation | None:
    """Return ``revocation``, or None when a classic group has assigned all of its partitions to us again.

    That can happen in the generation of the revocation, which may then never move: the coordinator stores a new
    generation only with its assignment. If it fails before, its successor loads the generation of before and answers a
    follower that joins again with the present assignment. No KIP-848 group gives a partition back at the same epoch.
    """
    if revocation is None or revocation.generation.is_member_epoch:
        return revocation
    is_undone = bool(revocation.partitions) and revocation.partitions <= assigned
    return None if is_undone else revocation


@dataclass(frozen=True, slots=True)
class CommitAttempt:
    """A request for a decision on a commit of ``positions`` under ``snapshot`` now."""

    positions: InputPositions
    snapshot: GroupGeneration = UNJOINED
    generation_is_synced: bool = False
    """No rebalance callback from before ``snapshot`` can still be waiting."""
    held_for_s: float = 0.0
    """Seconds since the first skip of the work to be committed; 0.0 when none was skipped."""
    generation_unstable: bool = False
    """Callbacks were served as often as one attempt serves them, and the generation changed each time."""
    departed: Partitions = frozenset()
    """Partitions of this commit that left while callbacks were served, even if they were assigned again."""
    replaced_topic: str | None = None
    """An input topic of this transaction that was deleted and created again: its records have no offsets any more."""
    required_membership: GroupGeneration | None = None
    """The only membership that may commit."""
    may_be_readmitted: bool = False
    """The group may have evicted and readmitted us since the last callback (``core/membership_states.py``)."""


@dataclass(frozen=True, slots=True)
class GateSettings:
    """How the gate is set up; ``hold_limit_s`` bounds how long one piece of work may be held."""

    scope: GateScope = GateScope.MEMBER
    policy: GatePolicy = GatePolicy.SKIP
    hold_limit_s: float = 5.0
    validation: CommitValidation = CommitValidation.UNKNOWN


@dataclass(frozen=True, slots=True)
class Question:
    """Everything a rule may look at."""

    state: GateState
    attempt: CommitAttempt
    settings: GateSettings

    def names_any(self, partitions: Partitions) -> bool:
        """Whether the attempt covers one of ``partitions``."""
        return bool(partitions) and not partitions.isdisjoint(self.attempt.positions)

    @property
    def moved_on(self) -> bool:
        """Whether we are another member, or at another generation, than the attempt is bound to."""
        required = self.attempt.required_membership
        return required is not None and not self.attempt.snapshot.same_membership(required)

    @property
    def is_past_hold_limit(self) -> bool:
        """Whether the work in hand has been held for as long as it may be."""
        return self.attempt.held_for_s > self.settings.hold_limit_s

    @property
    def on_revocation_generation(self) -> bool:
        """Whether the gate is closed for this attempt: the group still shows the generation of the revocation."""
        revocation = self.state.revocation
        if revocation is None or not self.attempt.snapshot.same_membership(revocation.generation):
            return False
        return self.settings.scope is GateScope.MEMBER or self.names_any(revocation.partitions)

    @property
    def may_have_pending_callback(self) -> bool:
        """Whether the membership changed since a record was consumed, so that the callback for it may be pending."""
        if self.attempt.generation_is_synced:
            return False
        snapshot, positions = self.attempt.snapshot, self.attempt.positions.values()
        return not all(position.generation.same_membership(snapshot) for position in positions)


class RuleName(Enum):
    """The rules by name, in the order in which they are tried. Events, errors and counters show the value."""

    MEMBERSHIP_MOVED_ON = "membership_moved_on"
    LEFT_WHILE_SERVING = "left_while_serving"
    TOPIC_REPLACED = "topic_replaced"
    OUTPUTS_ONLY = "outputs_only"
    NOT_A_MEMBER = "not_a_member"
    LOST_WORK = "lost_work"
    NOT_OURS = "not_ours"
    EPOCH_MOVED_BEFORE_REVOKE = "epoch_moved_before_revoke"
    INSIDE_REVOKE = "inside_revoke"
    REVOCATION_GENERATION = "revocation_generation"
    HELD_TOO_LONG = "held_too_long"
    GENERATION_KEEPS_MOVING = "generation_keeps_moving"
    GENERATION_UNSTABLE = "generation_unstable"
    CALLBACKS_PENDING = "callbacks_pending"
    MAY_BE_READMITTED = "may_be_readmitted"
    ALWAYS_OURS = "always_ours"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True)
class GateRule:
    """One row of the decision table. ``reason_arguments``: the arguments of ``reason.format``."""

    name: RuleName
    applies: Callable[[Question], bool]
    decision: CommitDecision
    reason: str
    reason_arguments: Callable[[Question], tuple[object, ...]] = lambda _: ()


RULES: tuple[GateRule, ...] = (
    GateRule(
        RuleName.MEMBERSHIP_MOVED_ON,
        lambda q: q.moved_on,
        CommitDecision.ABORT,
        "the membership moved on from {} to {}",
        lambda q: (q.attempt.required_membership, q.attempt.snapshot),
    ),
    GateRule(
        RuleName.LEFT_WHILE_SERVING,
        lambda q: bool(q.attempt.departed),
        CommitDecision.ABORT,
        "the partitions left while commit() served callbacks, and a newer owner may exist",
    ),
    GateRule(
        RuleName.TOPIC_REPLACED,
        lambda q: q.attempt.replaced_topic is not None,
        CommitDecision.ABORT,
        "the input topic {} was deleted and created again",
        lambda q: (repr(q.attempt.replaced_topic),),
    ),
    GateRule(
        RuleName.OUTPUTS_ONLY,
        lambda q: not q.attempt.positions,
        CommitDecision.COMMIT,
        "nothing was consumed: outputs only",
    ),
    GateRule(
        RuleName.NOT_A_MEMBER,
        lambda q: not q.attempt.snapshot.is_active_member,
        CommitDecision.ABORT,
        f"not a member of the group now: {WITHOUT_A_FENCE}",
    ),
    GateRule(
        RuleName.LOST_WORK,
        lambda q: q.names_any(q.state.lost_work),
        CommitDecision.ABORT,
        "a partition was lost after its records were consumed: a newer owner may exist",
    ),
    GateRule(
        RuleName.NOT_OURS,
        lambda q: q.names_any(q.state.revoked_work) or not q.state.assigned.issuperset(q.attempt.positions),
        CommitDecision.ABORT,
        "a partition is no longer ours and its records were not committed in the revoke callback",
    ),
    GateRule(
        RuleName.EPOCH_MOVED_BEFORE_REVOKE,
        lambda q: q.state.revoking and q.attempt.snapshot.is_member_epoch and q.may_have_pending_callback,
        CommitDecision.ABORT,
        "the member epoch moved before this revoke callback: a loss may be queued after it, and cannot be served in it",
    ),
    GateRule(
        RuleName.INSIDE_REVOKE,
        lambda q: q.state.revoking,
        CommitDecision.COMMIT,
        "inside the revoke callback: the epoch cannot move while we are revoking (KAFKA-19779)",
    ),
    GateRule(
        RuleName.REVOCATION_GENERATION,
        lambda q: q.on_revocation_generation and not q.is_past_hold_limit,
        CommitDecision.SKIP,
        "the group still shows the generation of the last revocation (KAFKA-19779)",
    ),
    GateRule(
        RuleName.HELD_TOO_LONG,
        lambda q: q.on_revocation_generation,
        CommitDecision.ABORT,
        "the group has shown the generation of the last revocation for longer than the hold limit",
    ),
    GateRule(
        RuleName.GENERATION_KEEPS_MOVING,
        lambda q: q.may_have_pending_callback and q.attempt.generation_unstable and q.is_past_hold_limit,
        CommitDecision.ABORT,
        "the generation kept moving for longer than the hold limit",
    ),
    GateRule(
        RuleName.GENERATION_UNSTABLE,
        lambda q: q.may_have_pending_callback and q.attempt.generation_unstable,
        CommitDecision.SKIP,
        "the generation moved each time that callbacks were served: a revocation or loss may wait to be served",
    ),
    GateRule(
        RuleName.CALLBACKS_PENDING,
        lambda q: q.may_have_pending_callback,
        CommitDecision.SERVE_CALLBACKS,
        "the generation moved on since the records were consumed: a revocation or loss may wait to be served",
    ),
    GateRule(
        RuleName.MAY_BE_READMITTED,
        lambda q: q.attempt.may_be_readmitted,
        CommitDecision.ABORT,
        "the group may have evicted and readmitted us since its last callback: a newer owner may have committed",
    ),
    GateRule(RuleName.ALWAYS_OURS, lambda _: True, CommitDecision.COMMIT, "every partition was ours all along"),
)


@dataclass(frozen=True, slots=True)
class CommitRuling:
    """A decision, the rule that made it, and why."""

    decision: CommitDecision
    rule: RuleName
    reason: str

    @property
    def ends_hold(self) -> bool:
        """Whether it is the hold limit that aborts the work: `HoldEnded`."""
        return self.rule in {RuleName.HELD_TOO_LONG, RuleName.GENERATION_KEEPS_MOVING}


def decide(question: Question, rules: Iterable[GateRule] = RULES) -> CommitRuling:
    """Return the ruling of the first rule that applies."""
    row = next(row for row in rules if row.applies(question))
    return CommitRuling(row.decision, row.name, row.reason.format(*row.reason_arguments(question)))


@dataclass(slots=True)
class GateCounters:
    """Counts of rulings, and the seconds for which commits were held.

    ``skips_needed``: the broker would have refused the commit. ``skips_false``: it would have accepted it.
    ``skips_unjudged``: not known. ``held_s``: total seconds. ``by_rule``: rulings by rule.
    """

    commits: int = 0
    aborts: int = 0
    skips_needed: int = 0
    skips_false: int = 0
    skips_unjudged: int = 0
    holds: int = 0
    held_s: float = 0.0
    by_rule: dict[RuleName, int] = field(default_factory=dict)

    @property
    def skips(self) -> int:
        """All skipped commits."""
        return self.skips_needed + self.skips_false + self.skips_unjudged

    def count(self, attempt: CommitAttempt, ruling: CommitRuling, validation: CommitValidation) -> None:
        """Record one ruling."""
        self.by_rule[ruling.rule] = self.by_rule.get(ruling.rule, 0) + 1
        if ruling.decision is CommitDecision.SKIP:
            self.holds += attempt.held_for_s == 0.0
            # LOST_WORK and NOT_OURS have refused everything that is not ours: only the broker's epoch check is left.
            # It says nothing about a callback that waits.
            is_judged = ruling.rule is RuleName.REVOCATION_GENERATION and validation is not CommitValidation.UNKNOWN
            self.skips_unjudged += not is_judged
            self.skips_needed += is_judged and validation is CommitValidation.EXACT
            self.skips_false += is_judged and validation is not CommitValidation.EXACT
        elif ruling.decision is not CommitDecision.SERVE_CALLBACKS:
            self.held_s += attempt.held_for_s
            self.commits += ruling.decision is CommitDecision.COMMIT
            self.aborts += ruling.decision is CommitDecision.ABORT


class CommitGate:
    """The gate of one group member: give it the rebalance events, and let it decide before every commit."""

    def __init__(self, settings: GateSettings | None = None) -> None:
        self.settings = settings or GateSettings()
        self.state = GateState()
        self.counters = GateCounters()

    def tell(self, event: GateEvent) -> None:
        """Apply one event to the gate's state."""
        self.state = next_state(self.state, event)

    def decide(self, attempt: CommitAttempt) -> CommitRuling:
        """Decide on one attempt and count the ruling."""
        ruling = decide(Question(self.state, attempt, self.settings))
        self.counters.count(attempt, ruling, self.settings.validation)
        return ruling
