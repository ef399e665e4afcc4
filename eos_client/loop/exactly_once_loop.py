"""The ready loop: poll, begin at the first record, transform, produce, and end the transaction when it is due.

It only sequences. Whether a commit may be sent is decided in ``core.commit_gate`` and performed in
``clients.transaction``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from eos_client.clients import EosConsumer, EosProducer
from eos_client.clients.transaction import Ending
from eos_client.config import EosConfig
from eos_client.confluent.client_library import CONFLUENT_KAFKA
from eos_client.confluent.preflight import require_output_topics, require_topics
from eos_client.core.model import Outcome, is_pattern
from eos_client.errors import (
    AbortableError,
    ClusterUnfitError,
    ConfigurationError,
    EosError,
    FatalClientError,
    RebuildProducerError,
    UnknownOutcomeError,
)
from eos_client.loop.record_failures import FailedRecords
from eos_client.loop.record_outputs import RecordOutputs
from eos_client.loop.stop_signals import StopSignals
from eos_client.observe import ClientReported, Counters, EventHook, LoopStarted, LoopStopped, log_event
from eos_client.ports import ClientLibrary, Transform

if TYPE_CHECKING:
    from typing_extensions import Self

_IGNORED = frozenset({"_PARTITION_EOF"})
_REFUSED = frozenset({"TOPIC_AUTHORIZATION_FAILED", "GROUP_AUTHORIZATION_FAILED"})
_MISSING = frozenset({"UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC"})
_STRIDE_MAX = 512
_BACKOFF_LIMIT_S = 1.0
_CLOSE_MIN_S = 1.0


class ExactlyOnceLoop:
    """Consume, transform, produce, each record exactly once, until ``stop()``, SIGTERM, SIGINT or a fatal error.

    A topic that begins with ``^`` is a pattern, and one that matches nothing yet is waited for: a classic member
    reports it and looks again every ``topic.metadata.refresh.interval.ms`` (librdkafka's default: 300,000 ms), for a
    KIP-848 member the broker looks. A matched topic that is deleted does not end the loop; one that was named does.
    ``transform`` gets one record and returns, or yields, its outputs: ``OutputRecord`` objects, or ``bytes`` for
    ``output_topic``. It may run again for the same record after an abort, so it must not have side effects elsewhere.
    ``hook`` hears every event (default: structlog). ``clients`` makes its consumer and producer and has the clock that
    they go by (default: confluent_kafka in real time). Usable as a context manager, which closes the clients.
    """

    def __init__(
        self,
        config: EosConfig,
        topics: Sequence[str],
        transform: Transform,
        *,
        output_topic: str | None = None,
        hook: EventHook = log_event,
        clients: ClientLibrary = CONFLUENT_KAFKA,
    ) -> None:
        if isinstance(topics, str) or not topics:
            raise ConfigurationError(f"topics={topics!r} must be a list of at least one topic name.")
        self.config = config
        self.counters = Counters()
        self._topics = list(topics)
        self._output_topic = output_topic
        self._hook = hook
        self._clock = clients.clock
        self._consumer = EosConsumer(
            config.consumer_config(),
            gate=config.gate_settings(),
            hook=hook,
            counters=self.counters,
            factory=clients.consumer,
            clock=clients.clock,
        )
        self._producer = EosProducer(
            config.producer_config(),
            limits=config.producer_limits(),
            hook=hook,
            counters=self.counters,
            shortest_timeout_s=config.open_limit_s,
            factory=clients.producer,
            clock=clients.clock,
        )
        self._session = self._producer.session(self._consumer)
        failed = FailedRecords(config, hook, self.counters, self._clock)
        self._outputs = RecordOutputs(transform, failed, self._session, output_topic)
        self._stop_reason: str | None = None
        self._began_at: float | None = None
        self._records = 0
        self._stride = 1
        self._aborting_since: float | None = None
        self._aborts_in_a_row = 0
        self._shutdown_ends_at: float | None = None
        self._closed = False

    # -- running -------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Work until stopped, then finish or abort what is open, leave the group and return.

        Raises ClusterUnavailableError, ClusterUnfitError, TransformError, ProducerFencedError or FatalClientError;
        nothing that was not committed is lost or visible then. In the main thread, SIGTERM and SIGINT stop the loop.
        """
        with StopSignals(self.stop):
            try:
                self._start()
                while self._stop_reason is None:
                    self._turn()
                self._drain()
            except BaseException as error:
                self._stop_reason = self._stop_reason or f"{type(error).__name__}: {error}"
                self._abort_quietly()
                raise
            finally:
                self.close()

    def stop(self, reason: str = "stop() was called") -> None:
        """Ask the loop to stop; returns at once and may be called from any thread or a signal handler."""
        self._stop_reason = self._stop_reason or reason
        self._producer.give_up_at = self._budget_ends_at()

    def close(self) -> None:
        """Leave the group and release the clients, within ``shutdown_timeout_s``. Open work is aborted first."""
        if self._closed:
            return
        self._closed = True
        self._abort_quietly()
        reason, left = self._stop_reason or "closed", False
        try:
            left = self._consumer.close_within(max(_CLOSE_MIN_S, self._budget_ends_at() - self._clock()))
        finally:
            self._producer.close()
            self._hook(LoopStopped(reason=reason if left else f"{reason}; leaving the group was not confirmed in time"))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self) -> None:
        limit_s = self.config.start_timeout_s
        require_topics(self._consumer, self._topics, limit_s, self._clock)
        self._producer.init_transactions(limit_s)
        outputs = {t for t in (self._output_topic, self.config.dead_letter_topic) if t is not None}
        require_output_topics(self._producer, outputs, limit_s, self._clock)
        self._consumer.subscribe(self._topics)
        self._hook(
            LoopStarted(
                group_id=self.config.group_id,
                transactional_id=self._producer.transactional_id,
                topics=tuple(self._topics),
            )
        )

    # -- one turn ------------------------------------------------------------------------------------------------

    def _turn(self) -> None:
        try:
            self._work_on(self._next_batch())
            if self._is_due():
                self._note(self._session.end())
        except UnknownOutcomeError as error:
            self._hook(ClientReported(client="producer", error=str(error)))
            self._forget_transaction()
        except (AbortableError, RebuildProducerError) as error:
            self._note(self._session.recover(error))

    def _next_batch(self) -> list[Any]:
        if self._began_at is None:
            first = self._consumer.poll(self.config.poll_timeout_s)
            batch = [] if first is None else [first]
        else:
            room = min(self.config.batch_size, max(1, self.config.max_records - self._records))
            batch = self._consumer.consume(room, self._poll_time_s(self._began_at))
        if batch and self._began_at is None:
            self._began_at = self._clock()
        return batch

    def _poll_time_s(self, began_at: float) -> float:
        if self._session.is_held:
            return self.config.poll_timeout_s
        left_s = began_at + self.config.commit_interval_s - self._clock()
        return min(self.config.poll_timeout_s, max(0.0, left_s))

    def _is_due(self) -> bool:
        if self._session.is_held and self._session.commits_when_generation_moves:
            return True
        if self._began_at is None:
            return False
        due_at = self._began_at + self.config.commit_interval_s
        return self._records >= self.config.max_records or self._clock() >= due_at

    def _work_on(self, batch: list[Any]) -> None:
        """Transform ``batch`` in strides; what does not fit in before the commit is due goes back to the consumer."""
        batch = self._without_events(batch)
        done = 0
        while done < len(batch):
            began_at = self._clock()
            stride = batch[done : done + self._stride]
            self._outputs.write(stride)
            done += len(stride)
            self._records += len(stride)
            self._adapt_stride(self._clock() - began_at)
            if done < len(batch) and (self._is_due() or self._stop_reason is not None):
                self._consumer.put_back(batch[done:])
                return

    def _adapt_stride(self, took_s: float) -> None:
        """Look at the clock some ten times per commit interval: often for a slow transform, rarely for a fast one."""
        if took_s * 10 > self.config.commit_interval_s:
            self._stride = max(1, self._stride // 2)
        else:
            self._stride = min(_STRIDE_MAX, self._stride * 2)

    def _without_events(self, batch: list[Any]) -> list[Any]:
        if not batch or not any(map(type(batch[0]).error, batch)):
            return batch
        for record in batch:
            if record.error() is not None:
                self._heed(record.error(), record.topic())
        return [record for record in batch if record.error() is None]

    def _heed(self, error: Any, topic: str | None) -> None:
        if error.name() in _IGNORED:
            return
        if error.fatal():
            raise FatalClientError(f"the consumer cannot go on: {error.name()}: {error.str()}. End the process.")
        if error.name() in _REFUSED or (error.name() in _MISSING and not self._is_by_pattern(topic)):
            raise ClusterUnfitError(f"the input cannot be read: {error.name()}: {error.str()}. Repair it, start again.")
        self._hook(ClientReported(client="consumer", error=f"{error.name()}: {error.str()}"))

    def _is_by_pattern(self, topic: str | None) -> bool:
        """Whether it is a pattern or a topic that one matched: such a topic may come and go."""
        return topic is not None and (is_pattern(topic) or topic not in self._topics)

    # -- endings -------------------------------------------------------------------------------------------------

    def _note(self, ending: Ending) -> None:
        if ending.outcome is Outcome.SKIPPED:
            # Held: the same transaction is due again one interval from now.
            self._began_at = self._clock()
            return
        self._forget_transaction()
        if ending.outcome is Outcome.COMMITTED:
            self._aborting_since, self._aborts_in_a_row = None, 0
        else:
            self._back_off(ending)

    def _forget_transaction(self) -> None:
        self._began_at = None
        self._records = 0

    def _back_off(self, ending: Ending) -> None:
        """Let repeated aborts come slower, and end when none has led to a commit for ``recovery_timeout_s``."""
        now = self._clock()
        self._aborting_since = self._aborting_since or now
        self._aborts_in_a_row += 1
        if now - self._aborting_since > self.config.recovery_timeout_s:
            raise FatalClientError(
                f"{self._aborts_in_a_row} transactions in a row were aborted for {now - self._aborting_since:.0f} s "
                f"without a commit in between; the last one: {ending.reason} Nothing of them is visible; end the "
                "process."
            )
        if self._aborts_in_a_row > 1:
            self._consumer.wait_while_paused(min(_BACKOFF_LIMIT_S, 0.02 * 2 ** min(self._aborts_in_a_row, 6)))

    def _budget_ends_at(self) -> float:
        if self._shutdown_ends_at is None:
            self._shutdown_ends_at = self._clock() + self.config.shutdown_timeout_s
        return self._shutdown_ends_at

    def _drain(self) -> None:
        """Finish what is open, or abort it when the gate stays closed for ``shutdown_timeout_s``."""
        deadline = self._budget_ends_at()
        ending = self._session.end()
        while ending.outcome is Outcome.SKIPPED and self._clock() < deadline:
            self._consumer.wait_while_paused(self.config.poll_timeout_s)
            ending = self._session.end()
        if ending.outcome is Outcome.SKIPPED:
            self._session.abort("the loop was stopped while the gate was closed")

    def _abort_quietly(self) -> None:
        """Abort open work on the way out; the error that brought us here is the one to report."""
        try:
            self._session.give_up(self._stop_reason or "the loop was closed")
        except EosError as error:
            self._hook(ClientReported(client="producer", error=f"the last transaction was not aborted: {error}"))
