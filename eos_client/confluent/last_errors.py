"""Keeps the last errors that a client reported beside its calls: of connections, and of undelivered outputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from confluent_kafka import KafkaError

from eos_client.core.error_codes import (
    ALL_BROKERS_DOWN,
    DELIVERY_REFUSED,
    OUTPUT_TOO_LARGE,
    PURGED,
    RECORD_INVALID,
    REFUSED_FOR_SIZE,
    REFUSED_WITH_ANOTHER,
)

_TOO_LARGE_HINT = (
    " (where no single output is too large, its batch is: set batch.size below the topic's max.message.bytes, or raise "
    "that)"
)

_KEY_HINT = " (it has no key, and a topic with cleanup.policy=compact takes no record without one)"


def describe_failed_delivery(error: KafkaError, message: Any) -> str:
    """Describe a failed delivery: destination and error."""
    hint = _KEY_HINT if error.name() == RECORD_INVALID and message.key() is None else ""
    return f"{message.topic()}[{message.partition()}]: {error.name()}: {error.str()}{hint}"


class RefusedDelivery(NamedTuple):
    """An output that its delivery report says will never be written. ``reason``: to where, and why not."""

    topic: str
    partition: int
    error: KafkaError
    reason: str

    @property
    def is_for_size(self) -> bool:
        """Whether a smaller output, or one in a smaller batch, may be taken."""
        return self.error.name() in REFUSED_FOR_SIZE


class LastErrors:
    """An ``error_cb`` that remembers the last error and passes it on to the application's own.

    ``error_cb`` is the setting for the client library: this object, or the application's own value if it is not
    callable, which the library then refuses. ``by_code``: the last error of each code, because that of another address
    may have followed it. ``undelivered_code``: that of the transaction's last failed delivery; empty if none failed.
    """

    def __init__(self, application_error_cb: Callable[[KafkaError], Any] | None) -> None:
        self._application_error_cb = given = application_error_cb
        self.error_cb: Any = self if given is None or callable(given) else given
        self.last: KafkaError | None = None
        self.by_code: dict[str, KafkaError] = {}
        self.watches_deliveries = False
        self._undelivered = self.undelivered_code = ""
        self._refused: RefusedDelivery | None = None

    def begin_transaction(self) -> None:
        """Forget the failed deliveries of the last transaction."""
        self._undelivered = self.undelivered_code = ""
        self._refused = None

    def __call__(self, error: KafkaError) -> None:
        """Record ``error`` and pass it on."""
        if self.last is None or error.name() != ALL_BROKERS_DOWN:  # those before say why
            self.last = error
        self.by_code[error.name()] = error
        if self._application_error_cb is not None:
            self._application_error_cb(error)

    def watching_deliveries(self, application_callback: Callable[..., Any] | None) -> Callable[..., Any]:
        """Return a delivery callback that remembers the transaction's failures and passes every report on."""
        self.watches_deliveries = True

        def on_delivery(error: KafkaError | None, message: Any) -> None:
            if error is not None and error.name() not in PURGED:
                self._record_undelivered(error, message)
            if application_callback is not None:
                application_callback(error, message)

        return on_delivery

    def _record_undelivered(self, error: KafkaError, message: Any) -> None:
        hint = _TOO_LARGE_HINT if error.name() == OUTPUT_TOO_LARGE else ""
        reason = describe_failed_delivery(error, message) + hint
        if not self._undelivered or error.name() != REFUSED_WITH_ANOTHER:
            self._undelivered, self.undelivered_code = reason, error.name()
        if error.name() in DELIVERY_REFUSED:
            self._refused = self._refused or RefusedDelivery(message.topic(), message.partition(), error, reason)

    def take_refused_delivery(self) -> RefusedDelivery | None:
        """Return the first output of the last transaction that was refused for good, once; None if none was."""
        refused, self._refused = self._refused, None
        return refused

    def delivery_clause(self) -> str:
        """Return the transaction's last failed delivery as the end of a sentence, or nothing."""
        return f"; the last undelivered output, to {self._undelivered}" if self._undelivered else ""

    def clause(self, error: KafkaError | None = None) -> str:
        """Return ``error``, or the last one, as the end of a sentence; without its text where that was told already."""
        error = error or self.last
        if error is None:
            return ""
        text = "" if getattr(self._application_error_cb, "tells_errors", False) else f": {error.str()}"
        return f"; the client last reported {error.name()}{text}"
