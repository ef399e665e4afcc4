"""What failed inside a rebalance callback, where nothing may be raised, until a call of the application raises it."""

from __future__ import annotations

from eos_client.errors import EosError


class KeptFailure:
    """At most one ``failure``: the last that was kept."""

    def __init__(self) -> None:
        self.failure: EosError | None = None

    def raise_failure(self) -> None:
        """Raise it once, if there is one."""
        if self.failure is not None:
            failure, self.failure = self.failure, None
            raise failure
