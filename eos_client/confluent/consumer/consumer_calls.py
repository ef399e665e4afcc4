"""confluent_kafka's Consumer behind one rule: only the owning thread may call it.

Everything here passes through; what a transaction needs on top is in ``consumer.py``.
"""

from __future__ import annotations

from typing import Any, NoReturn, SupportsIndex

from confluent_kafka import TopicPartition

from eos_client.confluent.call_stack import in_library
from eos_client.confluent.failures import consumer_errors, not_to_be_copied
from eos_client.confluent.thread_ownership import NeverBuilt, ThreadOwnership, owned


class OwnedConsumer:
    """The pass-through part of the consumer. Methods mean what they mean in ``confluent_kafka.Consumer``."""

    _raw: Any = None
    _settings: dict[str, Any]
    _closed = True
    _ownership: ThreadOwnership | NeverBuilt = NeverBuilt("Consumer closed")

    def __reduce_ex__(self, _protocol: SupportsIndex) -> NoReturn:
        raise not_to_be_copied(self)

    @owned()
    def unassign(self) -> None:
        """Drop the assignment."""
        self._raw.unassign()

    @owned()
    def incremental_unassign(self, partitions: list[TopicPartition]) -> None:
        """Take from the assignment, from an ``on_revoke`` callback of a cooperative group."""
        self._raw.incremental_unassign(partitions)

    @owned()
    def assignment(self) -> list[TopicPartition]:
        """Return the current assignment."""
        assigned: list[TopicPartition] = self._raw.assignment()
        return assigned

    @owned()
    def committed(self, partitions: list[TopicPartition], timeout: float = -1) -> list[TopicPartition]:
        """Read committed offsets; waits for pending transactional ones (KIP-447). ``timeout`` in seconds."""
        with consumer_errors("committed()"):
            committed: list[TopicPartition] = self._raw.committed(partitions, timeout)
        return committed

    @owned()
    def get_watermark_offsets(
        self, partition: TopicPartition, timeout: float = -1, cached: bool = False
    ) -> tuple[int, int]:
        """Return the low and high watermark of ``partition``."""
        low, high = self._raw.get_watermark_offsets(partition, timeout, cached)
        return int(low), int(high)

    @owned()
    def offsets_for_times(self, partitions: list[TopicPartition], timeout: float = -1) -> list[TopicPartition]:
        """Look up offsets by timestamp (milliseconds since the epoch, in each ``offset``)."""
        found: list[TopicPartition] = self._raw.offsets_for_times(partitions, timeout)
        return found

    @owned()
    def list_topics(self, topic: str | None = None, timeout: float = -1) -> Any:
        """Return the cluster's metadata. ``timeout`` in seconds. Raises TransactionStateError inside a callback."""
        given: dict[str, Any] = {"timeout": timeout} if topic is None else {"topic": topic, "timeout": timeout}
        with consumer_errors("list_topics()"):
            return in_library(self, lambda: self._raw.list_topics(**given))

    @owned()
    def cluster_id(self, timeout: float = -1) -> str:
        """Return the cluster's id. Raises TransactionStateError inside a callback."""
        return str(in_library(self, lambda: self._raw.cluster_id(timeout)))

    @owned()
    def consumer_group_metadata(self) -> Any:
        """Return the opaque group metadata as of now. Do not keep it: it ages with every rebalance."""
        return self._raw.consumer_group_metadata()

    @owned()
    def memberid(self) -> str | None:
        """Return the member id; None before the group has given one."""
        member: str | None = self._raw.memberid()
        return member

    @owned()
    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Replace the SASL credentials."""
        self._raw.set_sasl_credentials(username, password)
        self._settings.update({"sasl.username": username, "sasl.password": password})
