"""Runs our listener and the application's callbacks in the right order.

assigned: ours, then theirs, so that the gate knows the partitions when theirs seeks or assigns.
revoked: ours begins, theirs runs while a commit is still allowed, ours commits and closes the gate.
lost: ours first (from here on nothing of it can be committed), then theirs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from eos_client.listeners.revocation import RevocationListener

RebalanceCallback = Callable[[Any, list[Any]], Any]


@dataclass(frozen=True, slots=True)
class ApplicationCallbacks:
    """What the application passed to ``subscribe``; ``consumer`` is the first argument that each of them gets.

    Without ``on_lost``, lost partitions go to ``on_revoke``, as in confluent_kafka.
    """

    consumer: Any
    on_assign: RebalanceCallback | None = None
    on_revoke: RebalanceCallback | None = None
    on_lost: RebalanceCallback | None = None


class ComposedListener:
    """Runs the application's callbacks inside ours. If one raises, our half is completed before the error goes on."""

    def __init__(self, ours: RevocationListener, theirs: ApplicationCallbacks) -> None:
        self._ours = ours
        self._theirs = theirs

    def on_assigned(self, partitions: list[Any], /) -> None:
        """Run our listener, then the application's callback."""
        self._ours.on_assigned(partitions)
        self._call(self._theirs.on_assign, partitions)

    def on_revoked(self, partitions: list[Any], /) -> None:
        """Run our listener around the application's callback."""
        self._ours.on_revoked(partitions, between=lambda: self._call(self._theirs.on_revoke, partitions))

    def on_lost(self, partitions: list[Any], /) -> None:
        """Run our listener, then the application's callback."""
        self._ours.on_lost(partitions)
        self._call(self._theirs.on_lost or self._theirs.on_revoke, partitions)

    def on_membership_changed(self, retained: list[Any], revoked: list[Any], /) -> None:
        """Run our listener; the application hears of ``revoked``: librdkafka, and so it, keeps the others."""
        self._ours.on_membership_changed(retained, revoked)
        if revoked:
            self._call(self._theirs.on_lost or self._theirs.on_revoke, revoked)

    def _call(self, callback: RebalanceCallback | None, partitions: list[Any]) -> None:
        if callback is not None:
            callback(self._theirs.consumer, partitions)
