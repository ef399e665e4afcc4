"""The client library's producer in use, with what stands around it and is replaced together with it.

The transactional.id outlives it: a handle that failed for good, or whose call is overdue, is abandoned, and
``init_transactions`` of the next one bumps the epoch, which fences the old one and ends its transaction (KIP-360).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Hashable, Mapping
from inspect import isbuiltin
from typing import Any, TypeVar

from eos_client.config.client_settings import idempotent_producer_settings, is_on, safe_producer_settings
from eos_client.confluent.call_marks import CallMarks, in_library
from eos_client.confluent.callback_guard import CallbackGuard, DeferredErrors
from eos_client.confluent.client_library import destroy_producer
from eos_client.confluent.client_log import ClientLog
from eos_client.confluent.handle_thread import HandleThread
from eos_client.confluent.last_errors import LastErrors
from eos_client.confluent.producer.handle_init import AbandonedInits, HandleInit
from eos_client.confluent.statistics import with_statistics_received
from eos_client.core.producer_recovery import clock_is_at_fault
from eos_client.ports import Clock, DeliveryCallback, is_simulated

ProducerFactory = Callable[[dict[str, Any]], Any]
T = TypeVar("T")


class LibraryProducer:
    """``raw`` is the library's producer in use, None where there is none; `start` builds it, with all that is its own.

    That is ``guard``, ``log``, ``thread``, and ``init``, the progress of its ``init_transactions``. ``callback_errors``
    raises what callbacks have raised, once the requested work is done and recorded. ``settings`` are librdkafka's, the
    defaults of this package included. ``times_given``: the topics to which outputs with a time of the application's
    were written since all outputs before were acknowledged. ``identity``: the handle's ``id/epoch``, which only its
    statistics have (``statistics.interval.ms``); None without them.
    """

    identity: str | None = None
    raw: Any = None
    thread: Any = None
    _abandoned_handle: Any = None

    def __init__(
        self,
        settings: Mapping[str, Any],
        factory: ProducerFactory,
        clock: Clock,
        shortest_timeout_s: float,
        *,
        generate_id: bool,
    ) -> None:
        self._shortest_timeout_s = shortest_timeout_s
        self.settings = idempotent_producer_settings(settings)
        self.id_is_generated = self.settings.get("transactional.id") is None
        if generate_id or not self.id_is_generated:
            self.settings = self.settings_with_id()
        self.last_errors = LastErrors(self.settings.get("error_cb"))
        self.factory = factory
        self._clock = clock
        self.marks = CallMarks()
        self.guard = CallbackGuard()
        self.callback_errors = DeferredErrors(lambda: self.guard.raise_deferred())  # noqa: PLW0108  # not always this one
        self.times_given: set[str] = set()
        self.init = HandleInit()
        self.abandoned_inits = AbandonedInits(clock)

    def start(self) -> None:
        """Build another handle; the one before was abandoned."""
        # One guard per handle: callbacks of an abandoned handle are ignored.
        self.guard = CallbackGuard(self.guard.error)
        self.identity = None
        self.log = ClientLog(self.settings)
        settings = self.guard.added_to(with_statistics_received(self._watched(), self._receive_statistics))
        with self.guard.building("producer"):
            raw = self.factory(settings)
        self.thread = HandleThread(f"eos-producer-{self.transactional_id}", self._clock)
        self.raw = raw
        self.init = HandleInit()  # last: whatever is interrupted before is done again

    def _receive_statistics(self, statistics: dict[str, Any]) -> None:
        found = statistics.get("eos", {})
        if found.get("producer_id", -1) >= 0:
            self.identity = f"{found['producer_id']}/{found['producer_epoch']}"

    def _watched(self) -> dict[str, Any]:
        settings = dict(self.settings)
        # Nothing depends on the log and errors of such a producer, and its poll() must not return for our own events.
        if not self.transactional_id:
            return settings
        settings["error_cb"] = self.last_errors.error_cb
        if (on_delivery := self._delivery_callback()) is not None:
            settings["on_delivery"] = on_delivery
        return self.log.added_to(settings)

    def _delivery_callback(self) -> Any:
        only_errors = is_on(self.settings, "delivery.report.only.error", default=False)
        application_callback = self.settings.get("on_delivery")
        is_watched = callable(application_callback) or (only_errors and application_callback is None)
        return self.last_errors.watching_deliveries(application_callback) if is_watched else application_callback

    def before_application_callback(self, on_delivery: DeliveryCallback) -> DeliveryCallback:
        """Return a callback that calls ``on_delivery`` and then the producer-wide one, which it would replace."""
        application_callback = self._delivery_callback()
        if not callable(application_callback):
            return on_delivery

        def both(error: Any, message: Any) -> None:
            on_delivery(error, message)
            application_callback(error, message)

        return both

    @property
    def clock_is_at_fault(self) -> bool:
        """Whether the transaction has failed because of this host's clock."""
        return clock_is_at_fault(self.log.failed, self.times_given)

    @property
    def transactional_id(self) -> str:
        """The producer's stable name across restarts and rebuilds; empty until it has one."""
        return str(self.settings.get("transactional.id") or "")

    @property
    def transaction_timeout_s(self) -> float:
        """Seconds after which the coordinator aborts an open transaction; 0.0 until the producer has an id."""
        return int(self.settings["transaction.timeout.ms"]) / 1000 if self.transactional_id else 0.0

    def settings_with_id(self) -> dict[str, Any]:
        """Return the settings of a transactional producer, with a generated id where none was chosen."""
        return safe_producer_settings(self.settings, self._shortest_timeout_s)

    def take_settings(self, settings: dict[str, Any]) -> None:
        """Use ``settings`` for the next handle."""
        self.settings = settings

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Replace the SASL credentials, also for the handle that replaces this one."""
        self.settings.update({"sasl.username": username, "sasl.password": password})
        self.raw.set_sasl_credentials(username, password)

    def call(self, call: Callable[[], T]) -> T:
        """Make a ``call`` that may serve callbacks; raises TransactionStateError inside another such call."""
        return in_library(self.marks, call)

    def abandon_handle(self) -> None:
        """Abandon the handle: its thread destroys it once the running call has returned. Never waits."""
        # Destroying a handle joins librdkafka's threads, which may take as long as the call that is stuck. Not left to
        # the garbage collector either: a live zombie would keep its connections.
        raw = self._abandoned_handle if self.raw is None else self.raw
        if raw is None:
            return
        if self.init.is_unanswered:
            self.abandoned_inits.add()
            self.init.mark_answered()
        self.guard.retire()
        # From here on, even if an exception strikes, the handle is not used any more and is destroyed.
        self._abandoned_handle, self.raw = raw, None
        self.thread.abandon(lambda: destroy_producer(raw), lambda: raw.poll(0))
        self._abandoned_handle = None

    @property
    def registration_key(self) -> Hashable:
        """Process, library, cluster and transactional.id of a registration."""
        return os.getpid(), self.factory, self.settings.get("bootstrap.servers"), self.transactional_id

    def release_id(self) -> None:
        """Abandon the handle, whose init may still take effect, to another producer that registers the same id."""
        self.abandon_handle()
        if not (self.id_is_generated or is_simulated(self._clock)):  # instances stand for processes in a simulation
            self.abandoned_inits.leave_to_process(self.registration_key)

    @property
    def is_bare(self) -> bool:
        """Whether ``raw`` is the client library itself, or the simulated one: nobody else's code runs in its calls."""
        return isbuiltin(self.raw.produce) or type(self.raw).__module__.startswith("eos_client.")

    def end_dropped(self) -> None:
        """End the handle of a producer that was dropped without close(); not in the thread that collects garbage."""
        # In simulated time that would be a matter of chance, and at the end of the process there is no other thread.
        if self.raw is not None and self.thread.is_real and not sys.is_finalizing():
            self.release_id()
        elif self.thread is not None:
            self.thread.end()
