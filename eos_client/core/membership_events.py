"""The events of a consumer's membership of its group (``core/membership_states.py``).

``partitions`` are those that an event is about. ``generation`` is what the client library shows inside a callback, and
``since_s`` is a time at which we were a member of it already.
"""

from __future__ import annotations

import msgspec

from eos_client.core.model import GroupGeneration, Partitions


class Subscribed(msgspec.Struct, frozen=True, gc=False):
    """The library has taken a subscription to ``topics``, of which some may be patterns."""

    topics: tuple[str, ...]


class ApplicationAssigns(msgspec.Struct, frozen=True, gc=False):
    """The application is about to assign ``partitions``; ``in_callback``: inside a rebalance callback."""

    partitions: Partitions
    in_callback: bool


class AssignmentTakenOver(msgspec.Struct, frozen=True, gc=False):
    """The application has assigned or unassigned partitions outside a rebalance callback."""


class CallbackBegan(msgspec.Struct, frozen=True, gc=False):
    """A rebalance callback begins to handle ``partitions``."""

    partitions: Partitions


class CallbackEnded(msgspec.Struct, frozen=True, gc=False):
    """A rebalance callback has handled ``partitions``."""

    partitions: Partitions


class CallbackInterrupted(msgspec.Struct, frozen=True, gc=False):
    """An exception has interrupted our own half of a rebalance callback."""


class ReplayBegan(msgspec.Struct, frozen=True, gc=False):
    """Interrupted callbacks are about to be replayed."""


class Replayed(msgspec.Struct, frozen=True, gc=False):
    """Interrupted callbacks were replayed."""


class MemberAssigned(msgspec.Struct, frozen=True, gc=False):
    """The group gives us ``partitions``; what was lost unnoticed before was reported."""

    partitions: Partitions
    generation: GroupGeneration
    since_s: float


class Followed(msgspec.Struct, frozen=True, gc=False):
    """An interrupted callback about no partition was replayed; what was lost unnoticed before was reported."""

    generation: GroupGeneration
    since_s: float


class RevocationBegan(msgspec.Struct, frozen=True, gc=False):
    """The group takes partitions back, which are ours until they have `MemberDeparted`."""

    generation: GroupGeneration
    since_s: float


class MemberDeparted(msgspec.Struct, frozen=True, gc=False):
    """``partitions`` are not ours any more: their revocation has ended, or they were lost."""

    partitions: Partitions


class RejoinReported(msgspec.Struct, frozen=True, gc=False):
    """At the revocation of ``partitions`` we turned out to have rejoined unnoticed, and all was reported as lost."""

    partitions: Partitions
    generation: GroupGeneration
    since_s: float


class SyncBegan(msgspec.Struct, frozen=True, gc=False):
    """The library's queue is about to be emptied."""


class Synced(msgspec.Struct, frozen=True, gc=False):
    """The queue was emptied since ``generation`` was read, so no callback from before can be waiting."""

    generation: GroupGeneration


class Leaving(msgspec.Struct, frozen=True, gc=False):
    """``close()`` has begun."""


class RevokedBeforeClose(msgspec.Struct, frozen=True, gc=False):
    """All partitions of a static member are about to be revoked, ahead of the library's own callback."""


class MemberClosed(msgspec.Struct, frozen=True, gc=False):
    """The group was left for good."""


MembershipEvent = (
    Subscribed
    | ApplicationAssigns
    | AssignmentTakenOver
    | CallbackBegan
    | CallbackEnded
    | CallbackInterrupted
    | ReplayBegan
    | Replayed
    | MemberAssigned
    | Followed
    | RevocationBegan
    | MemberDeparted
    | RejoinReported
    | SyncBegan
    | Synced
    | Leaving
    | RevokedBeforeClose
    | MemberClosed
)
