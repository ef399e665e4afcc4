"""Short-lived threads that hand back what they got and never outlive their test."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

PATIENCE_S = 60.0


class Elsewhere:
    """Runs one function in another thread."""

    def __init__(self, function: Callable[[], Any], name: str = "elsewhere") -> None:
        self._function = function
        self._result: Any = None
        self._error: BaseException | None = None
        self.thread = threading.Thread(target=self._run, name=name, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        try:
            self._result = self._function()
        except BaseException as error:  # noqa: BLE001  # raised again by outcome()
            self._error = error

    def outcome(self) -> Any:
        """Wait for the thread and return or raise what its function did."""
        self.thread.join(PATIENCE_S)
        assert not self.thread.is_alive(), f"{self.thread.name} hangs"
        if self._error is not None:
            raise self._error
        return self._result


def elsewhere(function: Callable[[], Any]) -> Any:
    """Run ``function`` in another thread and return or raise what it does."""
    return Elsewhere(function).outcome()


class StoppedClock:
    """A simulation's: none of its time passes here."""

    is_simulated = True

    def __call__(self) -> float:
        """Return the time."""
        return 0.0

    def sleep(self, seconds: float) -> None:
        """Return at once."""


def threads_named(name: str = "handle") -> list[threading.Thread]:
    """Return the threads of this name that have not ended."""
    return [each for each in threading.enumerate() if each.name == name]
