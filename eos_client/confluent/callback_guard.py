"""Keeps what the application's callbacks raise until the client library's call has returned.

Raised inside the call, an exception would undo part of its work: ``consume`` drops the records that it has collected,
``commit_transaction`` fails although the transaction is committed. On Python before 3.12 confluent_kafka also loses the
exception itself when C code has raised it (``int("x")``): it ends in a SystemError, or as no error at all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from types import SimpleNamespace
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException

from eos_client.confluent.call_marks import CallMarks
from eos_client.confluent.failures.client_failures import configuration_refused
from eos_client.confluent.failures.kafka_errors import ErrorTranslation

T = TypeVar("T")

_ABOUT_REQUESTS = ("on_commit", "on_delivery", "dr_cb")
_ABOUT_THE_CLIENT = ("error_cb", "stats_cb", "throttle_cb")
_LOGGER = "logger"
_TOKEN = "oauth_cb"  # noqa: S105  # the name of a setting


class CallbackGuard:
    """Stands between one client and the application's callbacks, and keeps what they raise.

    The callbacks about the client itself (errors, statistics, throttling, its log) say nothing about the application's
    work. While the client closes, an Exception of theirs is kept apart, to be reported instead of raised.
    """

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error
        self._raised_by = ""
        self._closing = self._is_retired = False
        self._to_report = ""
        self._needs_token = False
        self._no_token: BaseException | None = None
        self._settings: Mapping[str, Any] = {}

    def keep(self, error: BaseException, raised_by: str = "") -> None:
        """Keep ``error`` for `raise_deferred`: the first one, but a KeyboardInterrupt or SystemExit before others.

        ``raised_by``: the callback about the client, if it was one.
        """
        if self._closing and raised_by and isinstance(error, Exception):
            self._to_report = self._to_report or f"{raised_by} has raised {error!r}, which close() does not raise"
        elif self.error is None or (isinstance(self.error, Exception) and not isinstance(error, Exception)):
            self.error, self._raised_by = error, raised_by

    def begin_close(self) -> None:
        """From now on, report what callbacks about the client raise, and what they have raised already."""
        self._closing = True
        if self.error is not None:
            error, self.error = self.error, None
            self.keep(error, self._raised_by)

    def take_report(self) -> str:
        """Return what is to be reported once the client is closed, or nothing."""
        report, self._to_report = self._to_report, ""
        return report

    def building(self, client: str) -> ErrorTranslation:
        """Build a ``client`` within: raises ConfigurationError where it refuses, and what its callbacks raise.

        If a constructor gets no token, confluent_kafka 2.16 frees the client while that exception is pending. Callbacks
        served meanwhile clear it, and the constructor raises a SystemError.
        """

        def translate(failed: BaseException) -> BaseException | None:
            if isinstance(failed, KafkaException):
                refusal = failed if self._no_token is None else self._without_token(failed)
                return configuration_refused(refusal, client, self._settings)
            if not isinstance(failed, SystemError):
                return None
            kept, self.error = self.error, None
            if self._needs_token and (kept is None or isinstance(kept, SystemError)):
                return configuration_refused(self._without_token(failed), client, self._settings)
            return kept

        return ErrorTranslation(translate)

    def _without_token(self, failed: BaseException) -> KafkaException:
        reason = "" if self._no_token is None else f", but raised {self._no_token!r}"
        no_token = KafkaError(KafkaError.SASL_AUTHENTICATION_FAILED, f"oauth_cb gave no token in time{reason}")
        exception = KafkaException(no_token)
        exception.__cause__ = self._no_token or failed
        return exception

    def raise_deferred(self) -> None:
        """Raise what was kept, if anything: the very object that the callback raised."""
        error, self.error = self.error, None
        if error is not None:
            try:
                raise error
            finally:
                del error  # or the traceback and this frame would keep each other alive

    def retire(self) -> None:
        """Ignore callbacks from now on, because another client has replaced this one."""
        self._is_retired = True

    def while_active(self, callback: Callable[..., Any]) -> Callable[..., None]:
        """Return ``callback`` for as long as its client is in use."""

        def call(*arguments: Any) -> None:
            if not self._is_retired:
                callback(*arguments)

        return call

    def keeping_errors(self, callback: Callable[..., Any], about_the_client: str = "") -> Callable[..., None]:
        """Wrap ``callback`` to keep its exceptions; ``about_the_client`` names a callback about the client itself."""

        def call(*arguments: Any) -> None:
            if not self._is_retired:
                try:
                    self.running(callback, *arguments)
                except BaseException as error:  # noqa: BLE001  # raised again when the client library has returned
                    self.keep(error, about_the_client)

        return call

    def running(self, callback: Callable[..., Any], *arguments: Any) -> None:
        """Run ``callback``, so that `is_running` and `is_in_a_callback` know it."""
        _CALLBACKS.run(self, callback, *arguments)

    def is_running(self) -> bool:
        """Whether the calling thread is inside a callback of this client."""
        return _CALLBACKS.is_under_way(self)

    def added_to(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Return ``settings`` with every callback guarded that is served inside a call.

        ``oauth_cb`` is not: librdkafka runs it in a thread of its own, where what it raises becomes a failed token.
        """
        self._settings = {key: value for key, value in settings.items() if isinstance(value, (str, int, float))}
        given = dict(settings)
        if callable(given.get(_TOKEN)):
            self._needs_token = True
            given[_TOKEN] = self._tracking_missing_token(given[_TOKEN])
        for name in (*_ABOUT_REQUESTS, *_ABOUT_THE_CLIENT):
            if callable(given.get(name)):
                given[name] = self.keeping_errors(given[name], name if name in _ABOUT_THE_CLIENT else "")
        if callable(getattr(given.get(_LOGGER), "log", None)):
            given[_LOGGER] = SimpleNamespace(log=self.keeping_errors(given[_LOGGER].log, _LOGGER))
        return given

    def _tracking_missing_token(self, oauth_cb: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            try:
                return oauth_cb(*arguments)
            except BaseException as error:
                self._no_token = error
                raise

        return call


class DeferredErrors:
    """``raise_deferred`` raises what is kept unless a block defers it, until its step is done and the outcome recorded.

    ``raise_now`` raises the kept error. The block is a plain class and no generator: an exception that strikes while it
    is entered could leave a generator suspended, and its clean-up would come at any later time.
    """

    def __init__(self, raise_now: Callable[[], None]) -> None:
        self._raise_now = raise_now
        self.are_deferred = False

    def raise_deferred(self) -> None:
        """Raise what is kept, unless inside a block."""
        if not self.are_deferred:
            self._raise_now()

    def deferred(self, *, until_later: bool = False) -> AbstractContextManager[None]:
        """Return a block that raises the kept error at its end; with ``until_later`` or in another block, later."""
        return _Deferring(self, until_later=until_later)


class _Deferring(AbstractContextManager[None]):
    def __init__(self, errors: DeferredErrors, *, until_later: bool) -> None:
        self._errors = errors
        self._keep_deferred = until_later
        self._outside = errors.are_deferred

    def __enter__(self) -> None:
        self._errors.are_deferred = True

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._errors.are_deferred = self._outside
        if kind is None and not self._keep_deferred:
            self._errors.raise_deferred()


_CALLBACKS = CallMarks()
"""Those of all clients: a callback of a consumer may call the producer whose call has served it."""


def is_in_a_callback() -> bool:
    """Whether the calling thread is inside a callback of any client of ours."""
    return _CALLBACKS.is_under_way()


def built(client: str, build: Callable[[dict[str, Any]], T], settings: Mapping[str, Any]) -> T:
    """Build a ``client`` of our own, which needs no guard later; raises ConfigurationError where it refuses."""
    guard = CallbackGuard()
    with guard.building(client):
        return build(guard.added_to(settings))
