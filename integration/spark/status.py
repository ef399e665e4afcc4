"""What a task reports to the driver: one small row per slot, in place of an exception where a retry is useless."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass, field
from enum import Enum
from typing import Any

from pyspark.sql.types import IntegerType, StringType, StructType

from eos_client import errors
from eos_client.core.batch_ledger import SlotContent, joined
from eos_client.errors import EosError, RetriableError

NOT_REPEATABLE = (
    errors.BatchLedgerError,
    errors.OutputRefusedError,
    errors.ClusterUnfitError,
    errors.ConfigurationError,
)
"""With these, repeating the task cannot help: they are reported in a status, and the driver raises them."""
STATUS_SCHEMA = StructType().add("slot", IntegerType()).add("status", StringType())


class SlotOutcome(Enum):
    """How a slot of a batch ended."""

    WRITTEN = "written"
    SKIPPED = "skipped"
    SIBLING_DONE = "sibling_done"
    """Another attempt at the same slot and batch has committed it."""
    RUN_FENCED = "run_fenced"
    REFUSED = "refused"
    COUNTED = "counted"
    """The rows were counted and nothing was written."""


@dataclass(frozen=True, slots=True)
class SlotStatus:
    """The report of one slot.

    ``error``: the class in ``eos_client.errors`` to raise. ``holder``: the name of the producer that holds the slot and
    can be used again; "" without one. ``seconds``: by step. ``row_bytes``: the largest mean row size of an Arrow batch.
    ``fingerprint``: of the rows, as in SlotContent. ``repeated``: an earlier attempt of the task failed, or lost its
    executor. ``resolved``: the commit was not answered, and the ledger showed its outcome.
    """

    slot: int
    outcome: SlotOutcome
    rows: int = 0
    error: str = ""
    message: str = ""
    reused: bool = False
    seconds: Mapping[str, float] = field(default_factory=dict)
    holder: str = ""
    row_bytes: float = 0.0
    fingerprint: int = 0
    repeated: bool = False
    resolved: bool = False

    @property
    def content(self) -> SlotContent | None:
        """The slot's content; None where another attempt has written it."""
        return None if self.outcome is SlotOutcome.SIBLING_DONE else SlotContent(self.rows, self.fingerprint)

    def encode(self) -> str:
        """Return everything but the slot as text."""
        _, outcome, *others = astuple(self)
        return json.dumps([outcome.value, *others], separators=(",", ":"))

    @classmethod
    def decode(cls, slot: int, text: str) -> SlotStatus:
        """Return the status in a row of ``STATUS_SCHEMA``."""
        outcome, *others = json.loads(text)
        return cls(slot, SlotOutcome(outcome), *others)


def check_statuses(found: Iterable[SlotStatus], slots: int) -> list[SlotStatus]:
    """Return the statuses by slot; raises what a slot was refused with, RetriableError when one is missing."""
    by_slot = {status.slot: status for status in found}
    for outcome in (SlotOutcome.RUN_FENCED, SlotOutcome.REFUSED):
        for status in by_slot.values():
            if status.outcome is outcome:
                kind: Any = getattr(errors, status.error, EosError)
                raise kind(f"slot {status.slot}: {status.message}")
    if by_slot.keys() != set(range(slots)):
        raise RetriableError(
            f"the job reported slots {sorted(by_slot)} of {slots}: something between the sink and its tasks changed "
            "the partitions. Restart the query; what is committed is not written again."
        )
    return [by_slot[slot] for slot in range(slots)]


def content_of(statuses: Iterable[SlotStatus]) -> SlotContent | None:
    """Return the content of a whole batch; None where that of some slot is not known."""
    contents = [status.content for status in statuses]
    known = [content for content in contents if content is not None]
    return joined(known) if len(known) == len(contents) else None


def public_name(error: EosError) -> str:
    """Return the name of the class of ``error`` in ``eos_client.errors``, which the driver can raise."""
    return next(kind.__name__ for kind in type(error).__mro__ if kind.__module__ == EosError.__module__)
