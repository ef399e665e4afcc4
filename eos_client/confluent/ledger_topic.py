"""The topic that gives a Spark sink's ledger its partitions; no record is ever written to it.

Offsets can only be committed for partitions that exist, so there is one for the batch-complete marker and one for each
slot. It only grows: partitions of slots that are no longer used keep their entries.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from eos_client.confluent.admin import ClusterAdmin
from eos_client.errors import ClusterUnfitError

MARKER_PARTITION = 0
_ASK_AGAIN_S = 0.02


def partition_of_slot(slot: int) -> int:
    """Return the ledger partition of ``slot``; the marker comes first, so that slots can be added."""
    return slot + 1


def ledger_room(bootstrap_servers: str, config: Mapping[str, Any], topic: str, *, timeout_s: float) -> int:
    """Return for how many slots the ledger topic has room now; 0 where there is none yet."""
    found = ClusterAdmin(bootstrap_servers, config, timeout_s=timeout_s).topics([topic])[topic]
    return 0 if found is None else max(0, found.partition_count - 1)


def ensure_ledger_topic(
    bootstrap_servers: str, config: Mapping[str, Any], topic: str, slots: int, *, timeout_s: float
) -> int:
    """Create or extend the ledger topic for ``slots`` slots; returns how many it has room for.

    Raises ClusterUnavailableError, or ClusterUnfitError when the cluster refuses.
    """
    admin = ClusterAdmin(bootstrap_servers, config, timeout_s=timeout_s)
    found = admin.topics([topic])[topic]
    if found is None:
        try:
            admin.create_topics({topic: slots + 1})
        except ClusterUnfitError:
            if admin.topics([topic])[topic] is None:  # else another driver was quicker
                raise
        found = admin.topics([topic])[topic]
    count = 0 if found is None else found.partition_count
    if count < slots + 1:
        _extend(admin, topic, slots + 1)
        count = _wait_for_partitions(admin, topic, slots + 1, timeout_s)
    return count - 1


def _extend(admin: ClusterAdmin, topic: str, count: int) -> None:
    try:
        admin.extend_topic(topic, count)
    except ClusterUnfitError as error:
        raise ClusterUnfitError(
            f"{error}. Allow this client to alter the ledger topic, or extend it yourself."
        ) from error


def _wait_for_partitions(admin: ClusterAdmin, topic: str, count: int, timeout_s: float) -> int:
    deadline = time.monotonic() + timeout_s
    while True:
        found = admin.topics([topic])[topic]
        if found is not None and found.partition_count >= count and not found.leaderless:
            return found.partition_count
        if time.monotonic() > deadline:
            raise ClusterUnfitError(
                f"the ledger topic {topic!r} does not show {count} partitions with leaders after {timeout_s:g} s: look "
                "at the brokers' logs."
            )
        time.sleep(_ASK_AGAIN_S)


def cluster_id(bootstrap_servers: str, config: Mapping[str, Any], *, timeout_s: float) -> str:
    """Return the cluster's id, which it has for life; raises ClusterUnavailableError."""
    return ClusterAdmin(bootstrap_servers, config, timeout_s=timeout_s).cluster().cluster_id


def transaction_limit_ms(bootstrap_servers: str, config: Mapping[str, Any], *, timeout_s: float) -> int:
    """Return the longest ``transaction.timeout.ms`` that the cluster grants; 0 when it does not tell."""
    admin = ClusterAdmin(bootstrap_servers, config, timeout_s=timeout_s)
    settings = admin.broker_settings(next(iter(admin.cluster().brokers)))
    return int(settings.get("transaction.max.timeout.ms") or 0)
