"""Ends a loop of polls to which nothing can come any more, which would go on for ever in simulated time."""

from __future__ import annotations

from eos_client.testing.simulator.brokers.link import ClientLink

_LIMIT_S = 3600.0


class IdlePolls:
    """How long one consumer has polled, without time between its calls, since anything happened on the cluster."""

    def __init__(self, link: ClientLink) -> None:
        self._link = link
        self._idle_s = 0.0
        self._log_changes = 0

    def count(self, seconds: float, *, was_served: bool) -> None:
        """Count a call that has taken ``seconds``; raises RuntimeError after an hour in which nothing happened."""
        changes = self._link.brokers.log_changes
        if was_served or changes != self._log_changes or self._link.has_scripted_actions:
            self._idle_s, self._log_changes = 0.0, changes
            return
        self._idle_s += seconds
        if self._idle_s >= _LIMIT_S:
            self._idle_s = 0.0
            raise RuntimeError(
                f"{self._link.name} has polled for an hour in which nothing happened, and no action of cluster.after() "
                "is left that would change it: let cluster.after(seconds, loop.stop) or loop.run(until_end=True) end "
                "the loop"
            )
