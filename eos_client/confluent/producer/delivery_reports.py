"""Guards the delivery callbacks among the arguments of a producer's calls.

Those of an abandoned handle are not called any more: its records belong to a transaction that is over, and it would say
so from a thread of its own.
"""

from __future__ import annotations

from typing import Any

from eos_client.confluent.callback_guard import CallbackGuard

_OPTIONS = ("callback", "on_delivery")


def guard_options(guard: CallbackGuard, options: dict[str, Any]) -> dict[str, Any]:
    """Guard the callback among a call's named arguments, if there is one."""
    for name in _OPTIONS:
        if options.get(name) is not None:
            options[name] = guard.guarded(options[name])
    return options


def guard_arguments(guard: CallbackGuard, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """Guard the callback among a call's unnamed arguments; nothing else there can be called."""
    return tuple(guard.guarded(each) if callable(each) else each for each in arguments)


def guard_messages(guard: CallbackGuard, messages: Any) -> Any:
    """Return ``messages`` of a batch, those with a callback of their own as copies.

    Whatever is no list of dicts is left to the client library, which says what is wrong with it.
    """
    if not isinstance(messages, list):
        return messages
    return [
        guard_options(guard, dict(m)) if isinstance(m, dict) and m.get("callback") is not None else m for m in messages
    ]
