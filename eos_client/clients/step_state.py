"""The values that the steps of one request of a session share, and the ending that they lead to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from eos_client.core.commit_gate import CommitRuling, RuleName
from eos_client.core.model import InputPartition, InputPositions, Outcome, Partitions, UnexpectedEventError
from eos_client.core.outcome_resolution import AttemptToken
from eos_client.core.transaction_lifecycle import Phase, TransactionEvent
from eos_client.errors import CommitRefusedError, EosError, RebuildProducerError, UnknownOutcomeError, what_happened
from eos_client.ports import MembershipSnapshot

T = TypeVar("T")

_INTERRUPTED_STEPS = {
    Phase.BEGINNING: "the start of a transaction",
    Phase.BEGINNING_TO_COMMIT: "the start of a transaction",
    Phase.COMMITTING_STARTS: "the commit of start offsets",
    Phase.ABORTING: "an abort",
    Phase.REBUILDING: "an abort",
    Phase.BROKEN: "an earlier transaction",
}


@dataclass(frozen=True, slots=True)
class Ending:
    """How a transaction has ended, or that it is held."""

    outcome: Outcome
    reason: str
    rule: RuleName | None = None
    """The gate's rule, where the gate was the reason."""
    partitions: Partitions = frozenset()
    """Of an abort: the partitions of its records, also those that have left."""


@dataclass(frozen=True, slots=True)
class AttemptedOffsets:
    """What a commit is about to send, or has sent; ``token`` marks the offsets as this attempt's."""

    positions: InputPositions
    group_offsets_before: Mapping[InputPartition, int]
    """As far as they are known."""
    snapshot: MembershipSnapshot
    token: AttemptToken
    inside_revoke: bool


@dataclass(slots=True)
class StepState:
    """The state that the steps from one request (to begin, to end or to abort) to its result share."""

    began_at: float
    inside_revoke: bool = False
    """The consumer can be rewound only after its running call has returned."""
    inside_fetch: bool = False
    """A call of the consumer is running that has fetched records already."""
    abort_reason: str = ""
    abort_rule: RuleName | None = None
    refused_by_group: bool = False
    rewound: InputPositions = field(default_factory=dict)
    """The work that comes again, where the consumer was rewound before the abort is confirmed."""
    unhandled: EosError | None = None
    """A failure of the producer on which no step has acted yet."""
    decided: tuple[CommitRuling, MembershipSnapshot] | None = None
    attempted: AttemptedOffsets | None = None
    unanswered: UnknownOutcomeError | None = None
    is_resolution_counted: bool = False
    is_left_unknown: bool = False

    def fail(self, failure: EosError) -> TransactionEvent:
        """Make ``failure`` the reason for the abort; returns the lifecycle's event for it."""
        self.unhandled, self.abort_reason, self.abort_rule = failure, what_happened(failure), None
        self.refused_by_group = isinstance(failure, CommitRefusedError)
        is_finished = isinstance(failure, RebuildProducerError)
        return TransactionEvent.HANDLE_FINISHED if is_finished else TransactionEvent.REFUSED

    def leave_unknown(self) -> None:
        """Record that the outcome was reported as permanently unknown."""
        self.is_left_unknown = True

    def why_unknown(self, phase: Phase) -> str:
        """Return why the outcome of the step that ``phase`` names is unknown."""
        if self.unanswered is not None:
            return str(self.unanswered)
        return f"{_INTERRUPTED_STEPS.get(phase, 'a commit')} has no known outcome."


def needed(value: T | None) -> T:
    """Return ``value``; raises UnexpectedEventError if no earlier step has set it."""
    if value is None:
        raise UnexpectedEventError("an earlier step of the transaction did not set a value that this step needs")
    return value
