"""All brokers as one object: topics and both coordinators."""

from __future__ import annotations

from random import Random

from eos_client.testing.simulator.brokers.clock import SimulatedClock
from eos_client.testing.simulator.brokers.group_coordinator import GroupCoordinator
from eos_client.testing.simulator.brokers.model import BrokerError, Fetched, PartitionKey, RecordBatch
from eos_client.testing.simulator.brokers.offset_log import OffsetLog
from eos_client.testing.simulator.brokers.offset_store import OffsetStore
from eos_client.testing.simulator.brokers.partition_log import PartitionLog
from eos_client.testing.simulator.brokers.settings import BrokerSettings
from eos_client.testing.simulator.brokers.transaction_coordinator import TransactionCoordinator


class Brokers:
    """The state on which requests act. Everything happens immediately, at the clock's time.

    ``log_changes`` counts the changes of what can be read in any log.
    """

    def __init__(self, clock: SimulatedClock, settings: BrokerSettings, random: Random) -> None:
        self.clock = clock
        self.settings = settings
        self.log_changes = 0
        self._throttled_until_s = 0.0
        self._topics: dict[str, list[PartitionLog]] = {}
        self.groups = GroupCoordinator(
            clock,
            self.partition_count,
            OffsetStore(OffsetLog(), partition_count=self.partition_count),
            settings,
            random,
        )
        self.transactions = TransactionCoordinator(clock, self.log, self.groups, settings)

    # -- topics --------------------------------------------------------------------------------------------------

    @property
    def topics(self) -> dict[str, int]:
        """The topics, each with its number of partitions."""
        return {topic: len(logs) for topic, logs in self._topics.items()}

    def create_topic(self, topic: str, partitions: int) -> None:
        """Create ``topic``."""
        if topic in self._topics:
            raise BrokerError("TOPIC_ALREADY_EXISTS", f"topic {topic!r}")
        self._topics[topic] = [PartitionLog(self.settings, self._log_changed) for _ in range(partitions)]
        self._log_changed()

    def delete_topic(self, topic: str) -> None:
        """Delete ``topic``, and what groups have committed for it; raises BrokerError UNKNOWN_TOPIC_OR_PART."""
        logs = self._topics.pop(topic, None)
        if logs is None:
            raise BrokerError("UNKNOWN_TOPIC_OR_PART", f"topic {topic!r}")
        self._log_changed()
        partitions = [PartitionKey(topic, number) for number in range(len(logs))]
        for group_id in self.groups.offsets.groups():
            self.groups.offsets.delete(group_id, partitions)

    def _log_changed(self) -> None:
        self.log_changes += 1

    def partition_count(self, topic: str) -> int:
        """Return how many partitions ``topic`` has; 0 for an unknown topic."""
        return len(self._topics.get(topic, ()))

    def log(self, partition: PartitionKey) -> PartitionLog:
        """Return the log of ``partition``; raises BrokerError UNKNOWN_TOPIC_OR_PART."""
        if not 0 <= partition.partition < self.partition_count(partition.topic):
            raise BrokerError("UNKNOWN_TOPIC_OR_PART", f"{partition.topic} [{partition.partition}]")
        return self._topics[partition.topic][partition.partition]

    def throttle(self, size_bytes: int) -> float:
        """Return when the client quota lets ``size_bytes`` of outputs through, behind those of earlier calls."""
        free_at_s = max(self.clock.now_s, self._throttled_until_s)
        self._throttled_until_s = free_at_s + size_bytes / self.settings.producer_byte_rate
        return free_at_s

    def produce(self, partition: PartitionKey, batch: RecordBatch, transactional_id: str | None = None) -> int:
        """Append ``batch`` and return its first offset. A transactional batch must be of a running transaction."""
        log = self.log(partition)
        if batch.transactional:
            self.transactions.verify(transactional_id, batch.producer_id, batch.producer_epoch, partition)
        return log.append(batch, self.clock.now_s)

    def fetch(self, partition: PartitionKey, offset: int, records_max: int, *, read_committed: bool) -> Fetched:
        """Read from ``offset``; raises BrokerError OFFSET_OUT_OF_RANGE."""
        return self.log(partition).fetch(offset, records_max, read_committed=read_committed)

    # -- time ----------------------------------------------------------------------------------------------------

    @property
    def due_s(self) -> float:
        """When a coordinator's next time-out ends."""
        return min(self.groups.due_s, self.transactions.due_s)

    def work(self) -> None:
        """Evict members whose session has ended, abort transactions that timed out, remove expired state."""
        self.groups.work()
        self.transactions.work()
        for logs in self._topics.values():
            for log in logs:
                log.expire_producers(self.clock.now_s - self.settings.producer_id_expiration_s)
