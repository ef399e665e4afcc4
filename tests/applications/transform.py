"""What a generated application makes of its records: outputs, outputs that are refused, and failures."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.applications.exceptions import Oops
from tests.applications.program import LARGE_LIMIT, SMALL_LIMIT

REFUSED_LARGE, BROKER_LARGE = b"x" * (2 * LARGE_LIMIT), b"x" * (SMALL_LIMIT + 1_000)
FLAKY_FAILURES = 2
BADLY_TIMED, OWN_TIME_MS, BAD_TIME_MS = b"bad time", 1, 2**42
"""An output that brokers refuse for its time, and times of the application's that they take, and do not."""
VERY_SLOW_S = 11.0
"""Longer than a transaction may be open where such transforms are."""


class Transform:
    """The transform of the application; which record is odd, and which was corrected, its environment knows."""

    def __init__(self, environment: Any) -> None:
        self._environment, self._names = environment, environment.names

    def outputs(
        self, member: Any, place: tuple[int, int], attempt: int
    ) -> Iterator[tuple[str | None, Any, dict[str, Any]]]:
        """Yield what the transform makes of the record: topic, value and options."""
        kind = self._environment.kind_of(place)
        if kind in ("flaky", "raises", "large_and_raises") and self._fails(kind, place):
            if kind == "raises":
                yield self._names.sink, self._value(place, attempt, 0), {}
            raise Oops(f"the transform dislikes {place[0]}:{place[1]}")
        if kind == "slow" and not self._environment.calm:
            self._environment.sleep(member, 0.7)
        if kind == "very_slow":
            self._environment.sleep(member, VERY_SLOW_S)
        if kind == "none":
            return
        refused = [] if place in self._environment.corrected else [*self._refusable(kind)]
        if self._comes_first(place):
            yield from refused
        if not refused or not self._comes_alone(place):
            options = {"timestamp_ms": OWN_TIME_MS} if kind == "stamped" else {}
            yield self._names.sink, self._value(place, attempt, 0), options
        if kind in ("two", "stamped"):
            yield self._names.sink, self._value(place, attempt, 1), {}
        if not self._comes_first(place):
            yield from refused

    def _comes_first(self, place: tuple[int, int]) -> bool:
        """Whether the refused output of a loop comes before those that nobody refuses."""
        return self._environment.program.style == "loop" and place[1] % 3 > 0

    def _comes_alone(self, place: tuple[int, int]) -> bool:
        return self._environment.program.style == "loop" and place[1] % 3 > 1

    def _fails(self, kind: str, place: tuple[int, int]) -> bool:
        if place in self._environment.corrected:
            return False
        self._environment.failed[place] += 1
        return kind != "flaky" or self._environment.failed[place] <= FLAKY_FAILURES

    @staticmethod
    def _value(place: tuple[int, int], attempt: int, part: int) -> bytes:
        return b"%d:%d|%d|%d" % (*place, attempt, part)

    def _refusable(self, kind: str) -> Iterator[tuple[str | None, Any, dict[str, Any]]]:
        if kind == "wrong_type":
            yield None, 17, {}
        elif kind == "too_large":
            yield self._names.sink, REFUSED_LARGE, {}
        elif kind == "bad_partition":
            yield self._names.sink, b"bad", {"partition": 99}
        elif kind == "huge_partition":
            yield self._names.sink, b"bad", {"partition": 2**40}
        elif kind == "huge_timestamp":
            yield self._names.sink, b"bad", {"timestamp_ms": 2**70}
        elif kind == "broker_refuses":
            yield self._names.sink, BROKER_LARGE, {}
        elif kind == "bad_time":
            yield self._names.sink, BADLY_TIMED, {"timestamp_ms": BAD_TIME_MS}
