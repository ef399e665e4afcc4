"""What the lost connections of a producer's handle mean for its requests (KAFKA-17754).

The client library sends a request again when its connection is lost before the answer. The broker may serve the first
copy later, at the same producer epoch, and by then it can end another transaction, or take back newer offsets.
"""

from __future__ import annotations

import msgspec


class LostConnections(msgspec.Struct, frozen=True, gc=False):
    """What the log of one handle has told of its connections."""

    losses: int = 0
    """Lines about a lost connection, since the handle was built."""
    is_understood: bool = False
    """The log has reported a connection in the known format; else losses may be missing."""

    def may_have_sent_twice(self, since: int = 0) -> bool:
        """Whether a request since there were ``since`` losses may have been sent twice, as far as the log shows.

        A confirmed end stands, but its handle is replaced, or never used again: the late copy then meets another epoch.
        A refused commit may be the answer to the second copy (``RECOVERY_RULES``).
        """
        return self.losses > since or not self.is_understood

    @property
    def explains_a_fence(self) -> bool:
        """Whether the producer may fence itself: its registration may have been sent twice.

        A log that is not understood must not excuse a fence for each handle.
        """
        return self.losses > 0

    def overtakes_offsets(self, since: int) -> bool:
        """Whether a late copy of a transaction's first offsets, sent at ``since`` losses, could take back others.

        A log in an unknown format counts as no loss here. Otherwise every transaction that sends offsets a second time
        would be refused.
        """
        return self.losses > since
