"""The part of a producer that sends records: Produce requests, their outcomes, delivery reports."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from eos_client.testing.simulator.brokers.link import ClientLink
from eos_client.testing.simulator.brokers.model import (
    NO_EPOCH,
    NO_PRODUCER_ID,
    BrokerError,
    PartitionKey,
    ProducerIdentity,
)
from eos_client.testing.simulator.brokers.network import Answer
from eos_client.testing.simulator.clients.accumulator import Accumulator, SentBatch
from eos_client.testing.simulator.clients.kafka_errors import kafka_error
from eos_client.testing.simulator.clients.producer_events import ProducerEvents, QueuedRecord
from eos_client.testing.simulator.clients.producer_settings import ProducerSettings
from eos_client.testing.simulator.clients.refusals import Treatment, treatment_of
from eos_client.testing.simulator.clients.request_repeater import RequestRepeater, Timers
from eos_client.testing.simulator.clients.transaction_state import TransactionState

_PRODUCE = "Produce"
_OUT_OF_ORDER = "OUT_OF_ORDER_SEQUENCE_NUMBER"
_DIFFERENT_RECORD = "_INVALID_DIFFERENT_RECORD"
_DUPLICATE = "DUPLICATE_SEQUENCE_NUMBER"
_EPOCH_MAX = 32_766
NO_IDENTITY = ProducerIdentity(NO_PRODUCER_ID, NO_EPOCH)
"""The identity of a producer without idempotence: its records have no sequence numbers."""


class RecordSender:
    """Sends the records of the accumulator under the producer's identity.

    ``joins_transaction`` returns whether a partition is in the transaction; if not, it adds the partition to it.
    """

    def __init__(
        self,
        link: ClientLink,
        settings: ProducerSettings,
        state: TransactionState,
        events: ProducerEvents,
        timers: Timers,
        requests: RequestRepeater,
    ) -> None:
        self.identity: ProducerIdentity | None = None if settings.idempotent else NO_IDENTITY
        self.flushing = False
        self.joins_transaction: Callable[[PartitionKey], bool] = lambda _: True
        self._link = link
        self._settings = settings
        self._state = state
        self._events = events
        self._timers = timers
        self._requests = requests
        self._requests_identity = False
        self._renumbers = False
        self.accumulator = Accumulator(
            linger_s=settings.linger_s,
            batch_records_max=settings.batch_records_max,
            batch_bytes_max=settings.batch_bytes_max,
            transactional=settings.transactional_id is not None,
        )

    # -- records in ----------------------------------------------------------------------------------------------

    def add(self, queued: QueuedRecord) -> None:
        """Queue a record whose partition is chosen."""
        partition = PartitionKey(queued.topic, queued.partition)
        queue = self.accumulator.queue(partition)
        queue.add(queued)
        if len(queue.waiting) == 1:
            self._timers.at(self.accumulator.lingers_until(partition), lambda: self.pump(partition))
            self._start_expiry_timer(partition)
        self.joins_transaction(partition)
        self.pump(partition)

    def _start_expiry_timer(self, partition: PartitionKey) -> None:
        queue, limit_s = self.accumulator.queue(partition), self._settings.message_timeout_s
        if queue.has_expiry_timer or not queue.waiting:
            return

        def expire() -> None:
            queue.has_expiry_timer = False
            now_s = self._link.clock.now_s
            self._fail_old(queue.expired(lambda queued: queued.queued_at_s + limit_s <= now_s))
            self._start_expiry_timer(partition)

        queue.has_expiry_timer = True
        self._timers.at(queue.waiting[0].queued_at_s + limit_s, expire)

    def _fail_old(self, records: Iterable[QueuedRecord]) -> None:
        old = list(records)
        if old:
            self.report_failed(old, "_MSG_TIMED_OUT", "Local: Message timed out")
            self._abort_or_renumber("_TIMED_OUT", f"{len(old)} message(s) timed out", bump=True)

    def use(self, identity: ProducerIdentity) -> None:
        """Send under ``identity`` from now on."""
        self.identity = identity
        self.pump_all()

    # -- batches out ---------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Send the queued records without waiting for ``linger.ms``."""
        self.flushing = True
        self.pump_all()

    def pump_all(self) -> None:
        """Send every batch that can be sent."""
        for partition in self.accumulator.partitions:
            self.pump(partition)

    def pump(self, partition: PartitionKey) -> None:
        """Send a batch of ``partition`` if there is one to send."""
        if not self._state.may_send or self._renumbers:
            return
        if not self.accumulator.is_ready(partition, self._link.clock.now_s, flushing=self.flushing):
            return
        if self.identity is None:
            self._request_identity()
        elif self.joins_transaction(partition):
            self._send(self.accumulator.take_batch(partition, self.identity))

    def _request_identity(self) -> None:
        if self._requests_identity or self._settings.transactional_id is not None:
            return
        self._requests_identity = True

        def assigned(identity: ProducerIdentity | None, refusal: BrokerError | None) -> None:
            self._requests_identity = False
            if identity is not None:
                self.use(identity)
            elif refusal is not None:
                self._fail_fatally(refusal.code, f"Failed to acquire idempotence PID: {refusal}")

        timeout_s = self._settings.transaction_timeout_s
        transactions = self._link.brokers.transactions
        self._requests.send("InitProducerId", lambda: transactions.init_producer_id(None, timeout_s), assigned)

    def _send(self, batch: SentBatch) -> None:
        """Send ``batch`` when the client quota lets it through."""
        free_at_s = self._link.brokers.throttle(sum(queued.size_bytes for queued in batch.records))
        if free_at_s > self._link.clock.now_s:
            self._timers.at(free_at_s, lambda: self._post(batch))
        else:
            self._post(batch)

    def _post(self, batch: SentBatch) -> None:
        if self.accumulator.queue(batch.partition).sent is not batch:  # purged meanwhile
            return
        brokers, transactional_id = self._link.brokers, self._settings.transactional_id

        def append() -> int:
            return brokers.produce(batch.partition, batch.batch, transactional_id)

        self._requests.send_once(_PRODUCE, append, lambda answer: self._on_produced(batch, answer))

    def _resend(self, batch: SentBatch, delay_s: float = 0.0) -> None:
        if self.accumulator.queue(batch.partition).sent is not batch:
            return
        if batch.records[0].queued_at_s + self._settings.message_timeout_s <= self._link.clock.now_s:
            self.accumulator.record_failed(batch)
            self._fail_old(batch.records)
            self._on_batch_ended(batch.partition)
        elif delay_s > 0:
            self._timers.after(delay_s, lambda: self._resend(batch))
        else:
            self._send(batch)

    # -- answers -------------------------------------------------------------------------------------------------

    def _on_produced(self, batch: SentBatch, answer: Answer[int] | None) -> None:
        if self.accumulator.queue(batch.partition).sent is not batch:  # purged meanwhile
            return
        if not self._settings.acknowledged:  # acks=0: a sent batch counts as delivered
            self.accumulator.record_acknowledged(batch)
            self._events.report(batch.records, None)
            self._on_batch_ended(batch.partition)
        elif answer is None:
            batch.lost = True
            self._resend(batch)
        elif answer.refusal is None or answer.refusal.code == _DUPLICATE:
            self.accumulator.record_acknowledged(batch)
            self._events.report(batch.records, None, answer.value)
            self._on_batch_ended(batch.partition)
        else:
            self._refused(batch, answer.refusal)

    def _refused(self, batch: SentBatch, refusal: BrokerError) -> None:
        treatment = treatment_of(_PRODUCE, refusal.code)
        if treatment is Treatment.RETRY:
            self._resend(batch, max(self._settings.backoff_s, 0.001))
            return
        self.accumulator.record_failed(batch)
        if self._settings.idempotent and self._recovers_by_renumbering(batch, refusal):
            self.accumulator.queue(batch.partition).put_back(batch)
            self._abort_or_renumber(refusal.code, f"skipped sequence numbers: {refusal}", bump=True)
        else:
            self._report_refused(batch, refusal)
            self._failed(batch, treatment, refusal)
        self._on_batch_ended(batch.partition)

    def _report_refused(self, batch: SentBatch, refusal: BrokerError) -> None:
        """Report the batch; if several records are at fault, each with its own code, as librdkafka does."""
        reports_each = len(refusal.records) > 1
        for index, record in enumerate(batch.records):
            code = "INVALID_RECORD" if index in refusal.records else _DIFFERENT_RECORD
            self.report_failed([record], code if reports_each else refusal.code, str(refusal))

    def _recovers_by_renumbering(self, batch: SentBatch, refusal: BrokerError) -> bool:
        if refusal.code == _OUT_OF_ORDER:
            return not self.accumulator.is_head_of_line(batch)
        return refusal.code == "UNKNOWN_PRODUCER_ID" and self._settings.transactional_id is None and not batch.lost

    def _failed(self, batch: SentBatch, treatment: Treatment, refusal: BrokerError) -> None:
        partition = f"{batch.partition.topic} [{batch.partition.partition}]"
        why = f"ProduceRequest for {partition} with {len(batch.records)} message(s) failed: {refusal}"
        transactional = self._settings.transactional_id is not None
        if transactional and treatment is Treatment.FATAL:
            self._fail_fatally("_FENCED", f"{why}: transactional producer fenced by newer producer instance")
        elif self._settings.idempotent and refusal.code == _OUT_OF_ORDER:
            self._fail_fatally(refusal.code, f"{why}: sequence desynchronization")
        elif not transactional and refusal.code == "UNKNOWN_PRODUCER_ID":
            self._fail_fatally(refusal.code, f"{why}: unable to retry without risking duplication/reordering")
        else:
            self._abort_or_renumber(refusal.code, why, bump=treatment is Treatment.ABORT_AND_BUMP or not transactional)

    def _on_batch_ended(self, partition: PartitionKey) -> None:
        self._renumber_if_drained()
        self.pump(partition)
        queue = self.accumulator.queue(partition)
        if queue.waiting and queue.sent is None:
            self._timers.at(self.accumulator.lingers_until(partition), lambda: self.pump(partition))
        self._start_expiry_timer(partition)

    # -- failures ------------------------------------------------------------------------------------------------

    def report_failed(self, records: Iterable[QueuedRecord], code: str, why: str) -> None:
        """Report that ``records`` were not delivered."""
        failed = list(records)
        self._state.undelivered += len(failed)
        self._events.report(failed, kafka_error(code, why))

    def _abort_or_renumber(self, code: str, why: str, *, bump: bool) -> None:
        """Fail the transaction, or number the records anew under a new epoch."""
        if not self._settings.idempotent:
            return
        if self._settings.transactional_id is not None:
            self._state.fail(code, why, bump=bump)
            self.purge()
        elif bump:
            self._renumbers = True
            self._renumber_if_drained()

    def _fail_fatally(self, code: str, why: str) -> None:
        error = self._state.fail_fatally(code, why)
        if error is not None:
            self._events.fatal(error)
            self.purge(in_flight=True)

    def _renumber_if_drained(self) -> None:
        """Bump the epoch once no batch of the old one is in flight; only this producer uses its id."""
        if not self._renumbers or self.accumulator.has_batch_in_flight:
            return
        self._renumbers = False
        if self.identity is None:
            return
        if self.identity.producer_epoch >= _EPOCH_MAX:
            self.identity = None
        else:
            self.identity = ProducerIdentity(self.identity.producer_id, self.identity.producer_epoch + 1)
        self.pump_all()

    def purge(self, *, in_queue: bool = True, in_flight: bool = False) -> None:
        """Report the waiting records as purged, and with ``in_flight`` also those in flight."""
        if in_queue:
            for records in self.accumulator.drop_waiting():
                self.report_failed(records, "_PURGE_QUEUE", "Local: Purged in queue")
        if in_flight:
            for batch in self.accumulator.drop_sent():
                self.report_failed(batch.records, "_PURGE_INFLIGHT", "Local: Purged in flight")
