"""Simulated time, which passes only during waits."""

from __future__ import annotations

from collections.abc import Callable


class SimulatedClock:
    """The simulated time, in seconds since the start. A call returns it; ``sleep`` runs the simulation meanwhile."""

    is_simulated = True

    def __init__(self) -> None:
        self.now_s = 0.0
        self._pass: Callable[[float], None] = self.set_to

    def __call__(self) -> float:
        """Return the simulated seconds since the beginning."""
        return self.now_s

    def set_to(self, now_s: float) -> None:
        """Move to ``now_s``, never backwards."""
        self.now_s = max(self.now_s, now_s)

    def passes_by(self, run_until: Callable[[float], None]) -> None:
        """Let ``sleep`` call ``run_until(end_s)`` from now on."""
        self._pass = run_until

    def sleep(self, seconds: float) -> None:
        """Wait for ``seconds`` of simulated time."""
        self._pass(self.now_s + max(0.0, seconds))
