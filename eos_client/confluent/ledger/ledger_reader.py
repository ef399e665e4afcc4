"""Reads a Spark sink's ledger without joining its group.

``isolation.level=read_committed`` makes librdkafka ask for stable offsets: an answer waits for open transactions that
hold offsets of these partitions (KIP-447), so what is read cannot move by a transaction that was begun before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

from eos_client.clock import MONOTONIC_CLOCK
from eos_client.config.client_settings import for_consumer
from eos_client.confluent.callback_guard import built
from eos_client.confluent.consumer.library_consumer import with_offsets
from eos_client.confluent.failures.kafka_errors import kafka_error
from eos_client.confluent.ledger.ledger_topic import MARKER_PARTITION, partition_of_slot
from eos_client.core.batch_ledger import LedgerEntry, decode_entry
from eos_client.core.error_codes import LEDGER_READ_REFUSED
from eos_client.errors import ClusterUnavailableError, ClusterUnfitError
from eos_client.ports import Clock

_ATTEMPT_S = 5.0
_PAUSE_S = 0.02


def ledger_consumer(name: str, settings: Mapping[str, Any], own: Mapping[str, Any]) -> Consumer:
    """Return a consumer that has the ``settings`` of a sink and its ``own``, and commits nothing by itself."""
    quick = {"reconnect.backoff.ms": 10, "retry.backoff.ms": 10}
    return built(name, Consumer, {**quick, **for_consumer(settings), "enable.auto.commit": False, **own})


class LedgerReader:
    """Committed ledger entries of one sink. Belongs to one thread at a time.

    ``stable=False`` does not wait for open transactions: what it reads may be about to move.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        group_id: str,
        topic: str,
        *,
        stable: bool = True,
        clock: Clock = MONOTONIC_CLOCK,
    ) -> None:
        self._topic = topic
        self._clock = clock
        own = {"group.id": group_id, "isolation.level": "read_committed" if stable else "read_uncommitted"}
        self._raw = ledger_consumer("ledger reader", settings, own)

    def slots(self, slots: Iterable[int], timeout_s: float) -> dict[int, LedgerEntry]:
        """Return the entries of ``slots``; a slot without one is left out.

        Raises ClusterUnavailableError after ``timeout_s`` seconds, LedgerUnreadableError for foreign metadata.
        """
        by_partition = {partition_of_slot(slot): slot for slot in slots}
        return {by_partition[p]: entry for p, entry in self._read(list(by_partition), timeout_s).items()}

    def marker(self, timeout_s: float) -> LedgerEntry | None:
        """Return the batch-complete marker; None before the first driver wrote it."""
        return self._read([MARKER_PARTITION], timeout_s).get(MARKER_PARTITION)

    def slot_and_marker(self, slot: int, timeout_s: float) -> tuple[LedgerEntry | None, LedgerEntry | None]:
        """Return both in one answer."""
        found = self._read([partition_of_slot(slot), MARKER_PARTITION], timeout_s)
        return found.get(partition_of_slot(slot)), found.get(MARKER_PARTITION)

    def _read(self, partitions: list[int], timeout_s: float) -> dict[int, LedgerEntry]:
        deadline = self._clock() + timeout_s
        while True:
            try:
                left_s = max(0.1, min(_ATTEMPT_S, deadline - self._clock()))
                answer = self._raw.committed([TopicPartition(self._topic, p) for p in partitions], left_s)
                return {at.partition: decode_entry(at.offset, at.metadata) for at in with_offsets(answer)}
            except KafkaException as exception:
                error = kafka_error(exception)
                cause = f"{error.name()}: {error.str()}"
                if error.name() in LEDGER_READ_REFUSED:
                    raise ClusterUnfitError(
                        f"the ledger in topic {self._topic!r} cannot be read: {cause}. Let this client describe the "
                        "topic and read the group."
                    ) from exception
                if self._clock() > deadline:
                    raise ClusterUnavailableError(
                        f"the ledger in topic {self._topic!r} could not be read within {timeout_s:g} s: {cause}"
                    ) from exception
            self._clock.sleep(_PAUSE_S)

    def close(self) -> None:
        """Give up the connections."""
        self._raw.close()
