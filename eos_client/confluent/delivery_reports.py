"""Delivery reports of the handle in use: what they say against a commit, and what the application gets of them.

A report of success without an offset is no proof. librdkafka takes a batch for written when a later one of its
partition was. But a broker that refuses the first, because it has only just become the leader, knows nothing of the
producer yet and takes any sequence number of the second: the record would be missing (confluent-kafka-go #921). With
one request in flight at a time no batch is overtaken.

What a handle that was left behind still says of its records is not passed on. They belong to a transaction that is
over, and it would say so from a thread of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import KafkaError

_OPTIONS = ("callback", "on_delivery")
_ONLY_ERRORS = "delivery.report.only.error"
_IN_FLIGHT = ("max.in.flight.requests.per.connection", "max.in.flight")

Report = Callable[..., Any]


class DeliveryReports:
    """Stands between one handle and the application's delivery callbacks."""

    __slots__ = ("_first_unconfirmed", "_left", "_only_errors", "_unconfirmed_count", "_undelivered")

    def __init__(self) -> None:
        self._left = False
        self._only_errors = False
        self._undelivered = ""
        self.forget()

    def forget(self) -> None:
        """Begin a transaction: what was unconfirmed in the last one does not count."""
        self._unconfirmed_count = 0
        self._first_unconfirmed = ""

    def leave(self) -> None:
        """Pass nothing on from now on."""
        self._left = True

    def added_to(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Return ``settings`` of a handle that reports here what there is to look at."""
        made = dict(settings)
        if not _one_at_a_time(settings):
            self._only_errors = str(made.pop(_ONLY_ERRORS, "")).lower() in {"true", "t", "1"}
        made["on_delivery"] = self.guarded(made.get("on_delivery"))
        return made

    def guarded(self, callback: Report | None) -> Report:
        """Return ``callback`` as the handle gets it."""

        def report(error: KafkaError | None, message: Any) -> None:
            if error is not None or message.offset() is None:
                self._note(error, message)
            if callback is not None and not self._left and (error is not None or not self._only_errors):
                callback(error, message)

        return report

    def _note(self, error: KafkaError | None, message: Any) -> None:
        place = f"{message.topic()}[{message.partition()}]"
        if error is None:
            self._first_unconfirmed = self._first_unconfirmed or place
            self._unconfirmed_count += 1
        elif not error.name().startswith("_PURGE"):
            self._undelivered = f"; the last undelivered output, to {place}: {error.name()}: {error.str()}"

    def undelivered_clause(self) -> str:
        """Return the last failed delivery as the end of a sentence, once, or nothing."""
        clause, self._undelivered = self._undelivered, ""
        return clause

    def why_unconfirmed(self) -> str:
        """Return why the transaction cannot be committed, or nothing."""
        if not self._unconfirmed_count:
            return ""
        return (
            f"{self._unconfirmed_count} output{'s'[: self._unconfirmed_count - 1]} (the first for "
            f"{self._first_unconfirmed}) reported without an offset: the client library took a later batch's success "
            "for theirs, and the broker may have refused them (confluent-kafka-go #921). Abort, rewind and go on."
        )

    def guard_options(self, options: dict[str, Any]) -> dict[str, Any]:
        """Guard the callback among a call's named arguments, if there is one."""
        for name in _OPTIONS:
            if options.get(name) is not None:
                options[name] = self.guarded(options[name])
        return options

    def guard_arguments(self, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        """Guard the callback among a call's unnamed arguments; nothing else there can be called."""
        return tuple(self.guarded(each) if callable(each) else each for each in arguments)

    def guard_messages(self, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return ``messages`` of a batch, those with a callback of their own as copies."""
        return [self.guard_options(dict(m)) if m.get("callback") is not None else m for m in messages]


def _one_at_a_time(settings: Mapping[str, Any]) -> bool:
    given = {str(settings[name]) for name in _IN_FLIGHT if name in settings}
    return given == {"1"}
