"""Resolves the outcome of unanswered commits, and reports a recovery once a commit has succeeded again.

After an unanswered commit, never abort and never reuse the handle: read the group's offsets (KAFKA-17754).
``init_transactions`` with the same transactional.id commits or aborts the old transaction and fences a late EndTxn; the
token in the group's stable committed offsets then shows the outcome. librdkafka lacks KIP-890 part 2, so there is no
other way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import tenacity

from eos_client.clients.step_state import AttemptedOffsets
from eos_client.confluent.consumer.confluent_consumer import ConfluentConsumer
from eos_client.confluent.diagnosis import outcome_stays_unknown
from eos_client.confluent.failures.producer_failures import action_of
from eos_client.confluent.producer.confluent_producer import ConfluentProducer
from eos_client.core.model import CommittedOffset, InputPartition, InputPositions, Outcome
from eos_client.core.outcome_resolution import needs_log_end, resolve_outcome
from eos_client.errors import ClusterUnavailableError, EosError, UnknownOutcomeError, what_happened
from eos_client.observe import Counters, EventHook, OutcomeResolved, ProducerRecovered
from eos_client.ports import Clock

_READ_TIMEOUT_S = 5.0
_UNKNOWN = "unknown"
_Answers = tuple[Mapping[InputPartition, CommittedOffset], Mapping[InputPartition, int]]


class _Unanswered(NamedTuple):
    """The answer that is missing, and what to know about it."""

    what: str
    hint: str


_NO_OFFSETS = _Unanswered(
    "the committed offsets",
    "While a transaction holds other offsets of them, nobody can: if brokers answer, see by `eos-client txn list "
    "--topic __consumer_offsets` whether one hangs.",
)
_NO_LOG_END = _Unanswered("the log end", "It shows whether the commit took effect, of which the group has no offset.")


@dataclass(eq=False, repr=False)
class CommitOutcomes:
    """Records failures, and reports them as one event when a commit succeeds again."""

    _consumer: ConfluentConsumer
    _producer: ConfluentProducer
    _hook: EventHook
    _counters: Counters
    _clock: Clock
    _first_failure: ProducerRecovered | None = field(default=None, init=False)
    """The event of the recovery that is under way, as far as it is known."""
    _failed_at: float = field(default=0.0, init=False)

    def record_failure(self, error: EosError) -> None:
        """Record a failure before anything is done about it."""
        self._counters.recoveries += 1
        if (first := self._first_failure) is not None:
            self._first_failure = replace(first, failures=first.failures + 1)
            return
        self._failed_at = self._clock()
        self._first_failure = ProducerRecovered(
            transactional_id=self._producer.library.transactional_id,
            action=action_of(error).value,
            reason=what_happened(error),
            outcome=_UNKNOWN if isinstance(error, UnknownOutcomeError) else Outcome.ABORTED.value,
            failures=1,
            transaction_age_s=self._producer.calls.transaction_age_s,
            to_commit_s=0.0,
            old_producer=self._producer.library.identity,
            new_producer=None,
        )

    def record_unanswered(self, cause: UnknownOutcomeError) -> None:
        """Record that the outcome of a commit has to be resolved."""
        self._counters.outcomes_resolved += 1
        self.record_failure(cause)

    def report(self) -> None:
        """Report the recovery, if there was one, now that a commit is confirmed."""
        first, self._first_failure = self._first_failure, None
        if first is not None:
            to_commit_s, new_producer = self._clock() - self._failed_at, self._producer.library.identity
            self._hook(replace(first, to_commit_s=to_commit_s, new_producer=new_producer))

    def resolve_commit_outcome(
        self,
        sent: AttemptedOffsets,
        cause: UnknownOutcomeError,
        meanwhile: Callable[[], None],
    ) -> Outcome | None:
        """Return what became of the commit that has ``sent`` offsets; rebuilds the producer.

        None where the offsets cannot show it: nothing was consumed, or others have changed all of its offsets since.
        ``meanwhile`` is called between two attempts; what it raises interrupts this. Raises ClusterUnavailableError
        when the producer could not be rebuilt, or the offsets could not be read, within ``recovery_timeout_s``; then
        this may be called again.
        """
        try:
            self._producer.rebuild(meanwhile)
            committed, log_ends = self._await_answers(sent, meanwhile) if sent.positions else ({}, {})
        except ClusterUnavailableError as error:
            raise outcome_stays_unknown(error) from error
        outcome = resolve_outcome(sent.positions, sent.group_offsets_before, committed, sent.token, log_ends)
        self._hook(OutcomeResolved(outcome=outcome.value if outcome else _UNKNOWN, reason=what_happened(cause)))
        if outcome is not None and (first := self._first_failure) is not None and first.failures == 1:
            self._first_failure = replace(first, outcome=outcome.value)
        return outcome

    def _await_answers(self, sent: AttemptedOffsets, meanwhile: Callable[[], None]) -> _Answers:
        limit_s = self._producer.limits.recovery_timeout_s
        deadline = self._clock() + limit_s
        retrying = tenacity.Retrying(
            sleep=self._clock.sleep,
            stop=lambda _: self._producer.registration.is_past_deadline or self._clock() >= deadline,
            wait=tenacity.wait_exponential(multiplier=0.1, max=2.0),
            before_sleep=lambda _: meanwhile(),
            retry=tenacity.retry_if_result(lambda found: isinstance(found, _Unanswered)),
            retry_error_callback=lambda last: last.outcome and last.outcome.result(),
        )
        found = retrying(self._read_answers, sent)
        if isinstance(found, _Unanswered):
            raise ClusterUnavailableError(
                f"{found.what} of {', '.join(map(str, sent.positions))} could not be read within {limit_s:g} s "
                f"({self._consumer.library.why_unanswered}). {found.hint}"
            )
        return found

    def _read_answers(self, sent: AttemptedOffsets) -> _Answers | _Unanswered:
        """Return the group's offsets, and the ends of logs that `resolve_outcome` needs."""
        committed = self._consumer.library.committed_offsets(list(sent.positions), _READ_TIMEOUT_S)
        if committed is None:
            return _NO_OFFSETS
        log_ends: dict[InputPartition, int] = {}
        for partition in sent.positions:
            if needs_log_end(partition, sent.group_offsets_before, committed):
                end = self._consumer.library.log_end(partition)
                if end is None:
                    return _NO_LOG_END
                log_ends[partition] = end
        return committed, log_ends


def undeterminable_outcome(attempted: InputPositions) -> UnknownOutcomeError:
    """Return the error for a commit of which the group's offsets cannot show what became."""
    unknown = "a commit was not answered, and the group's offsets cannot show its outcome"
    if attempted:
        return UnknownOutcomeError(
            f"{unknown}: others have changed the offsets of its partitions since, such as a member that owns them now "
            "or the deletion of a topic. The commit took effect whole or not at all. Go on: this consumer has gone to "
            "the group's offsets."
        )
    return UnknownOutcomeError(
        f"{unknown}: the transaction consumed nothing. Read the output topics before you write its outputs again; the "
        "producer can be used as it is."
    )
