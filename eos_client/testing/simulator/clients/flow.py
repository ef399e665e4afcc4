"""One assigned partition: the next offset to read, and what the application was given of it."""

from __future__ import annotations

from dataclasses import dataclass

from confluent_kafka import OFFSET_INVALID, OFFSET_STORED

from eos_client.testing.simulator.brokers.model import PartitionKey


@dataclass(eq=False, slots=True)
class Flow:
    """``start``: an offset or one of confluent_kafka's logical ones, which is looked up first.

    ``next_fetch``: None until the start is known. ``position``: the next offset to hand over; None before the first.
    ``version`` changes whenever queued records become void.
    """

    partition: PartitionKey
    start: int
    next_fetch: int | None = None
    position: int | None = None
    version: int = 0
    seeks: int = 0
    end_told_at: int | None = None
    asked: bool = False
    asked_at_change: int | None = None
    ask_again_s: float = 0.0
    stopped: bool = False
    watermarks: tuple[int, int] = (OFFSET_INVALID, OFFSET_INVALID)
    last_stable_offset: int = OFFSET_INVALID

    def __post_init__(self) -> None:
        self._begin(self.start)

    @property
    def waits_for_group(self) -> bool:
        """Whether the group's committed offset has to be asked for."""
        return self.next_fetch is None and self.start in (OFFSET_INVALID, OFFSET_STORED)

    @property
    def waits_for_log(self) -> bool:
        """Whether the partition's first or last offset has to be asked for."""
        return self.next_fetch is None and not self.waits_for_group

    def starts_at(self, offset: int) -> None:
        """Start at what a look-up found: ``offset``, or another logical one."""
        self.asked = False
        self.asked_at_change = None
        self._begin(offset)

    def goes_to(self, offset: int) -> None:
        """Continue at ``offset``, which the application sought."""
        self.seeks += 1
        self.version += 1
        self.position = self.end_told_at = None
        self.starts_at(offset)

    def goes_back(self, taken_until: int | None) -> None:
        """Fetch again what was fetched and not handed over, but for what is ``taken_until`` an offset already."""
        self.version += 1
        self.end_told_at = None
        if taken_until is not None or self.position is not None:
            self.next_fetch = max(taken_until or 0, self.position or 0)
        else:
            self._begin(self.start)

    def _begin(self, offset: int) -> None:
        self.start = offset
        self.next_fetch = offset if offset >= 0 else None
