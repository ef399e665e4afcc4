"""One slot of one micro-batch, on an executor: read the ledger, write the rows, move the ledger, commit.

Rows and ledger are one transaction of the database, and the ledger's row is moved last, if it still shows what was read
first. So two attempts at one slot may write side by side, and the row decides which of them commits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Any

from eos_client import errors
from eos_client.core.batch_claims import MoveOutcome, SlotRow, check_run, outcome_of
from eos_client.core.batch_ledger import (
    LedgerEntry,
    SinkIdentity,
    SlotContent,
    SlotDecision,
    SlotQuestion,
    decide_slot,
    slot_rules,
)
from eos_client.core.ledger_words import DATABASE_WORDS
from eos_client.integration.spark.content_count import ContentCount
from eos_client.integration.spark.database_settings import DatabaseSettings, table_of
from eos_client.integration.spark.progress import StepClock
from eos_client.integration.spark.settings import StepObserver
from eos_client.integration.spark.status import NOT_REPEATABLE, SlotOutcome, SlotStatus, public_name
from eos_client.integration.spark.table_columns import check_slots, written_columns
from eos_client.integration.sql.sql_batch_ledger import RowsRefusedError, SlotTransaction
from eos_client.position_store import StoreError, StoreUnavailableError, StoreUnfitError

if TYPE_CHECKING:
    import pyarrow as pa

_RULES = slot_rules(DATABASE_WORDS)


@dataclass(frozen=True)
class DatabaseTask:
    """What every task of a batch gets from the driver.

    ``run``: the one that has claimed the ledger; a task of another one writes nothing. ``floors``: by slot, the batch
    up to which this run has seen commits. ``accepts``: a committed slot's rows may differ now.
    """

    settings: DatabaseSettings
    identity: SinkIdentity
    batch_id: int
    run: int
    floors: tuple[int, ...]
    on_step: StepObserver | None = None
    accepts: bool = False

    @property
    def part(self) -> Sequence[Any]:
        """What differs from batch to batch; see ``BatchTask``."""
        return self.batch_id, self.run, self.floors, self.accepts

    def with_part(self, part: Sequence[Any]) -> DatabaseTask:
        """Return the task of another batch; see ``BatchTask``."""
        batch_id, run, floors, accepts = part
        return replace(self, batch_id=batch_id, run=run, floors=tuple(floors), accepts=accepts)

    def accepting(self) -> DatabaseTask:
        """Return the task with ``accepts``; see ``BatchTask``."""
        return replace(self, accepts=True)

    def write(self, slot: int, batches: Iterator[pa.RecordBatch], *, first_attempt: bool = True) -> SlotStatus:
        """Write ``batches`` as this batch's part of ``slot``, unless that was done; see ``BatchTask``."""
        attempt = DatabaseAttempt(self, slot, first_attempt=first_attempt)
        try:
            with named_store_errors():
                return attempt.run(batches)
        except errors.RunFencedError as error:
            return attempt.status(SlotOutcome.RUN_FENCED, error)
        except NOT_REPEATABLE as error:
            return attempt.status(SlotOutcome.REFUSED, error)


