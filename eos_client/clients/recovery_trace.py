"""From the first failure of a producer to the first commit after it: one event that tells the whole recovery."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from eos_client.confluent.producer.confluent_producer import ConfluentProducer
from eos_client.core.model import Outcome
from eos_client.core.producer_recovery import RecoveryAction
from eos_client.errors import EosError, RebuildProducerError, UnknownOutcomeError
from eos_client.observe import Counters, EventHook, ProducerRecovered

_UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class _Failure:
    action: RecoveryAction
    reason: str
    transaction_age_s: float
    producer: str | None
    at: float


class RecoveryTrace:
    """Takes note of failures, and reports them once a commit has got through again."""

    def __init__(
        self, producer: ConfluentProducer, hook: EventHook, counters: Counters, clock: Callable[[], float]
    ) -> None:
        self._producer = producer
        self._hook = hook
        self._counters = counters
        self._clock = clock
        self._first: _Failure | None = None
        self._failures = 0
        self._outcome = ""

    def failed(self, error: EosError) -> None:
        """Note a failure before anything is done about it."""
        self._counters.recoveries += 1
        self._failures += 1
        if self._first is None:
            self._outcome = _UNKNOWN if isinstance(error, UnknownOutcomeError) else Outcome.ABORTED.value
            age_s, producer = self._producer.calls.transaction_age_s, self._producer.library.identity
            self._first = _Failure(_action(error), str(error), age_s, producer, self._clock())

    def resolved(self, outcome: Outcome) -> Outcome:
        """Note and return what became of the transaction whose commit was not answered."""
        if self._failures == 1:
            self._outcome = outcome.value
        return outcome

    def committed(self) -> None:
        """Report what lies behind, now that a commit is confirmed."""
        first, failures = self._first, self._failures
        if first is None:
            return
        self._first, self._failures = None, 0
        self._hook(
            ProducerRecovered(
                transactional_id=self._producer.library.transactional_id,
                action=first.action.value,
                reason=first.reason,
                outcome=self._outcome,
                failures=failures,
                transaction_age_s=first.transaction_age_s,
                to_commit_s=self._clock() - first.at,
                old_producer=first.producer,
                new_producer=self._producer.library.identity,
            )
        )


def _action(error: EosError) -> RecoveryAction:
    if isinstance(error, UnknownOutcomeError):
        return RecoveryAction.RESOLVE_UNKNOWN
    if isinstance(error, RebuildProducerError):
        return RecoveryAction.REBUILD_PRODUCER
    return RecoveryAction.ABORT_AND_CONTINUE
