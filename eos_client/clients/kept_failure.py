"""What failed inside a rebalance callback, where nothing may be raised, until a call of the application raises it."""

from __future__ import annotations

from eos_client.errors import EosError


class KeptFailure:
    """At most one failure: the last that was kept."""

    def __init__(self) -> None:
        self._failure: EosError | None = None

    def keep(self, failure: EosError) -> None:
        """Keep ``failure`` until `raise_kept`."""
        self._failure = failure

    def forget(self) -> None:
        """Drop it, because what it left undone is resolved."""
        self._failure = None

    def raise_kept(self) -> None:
        """Raise it once, if there is one."""
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
