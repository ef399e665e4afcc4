"""The replaceable half of a producer: one librdkafka handle under a transactional.id that outlives it.

A handle that failed for good, or whose call is overdue, is left behind; ``init_transactions`` of the next one bumps the
epoch, which fences the old one and ends its transaction (KIP-360).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import tenacity
from confluent_kafka import KafkaError, KafkaException, Producer

from eos_client.config import safe_producer_settings
from eos_client.confluent.client_log import ClientLog
from eos_client.confluent.delivery_reports import DeliveryReports
from eos_client.confluent.diagnosis import LastErrors, why_init_failed
from eos_client.confluent.failures import (
    configuration_errors,
    kafka_error,
    overdue_error,
    producer_error,
    with_error,
)
from eos_client.confluent.handle_thread import HandleThread, OverdueError
from eos_client.confluent.producer_identity import IdentityWatch
from eos_client.confluent.thread_ownership import ThreadOwnership, owned
from eos_client.core.model import ProducerLimits
from eos_client.core.producer_recovery import OVERDUE, ProducerFailure, TransactionalRequest
from eos_client.errors import (
    ClientClosedError,
    ClusterUnavailableError,
    EosError,
    FatalClientError,
    ProducerFencedError,
    RebuildProducerError,
    RetriableError,
)
from eos_client.observe import Counters, EventHook, ProducerRebuilt
from eos_client.ports import Clock

# A call is given its own timeout first; only what outlives that by this much is left behind.
_GRACE_S = 0.5
_INIT_ATTEMPT_MIN_S = 0.01
_REPORT_LIMIT_S, _REPORT_SLICE_S = 0.5, 0.05


def _destroy(raw: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # that it could not end its transaction is why it is left
        raw.purge()  # close() waits for outstanding records without any limit
        raw.close()


def _sent_twice(transactional_id: str) -> RebuildProducerError:
    return RebuildProducerError(
        f"a connection of transactional.id {transactional_id!r} was lost during its last transaction: the client "
        "library may have sent a request twice, and the first copy could still end the next transaction (KAFKA-17754). "
        "Call init_transactions() to build a new handle with the same id."
    )


ProducerFactory = Callable[[dict[str, Any]], Any]


class ProducerHandle:
    """Builds, initialises, bounds and replaces the handle, and names its failures."""

    init_attempt_s = 1.0
    """How long one attempt of ``init_transactions`` takes at most before it is repeated."""

    def __init__(
        self,
        settings: Mapping[str, Any],
        *,
        limits: ProducerLimits | None,
        counters: Counters | None,
        shortest_timeout_s: float,
        hook: EventHook,
        factory: ProducerFactory,
        clock: Clock,
    ) -> None:
        self.limits = limits or ProducerLimits()
        self.counters = counters or Counters()
        self.give_up_at = math.inf
        self._generated_id = "transactional.id" not in settings
        self._settings = safe_producer_settings(settings, shortest_timeout_s)
        self._errors = LastErrors(self._settings.get("error_cb"))
        self._settings["error_cb"] = self._errors
        if str(self._settings.get("delivery.report.only.error", "")).lower() in {"true", "t", "1"}:
            self._settings["on_delivery"] = self._errors.watching_deliveries(self._settings.get("on_delivery"))
        self._hook = hook
        self._factory = factory
        self._clock = clock
        self._ownership = ThreadOwnership("EosProducer")
        self._finished: EosError | None = None
        self._began_at: float | None = None
        self._group_fenced = False
        self._failed_before: tuple[TransactionalRequest, str] | None = None
        self._raw: Any
        self._start_handle()

    def _start_handle(self) -> None:
        self._reports = DeliveryReports()
        self._identity = IdentityWatch(self._settings)
        self._log = ClientLog(self._settings)
        settings = self._reports.guard_options(dict(self._settings))
        settings = self._log.added_to(self._identity.added_to(settings))
        with configuration_errors("producer"):
            self._raw = self._factory(settings)
        self._thread = HandleThread(f"eos-producer-{self.transactional_id}", self._clock)

    @property
    def transactional_id(self) -> str:
        """The producer's stable name across restarts and rebuilds."""
        return str(self._settings["transactional.id"])

    @property
    def transaction_timeout_s(self) -> float:
        """Seconds after which the coordinator aborts an open transaction."""
        return int(self._settings["transaction.timeout.ms"]) / 1000

    @property
    def identity(self) -> str | None:
        """The handle's ``id/epoch`` as its statistics tell it (``statistics.interval.ms``); None where they do not."""
        return self._identity.known

    @property
    def transaction_age_s(self) -> float:
        """Seconds since ``begin_transaction``; 0.0 when none is open."""
        return 0.0 if self._began_at is None else self._clock() - self._began_at

    # -- life of a handle ---------------------------------------------------------------------------------------

    @owned(claims=True)
    def init_transactions(self, timeout: float = -1) -> None:
        """Register the id, fencing every older instance with it; builds a new handle when this one is finished.

        Waits ``timeout`` seconds, or ``start_timeout_s`` when negative. Raises ClusterUnavailableError when no broker
        answers, ClusterUnfitError with the real reason when one does, ProducerFencedError, FatalClientError.
        """
        if isinstance(self._finished, (ClientClosedError, ProducerFencedError)):
            raise self._finished
        if self._finished is not None:
            self._replace_handle()
        self._initialise(timeout if timeout >= 0 else self.limits.start_timeout_s)

    def _initialise(self, limit_s: float) -> None:
        deadline = self._clock() + limit_s
        retrying = tenacity.Retrying(
            sleep=self._clock.sleep,
            retry=tenacity.retry_if_exception_type((RetriableError, RebuildProducerError)),
            stop=lambda _: self.gives_up or self._clock() >= deadline,
            wait=tenacity.wait_exponential(multiplier=0.001, max=1.0),
            before_sleep=lambda _: self._replace_handle() if self._finished else None,
            reraise=True,
        )
        with self._diagnosed(limit_s):
            retrying(self._init_once, deadline)

    def _init_once(self, deadline: float) -> None:
        attempt_s = min(self.init_attempt_s, max(_INIT_ATTEMPT_MIN_S, deadline - self._clock()))
        raw = self._raw
        try:
            self._bounded(TransactionalRequest.INIT, lambda: raw.init_transactions(attempt_s), attempt_s)
        except RetriableError:
            self._serve(0)  # the client library's log may say why
            raise

    def rebuild(self) -> None:
        """Replace the handle and initialise the new one, which ends the old one's transaction one way or the other.

        Tried for ``recovery_timeout_s``, or until ``give_up_at``; raises what ``init_transactions`` raises.
        """
        began_at, reason = self._clock(), str(self._finished or "asked for")
        age_s, old = self.transaction_age_s, self.identity
        self._replace_handle()
        self._initialise(self.limits.recovery_timeout_s)
        self.counters.producer_rebuilds += 1
        self._hook(
            ProducerRebuilt(
                transactional_id=self.transactional_id,
                reason=reason,
                duration_s=self._clock() - began_at,
                transaction_age_s=age_s,
                old_producer=old,
            )
        )

    @property
    def may_have_sent_twice(self) -> bool:
        """Whether a connection was lost since ``begin_transaction``: a copy of a request may still arrive, late."""
        with suppress(EosError):  # remembered: whatever is called next raises it
            self._serve(0)  # the client library's log, too
        return self._log.lost_connection or self._finished is not None

    def _serve(self, timeout_s: float) -> int:
        with self._named(TransactionalRequest.FLUSH):  # fatal errors come out of whatever serves them
            return int(self._raw.poll(timeout_s))

    def _renew(self) -> None:
        """Fence whatever is still under way; what has been confirmed stays so, whatever becomes of this."""
        if self._finished is not None:
            return
        self._finished = _sent_twice(self.transactional_id)
        try:
            self.rebuild()
        except EosError as error:
            self._finished = self._finished or error

    @property
    def gives_up(self) -> bool:
        """Whether waiting for the cluster has come to its end."""
        return self._clock() >= self.give_up_at

    @contextmanager
    def _diagnosed(self, limit_s: float) -> Iterator[None]:
        try:
            yield
        except (RetriableError, RebuildProducerError) as error:
            if self.gives_up:
                raise ClusterUnavailableError(f"{error} Given up because the process is to stop.") from error
            simulated = not isinstance(self._raw, Producer)
            raise why_init_failed(self._settings, self._errors, limit_s, error, simulated=simulated) from error

    def _replace_handle(self) -> None:
        self._leave_handle_behind()
        self._start_handle()
        self._finished = None
        self._began_at = None

    def _leave_handle_behind(self) -> None:
        # Destroying a handle joins librdkafka's threads, which may take as long as the call that is stuck. Not left to
        # the garbage collector either: a live zombie would keep its connections.
        raw, self._raw = self._raw, None
        self._reports.leave()
        self._thread.abandon(lambda: _destroy(raw))

    # -- failures ------------------------------------------------------------------------------------------------

    def _usable(self) -> None:
        if self._finished is not None:
            raise self._finished

    def _bounded(self, request: TransactionalRequest, call: Callable[[], Any], timeout_s: float) -> None:
        try:
            with self._named(request):
                self._thread.call(call, timeout_s + _GRACE_S)
        except OverdueError as exception:
            raise self._remember(overdue_error(self._failure(request), timeout_s, self.transactional_id)) from exception

    @contextmanager
    def _named(self, request: TransactionalRequest) -> Iterator[None]:
        self._usable()
        try:
            yield
        except KafkaException as exception:
            raise self._failed(request, exception) from exception

    def _failed(self, request: TransactionalRequest, exception: KafkaException, where: str = "") -> EosError:
        error = kafka_error(exception)
        failure = self._failure(request, error)
        if request is TransactionalRequest.PRODUCE and failure.code == "_STATE" and failure.transaction_open:
            self._await_undelivered()
        self._failed_before = (request, failure.code)
        named = producer_error(failure, error, self.transactional_id, self._errors.delivery_clause() + where)
        return self._remember(named)

    def _await_undelivered(self) -> None:
        """After a failed delivery librdkafka first takes no more outputs, and reports what failed a moment later."""
        deadline = self._clock() + _REPORT_LIMIT_S
        while self._errors.awaits_undelivered and self._clock() < deadline:
            self._serve(_REPORT_SLICE_S)

    def _failure(self, request: TransactionalRequest, error: KafkaError | None = None) -> ProducerFailure:
        known = ProducerFailure(
            request,
            OVERDUE,
            transaction_age_s=self.transaction_age_s,
            transaction_timeout_s=self.transaction_timeout_s,
            generated_id=self._generated_id,
            transaction_open=self._began_at is not None,
            group_fenced=self._group_fenced,
            again=error is not None and (request, error.name()) == self._failed_before,
        )
        return known if error is None else with_error(known, error)

    def _remember(self, error: EosError) -> EosError:
        if isinstance(error, (RebuildProducerError, ProducerFencedError, FatalClientError)):
            self._finished = error
        return error
