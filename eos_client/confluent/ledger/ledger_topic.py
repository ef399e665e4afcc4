"""The topic that gives a Spark sink's ledger its partitions; no record is ever written to it.

Offsets can only be committed for partitions that exist, so there is one for the batch-complete marker and one for each
slot. It only grows: partitions of slots that are no longer used keep their entries.
"""

from __future__ import annotations

import time

from eos_client.confluent.admin.cluster_admin import ClusterAdmin, TopicDescription
from eos_client.errors import ClusterUnfitError

MARKER_PARTITION = 0
_ASK_AGAIN_S = 0.02


def partition_of_slot(slot: int) -> int:
    """Return the ledger partition of ``slot``; the marker comes first, so that slots can be added."""
    return slot + 1


class LedgerTopic:
    """The topic ``name`` on the cluster of ``admin``; what a method asks may raise ClusterUnavailableError."""

    def __init__(self, admin: ClusterAdmin, name: str) -> None:
        self._admin = admin
        self._name = name

    def room(self) -> int:
        """Return for how many slots the topic has room now; 0 where there is none yet."""
        found = self._described()
        return 0 if found is None else max(0, found.partition_count - 1)

    def ensure(self, slots: int, *, timeout_s: float) -> int:
        """Create or extend the topic for ``slots`` slots; returns how many it has room for.

        Raises ClusterUnfitError when the cluster refuses, or shows no leaders within ``timeout_s`` seconds.
        """
        found = self._described()
        if found is None:
            self._create(slots + 1)
            found = self._described()
        count = 0 if found is None else found.partition_count
        if count < slots + 1:
            self._extend(slots + 1)
            count = self._await_partitions(slots + 1, timeout_s)
        return count - 1

    def _described(self) -> TopicDescription | None:
        return self._admin.topics([self._name])[self._name]

    def _create(self, count: int) -> None:
        try:
            self._admin.create_topics({self._name: count})
        except ClusterUnfitError:
            if self._described() is None:  # else another driver was quicker
                raise

    def _extend(self, count: int) -> None:
        try:
            self._admin.extend_topic(self._name, count)
        except ClusterUnfitError as error:
            raise ClusterUnfitError(
                f"{error}. Allow this client to alter the ledger topic, or extend it yourself."
            ) from error

    def _await_partitions(self, count: int, timeout_s: float) -> int:
        deadline = time.monotonic() + timeout_s
        while True:
            found = self._described()
            if found is not None and found.partition_count >= count and not found.leaderless:
                return found.partition_count
            if time.monotonic() > deadline:
                raise ClusterUnfitError(
                    f"the ledger topic {self._name!r} does not show {count} partitions with leaders after "
                    f"{timeout_s:g} s: look at the brokers' logs."
                )
            time.sleep(_ASK_AGAIN_S)
