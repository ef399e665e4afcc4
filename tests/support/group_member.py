"""A member of a group on any client library: what its rebalance callbacks saw, and what it was handed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from confluent_kafka import KafkaException

from eos_client.core.model import UNJOINED
from eos_client.testing.simulator.brokers.model import Membership
from eos_client.testing.simulator.clients.group_metadata import decode
from tests.support.client_settings import dotted
from tests.support.protocols import settings_of

POLL_S = 0.02
_CALLBACKS = ("on_assign", "on_revoke", "on_lost")


class GroupMember:
    """A consumer subscribed to ``topic``, if there is one. ``library`` has a ``consumer(settings)``."""

    def __init__(
        self, library: Any, protocol: str, group: str, topic: str, *, without: Iterable[str] = (), **settings: Any
    ) -> None:
        self.library = library
        self.consumer = library.consumer(
            {
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                **settings_of(protocol),
                **dotted(settings),
            }
        )
        self.seen: list[tuple[str, list[int], int]] = []  # (callback, partitions, generation inside)
        self.got: list[Any] = []
        self.errors: list[Any] = []
        self.inside: Callable[[str, list[Any]], Any] = lambda kind, partitions: None
        self._closing = False
        self._callbacks = {name: self._noting(name) for name in _CALLBACKS if name not in without}
        if topic:
            self.subscribe(topic)

    def _noting(self, name: str) -> Callable[[Any, list[Any]], None]:
        def callback(_: Any, partitions: list[Any]) -> None:
            self.seen.append((name, sorted(p.partition for p in partitions), self._generation_inside()))
            self.inside(name, partitions)

        return callback

    def _generation_inside(self) -> int:
        try:
            return self.generation
        except RuntimeError:
            if not self._closing:
                raise
            return UNJOINED.generation_id  # librdkafka may serve a callback of close() when it has left the group

    def subscribe(self, *topics: str) -> None:
        """Subscribe, with the callbacks that note."""
        self.consumer.subscribe(list(topics), **self._callbacks)

    def poll(self, timeout: float = POLL_S) -> None:
        """Serve callbacks, and keep what is handed over."""
        for message in self.consumer.consume(500, timeout):
            (self.got if message.error() is None else self.errors).append(message)

    @property
    def metadata(self) -> bytes:
        return bytes(self.consumer.consumer_group_metadata())

    @property
    def membership(self) -> Membership:
        return decode(self.metadata)[1]

    @property
    def generation(self) -> int:
        return self.membership.generation

    @property
    def member_id(self) -> str:
        return self.membership.member_id

    @property
    def owned(self) -> list[int]:
        return sorted(p.partition for p in self.consumer.assignment())

    @property
    def topics(self) -> set[str]:
        return {p.topic for p in self.consumer.assignment()}

    @property
    def values(self) -> list[str]:
        return [message.value().decode() for message in self.got]

    @property
    def codes(self) -> list[str]:
        """The names of the errors that were handed over."""
        return [message.error().name() for message in self.errors]

    def told(self, since: int = 0) -> list[tuple[str, list[int]]]:
        """What the callbacks were told, without the generations."""
        return [(name, numbers) for name, numbers, _ in self.seen[since:]]

    def commit(self, **given: Any) -> str | None:
        """Commit synchronously, the present positions unless others are given; the name of the error, if any."""
        try:
            self.consumer.commit(asynchronous=False, **given)
        except KafkaException as refused:
            return str(refused.args[0].name())
        return None

    def close(self) -> None:
        self._closing = True
        self.consumer.close()
