"""Keeps a member in its group during a step of the producer that may take long."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from eos_client.confluent.consumer.confluent_consumer import ConfluentConsumer
from eos_client.errors import EosError

T = TypeVar("T")


class EndedMeanwhileError(Exception):
    """A rebalance callback that was served during a step has completed it."""


class _RaisedMeanwhileError(Exception):
    """Carries an ``error`` of the consumer out of the producer's step, which takes an EosError for its own."""

    def __init__(self, error: EosError) -> None:
        super().__init__(str(error))
        self.error = error


def while_polling(
    consumer: ConfluentConsumer, step: Callable[[Callable[[], None]], T], *, is_over: Callable[[], bool]
) -> T:
    """Perform ``step`` with a function that it calls between two attempts: it polls, with all partitions paused.

    The poll raises EndedMeanwhileError if a callback has finished the step, which ``is_over`` then: a revocation
    resolves an unknown outcome in its callback. One that comes during an abort does nothing: the abort that is under
    way finishes.
    """

    def poll() -> None:
        if not consumer.can_serve_callbacks:
            return
        try:
            consumer.fetching.serve_callbacks(drain=True)
        except EosError as error:
            raise _RaisedMeanwhileError(error) from error
        if is_over():
            raise EndedMeanwhileError

    try:
        return step(poll)
    except _RaisedMeanwhileError as raised:
        raise raised.error from raised.error.__cause__
