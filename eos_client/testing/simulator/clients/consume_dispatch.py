"""How ``poll`` and ``consume`` continue after a callback that raised, as librdkafka and confluent_kafka do.

librdkafka serves the other callbacks that are due, and then takes the next record or error event from its queue.
``consume`` drops it and leaves the position as it was; ``poll`` advances the position past it without returning it, or
returns at once after a rebalance callback. confluent_kafka checks every 0.2 s whether a callback has raised.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from enum import Enum

from eos_client.testing.simulator.clients.inbox import ErrorEvent, Fetched, Item, Rebalance

_CHUNK_S = 0.2


class Call(Enum):
    """The two calls that return records."""

    POLL = "poll"
    CONSUME = "consume"


class ConsumeDispatch:
    """Serves the items of one call: called with each in turn, it returns whether the call continues.

    ``deadline_s``: when the call ends.
    """

    def __init__(
        self, serve: Callable[[Item], None], clock: Callable[[], float], deadline_s: float, call: Call
    ) -> None:
        self.deadline_s = deadline_s
        self._serve = serve
        self._clock = clock
        self._began_s = clock()
        self._drops = call is Call.CONSUME
        self._error: BaseException | None = None

    def __call__(self, item: Item) -> bool:
        """Serve ``item``, or drop it."""
        is_message = isinstance(item, (Fetched, ErrorEvent))
        if self._error is not None and is_message and self._drops:
            return False
        try:
            self._serve(item)
        except BaseException as error:  # noqa: BLE001  # raised again when the call ends
            self._error = self._error or error
            chunks = math.ceil((self._clock() - self._began_s) / _CHUNK_S)
            self.deadline_s = min(self.deadline_s, self._began_s + max(1, chunks) * _CHUNK_S)
            return self._drops or not isinstance(item, Rebalance)
        return self._error is None or not is_message

    def raise_error(self) -> None:
        """Raise the first exception of a callback, if there is one."""
        if self._error is not None:
            raise self._error
