"""One slot of one micro-batch, on an executor: fence, read the ledger, write, move the ledger, commit.

The order matters. The slot is fenced (``init_transactions``) before its ledger entry is read; otherwise the entry could
move after it was read. A producer kept from an earlier batch skips both steps if the driver names it as the last holder
of the slot in this run: the entry is then the one that this producer committed, or another producer has fenced it.
An attempt that takes the slot later fences this one; the ledger then shows whether that attempt committed the batch.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Hashable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

from eos_client import errors
from eos_client.clock import MONOTONIC_CLOCK
from eos_client.confluent.diagnosis import outcome_stays_unknown
from eos_client.confluent.ledger.ledger_reader import LedgerReader
from eos_client.confluent.ledger.slot_producer import SlotProducer, is_run_fenced
from eos_client.core.batch_ledger import (
    LedgerEntry,
    SinkIdentity,
    SlotContent,
    SlotDecision,
    SlotQuestion,
    decide_slot,
)
from eos_client.core.transaction_timeout import has_timed_out
from eos_client.integration.spark.content_count import ContentCount
from eos_client.integration.spark.progress import StepClock
from eos_client.integration.spark.settings import SinkSettings, StepObserver
from eos_client.integration.spark.status import NOT_REPEATABLE, SlotOutcome, SlotStatus, public_name
from eos_client.integration.spark.worker_clients import (
    READERS,
    READERS_MAX,
    SLOTS,
    IdleSlot,
    cluster_key,
    new_reader,
)
from eos_client.ports import Clock

if TYPE_CHECKING:
    import pyarrow as pa

_SIBLING_PAUSE_S = 0.05
_SIBLING_PAUSE_GROWTH = 1.5
_ABORT_LIMIT_S = 5.0
_SLOTS_TO_SPARE = 2  # margin for uneven slots and a slow broker
_POLL_LIMIT_S = 1.0
_PREFETCHED_BYTES_MAX = 16_000_000


@dataclass(frozen=True)
class SlotTask:
    """What every task of a batch gets from the driver.

    ``group_metadata``: the driver's membership; the broker refuses the ledger entry once it is over (KIP-447).
    ``floors``: by slot, the batch up to which this run has seen commits. ``holders``: by slot, the name of the producer
    that took it last; "" where the driver does not know. ``accepts``: a committed slot's rows may differ now.
    """

    settings: SinkSettings
    identity: SinkIdentity
    batch_id: int
    run: int
    group_metadata: bytes
    floors: tuple[int, ...]
    holders: tuple[str, ...]
    on_step: StepObserver | None = None
    accepts: bool = False

    def write(self, slot: int, batches: Iterator[pa.RecordBatch], *, first_attempt: bool = True) -> SlotStatus:
        """Write ``batches`` as this batch's part of ``slot``, unless that was done.

        Returns a status where repeating the task cannot help; raises EosError where Spark should repeat it.
        """
        attempt = SlotAttempt(self, slot, first_attempt=first_attempt)
        try:
            return attempt.run(batches)
        except errors.RunFencedError as error:
            return attempt.status(SlotOutcome.RUN_FENCED, error)
        except NOT_REPEATABLE as error:
            return attempt.status(SlotOutcome.REFUSED, error)
        finally:
            attempt.leave()

    @property
    def part(self) -> Sequence[Any]:
        """What differs from batch to batch; see ``BatchTask``."""
        return self.batch_id, self.run, self.group_metadata.hex(), self.floors, self.holders, self.accepts

    def with_part(self, part: Sequence[Any]) -> SlotTask:
        """Return the task of another batch; see ``BatchTask``."""
        batch_id, run, metadata, floors, holders, accepts = part
        return replace(
            self,
            batch_id=batch_id,
            run=run,
            group_metadata=bytes.fromhex(metadata),
            floors=tuple(floors),
            holders=tuple(holders),
            accepts=accepts,
        )

    def accepting(self) -> SlotTask:
        """Return the task with ``accepts``; see ``BatchTask``."""
        return replace(self, accepts=True)


def prefetch_until(batches: Iterator[pa.RecordBatch], started: Future[Any]) -> deque[pa.RecordBatch]:
    """Return the batches that come until ``started`` is done, or until they hold 16 MB."""
    prefetched: deque[pa.RecordBatch] = deque()
    size = 0
    while size < _PREFETCHED_BYTES_MAX and not started.done():
        batch = next(batches, None)
        if batch is None:
            break
        prefetched.append(batch)
        size += batch.nbytes
    return prefetched


class SlotAttempt:
    """One attempt at one slot: at most one new handle, at most one transaction.

    ``clock``: what the attempt itself measures and waits by; its clients, which it may leave to others, have their own.
    """

    def __init__(self, task: SlotTask, slot: int, *, first_attempt: bool, clock: Clock = MONOTONIC_CLOCK) -> None:
        self._task = task
        self._clock = clock
        self._settings = task.settings
        self._slot = slot
        self._first_attempt = first_attempt
        self._key = cluster_key(task.settings)
        self._reader: LedgerReader = READERS.take(self._key) or new_reader(task.settings)
        self._producer: SlotProducer | None = None
        self._begun_at = 0.0
        self._kept: IdleSlot | None = None
        self._holder = ""
        self._steps = StepClock()
        self._count = ContentCount()
        self._resolved = False

    # -- the protocol ------------------------------------------------------------------------------------------------

    def run(self, batches: Iterator[pa.RecordBatch]) -> SlotStatus:
        """Make the attempt; see ``SlotTask.write``."""
        self._observe_step("start")
        try:
            producer, rows = self._take_slot(batches)
            self._observe_step("initialised")
            entry = self._read(self._settings.start_timeout_s)[0] if self._kept is None else self._kept.entry
            self._observe_step("ledger_read")
            if self._decide(entry, None) is SlotDecision.SKIP:
                for batch in rows:
                    self._count.add(batch)
                self._decide(entry, self._count.content)
                self._keep(producer, entry)
                return self.status(SlotOutcome.SKIPPED)
            return self._write(producer, rows)
        except errors.ProducerFencedError as error:
            return self._await_other_attempt(error)
        except errors.AbortableError as error:
            if is_run_fenced(error, first_attempt=self._first_attempt):
                raise errors.RunFencedError(str(error)) from error
            if self._producer is not None and (refused := self._producer.take_refusal_reason()):
                reason = f"a row of batch {self._task.batch_id} cannot be written, to {refused}"
                raise errors.OutputRefusedError(f"{reason}. Correct that row, or the topic's settings.") from error
            raise

    def _take_slot(self, batches: Iterator[pa.RecordBatch]) -> tuple[SlotProducer, Iterator[pa.RecordBatch]]:
        """Get a producer that holds the slot: the kept one if the driver names it as the holder, else a new one.

        Rows are prefetched while a new one starts. Returns it, and the rows.
        """
        SLOTS.close_stale(self._is_stale)
        idle = SLOTS.take((self._key, self._slot))
        # A repeated task starts anew: the failed attempt before it may have fenced the kept producer.
        if idle is not None and self._first_attempt and self._is_known_holder(self._slot, idle):
            self._producer = idle.producer
            self._kept = idle
            return idle.producer, batches
        if idle is not None:
            idle.close()
        with ThreadPoolExecutor(1, "eos-slot") as starter:
            started = starter.submit(self._start_producer)
            prefetched = prefetch_until(batches, started)
            producer = started.result()
        freed = (prefetched.popleft() for _ in range(len(prefetched)))  # each one as it is written
        return producer, chain(freed, batches)

    def _start_producer(self) -> SlotProducer:
        settings = self._settings
        self._refuse_older_run(self._reader.marker(settings.start_timeout_s))
        name = settings.transactional_id(self._slot)
        producer = SlotProducer(settings.producer, name, limits=settings.limits, hook=lambda _: None)
        self._producer = producer
        producer.init_transactions()
        producer.ownership.disown()  # another thread may use it
        return producer

    @property
    def _run(self) -> tuple[str, int]:
        return self._task.identity.query_id, self._task.run

    def _is_known_holder(self, slot: int, idle: IdleSlot) -> bool:
        if idle.idle_s > self._settings.handle_idle_s:
            return False
        return idle.run == self._run and self._task.holders[slot : slot + 1] == (idle.producer.name,)

    def _is_stale(self, key: tuple[Hashable, int], idle: IdleSlot) -> bool:
        """Whether another producer has taken the slot since. The driver does not know what this batch has kept yet."""
        cluster, slot = key
        may_be_known = idle.run != self._run or idle.batch_id < self._task.batch_id
        return cluster == self._key and may_be_known and not self._is_known_holder(slot, idle)

    def _refuse_older_run(self, marker: LedgerEntry | None) -> None:
        """Raise RunFencedError if a newer run has announced itself: taking the slot would abort its transaction."""
        if marker is not None and marker.run > self._task.run:
            raise errors.RunFencedError(
                f"run {marker.run} has taken over from run {self._task.run}. Let this query end."
            )

    def _read(self, limit_s: float) -> tuple[LedgerEntry | None, LedgerEntry | None]:
        return self._reader.slot_and_marker(self._slot, limit_s)

    def _decide(self, entry: LedgerEntry | None, content: SlotContent | None) -> SlotDecision:
        task = self._task
        ruling = decide_slot(
            SlotQuestion(entry, task.identity, task.batch_id, task.floors[self._slot], content, task.accepts)
        )
        if ruling.decision is SlotDecision.REFUSE:
            raise ruling.error(f"batch {task.batch_id} cannot be written: {ruling.reason}.")
        return ruling.decision

    def _write(self, producer: SlotProducer, batches: Iterator[pa.RecordBatch]) -> SlotStatus:
        first = next(batches, None)  # upstream work comes before the transaction's timeout starts
        self._steps.lap("rows")
        producer.begin_transaction()
        self._begun_at = self._clock()
        try:
            return self._fill(producer, first, batches)
        except errors.UnknownOutcomeError as error:
            return self._resolve(producer, error)
        except errors.EosError as error:
            if has_timed_out(open_s := self._open_for_s, self._settings.transaction_timeout_s):
                raise self._timed_out_error(open_s) from error
            raise

    @property
    def _open_for_s(self) -> float:
        return self._clock() - self._begun_at

    def _timed_out_error(self, open_s: float) -> errors.RetriableError:
        """Return the error of a transaction that exceeded transaction.timeout.ms, so that brokers have ended it."""
        settings = self._settings
        enough = math.ceil(settings.slots * open_s / settings.transaction_timeout_s * _SLOTS_TO_SPARE)
        return errors.RetriableError(
            f"the transaction of slot {self._slot} of batch {self._task.batch_id} was open for {open_s:.1f} s, with "
            f"{self._count.content.rows} rows handed over; brokers end it after transaction.timeout.ms="
            f"{settings.transaction_timeout_s * 1000:.0f}. If it happens again, give the sink more slots (at this "
            f"speed slots={enough} or more would do; slots={settings.slots} now), or smaller batches, or raise "
            "transaction.timeout.ms in config, up to the brokers' transaction.max.timeout.ms."
        )

    def _fill(
        self, producer: SlotProducer, first: pa.RecordBatch | None, batches: Iterator[pa.RecordBatch]
    ) -> SlotStatus:
        task, settings = self._task, self._settings
        self._observe_step("begun")
        self._produce(producer, first, batches)
        producer.flush_outputs(settings.transaction_timeout_s)
        self._observe_step("flushed")
        entry = LedgerEntry(task.batch_id + 1, task.identity, self._count.content, task.run)
        producer.send_entry(settings.ledger_topic, self._slot, entry, task.group_metadata, settings.commit_timeout_s)
        self._observe_step("offsets_sent")
        producer.commit_transaction()
        self._observe_step("committed")
        self._keep(producer, entry)
        return self.status(SlotOutcome.WRITTEN)

    def _produce(self, producer: SlotProducer, first: pa.RecordBatch | None, rest: Iterator[pa.RecordBatch]) -> None:
        from eos_client.integration.spark.arrow_rows import RecordWriter, check_slot  # noqa: PLC0415  # executors only

        enqueue = partial(producer.enqueue_row, limit_s=self._settings.transaction_timeout_s)
        writer = RecordWriter(self._settings.topic, producer.raw_produce, enqueue, producer.poll)
        for batch in rest if first is None else chain((first,), rest):
            check_slot(batch, self._slot, self._settings.slots)
            writer.write(batch)
            self._count.add(batch)
            self._observe_step("produced")
        if first is None:
            self._observe_step("produced")

    # -- when it goes wrong ------------------------------------------------------------------------------------------

    def _await_other_attempt(self, cause: errors.ProducerFencedError) -> SlotStatus:
        """Wait for the attempt that has taken the slot to commit. Taking it back could go on for ever."""
        deadline = self._clock() + self._settings.sibling_timeout_s
        pause_s = _SIBLING_PAUSE_S
        while not self._is_done_elsewhere():
            if self._clock() > deadline:
                raise errors.RetriableError(
                    f"slot {self._slot} of batch {self._task.batch_id} was taken by another attempt, which has not "
                    f"committed it within {self._settings.sibling_timeout_s:g} s: repeat the task."
                ) from cause
            self._clock.sleep(pause_s)
            pause_s *= _SIBLING_PAUSE_GROWTH
        return self.status(SlotOutcome.SIBLING_DONE)

    def _is_done_elsewhere(self) -> bool:
        try:
            entry, marker = self._read(_POLL_LIMIT_S)
        except errors.ClusterUnavailableError:
            return False  # its pending commit delays the stable read
        self._refuse_older_run(marker)
        return self._decide(entry, None) is SlotDecision.SKIP

    def _resolve(self, producer: SlotProducer, cause: errors.UnknownOutcomeError) -> SlotStatus:
        """Resolve an unanswered commit: rebuilding the producer ends the transaction, then the ledger shows it.

        The handle counts its transaction as ended, so `leave` aborts nothing that may be committed.
        """
        open_s = self._open_for_s
        try:
            producer.rebuild()
            entry, _ = self._read(self._settings.start_timeout_s)
        except errors.ClusterUnavailableError as error:
            raise outcome_stays_unknown(error, "the ledger decides: the repeated task asks it.") from error
        if self._decide(entry, self._count.content) is SlotDecision.SKIP:
            self._resolved = True
            return self.status(SlotOutcome.WRITTEN)
        if has_timed_out(open_s, self._settings.transaction_timeout_s):
            raise self._timed_out_error(open_s) from cause
        raise errors.RetriableError(
            f"the commit of slot {self._slot} of batch {self._task.batch_id} was not answered and did not take effect: "
            "repeat the task."
        ) from cause

    def leave(self) -> None:
        """Return the reader for reuse; abort an open transaction and close a producer that was not kept."""
        READERS.put(self._key, self._reader, READERS_MAX, lambda *_: True)
        producer, self._producer = self._producer, None
        if producer is None:
            return
        try:
            if producer.calls.state.can_end_transaction:
                producer.abort_transaction(_ABORT_LIMIT_S)
        except errors.EosError:
            pass  # the next init_transactions of this slot ends it
        finally:
            producer.close()

    def _keep(self, producer: SlotProducer, entry: LedgerEntry | None) -> None:
        """Keep the producer for the next batch: it holds the slot, nothing is open, ``entry`` is in the ledger."""
        if producer.registration.may_have_sent_twice:
            return
        self._producer = None
        producer.ownership.disown()
        self._holder = producer.name
        idle = IdleSlot(producer, self._run, self._task.batch_id, entry)
        SLOTS.put((self._key, self._slot), idle, self._settings.kept_producers, self._makes_room)

    def _makes_room(self, key: tuple[Hashable, int], idle: IdleSlot) -> bool:
        """Whether ``idle`` is another sink's, or of a slot that another worker has begun: they begin in their order."""
        cluster, slot = key
        return cluster != self._key or (slot < self._slot and idle.batch_id < self._task.batch_id)

    # -- reporting ---------------------------------------------------------------------------------------------------

    def status(self, outcome: SlotOutcome, error: errors.EosError | None = None) -> SlotStatus:
        """Return the report to the driver."""
        return SlotStatus(
            slot=self._slot,
            outcome=outcome,
            rows=self._count.content.rows,
            error="" if error is None else public_name(error),
            message="" if error is None else str(error),
            reused=self._kept is not None,
            seconds=self._steps.seconds,
            holder=self._holder,
            row_bytes=self._count.row_bytes,
            fingerprint=self._count.content.fingerprint,
            repeated=not self._first_attempt,
            resolved=self._resolved,
        )

    def _observe_step(self, step: str) -> None:
        self._steps.lap(step)
        if self._task.on_step is not None:
            self._task.on_step(step, self._slot, self._task.batch_id)
