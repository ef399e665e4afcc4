"""A client library that rejoins a KIP-848 group before the application has heard of its loss.

librdkafka 2.16 waits with that until ``on_lost`` has run, and drops what it had fetched; nothing in the protocol asks
for either. The gate's rule EPOCH_MOVED_BEFORE_REVOKE is there for clients that do not wait.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from unittest import mock

from eos_client.testing.simulator.brokers.model import PartitionKey
from eos_client.testing.simulator.clients import client_core
from eos_client.testing.simulator.clients.consumer_session import ConsumerSession
from eos_client.testing.simulator.clients.inbox import Rebalance, RebalanceKind


class ImpatientSession(ConsumerSession):
    """Its loss waits behind the records that were fetched before, and its new epoch does not wait for either."""

    def _queue_rebalance(self, kind: RebalanceKind, partitions: Iterable[PartitionKey]) -> None:
        if kind is not RebalanceKind.LOSE:
            super()._queue_rebalance(kind, partitions)
            return
        self._queued_rebalance = Rebalance(kind, tuple(sorted(partitions)))
        self._inbox.put(self._queued_rebalance)
        self._begin()


@contextmanager
def impatient_library() -> Iterator[None]:
    """Let every KIP-848 consumer that is built meanwhile be of that kind."""
    with mock.patch.object(client_core, "ConsumerSession", ImpatientSession):
        yield
