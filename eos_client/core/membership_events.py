"""The events of a consumer's membership of its group (``core/membership_states.py``).

``partitions`` are those that an event is about. ``generation`` is what the client library shows inside a callback, and
``since_s`` is a time at which we were a member of it already.
"""

from __future__ import annotations

from typing import NamedTuple

from eos_client.core.model import GroupGeneration, Partitions


class Subscribed(NamedTuple):
    """The library has taken a subscription to ``topics``, of which some may be patterns."""

    topics: tuple[str, ...]


class TopicsAssigned(NamedTuple):
    """The application assigns partitions of ``topics``."""

    topics: frozenset[str]


class AssignmentTakenOver(NamedTuple):
    """The application has assigned or unassigned partitions outside a rebalance callback."""


class CallbackBegan(NamedTuple):
    """A rebalance callback begins to handle ``partitions``."""

    partitions: Partitions


class CallbackEnded(NamedTuple):
    """A rebalance callback has handled ``partitions``."""

    partitions: Partitions


class CallbackInterrupted(NamedTuple):
    """An exception has interrupted our own half of a rebalance callback."""


class ReplayBegan(NamedTuple):
    """Interrupted callbacks are about to be replayed."""


class Replayed(NamedTuple):
    """Interrupted callbacks were replayed."""


class Assigned(NamedTuple):
    """The group gives us ``partitions``; what was lost unnoticed before was reported."""

    partitions: Partitions
    generation: GroupGeneration
    since_s: float


class Followed(NamedTuple):
    """An interrupted callback about no partition was replayed; what was lost unnoticed before was reported."""

    generation: GroupGeneration
    since_s: float


class RevocationBegan(NamedTuple):
    """The group takes partitions back, which are ours until they have `Departed`."""

    generation: GroupGeneration
    since_s: float


class Departed(NamedTuple):
    """``partitions`` are not ours any more: their revocation has ended, or they were lost."""

    partitions: Partitions


class RejoinReported(NamedTuple):
    """At the revocation of ``partitions`` we turned out to have rejoined unnoticed, and all was reported as lost."""

    partitions: Partitions
    generation: GroupGeneration
    since_s: float


class SyncBegan(NamedTuple):
    """The library's queue is about to be emptied."""


class Synced(NamedTuple):
    """The queue was emptied since ``generation`` was read, so no callback from before can be waiting."""

    generation: GroupGeneration


class Leaving(NamedTuple):
    """``close()`` has begun."""


class RevokedBeforeClose(NamedTuple):
    """All partitions of a static member are about to be revoked, ahead of the library's own callback."""


class Closed(NamedTuple):
    """The group was left for good."""
