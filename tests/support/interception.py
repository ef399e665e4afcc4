"""Raw clients some of whose methods a test replaces, and gates that it closes."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from eos_client import EosConsumer
from eos_client.core.commit_gate import RevocationEnded


class Intercepted:
    """A raw client some of whose methods the test replaces; each gets the client first, then the call's arguments."""

    def __init__(self, raw: Any, replacements: dict[str, Callable[..., Any]]) -> None:
        self.raw = raw
        self._replacements = replacements

    def __getattr__(self, name: str) -> Any:
        replacement = self._replacements.get(name)
        return getattr(self.raw, name) if replacement is None else functools.partial(replacement, self.raw)

    def __len__(self) -> int:
        return len(self.raw)


def intercepting(client: Callable[[dict[str, Any]], Any], **replacements: Callable[..., Any]) -> Callable[..., Any]:
    """The `factory` of a wrapper whose raw client is `client` with some of its methods replaced."""
    return lambda settings: Intercepted(client(settings), replacements)


def close_the_gate(consumer: EosConsumer) -> None:
    """Store the group's present generation as that of a revocation, as the revoke callback does."""
    consumer.gate.tell(RevocationEnded(frozenset(), consumer.adapter.snapshot().generation))
