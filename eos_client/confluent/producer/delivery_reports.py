"""Passes on delivery reports of the handle in use and drops those of an abandoned handle.

Its records belong to a transaction that is over, and it would say so from a thread of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from eos_client.confluent.callback_guard import CallbackGuard

_OPTIONS = ("callback", "on_delivery")

Report = Callable[..., Any]


class DeliveryReports:
    """Stands between one handle and the application's delivery callbacks."""

    __slots__ = ("_guard", "_left")

    def __init__(self, guard: CallbackGuard) -> None:
        self._guard = guard
        self._left = False

    def leave(self) -> None:
        """Pass nothing on from now on."""
        self._left = True

    def guarded(self, callback: Report) -> Report:
        """Return ``callback`` as the handle gets it."""

        def report(*arguments: Any) -> None:
            if not self._left:
                try:
                    self._guard.running(callback, *arguments)
                except BaseException as error:  # noqa: BLE001  # raised when the call that serves reports is through
                    self._guard.keep(error)

        return report

    def guard_options(self, options: dict[str, Any]) -> dict[str, Any]:
        """Guard the callback among a call's named arguments, if there is one."""
        for name in _OPTIONS:
            if options.get(name) is not None:
                options[name] = self.guarded(options[name])
        return options

    def guard_arguments(self, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        """Guard the callback among a call's unnamed arguments; nothing else there can be called."""
        return tuple(self.guarded(each) if callable(each) else each for each in arguments)

    def guard_messages(self, messages: Any) -> Any:
        """Return ``messages`` of a batch, those with a callback of their own as copies.

        Whatever is no list of dicts is left to the client library, which says what is wrong with it.
        """
        if not isinstance(messages, list):
            return messages
        return [
            self.guard_options(dict(m)) if isinstance(m, dict) and m.get("callback") is not None else m
            for m in messages
        ]
