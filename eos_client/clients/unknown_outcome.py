"""A commit without an answer: never abort, never reuse the handle, ask the log (KAFKA-17754).

Initialising the same transactional.id ends the old transaction one way or the other and fences a late EndTxn; then the
token in the group's stable committed offsets tells which way it was. librdkafka has no KIP-890 part 2, so nothing else
does.
"""

from __future__ import annotations

import tenacity

from eos_client.confluent.consumer.confluent_consumer import ConfluentConsumer
from eos_client.confluent.diagnosis import outcome_stays_unknown
from eos_client.confluent.producer.confluent_producer import ConfluentProducer
from eos_client.core.model import CommittedOffset, InputPartition, InputPositions, Outcome
from eos_client.core.outcome_resolution import AttemptToken, resolve_outcome
from eos_client.errors import ClusterUnavailableError, EosError, UnknownOutcomeError
from eos_client.observe import EventHook, OutcomeResolved
from eos_client.ports import Clock

_READ_TIMEOUT_S = 5.0


def ask_the_log(
    consumer: ConfluentConsumer,
    producer: ConfluentProducer,
    attempted: InputPositions,
    token: AttemptToken,
    cause: UnknownOutcomeError,
    hook: EventHook,
    clock: Clock,
) -> Outcome:
    """Return what became of the commit of ``attempted``, sent with ``token``; rebuilds the producer.

    Raises UnknownOutcomeError when the log cannot tell: nothing was consumed, or all its offsets are somebody else's.
    Raises ClusterUnavailableError when the producer could not be rebuilt, or the offsets could not be read, within
    ``recovery_timeout_s``; then this may be called again.
    """
    try:
        producer.rebuild()
        committed = _committed(consumer, producer, attempted, clock) if attempted else {}
    except ClusterUnavailableError as error:
        raise outcome_stays_unknown(error) from error
    outcome = resolve_outcome(attempted, committed, token) if attempted else None
    hook(OutcomeResolved(outcome=outcome.value if outcome else "unknown", reason=str(cause)))
    if outcome is None:
        raise UnknownOutcomeError(_no_way_to_tell(attempted)) from cause
    return outcome


def _no_way_to_tell(attempted: InputPositions) -> str:
    unknown = "a commit was not answered, and the group's offsets cannot tell what became of it"
    if attempted:
        return (
            f"{unknown}: they are not below it, and not this producer's, so its records belong to another member. It "
            "took effect whole or not at all. Go on: this consumer has gone back to the group's offsets."
        )
    return (
        f"{unknown}: the transaction consumed nothing. Read the output topics before you write its outputs again; the "
        "producer can be used as it is."
    )


def _committed(
    consumer: ConfluentConsumer, producer: ConfluentProducer, attempted: InputPositions, clock: Clock
) -> dict[InputPartition, CommittedOffset]:
    limit_s = producer.limits.recovery_timeout_s
    deadline = clock() + limit_s
    retrying = tenacity.Retrying(
        sleep=clock.sleep,
        stop=lambda _: producer.registration.gives_up or clock() >= deadline,
        wait=tenacity.wait_exponential(multiplier=0.1, max=2.0),
        retry=tenacity.retry_if_not_exception_type(EosError),
    )
    try:
        return dict(retrying(consumer.committed_entries, list(attempted), _READ_TIMEOUT_S))
    except tenacity.RetryError as error:
        raise ClusterUnavailableError(
            f"the committed offsets of {', '.join(map(str, attempted))} could not be read within {limit_s:g} s."
        ) from error
