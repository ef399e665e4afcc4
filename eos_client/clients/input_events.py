"""Separates records from error events, at the cost of one call for a batch without events."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from eos_client.confluent.failures import input_error, is_fatal
from eos_client.core.error_events import ErrorEvent, EventMeaning, meaning_of
from eos_client.core.model import is_pattern
from eos_client.observe import ClientReported, EventHook


class InputEvents:
    """What is done about error events of a consumer that has subscribed to ``topics``."""

    def __init__(self, hook: EventHook, topics: Sequence[str] = ()) -> None:
        self._hook = hook
        self.topics = topics

    def records(self, batch: list[Any]) -> list[Any]:
        """Return the records of ``batch``; reports its events to the hook.

        Raises ClusterUnfitError for an event that no waiting mends, FatalClientError for one that ends the client.
        """
        if not batch or not any(map(type(batch[0]).error, batch)):
            return batch
        for message in batch:
            if message.error() is not None:
                self._act_on(message.error(), message.topic())
        return [message for message in batch if message.error() is None]

    def _act_on(self, error: Any, topic: str | None) -> None:
        is_named = topic is None or (topic in self.topics and not is_pattern(topic))
        meaning = meaning_of(ErrorEvent(error.name(), fatal=is_fatal(error), is_named=is_named))
        if meaning is EventMeaning.REPORT:
            self._hook(ClientReported(client="consumer", error=f"{error.name()}: {error.str()}"))
        elif meaning is not EventMeaning.NO_NEWS:
            raise input_error(error, is_fatal=meaning is EventMeaning.STOP_FATAL)
