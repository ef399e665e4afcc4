"""The failure of a rebalance callback, which the client library would swallow: the next step raises it instead."""

from __future__ import annotations

from eos_client.errors import EosError


class CallbackFailure:
    """The last failure of a rebalance callback of ours that was neither raised nor made good."""

    def __init__(self) -> None:
        self._failure: EosError | None = None

    def keep(self, failure: EosError) -> None:
        """Keep ``failure`` until it is raised."""
        self._failure = failure

    def forget(self) -> bool:
        """Forget the failure, because what it left undone was done; returns whether there was one."""
        is_kept, self._failure = self._failure is not None, None
        return is_kept

    def raise_once(self) -> None:
        """Raise the failure, if there is one."""
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
