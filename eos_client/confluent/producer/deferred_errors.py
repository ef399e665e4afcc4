"""Defers what the application's callbacks raised until the current step is done and its outcome recorded.

A plain class and no generator: an exception that strikes while the block is entered could leave a generator suspended,
and its clean-up would come at any later time.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager


class DeferredErrors:
    """``raise_kept`` raises what is kept unless a block defers it; ``kept`` is what raises."""

    def __init__(self, kept: Callable[[], None]) -> None:
        self._kept = kept
        self.are_deferred = False

    def raise_kept(self) -> None:
        """Raise what is kept, unless inside a block."""
        if not self.are_deferred:
            self._kept()

    def deferred(self, *, beyond: bool = False) -> AbstractContextManager[None]:
        """Return a block after which what is kept is raised; with ``beyond`` or inside another block, later."""
        return _Block(self, beyond=beyond)


class _Block(AbstractContextManager[None]):
    def __init__(self, errors: DeferredErrors, *, beyond: bool) -> None:
        self._errors = errors
        self._beyond = beyond
        self._outside = errors.are_deferred

    def __enter__(self) -> None:
        self._errors.are_deferred = True

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._errors.are_deferred = self._outside
        if kind is None and not self._beyond:
            self._errors.raise_kept()
