"""One assigned partition: the next offset to fetch, and the application's position."""

from __future__ import annotations

from dataclasses import dataclass

from confluent_kafka import OFFSET_INVALID, OFFSET_STORED

from eos_client.testing.simulator.brokers.model import PartitionKey

LEADER_EPOCH = 0
"""Of every record and marker: simulated brokers elect no leaders."""


@dataclass(eq=False, slots=True)
class Flow:
    """``start``: an offset, or one of confluent_kafka's logical offsets, which is looked up first.

    ``next_fetch``: None until the start is known. ``position``: the next offset to return; None before the first
    record. ``version`` changes whenever queued records are dropped. ``lookup_at_change``: the number of the assignment
    at the first look-up. ``end_reported_at``: the offset of the last end-of-partition event.
    """

    partition: PartitionKey
    start: int
    next_fetch: int | None = None
    position: int | None = None
    version: int = 0
    seeks: int = 0
    end_reported_at: int | None = None
    is_looked_up: bool = False
    lookup_at_change: int | None = None
    next_lookup_s: float = 0.0
    stopped: bool = False
    watermarks: tuple[int, int] = (OFFSET_INVALID, OFFSET_INVALID)
    last_stable_offset: int = OFFSET_INVALID

    def __post_init__(self) -> None:
        self._begin(self.start)

    @property
    def needs_group_offset(self) -> bool:
        """Whether the group's committed offset has to be looked up."""
        return self.next_fetch is None and self.start in (OFFSET_INVALID, OFFSET_STORED)

    @property
    def needs_log_offset(self) -> bool:
        """Whether the partition's first or last offset has to be looked up."""
        return self.next_fetch is None and not self.needs_group_offset

    def start_at(self, offset: int) -> None:
        """Start at the result of a look-up: ``offset``, which may be another logical one."""
        self.is_looked_up = False
        self.lookup_at_change = None
        self._begin(offset)

    def seek_to(self, offset: int) -> None:
        """Continue at ``offset``, to which the application has sought."""
        self.seeks += 1
        self.version += 1
        self.position = self.end_reported_at = None
        self.start_at(offset)

    def stop_until_sought(self) -> None:
        """Fetch nothing, and look nothing up, until the next seek; the position stays."""
        self.seeks += 1
        self.version += 1
        self.next_fetch = None
        self.is_looked_up = True

    def refetch(self, taken_until: int | None) -> None:
        """Fetch the records again that were dropped; those before ``taken_until`` are being returned."""
        self.version += 1
        self.end_reported_at = None
        if taken_until is not None or self.position is not None:
            self.next_fetch = max(taken_until or 0, self.position or 0)
        else:
            self._begin(self.start)

    def _begin(self, offset: int) -> None:
        self.start = offset
        self.next_fetch = offset if offset >= 0 else None
