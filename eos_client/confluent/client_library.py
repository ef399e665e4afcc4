"""confluent_kafka as the default client library, in real time; its classes as bases; how a producer is destroyed."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NoReturn, TypeVar

from confluent_kafka import Consumer, KafkaException, Producer

from eos_client.clock import MONOTONIC_CLOCK
from eos_client.errors import ConfigurationError
from eos_client.ports import ClientLibrary, Clock

__all__ = [
    "CONFLUENT_KAFKA",
    "ConfluentKafka",
    "Consumer",
    "Producer",
    "destroy_producer",
    "factory_or",
    "nothing_inherited",
]

T = TypeVar("T")


class _NotWrapped:
    """A public name of the library's class that its wrapper does not have."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, client: object, wrapper: type) -> NoReturn:
        raise AttributeError(f"{wrapper.__name__} has no {self._name!r}, which this confluent_kafka has: report it")


def nothing_inherited(wrapper: type[T]) -> type[T]:
    """Make each public name of the base that ``wrapper`` lacks an AttributeError.

    The object of the base class is never built, and not every method checks that: ``pause`` of 2.15 ends the process.
    """
    for name in dir(wrapper.__base__):
        if not name.startswith("_") and name not in vars(wrapper):
            setattr(wrapper, name, _NotWrapped(name))
    return wrapper


class ConfluentKafka:
    """confluent_kafka's own clients. Fulfils ``ClientLibrary``."""

    clock: Clock = MONOTONIC_CLOCK

    def consumer(self, config: dict[str, Any], /) -> Any:
        """Return a ``Consumer``."""
        return Consumer(config)

    def producer(self, config: dict[str, Any], /) -> Any:
        """Return a ``Producer``."""
        return Producer(config)


def factory_or(own: Callable[..., T], given: Callable[..., T] | None) -> Callable[..., T]:
    """Return ``given``, or ``own`` if it is None; raises ConfigurationError for what cannot make clients."""
    if given is None:
        return own
    if not callable(given):
        raise ConfigurationError(
            f"factory={given!r} makes no clients: give a function of their settings, such as cluster.consumer or "
            "cluster.producer of a SimulatedCluster"
        )
    return given


def destroy_producer(raw: Any) -> None:
    """Drop what ``raw`` has queued, end its threads, and leave a transaction that it cannot abort to the broker."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # that it could not end its transaction is why it is left
        raw.purge()  # close() waits for outstanding records without any limit
        with suppress(KafkaException):  # of a fatal error, which is raised by every call; the client is closed
            raw.close()


CONFLUENT_KAFKA: ClientLibrary = ConfluentKafka()
