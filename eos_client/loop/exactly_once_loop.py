"""The loop: poll, begin at the first record, transform, produce, and end the transaction when it is due.

It only sequences. Whether a commit may be sent is decided in ``core.commit_gate`` and performed in
``clients.transaction_session``.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Generic, overload

from eos_client import errors
from eos_client.clients import EosConsumer, EosProducer
from eos_client.clients.input_events import InputEvents, MissingTopics, RefusedCredentials
from eos_client.clients.session_close import abort_before_close
from eos_client.clients.step_state import Ending
from eos_client.completion import Completion
from eos_client.config import EosConfig
from eos_client.config.client_settings import poll_limit_ms
from eos_client.confluent.call_marks import CallMarks
from eos_client.confluent.client_library import CONFLUENT_KAFKA
from eos_client.confluent.preflight import require_output_topics, require_topics
from eos_client.confluent.serialisation import AnyBatchTransform, DeserializedTransform, MessageTransform
from eos_client.core.commit_gate import CommitGate, GatePolicy
from eos_client.core.loop_health import LoopHealth, LoopVitals, health_of
from eos_client.core.model import Outcome
from eos_client.core.passed_offsets import LOOK_INTERVAL_S
from eos_client.core.transaction_timeout import has_timed_out
from eos_client.loop.concurrent_transform import event_loop_of
from eos_client.loop.record_failures import FailedRecords, StoppedMeanwhileError
from eos_client.loop.record_outputs import RecordOutputs, RefusedRecordsError, WithinTransaction
from eos_client.loop.serialised_records import with_serialisers
from eos_client.loop.shutdown import Shutdown
from eos_client.loop.stop_signals import StopSignals
from eos_client.loop.topic_check import checked_output_topic, checked_topics
from eos_client.loop.transaction_pace import TransactionPace
from eos_client.loop.transaction_size import RepeatedAborts, TransactionCost, TransactionSize
from eos_client.loop.transform_check import one_transform
from eos_client.loop.until_end import READ_TO_THE_END, UntilEnd
from eos_client.observe import (
    ClientReported,
    Counters,
    EventHook,
    LoopFenced,
    LoopStarted,
    LoopStopped,
    log_event,
    safe_hook,
)
from eos_client.ports import ClientLibrary, K_co, V_co

if TYPE_CHECKING:
    from typing_extensions import Self

_CLOSE_MIN_S = 1.0
_RUN = "run()"


class ExactlyOnceLoop(Generic[K_co, V_co]):
    """Consume, transform, produce, each record exactly once, until ``stop()``, SIGTERM, SIGINT or a fatal error.

    A topic that begins with ``^`` is a pattern. The loop waits for a topic that matches it: a classic member looks
    again every ``topic.metadata.refresh.interval.ms`` (librdkafka's default: 300,000 ms), for a KIP-848 member the
    broker looks. Deleting a topic that only a pattern matched does not end the loop; deleting a named topic does,
    within about ten seconds.
    ``transform`` gets one record and returns, or yields, its outputs: ``OutputRecord`` objects, or ``bytes`` for
    ``output_topic``. With deserialisers it is a ``Record[K, V]`` of the types that they give. It may run again for the
    same record after an abort, so it must not have side effects elsewhere.
    ``transform_batch``, in its place, gets a list of up to ``batch_size`` records, in the order of their partitions,
    and returns, or yields, the outputs of all of them. A batch for which it raises is halved, until the record that
    fails is alone.
    ``hook`` receives every event (default: each is logged). ``clients`` makes the consumer and the producer and has
    their clock (default: confluent_kafka in real time). Usable as a context manager, which closes the clients.
    """

    _polled_at: float | None = None
    _look_at = 0.0
    _until_end: UntilEnd | None = None

    @overload
    def __init__(
        self,
        config: EosConfig[K_co, V_co],
        topics: Sequence[str],
        transform: DeserializedTransform[K_co, V_co],
        *,
        output_topic: str | None = None,
        hook: EventHook = log_event,
        clients: ClientLibrary = CONFLUENT_KAFKA,
    ) -> None: ...

    @overload
    def __init__(
        self,
        config: EosConfig[Any, Any],
        topics: Sequence[str],
        transform: MessageTransform,
        *,
        output_topic: str | None = None,
        hook: EventHook = log_event,
        clients: ClientLibrary = CONFLUENT_KAFKA,
    ) -> None: ...

    @overload
    def __init__(
        self,
        config: EosConfig[K_co, V_co],
        topics: Sequence[str],
        *,
        transform_batch: AnyBatchTransform[K_co, V_co],
        output_topic: str | None = None,
        hook: EventHook = log_event,
        clients: ClientLibrary = CONFLUENT_KAFKA,
    ) -> None: ...

    def __init__(
        self,
        config: EosConfig[Any, Any],
        topics: Sequence[str],
        transform: Any = None,
        *,
        transform_batch: AnyBatchTransform[K_co, V_co] | None = None,
        output_topic: str | None = None,
        hook: EventHook = log_event,
        clients: ClientLibrary = CONFLUENT_KAFKA,
    ) -> None:
        given, takes_batches = one_transform(transform, transform_batch), transform is None
        begins = isinstance(given, WithinTransaction)
        self._config = config
        self._counters = counters = Counters()
        self._topics = checked_topics(topics, config.dead_letter_topic)
        self._output_topic = checked_output_topic(output_topic, config.dead_letter_topic)
        self._hook, self._clock = hook, clock = safe_hook(hook), clients.clock
        self._shutdown = shutdown = Shutdown(config.shutdown_timeout_s, clock)
        self._consumer = _consumer(config, clients, hook, counters)
        self._producer = _producer(config, clients, hook, counters)
        self._consumer_adapter = self._consumer.adapter
        self._events = InputEvents(self._consumer_adapter, hook)
        self._credentials = RefusedCredentials(self._consumer_adapter, config.recovery_timeout_s, clock)
        self._missing = MissingTopics(self._consumer_adapter, self._topics, clock, are_confirmed=True)
        self._producer_adapter = self._producer.adapter
        self.session = session = self._producer.session(self._consumer)
        self._event_loop = event_loop_of(given)
        self._failed = failed = FailedRecords(config, hook, counters, clock, lambda: shutdown.reason is not None)
        made = with_serialisers(given, config, output_topic, takes_batches=takes_batches)
        self._outputs = RecordOutputs(made, failed, session, output_topic, takes_batches=takes_batches, begins=begins)
        self._poll_limit_s = poll_limit_ms(self._consumer_adapter.settings) / 1000
        self._size = TransactionSize(config.max_records)
        self._pace = TransactionPace(self._size, config.commit_interval_s, clock)
        self._aborts = RepeatedAborts(config.recovery_timeout_s, self._poll_limit_s)
        self._closed = False
        self._runner: threading.Thread | None = None
        self._starting = threading.RLock()  # a signal handler may call close()
        self._ended = Completion()
        self._marks = CallMarks()

    @property
    def config(self) -> EosConfig[Any, Any]:
        """The configuration that the loop was built with."""
        return self._config

    @property
    def counters(self) -> Counters:
        """Totals of records and transactions since the loop was built."""
        return self._counters

    @property
    def gate(self) -> CommitGate:
        """The commit gate; its ``counters`` show what it has cost and saved."""
        return self._consumer.gate

    @property
    def stop_reason(self) -> str | None:
        """Why the loop stops or has stopped: a signal's name, or what was given to ``stop()``; None while it runs."""
        return self._shutdown.reason

    def health(self) -> LoopHealth:
        """Return whether the loop is live and ready, and why not; may be called from any thread, at any time.

        Live: it has polled within ``liveness_limit_s``. Ready: it is live, the group has assigned partitions to it (or
        none, to a standby), every rebalance callback was served, no named topic is missing, and the gate would let a
        commit pass.
        """
        membership = self._consumer_adapter.membership
        return health_of(
            LoopVitals(
                self._clock(),
                polled_at_s=self._polled_at,
                poll_limit_s=self.config.liveness_limit_s or max(self._poll_limit_s, self.config.longest_wait_s),
                stop_reason=self._shutdown.reason,
                has_ended=self._ended.is_set,
                is_forked_copy=membership.is_forked_copy,
                is_assigned=membership.state.is_assigned,
                generation=membership.state.synced_generation,
                needs_sync=membership.state.needs_sync,
                missing_topics=self._missing.missing,
                gate=self.gate.state,
                gate_settings=self.gate.settings,
            )
        )

    # -- running -------------------------------------------------------------------------------------------------

    def run(self, *, until_end: bool = False) -> bool:
        """Work until stopped, then finish or abort what is open, leave the group and return.

        With ``until_end`` it stops by itself once the group has committed every partition of ``topics`` up to the last
        stable offset that it had at the start; of what a pattern matches, the partitions that this loop has. Returns
        whether it has stopped for that.

        Raises ClusterUnavailableError (AuthenticationError where credentials are refused), ClusterUnfitError,
        TransformError, ProducerFencedError or FatalClientError;
        nothing that was not committed is lost or visible then. In the main thread, SIGTERM and SIGINT stop the loop.
        A loop runs once: afterwards, ClientClosedError is raised.
        """
        return self._marks.run(_RUN, self._run_once, until_end=until_end)

    def _run_once(self, *, until_end: bool) -> bool:
        self._claim()
        self._until_end = UntilEnd(self._consumer_adapter, self._topics, self._clock) if until_end else None
        try:
            with StopSignals(self.stop):
                self._run()
        finally:
            self._ended.set()
        return self._shutdown.reason == READ_TO_THE_END

    def _claim(self) -> None:
        with self._starting:
            if self._ended.is_set:
                raise errors.ClientClosedError(
                    f"this loop has ended ({self._shutdown.reason or 'closed'}) and its clients are closed. Build "
                    "another ExactlyOnceLoop: it goes on at the group's committed offsets."
                )
            if self._runner is not None:
                raise errors.WrongThreadError(
                    f"this loop runs in thread {self._runner.name!r} already. Build another ExactlyOnceLoop to run two "
                    "beside each other."
                )
            self._runner = threading.current_thread()
            self._polled_at = self._clock()

    def _run(self) -> None:
        try:
            if not self._start():
                return
            self._work()
            while self._must_repeat:
                self._work()
        except BaseException as error:
            self._shutdown.end_by(error)
            self._abort_quietly(error)
            if isinstance(error, errors.ProducerFencedError):
                self._hook(LoopFenced(transactional_id=self._producer.transactional_id))
            raise
        finally:
            self._close_clients()

    def _work(self) -> None:
        while self._shutdown.reason is None or self._must_repeat:
            try:
                self._turn()
            finally:
                if self._event_loop is not None and self._event_loop.is_closed:
                    self.stop("the event loop of run() was closed")
        self._drain()

    @property
    def _must_repeat(self) -> bool:
        """Whether records of an aborted transaction must be processed again before the loop ends."""
        return self._shutdown.must_repeat(self._pace.records, self._consumer_adapter.membership.state.assigned)

    def stop(self, reason: str = "stop() was called") -> None:
        """Ask the loop to stop; returns at once and may be called from any thread or a signal handler."""
        self._shutdown.request(reason)
        self._producer_adapter.registration.set_deadline(self._shutdown.ends_at)

    def close(self) -> None:
        """Leave the group and release the clients, within ``shutdown_timeout_s``. Open work is aborted first.

        Where another thread runs the loop, this stops the loop and waits: that thread finishes or aborts the open
        transaction and closes the clients. A thread that is still busy when the time is up is reported to ``hook``.
        Inside ``run()`` itself, in a signal handler, the transform or a hook, ``close()`` is ``stop()``.
        """
        with self._starting:
            runner = self._runner
            self._runner = runner or threading.current_thread()
        if runner is None:
            try:
                self._close_clients()
            finally:
                self._ended.set()
        elif self._marks.is_under_way(_RUN):
            self.stop("close() was called inside run()")
        elif runner is threading.current_thread():
            self._close_clients()
        elif not self._ended.is_set:
            self._await_end(runner)

    def _await_end(self, runner: threading.Thread) -> None:
        self.stop(f"closed by thread {threading.current_thread().name!r}")
        if not self._ended.wait(max(0.0, self._shutdown.left_s) + _CLOSE_MIN_S):
            error = (
                f"close() has stopped waiting: thread {runner.name!r} still runs after shutdown_timeout_s="
                f"{self.config.shutdown_timeout_s:g}. It stops when its transform returns; until then it is a member "
                "of the group, and its transaction, if one is open, ends with it or at transaction.timeout.ms."
            )
            self._hook(ClientReported(client="loop", error=error))

    def _close_clients(self) -> None:
        if self._closed:
            return
        self._abort_quietly()
        reason, has_left_group = self._shutdown.reason or "closed", False
        try:
            has_left_group = self._consumer.close_within(max(_CLOSE_MIN_S, self._shutdown.left_s))
        finally:
            self._producer.close()
            confirmed = "" if has_left_group else "; leaving the group was not confirmed in time"
            self._hook(LoopStopped(reason=reason + confirmed))
        self._closed = True  # not before: the next close() repeats one that an exception has interrupted

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self) -> bool:
        """Start the loop; returns False if it was stopped while no broker answered, which is an error otherwise."""
        limit_s = self.config.start_timeout_s
        outputs = {t for t in (self._output_topic, self.config.dead_letter_topic) if t is not None}
        try:
            require_topics(
                self._consumer_adapter, self._topics, limit_s, self._clock, lambda: self._shutdown.reason is not None
            )
            self._producer.init_transactions(limit_s)
            require_output_topics(self._producer_adapter, outputs, limit_s, self._clock)
            self._consumer.subscribe(self._topics)
        except errors.ClusterUnavailableError as error:
            if self._shutdown.reason is None:
                raise
            self._hook(ClientReported(client="loop", error=str(error)))
            return False
        started = LoopStarted(
            group_id=self.config.group_id, transactional_id=self._producer.transactional_id, topics=tuple(self._topics)
        )
        self._hook(started)
        return True

    # -- one turn ------------------------------------------------------------------------------------------------

    def _turn(self) -> None:
        try:
            ended = self._work_and_end()
        except errors.ClusterUnavailableError as error:
            if self._pace.records or isinstance(error, errors.AuthenticationError):
                raise
            # Only offsets without records were to be committed: an idle loop waits for its cluster without limit.
            self._hook(ClientReported(client="producer", error=str(error)))
            self._pace.end()
            return
        if ended is not None:
            ending, brings_progress = ended
            self._record_outcome(ending, brings_progress=brings_progress)

    def _work_and_end(self) -> tuple[Ending, bool] | None:
        """Return how the transaction has ended, and whether that shows which records were refused.

        None while it is open, or if its end was recorded here.
        """
        brings_progress = False
        try:
            batch = self._next_batch()
            self._apply_endings()
            if (forced := self.session.endings.take_forced()) is not None:
                self._consumer_adapter.put_back(batch)  # these records belong to the next transaction
                return forced, False
            self._work_on(batch)
            if not self._is_due():
                return None
            ending = self.session.end()
        except errors.UnknownOutcomeError as error:
            if self.session.has_unprocessed_work:  # a signal handler has raised it while outputs were written
                return self.session.abort(str(error)), False
            self._record_unknown_outcome(error)
            return None
        except StoppedMeanwhileError as error:
            self.session.recover(error)
            self._apply_endings()
            self._pace.end()
            self._shutdown.records_to_repeat = 0  # else that record is retried until the shutdown deadline
            return None
        except (errors.AbortableError, errors.RebuildProducerError) as error:
            brings_progress = isinstance(error, RefusedRecordsError)
            ending = self.session.recover(error)
        return ending, brings_progress

    def _record_unknown_outcome(self, error: errors.UnknownOutcomeError) -> None:
        """Report a commit whose outcome cannot be found out, because another member has committed further since."""
        self._hook(ClientReported(client="producer", error=str(error)))
        self._apply_endings()
        self._failed.unresolved()
        self._failed.aborted(self._consumer_adapter.membership.state.assigned)
        self._pace.end()

    def _next_batch(self) -> list[Any]:
        self.session.mark_processed()  # from here on a revocation may commit the last batch
        self._polled_at = self._clock()
        if not self._pace.has_begun:
            self._missing.require()
            if self._until_end is not None and self._until_end.is_reached():
                self.stop(READ_TO_THE_END)
                return []
            first = self._consumer.poll(self.config.poll_timeout_s)
            if first is None:
                self._producer_adapter.calls.drain_events()
                self._credentials.raise_if_refused()
                self._take_passed()
                return []
            self._pace.begin()
            if not self._outputs.prefers_whole_batches:
                return [first]
            self._consumer_adapter.put_back([first])  # it comes first in its batch, and counts once
        poll_s = self.config.poll_timeout_s
        if not self.session.is_held:
            poll_s = min(poll_s, self._pace.left_s)
        return self._consumer.consume(min(self.config.batch_size, self._pace.room), poll_s)

    def _take_passed(self) -> None:
        """Begin a transaction for the offsets without records behind the last record, so that the group's lag is 0."""
        if (now := self._clock()) >= self._look_at:
            self._look_at = now + LOOK_INTERVAL_S
            if self._consumer_adapter.hand_over_passed():
                self._pace.begin()

    def _is_due(self) -> bool:
        if self.session.is_held and self.gate.settings.policy is GatePolicy.HOLD:
            return True
        return self._pace.is_due

    def _work_on(self, batch: list[Any]) -> None:
        """Transform ``batch`` in strides; records left over when the commit is due go back to the consumer.

        A batch transform may be slow on small batches, so it gets the batch whole.
        """
        if self._consumer_adapter.has_handed_over_errors:
            batch = self._events.records(batch)
        write = self._outputs.write_one_by_one if self._size.one_by_one else self._outputs.write
        pace, done = self._pace, 0
        while done < len(batch):
            stride = batch if self._outputs.prefers_whole_batches else batch[done : done + pace.stride]
            pace.begin_stride(len(stride))
            write(stride)
            pace.end_stride()
            done += len(stride)
            if done < len(batch) and (self._is_due() or self._shutdown.reason is not None):
                self._consumer_adapter.put_back(batch[done:])
                return

    # -- endings -------------------------------------------------------------------------------------------------

    def _apply_endings(self) -> None:
        endings = self.session.endings
        self._failed.apply_endings(endings.commits, endings.aborts, self._consumer_adapter.membership.state.assigned)

    def _record_outcome(self, ending: Ending, *, brings_progress: bool) -> None:
        """Record how a transaction ended; ``brings_progress``: an abort shows which records were refused."""
        self._apply_endings()
        if ending.outcome is Outcome.SKIPPED:
            self._pace.hold()
            return
        cost = self._pace.end()
        if ending.outcome is Outcome.COMMITTED:
            if cost.records:
                self._shutdown.committed(cost.records)
                self._size.committed(self._producer_adapter.flush_share)
                self._aborts.progress()
        elif not cost.records:
            pass  # offsets without records: the next look repeats their commit
        elif brings_progress or self._can_shrink(cost):
            self._shutdown.expect_redelivery(cost.records, ending.partitions)
            self._aborts.progress()
        else:
            assigned = self._consumer_adapter.membership.state.assigned
            self._aborts.aborted(ending.partitions, assigned, cost, ending.reason)
            self._pause()

    def _can_shrink(self, cost: TransactionCost) -> bool:
        """Shrink the next transaction if that may help after an abort; returns whether it does for certain."""
        producer = self._producer_adapter
        was_open_too_long = has_timed_out(cost.work_s, producer.library.transaction_timeout_s)
        return self._size.aborted(
            cost.records,
            was_refused=producer.take_refusal() is not None,
            was_too_slow=was_open_too_long or self._aborts.is_eviction(cost),
            flush_share=producer.flush_share,
        )

    def _pause(self) -> None:
        """Wait after repeated aborts."""
        if self._aborts.pause_s:
            began_at = self._clock()
            self._consumer_adapter.fetching.wait_while_paused(self._aborts.pause_s)
            self._aborts.record_pause(self._clock() - began_at)

    def _drain(self) -> None:
        """Commit the open transaction, or abort it when the gate stays closed for ``shutdown_timeout_s``."""
        try:
            ending = self._end_once_the_gate_is_open()
        except errors.UnknownOutcomeError as error:
            self._record_unknown_outcome(error)
            return
        if ending.outcome is Outcome.SKIPPED:
            self.session.abort("the loop was stopped while the gate was closed")
        cost = self._pace.end()
        if ending.outcome is Outcome.COMMITTED:
            self._shutdown.committed(cost.records)
        elif ending.outcome is Outcome.ABORTED and self._can_shrink(cost):
            self._shutdown.expect_redelivery(cost.records, ending.partitions)

    def _end_once_the_gate_is_open(self) -> Ending:
        ending = self.session.end()
        while ending.outcome is Outcome.SKIPPED and self._clock() < self._shutdown.ends_at:
            self._consumer_adapter.fetching.wait_while_paused(self.config.poll_timeout_s)
            ending = self.session.end()
        return ending

    def _abort_quietly(self, raised: BaseException | None = None) -> None:
        """Abort open work without raising: the error that ended the loop is the one to report, and once."""
        self._apply_endings()
        try:
            abort_before_close(self.session, self._shutdown.reason or "the loop was closed")
        except errors.EosError as error:
            said = type(error).__name__ if str(error) == str(raised) else str(error)
            self._hook(ClientReported(client="producer", error=f"the last transaction was not aborted: {said}"))
        self._apply_endings()
        self._failed.unresolved()


def _consumer(config: EosConfig[Any, Any], clients: ClientLibrary, hook: EventHook, counters: Counters) -> EosConsumer:
    return EosConsumer(
        config.consumer_config(),
        gate=config.gate_settings(),
        hook=hook,
        counters=counters,
        factory=clients.consumer,
        clock=clients.clock,
    )


def _producer(config: EosConfig[Any, Any], clients: ClientLibrary, hook: EventHook, counters: Counters) -> EosProducer:
    return EosProducer(
        config.producer_config(),
        limits=config.producer_limits(),
        hook=hook,
        counters=counters,
        shortest_timeout_s=config.open_limit_s,
        generate_id=True,
        factory=clients.producer,
        clock=clients.clock,
    )
