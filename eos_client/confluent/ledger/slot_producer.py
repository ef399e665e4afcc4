"""The transactional producer of one slot of a Spark sink.

Slots move between Python workers, so a handle must be quick to start: librdkafka looks for the coordinator again only
every 500 ms, but at once when ``init_transactions`` is repeated.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaException, TopicPartition

from eos_client.clock import MONOTONIC_CLOCK
from eos_client.config.client_settings import Default, for_producer
from eos_client.confluent.failures.kafka_errors import kafka_error
from eos_client.confluent.failures.producer_failures import OutputWords
from eos_client.confluent.ledger.ledger_topic import partition_of_slot
from eos_client.confluent.producer.confluent_producer import ConfluentProducer
from eos_client.confluent.producer.library_producer import ProducerFactory
from eos_client.core.batch_ledger import LedgerEntry
from eos_client.core.error_codes import FATAL_UNNAMED, MEMBER_UNKNOWN, RUN_FENCED
from eos_client.core.model import ProducerLimits
from eos_client.errors import AbortableError, EosError, RetriableError
from eos_client.observe import EventHook, log_event
from eos_client.ports import Clock

SLOT_DEFAULTS: Mapping[str, Default] = {
    "queue.buffering.max.messages": Default(1_000_000, "A slot is written in one go, and may be large."),
    "batch.size": Default(
        262_144, "A slot is on its way while it is written, and its memory used again; librdkafka's default is 1000000."
    ),
    "max.in.flight": Default(
        1, "No batch overtakes one that is refused (confluent-kafka-go #921): a slot may be too large to write again."
    ),
    "delivery.report.only.error": Default(True, "Reports of successful deliveries are not used."),
    "queue.buffering.max.kbytes": Default(
        65_536,
        "What a stalled broker costs a slot in memory, outside of the Python and JVM heaps. Twice `message.max.bytes` "
        "where that is more.",
    ),
    "partitioner": Default(
        "murmur2_random", "As Spark's own sink places keys: a live topic can change from one sink to the other."
    ),
}

_INIT_ATTEMPT_S = 0.01
_ROW = OutputWords(
    "a row",
    "Correct that row",
    'Correct that row, or raise "message.max.bytes" in config and max.message.bytes of the topic',
)


class SlotProducer(ConfluentProducer):
    """One producer handle; ``name`` is unique everywhere.

    Once fenced, it never initialises its id again: that could fence a newer attempt.
    """

    name = ""

    def __init__(
        self,
        settings: Mapping[str, Any],
        transactional_id: str,
        *,
        limits: ProducerLimits,
        hook: EventHook = log_event,
        factory: ProducerFactory | None = None,
        clock: Clock = MONOTONIC_CLOCK,
    ) -> None:
        shared = for_producer(settings)
        defaults = {key: default.value for key, default in SLOT_DEFAULTS.items()}
        own = {**defaults, **_room_for(shared.get("message.max.bytes")), **shared}
        super().__init__(
            {**own, "transactional.id": transactional_id},
            limits=limits,
            hook=hook,
            factory=factory,
            clock=clock,
            init_attempt_s=_INIT_ATTEMPT_S,
            recovers_from_own_fence=False,
            words=_ROW,
        )
        self.name = uuid.uuid4().hex[:16]
        self.library.start()

    def __del__(self) -> None:
        """End the handle of a producer that was dropped without ``close()``."""
        if self.name:  # else it was never built
            self.library.end_dropped()

    def enqueue_row(
        self, topic: str, value: bytes | None, key: bytes | None, options: Mapping[str, Any], limit_s: float
    ) -> None:
        """Queue a row, waiting for room in the local queue for ``limit_s``.

        Raises OutputRefusedError for a row that cannot be written, RetriableError when there is no room in time, else
        an error named for what to do.
        """
        try:
            self.await_room(limit_s, self.produce, topic, value, key, **options)
        except AbortableError as error:
            if isinstance(error, KafkaException) and kafka_error(error).name() == FATAL_UNNAMED:
                self.abort_transaction(self.limits.commit_timeout_s)  # which says what it was, such as a fence
            raise

    def _stayed_full(self, what: str) -> EosError:
        return RetriableError(f"{what}{self.library.last_errors.clause()}")

    def send_entry(self, topic: str, slot: int, entry: LedgerEntry, group_metadata: bytes, timeout_s: float) -> None:
        """Add the slot's new ledger entry to the transaction, fenced by the driver's lease (KIP-447)."""
        at = TopicPartition(topic, partition_of_slot(slot), entry.next_batch, metadata=entry.encode())
        self.send_offsets_to_transaction([at], group_metadata, timeout_s)


def _room_for(largest_bytes: object) -> dict[str, int]:
    """Return how large the queue must be for a user who allows larger records: one without room waits for ever."""
    if largest_bytes is None:
        return {}
    needed = 2 * int(str(largest_bytes)) // 1024
    return {"queue.buffering.max.kbytes": max(needed, SLOT_DEFAULTS["queue.buffering.max.kbytes"].value)}


def is_run_fenced(error: EosError, *, first_attempt: bool) -> bool:
    """Whether the group refused the driver's membership: its run is over.

    UNKNOWN_MEMBER_ID can also mean a broken producer mapping (KAFKA-14370), so a first attempt is repeated.
    """
    if not isinstance(error, KafkaException):
        return False
    code = kafka_error(error).name()
    return code in RUN_FENCED or (code == MEMBER_UNKNOWN and not first_attempt)