class DatabaseAttempt:
    """One attempt at one slot: at most one transaction."""

    def __init__(self, task: DatabaseTask, slot: int, *, first_attempt: bool) -> None:
        self._task = task
        self._slot = slot
        self._first_attempt = first_attempt
        self._ledger = task.settings.ledger()
        self._steps = StepClock()
        self._count = ContentCount()
        self._resolved = False

    def run(self, batches: Iterator[pa.RecordBatch]) -> SlotStatus:
        """Make the attempt; see ``DatabaseTask.write``. Raises StoreError, too."""
        self._observe_step("start")
        row = self._ledger.read(self._slot)
        self._observe_step("ledger_read")
        if self._decide(row, None) is SlotDecision.SKIP:
            for batch in batches:
                self._count.add(batch)
            self._decide(row, self._count.content)
            return self.status(SlotOutcome.SKIPPED)
        first = next(batches, None)  # upstream work comes before the transaction
        self._steps.lap("rows")
        attempt = ""
        try:
            with self._ledger.transaction() as transaction:
                attempt = transaction.attempt
                self._observe_step("begun")
                self._fill(transaction, known(row), first, batches)
        except StoreUnfitError:
            raise
        except StoreError as error:
            return self._resolve(attempt, error)
        self._observe_step("committed")
        return self.status(SlotOutcome.WRITTEN)

    def _fill(
        self, transaction: SlotTransaction, row: SlotRow, first: pa.RecordBatch | None, rest: Iterator[pa.RecordBatch]
    ) -> None:
        task, settings = self._task, self._task.settings
        if first is not None:
            table, columns = table_of(settings, task.run), written_columns(first)
            with transaction.writer(table, columns, use_copy=settings.use_copy) as write:
                for batch in chain((first,), rest):
                    check_slots(batch, self._slot)
                    write(values_of(batch, columns))
                    self._count.add(batch)
                    self._observe_step("inserted")
        self._observe_step("written")
        entry = LedgerEntry(task.batch_id + 1, task.identity, self._count.content, task.run)
        transaction.move(self._slot, row.entry, entry, row.owner)
        self._observe_step("moved")
        transaction.commit()

    def _decide(self, row: SlotRow | None, content: SlotContent | None) -> SlotDecision:
        """Return what to do with the slot; raises RunFencedError and the BatchLedgerError of a refusal."""
        task = self._task
        entry = None if row is None else row.entry
        if entry is not None:
            check_run(entry, task.run)
        question = SlotQuestion(entry, task.identity, task.batch_id, task.floors[self._slot], content, task.accepts)
        ruling = decide_slot(question, _RULES)
        if ruling.decision is SlotDecision.REFUSE:
            raise ruling.error(f"batch {task.batch_id} cannot be written: {ruling.reason}.")
        return ruling.decision

    def _resolve(self, attempt: str, cause: StoreError) -> SlotStatus:
        """Return what the ledger shows of an attempt that was refused, or whose COMMIT was not answered.

        The row is read once no transaction holds it, so one in doubt has ended. Raises where the slot is not written.
        """
        task = self._task
        try:
            row = self._ledger.read_settled(self._slot)
        except StoreError as error:
            raise errors.UnknownOutcomeError(
                f"whether slot {self._slot} of batch {task.batch_id} is written cannot be said: {cause}, and then the "
                f"ledger could not be asked: {error}. The repeated task asks it."
            ) from cause
        self._decide(row, None)
        outcome = outcome_of(row, task.batch_id, attempt)
        if outcome is MoveOutcome.COMMITTED:
            self._resolved = True
            return self.status(SlotOutcome.WRITTEN)
        if outcome is MoveOutcome.COMMITTED_ELSEWHERE:
            return self.status(SlotOutcome.SIBLING_DONE)
        if isinstance(cause, RowsRefusedError):
            raise errors.OutputRefusedError(
                f"a row of batch {task.batch_id} cannot be written into {task.settings.table!r}. {cause}. Correct that "
                "row, or the table."
            ) from cause
        raise errors.RetriableError(
            f"slot {self._slot} of batch {task.batch_id} was not written: {cause}. Repeat the task."
        ) from cause

    def status(self, outcome: SlotOutcome, error: errors.EosError | None = None) -> SlotStatus:
        """Return the report to the driver."""
        content = self._count.content
        return SlotStatus(
            slot=self._slot,
            outcome=outcome,
            rows=content.rows,
            error="" if error is None else public_name(error),
            message="" if error is None else str(error),
            reused=True,  # nothing is started for a slot
            seconds=self._steps.seconds,
            row_bytes=self._count.row_bytes,
            fingerprint=content.fingerprint,
            repeated=not self._first_attempt,
            resolved=self._resolved,
        )

    def _observe_step(self, step: str) -> None:
        self._steps.lap(step)
        if self._task.on_step is not None:
            self._task.on_step(step, self._slot, self._task.batch_id)


def known(row: SlotRow | None) -> SlotRow:
    """Return a row that was judged, so that it is there."""
    if row is None:
        raise LookupError("the ledger's row was not read")
    return row


def values_of(batch: pa.RecordBatch, columns: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    """Return the rows of a batch as values for a driver; moments in UTC, whatever the session's time zone is."""
    import pyarrow as pa  # noqa: PLC0415  # executors only

    values = []
    for name in columns:
        column = batch.column(name)
        if pa.types.is_timestamp(column.type) and column.type.tz is not None:
            column = column.cast(pa.timestamp(column.type.unit, "UTC"))
        values.append(column.to_pylist())
    return zip(*values, strict=True)


@contextmanager
def named_store_errors() -> Iterator[None]:
    """Raise what a store has raised as the EosError that says what to do."""
    try:
        yield
    except StoreUnavailableError as error:
        raise errors.ClusterUnavailableError(f"the database did not answer: {error}.") from error
    except StoreUnfitError as error:
        raise errors.ClusterUnfitError(f"{error}.") from error
    except StoreError as error:
        raise errors.RetriableError(f"{error}. Nothing of it took effect.") from error
