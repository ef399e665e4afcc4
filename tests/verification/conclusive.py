"""Repeats stories in which the broker itself broke atomicity (docs/decisions/fault-runs.md)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from tests.support.broker_skips import skip_broken_by_broker
from tests.verification.checker import BROKER_ATOMICITY_HOLE

TRIES_MAX = 3
LOG_LINES = 20_000

_T = TypeVar("_T")
_B = TypeVar("_B")


class BrokerLog:
    """What a broker writes into its log from now on. The tail that it shows of itself is bounded in bytes."""

    def __init__(self, broker: Any) -> None:
        self._broker = broker
        self._path = getattr(broker, "log_path", None)  # a container has none
        self._size = 0 if self._path is None else self._path.stat().st_size

    def tells_of_hole(self) -> bool:
        """Whether the broker has completed a transaction without its markers."""
        if self._path is None:
            return BROKER_ATOMICITY_HOLE in self._broker.log_tail(LOG_LINES)
        with self._path.open("rb") as log:
            log.seek(self._size)
            return BROKER_ATOMICITY_HOLE.encode() in log.read()


def conclusive(story: Callable[[_B], _T], make: Callable[[], _B]) -> _T:
    """Run `story` on what `make` gives, a broker or a cluster; again where its log explains the failure."""
    for _ in range(TRIES_MAX):
        target = make()
        brokers = getattr(target, "brokers", None)
        logs = [BrokerLog(broker) for broker in ([target] if brokers is None else brokers.values())]
        try:
            return story(target)
        except Exception as error:
            if not any(log.tells_of_hole() for log in logs):
                raise
            print(f"inconclusive, a broker completed a transaction without its markers: {error!r}")
    return skip_broken_by_broker("it completed transactions without their markers in every try")
