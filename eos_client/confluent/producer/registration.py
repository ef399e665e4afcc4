"""Registers a producer's transactional.id, replaces unusable handles, and registers it again.

Without an id it is an idempotent producer, for any thread; the first ``init_transactions`` gives it an id and a handle.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable
from contextlib import suppress

import tenacity
from confluent_kafka import KafkaError, KafkaException, libversion

from eos_client import errors
from eos_client.confluent.diagnosis import never_answered, unreachable, why_init_failed
from eos_client.confluent.failures.kafka_errors import NamedError, kafka_error, make_kafka_error
from eos_client.confluent.failures.producer_failures import not_registered_error
from eos_client.confluent.first_contact import FirstContact
from eos_client.confluent.producer.bounded_calls import BoundedCalls
from eos_client.confluent.thread_ownership import ThreadOwnership, owned
from eos_client.core.producer_recovery import TransactionalRequest
from eos_client.core.producer_states import (
    HandleAbandoned,
    HandleBuilt,
    HandlePhase,
    HandleSuspected,
    HandleUnregistered,
    Registered,
    ReplacementBegins,
)
from eos_client.observe import Counters, EventHook, ProducerRebuilt

_INIT_ATTEMPT_MIN_S = 0.01


def _sent_twice(transactional_id: str, *, log_understood: bool) -> errors.RebuildProducerError:
    happened = (
        f"a connection of transactional.id {transactional_id!r} was lost since its handle was built"
        if log_understood
        else f"librdkafka {libversion()[0]} does not log lost connections in a known format, so each transaction of "
        f"transactional.id {transactional_id!r} ends with its handle"
    )
    happened += (
        ": the client library may have sent a request twice, and the first copy could still end the next transaction "
        "(KAFKA-17754)."
    )
    error = errors.RebuildProducerError(f"{happened} Call init_transactions() to build a new handle with the same id.")
    return errors.with_happened(error, happened)


def _cause_of(error: errors.EosError | None) -> str:
    """Return in one word why a handle became unusable, as metrics count it."""
    if isinstance(error, KafkaException):
        return kafka_error(error).name()
    return "asked_for" if error is None else "connection_lost"


class Registration:
    """Initialises the handle, and replaces it.

    ``attempt_s``: how long one attempt of ``init_transactions`` takes at most before it is repeated.
    """

    def __init__(
        self, calls: BoundedCalls, ownership: ThreadOwnership, counters: Counters, hook: EventHook, attempt_s: float
    ) -> None:
        self.library = calls.library
        self._calls = calls
        self._ownership = ownership
        self._counters = counters
        self._hook = hook
        self._clock = calls.clock
        self._attempt_s = attempt_s
        self._deadline_s = math.inf
        self._was_registered = False

    def init_transactions(self, limit_s: float) -> None:
        """Register the id; builds a new handle when this one is finished, or has no id."""
        self._refuse_when_over()
        began_at = self._clock()
        if not self.library.transactional_id:
            self._become_transactional(limit_s)
        elif self._calls.state.why_unusable is not None and not self._calls.state.may_initialise:
            self._replace_handle()
        self._initialise(max(0.0, limit_s - (self._clock() - began_at)))

    def _refuse_when_over(self) -> None:
        if self._calls.state.is_over:
            self._calls.require_usable()

    def _become_transactional(self, limit_s: float) -> None:
        # After a fatal error it is unknown whether the records produced so far were delivered.
        if isinstance(self._calls.state.why_unusable, errors.FatalClientError):
            raise self._calls.state.why_unusable
        if self._calls.state.why_unusable is None and (unacknowledged := self._calls.flush(limit_s)):
            message = (
                f"{unacknowledged} records produced before init_transactions() were not acknowledged within "
                f"{limit_s:g} s: the producer has no transactional.id yet. Call init_transactions() again, or purge() "
                "the records first."
            )
            raise make_kafka_error(errors.RetriableError, KafkaError._TIMED_OUT, message, retriable=True)
        settings = self.library.settings_with_id()
        self._calls.tell(HandleAbandoned(not_registered_error(settings["transactional.id"])))
        self.library.take_settings(settings)
        self._ownership.end_sharing()
        self._replace_handle()

    def _replace_handle(self) -> None:
        """Replace the handle, which takes no calls until its init has succeeded; an interrupted step is done again."""
        self._calls.tell(ReplacementBegins(not_registered_error(self.library.transactional_id)))
        self.library.abandon_handle()
        self.library.start()
        self._calls.tell(HandleBuilt())

    def _initialise(self, limit_s: float, meanwhile: Callable[[], None] = lambda: None) -> None:
        library = self.library
        if self._calls.state.may_initialise and self._calls.state.why_unusable is None:
            self._calls.tell(HandleUnregistered(not_registered_error(library.transactional_id)))
        if library.thread.is_real:  # in a simulated cluster, instances stand for processes
            self._release_other_handles()
            library.abandoned_inits.take_from_process(library.registration_key)
            _UNANSWERED.add(weakref.ref(self, _UNANSWERED.discard))
        contact = FirstContact(library.last_errors, limit_s, self._clock, was_answered=self._was_registered)
        try:
            self._initialise_within(contact, meanwhile)
        except (errors.RetriableError, errors.RebuildProducerError) as error:
            if self.is_past_deadline:
                raise errors.ClusterUnavailableError(f"{error} Given up because the process is to stop.") from error
            if isinstance(error.__cause__, NamedError):  # says why by itself, and no broker could
                raise never_answered(error, limit_s) from error
            simulated, last = not library.thread.is_real, library.last_errors
            if contact.is_refused:
                asked = library.settings, contact.waited_s, last
                raise unreachable(*asked, cause=error, simulated=simulated, refused=True) from error
            raise why_init_failed(library.settings, last, limit_s, error, simulated=simulated) from error
        _UNANSWERED.discard(weakref.ref(self))
        self._was_registered = True
        library.abandoned_inits.record_init()
        library.init.mark_answered()
        self._calls.tell(Registered())

    def _initialise_within(self, contact: FirstContact, meanwhile: Callable[[], None]) -> None:
        def prepare_next(_: tenacity.RetryCallState) -> None:
            meanwhile()
            if not self._calls.state.may_initialise:
                self._replace_handle()

        retrying = tenacity.Retrying(
            sleep=self._clock.sleep,
            retry=tenacity.retry_if_exception_type((errors.RetriableError, errors.RebuildProducerError)),
            stop=lambda _: self.is_past_deadline or contact.is_over(),
            wait=tenacity.wait_exponential(multiplier=0.001, max=1.0),
            before_sleep=prepare_next,
            reraise=True,
        )
        retrying(self._init_once, contact)

    def _init_once(self, contact: FirstContact) -> None:
        attempt_s = min(self._attempt_s, max(_INIT_ATTEMPT_MIN_S, contact.left_s))
        raw, init = self.library.raw, self.library.init
        init.mark_requested(is_needed=self._calls.state.may_initialise)
        try:
            self._calls.run(TransactionalRequest.INIT, lambda: init.attempt(raw, attempt_s), attempt_s)
        except errors.RetriableError:
            self._calls.serve(0)  # the client library's log may say why
            raise

    def set_deadline(self, moment_s: float) -> None:
        """Wait for the cluster no longer than until ``moment_s`` of the clock."""
        self._deadline_s = moment_s

    @property
    def is_past_deadline(self) -> bool:
        """Whether the time to wait for the cluster is over."""
        return self._clock() >= self._deadline_s

    def _release_other_handles(self) -> None:
        key = self.library.registration_key
        for each in _UNANSWERED.copy():
            other = each()
            if other is not None and other is not self and other.library.registration_key == key:
                with suppress(errors.WrongThreadError):
                    other.release_id()

    @owned()
    def release_id(self) -> None:
        """End the handle if its init is unanswered, because a younger producer registers the same id.

        The next ``init_transactions`` of this one takes the id back. Raises WrongThreadError while another thread uses
        the producer.
        """
        if self.library.init.is_unanswered and not self.library.guard.is_running():
            self._calls.tell(HandleAbandoned(not_registered_error(self.library.transactional_id)))
            self.library.release_id()

    def rebuild(self, limit_s: float, meanwhile: Callable[[], None] = lambda: None) -> None:
        """Replace the handle and initialise the new one, which ends the old one's transaction one way or the other.

        Tried for ``limit_s``, or until `set_deadline`; raises what ``init_transactions`` raises. A rebuild that failed
        or was interrupted is continued. ``meanwhile`` is called between two attempts; what it raises interrupts this.
        """
        self._refuse_when_over()
        began_at, error = self._clock(), self._calls.state.why_unusable
        age_s, old = self._calls.transaction_age_s, self.library.identity
        if not self._calls.state.may_initialise:
            self._replace_handle()
        self._initialise(limit_s, meanwhile)
        self._counters.producer_rebuilds += 1
        self._hook(
            ProducerRebuilt(
                transactional_id=self.library.transactional_id,
                cause=_cause_of(error),
                reason="asked for" if error is None else errors.what_happened(error),
                duration_s=self._clock() - began_at,
                transaction_age_s=age_s,
                old_producer=old,
            )
        )

    @property
    def may_have_sent_twice(self) -> bool:
        """Whether this handle has lost a connection: a copy of a request may still arrive, late.

        A loss between transactions counts as well, so that the handle is replaced before a later loss may go
        unreported.
        """
        self._calls.drain_events()
        return self.library.log.connections.may_have_sent_twice() or self._calls.state.why_unusable is not None

    def block_after_lost_connection(self) -> None:
        """Use the handle no more if a request of it may be in flight: `rebuild_after_lost_connection` fences that."""
        if self.may_have_sent_twice and self._calls.recovers_from_own_fence and self._calls.state.why_unusable is None:
            library = self.library
            refusal = _sent_twice(library.transactional_id, log_understood=library.log.understood)
            self._calls.tell(HandleSuspected(refusal))

    def rebuild_after_lost_connection(self, limit_s: float, meanwhile: Callable[[], None] = lambda: None) -> None:
        """Replace the handle if it was given up for that. What was confirmed stays confirmed, even if this fails."""
        if self._calls.state.phase is HandlePhase.SUSPECT:
            with suppress(errors.EosError):
                self.rebuild(limit_s, meanwhile)


_UNANSWERED: set[weakref.ref[Registration]] = set()
"""The registrations of this process whose last init has not succeeded.

librdkafka goes on with an init after its call has failed. An application that builds another producer after an outage,
without closing the first, would lose the id to it: whichever request is served last has the newest epoch.
"""
