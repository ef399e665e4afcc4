"""Feeds the commit gate from the rebalance callbacks (KAFKA-19779): commit inside revoke, never after a loss."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from eos_client.core.commit_gate import CommitGate, GateAssigned, GateLost, RevocationEnded, RevocationStarted
from eos_client.core.model import UNJOINED, InputPartition
from eos_client.errors import text_of
from eos_client.observe import (
    Counters,
    EventHook,
    PartitionsAssigned,
    PartitionsLost,
    PartitionsRevoked,
    log_event,
    safe_hook,
)
from eos_client.ports import RevocationWork, input_partitions


class RevocationListener:
    """Our half of every rebalance callback.

    Revoked: the open work is committed while the partitions are still ours, and the gate remembers the generation of
    that moment. Lost: nothing is committed. Both leave the gate in a definite state, whatever was raised in between.
    """

    def __init__(
        self, gate: CommitGate, work: RevocationWork, *, hook: EventHook = log_event, counters: Counters | None = None
    ) -> None:
        self._gate = gate
        self._work = work
        self._hook = safe_hook(hook)
        self._counters = counters or Counters()

    def on_assigned(self, partitions: list[Any], /) -> None:
        """Open the gate for ``partitions``."""
        keys = input_partitions(partitions)
        self._gate.tell(GateAssigned(keys))
        generation = self._work.snapshot().generation
        self._counters.rebalances += 1
        self._counters.generation_id = generation.generation_id
        self._hook(PartitionsAssigned(partitions=keys, generation=generation))

    def on_revoked(self, partitions: list[Any], /, between: Callable[[], None] = lambda: None) -> None:
        """Run ``between``, commit the open work, close the gate.

        When ``between`` raises, ``on_callback_failed`` ends the open work instead of the commit; the revocation is
        completed before the exception propagates.
        """
        keys = input_partitions(partitions)
        if not keys:
            between()
            return
        self._gate.tell(RevocationStarted(keys))
        try:
            between()
        except BaseException as error:
            self._work.on_callback_failed(keys, f"the application's on_revoke raised {text_of(error)}")
            raise
        else:
            self._work.commit_before_revoke(keys)
        finally:
            self._complete(keys)

    def _complete(self, keys: frozenset[InputPartition]) -> None:
        uncommitted, generation = keys, UNJOINED  # if an exception strikes before they are known
        try:
            uncommitted = self._work.uncommitted() & keys
            generation = self._work.snapshot().generation
        finally:
            self._gate.tell(RevocationEnded(keys, generation, uncommitted))
            self._work.departed(keys)
            self._hook(PartitionsRevoked(partitions=keys, generation=generation, uncommitted=uncommitted))

    def on_lost(self, partitions: list[Any], /) -> None:
        """Close the gate for good for everything that was consumed from ``partitions``."""
        keys = input_partitions(partitions)
        uncommitted = self._work.uncommitted() & keys
        self._gate.tell(GateLost(keys, uncommitted))
        self._work.departed(keys)
        self._hook(PartitionsLost(partitions=keys, uncommitted=uncommitted))

    def on_membership_changed(self, retained: list[Any], revoked: list[Any], /) -> None:
        """We rejoined unnoticed: ``retained`` stay, ``revoked`` go; neither may be committed.

        As after every revocation, the gate is closed for its generation.
        """
        self.on_lost([*retained, *revoked])
        if revoked:
            generation = self._work.snapshot().generation
            self._gate.tell(RevocationEnded(input_partitions(revoked), generation, frozenset()))
        if retained:
            self.on_assigned(retained)
