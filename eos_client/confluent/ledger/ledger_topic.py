"""The topic that gives a Spark sink's ledger, or an outbox, its partitions; no record is ever written to it.

Offsets can only be committed for partitions that exist, so there is one for the batch-complete marker and one for each
slot. It only grows: partitions of slots that are no longer used keep their entries.
"""

from __future__ import annotations

from eos_client.confluent.admin.cluster_admin import ClusterAdmin
from eos_client.core.model import TopicDescription
from eos_client.errors import ClusterUnfitError

MARKER_PARTITION = 0


def partition_of_slot(slot: int) -> int:
    """Return the ledger partition of ``slot``; the marker comes first, so that slots can be added."""
    return slot + 1


class LedgerTopic:
    """The topic ``name`` on the cluster of ``admin``; what a method asks may raise ClusterUnavailableError."""

    def __init__(self, admin: ClusterAdmin, name: str) -> None:
        self._admin = admin
        self._name = name

    def capacity(self) -> int:
        """Return how many slots the topic has partitions for; 0 if it does not exist."""
        found = self._described()
        return 0 if found is None else max(0, found.partition_count - 1)

    def ensure(self, slots: int) -> int:
        """Create or extend the topic for ``slots`` slots; returns its capacity.

        Raises ClusterUnfitError when the cluster refuses, or shows no leaders within the time limit of its admin.
        """
        self.ensure_partitions(slots + 1)
        return max(slots, self.capacity())

    def ensure_partitions(self, count: int) -> None:
        """Create the topic, or extend it, so that it has ``count`` partitions or more; raises as `ensure` does."""
        try:
            if self._described() is None:
                self._admin.create_topics({self._name: count})
        except ClusterUnfitError:
            if self._described() is None:  # else another one was quicker
                raise
        found = self._described()
        if found is None or found.partition_count < count:
            try:
                self._admin.extend_topic(self._name, count)
            except ClusterUnfitError as error:
                raise ClusterUnfitError(
                    f"{error}. Allow this client to alter the ledger topic, or extend it yourself."
                ) from error
            self._admin.wait_for_leaders({self._name: count})

    def _described(self) -> TopicDescription | None:
        return self._admin.topics([self._name])[self._name]
