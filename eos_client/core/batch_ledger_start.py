"""What a query that starts does with the ledger that it finds, as one table: first match wins.

It is decided for the whole ledger at once. An entry for every slot is there from the first start on, so a missing one
is never normal; and no batch begins before all slots have the one before it, so entries that differ by more were lost.

Brokers delete the ledger of a query that stands still for long (``offsets.retention.minutes``). So each run leaves a
record beside the checkpoint, too. It says that the ledger was there, and, once the run was closed, which batch is next.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum

from eos_client.core.batch_ledger import (
    SLOT_RULES,
    LedgerEntry,
    SinkIdentity,
    SlotContent,
    content_in,
    joined,
    token_of,
)
from eos_client.errors import (
    BatchLedgerError,
    BatchUnfinishedError,
    LedgerAheadError,
    LedgerForeignError,
    LedgerMissingError,
    LedgerRegressionError,
    LedgerUnreadableError,
    SlotsChangedError,
    TopicChangedError,
)

RECORD_VERSION = 1
ANY_QUERY = ""
"""Stands in a record for a query that it does not tell."""


class StartDecision(Enum):
    """What a query that starts does with the ledger that it finds."""

    READY = "ready"
    INITIALISE = "initialise"
    RESTORE = "restore"
    RESIZE = "resize"
    ADOPT = "adopt"
    REFUSE = "refuse"


@dataclass(frozen=True, slots=True)
class RunRecord:
    """What a run of the sink has left beside its checkpoint; ``query_id`` is its query's.

    ``next_batch``: of a run that was closed, the batch after the last one that it wrote; each slot had committed that
    one, and none was begun since. None where the run was not closed, or with a batch in hand. ``content``: what that
    last one held, if it is known.
    """

    run: int
    query_id: str
    next_batch: int | None = None
    content: SlotContent | None = None

    def encode(self) -> str:
        """Return everything but the run as one line of ASCII."""
        fields: dict[str, object] = {"eos": RECORD_VERSION, "query": self.query_id}
        if self.next_batch is not None:
            fields["next"] = self.next_batch
        if self.content is not None:
            fields |= self.content.fields
        return json.dumps(fields, separators=(",", ":"))


def decode_record(run: int, line: str) -> RunRecord:
    """Return the record that ``run`` has left. One that cannot be read says no more than that there was a ledger."""
    try:
        fields = json.loads(line)
        if fields["eos"] != RECORD_VERSION:
            return RunRecord(run, ANY_QUERY)
        next_batch = int(fields["next"]) if "next" in fields else None
        return RunRecord(run, str(fields["query"]), next_batch, content_in(fields))
    except (ValueError, TypeError, KeyError):
        return RunRecord(run, ANY_QUERY)


@dataclass(frozen=True, slots=True)
class StartQuestion:
    """A whole ledger at the start of a query whose first batch is ``batch_id``; ``entries`` by slot.

    ``marker``: the batch-complete marker, if there is one. ``adopt``: the token with which the caller takes this very
    ledger over. ``record``: what the last run of the sink has left outside of the ledger, if there was one.
    """

    entries: Mapping[int, LedgerEntry]
    identity: SinkIdentity
    batch_id: int
    marker: LedgerEntry | None = None
    adopt: str | None = None
    record: RunRecord | None = None

    @property
    def token(self) -> str:
        """What stands for taking over this ledger, in this state, at this batch: any batch written to it ends that.

        The marker is left out: a query that starts announces its run there before it adopts anything.
        """
        found = [f"{slot} {entry.next_batch} {entry.encode()}" for slot, entry in sorted(self.entries.items())]
        last_run = 0 if self.record is None else self.record.run
        return token_of(self.identity.query_id, str(self.batch_id), str(last_run), *found)

    @property
    def live(self) -> dict[int, LedgerEntry]:
        """The entries in force: those beyond the recorded number of slots are retired."""
        return {slot: entry for slot, entry in self.entries.items() if entry.is_bare or slot < entry.identity.slots}

    @property
    def recorded_slots(self) -> int:
        """The number of slots that the ledger was written with; the wanted one while it is empty."""
        known = (entry.identity.slots for entry in self.live.values() if not entry.is_bare)
        return max(known, default=self.identity.slots)

    @property
    def missing(self) -> bool:
        """Whether some slot of the recorded number has no entry."""
        return any(slot not in self.live for slot in range(self.recorded_slots))

    @property
    def foreign(self) -> bool:
        """Whether some entry in force is another query's."""
        return any(e.identity.query_id != self.identity.query_id for e in self.live.values())

    @property
    def ahead(self) -> bool:
        """Whether some entry is past this batch."""
        return any(e.next_batch > self.batch_id + 1 for e in self.live.values())

    @property
    def bare(self) -> bool:
        """Whether some entry was committed without metadata."""
        return any(e.is_bare for e in self.live.values())

    @property
    def _complete(self) -> int:
        """The batch that was next when a whole one was last noted, as far as the marker tells."""
        marker = self.marker
        return marker.next_batch if marker and marker.identity.query_id == self.identity.query_id else 0

    @property
    def _behind(self) -> list[int]:
        """What entries say is next, in order, but for those that have committed this batch."""
        return sorted({e.next_batch for e in self.live.values() if e.next_batch <= self.batch_id})

    @property
    def unfinished(self) -> bool:
        """Whether an earlier batch was written by some slots alone."""
        behind = self._behind
        # Two in a row, neither of them noted as whole; were the ledger older than that, entries would have gone back.
        return len(behind) == 2 and behind[1] == behind[0] + 1 and self._complete <= behind[0]  # noqa: PLR2004

    @property
    def last_begun(self) -> int:
        """The batch that is not whole, where an earlier one is ``unfinished``."""
        return self._behind[0]

    @property
    def regressed(self) -> bool:
        """Whether some entry went back: no batch begins before all slots have the one before it."""
        return len(self._behind) > 1 or any(e.next_batch < self._complete for e in self.live.values())

    @property
    def outrun(self) -> bool:
        """Whether a run of this query has left a record that the ledger does not know of: it has used another one."""
        record = self.own_record
        return bool(self.entries) and record is not None and record.run > (self.marker.run if self.marker else 0)

    @property
    def unlike(self) -> bool:
        """Whether some entry in force was written with another number of slots, slot function or topic."""
        return any(e.identity != self.identity for e in self.live.values())

    @property
    def other_topics(self) -> list[str]:
        """The topics that entries in force were written to, but for the one that is asked for."""
        return sorted({e.identity.topic for e in self.live.values()} - {self.identity.topic})

    @property
    def unusable(self) -> bool:
        """Whether only an explicit adoption can make something of the ledger."""
        return self.bare or self.missing or self.foreign or self.ahead or self.outrun or self.regressed

    @property
    def own_record(self) -> RunRecord | None:
        """The record, where it says that a run of this query has had a ledger."""
        is_own = self.record is not None and self.record.query_id in {ANY_QUERY, self.identity.query_id}
        return self.record if is_own else None

    @property
    def restored_batch(self) -> int | None:
        """What is next for every slot of a ledger that is gone, where the last run's record can stand for it."""
        record = self.own_record
        if self.entries or record is None or record.next_batch is None:
            return None
        # Batches are left out where the application does not call the sink; past this one, the checkpoint is old.
        next_batch = max(record.next_batch, self.batch_id)
        return next_batch if next_batch <= self.batch_id + 1 else None

    @property
    def whole_content(self) -> SlotContent | None:
        """What the batch in hand held, where every slot has committed it and it is known."""
        if self.record is not None and self.restored_batch == self.batch_id + 1:
            return self.record.content
        if self.unusable or not self.live or any(e.next_batch <= self.batch_id for e in self.live.values()):
            return None
        contents = [entry.content for entry in self.live.values() if entry.content is not None]
        if len(contents) == len(self.live):
            return joined(contents)
        # The slots have forgotten it since a resize, and the marker remembers.
        marker = self.marker
        remembers = marker and marker.next_batch == self.batch_id + 1
        return marker.content if marker and remembers and marker.identity.query_id == self.identity.query_id else None

    @property
    def half_written(self) -> bool:
        """Whether some slots have committed this batch and others have not."""
        return len({e.next_batch > self.batch_id for e in self.live.values()}) > 1


@dataclass(frozen=True, slots=True)
class StartRule:
    """One row for a starting query."""

    applies: Callable[[StartQuestion], bool]
    decision: StartDecision
    error: type[BatchLedgerError] | None = None
    """For a refusal: its error class; the rule of ``SLOT_RULES`` with the same class says why and what to do."""
    refusal: Callable[[StartQuestion], BatchLedgerError] | None = None
    """Makes the error of a refusal that names more than the slot's rule can. A refusal has this or ``error``."""


def _slots_changed(question: StartQuestion) -> BatchLedgerError:
    return SlotsChangedError(
        f"batch {question.batch_id} is half written with {question.recorded_slots} slots, now "
        f"{question.identity.slots} are asked for: start with slots={question.recorded_slots} until the batch is "
        "whole, then change the number."
    )


def _topic_changed(question: StartQuestion) -> BatchLedgerError:
    written_to = question.other_topics[0]
    return TopicChangedError(
        f"batch {question.batch_id} is half written to {written_to!r}, now {question.identity.topic!r} is asked "
        f"for: start with topic={written_to!r} until the batch is whole, then change the topic."
    )


def _unfinished(question: StartQuestion) -> BatchLedgerError:
    begun = question.last_begun
    written = [str(slot) for slot, entry in sorted(question.live.items()) if entry.next_batch == begun + 1]
    return BatchUnfinishedError(
        f"batch {begun} was written by slots {', '.join(written)} alone, and Spark has gone on to batch "
        f"{question.batch_id}: the error that ended batch {begun} was caught, and the rows of its other slots are not "
        "in the output topic. Let errors of the sink end the query: then Spark runs the batch again, as it does from a "
        "checkpoint in which it is not yet done. "
        f"{_way_to_adopt(question)}"
    )


def _outrun(question: StartQuestion) -> BatchLedgerError:
    record = question.own_record
    ours = 0 if record is None else record.run
    known = 0 if question.marker is None else question.marker.run
    return LedgerRegressionError(
        f"batch {question.batch_id} cannot be written: run {ours} of this query has used another ledger than this one, "
        f"whose last run is {known}: ledger_topic was changed since, or the group's offsets went back. Start with the "
        f"ledger_topic of that run. {_way_to_adopt(question)}"
    )


def _way_to_adopt(question: StartQuestion) -> str:
    stale = f"adopt_ledger={question.adopt!r} was printed for another state of it. " if question.adopt else ""
    behind = "" if question.missing else f", and that batches before {question.batch_id} are counted as written"
    return (
        f'{stale}To take this ledger over as it is now, start once with adopt_ledger="{question.token}": it says that '
        f"you have looked at what the output topic holds{behind}."
    )


_STOP = StartDecision.REFUSE

START_RULES: tuple[StartRule, ...] = (
    StartRule(lambda q: not q.entries and q.batch_id == 0 and q.own_record is None, StartDecision.INITIALISE),
    StartRule(lambda q: q.restored_batch is not None, StartDecision.RESTORE),
    StartRule(lambda q: q.unusable and q.adopt == q.token, StartDecision.ADOPT),
    StartRule(lambda q: q.bare, _STOP, error=LedgerUnreadableError),
    StartRule(lambda q: q.missing, _STOP, error=LedgerMissingError),
    StartRule(lambda q: q.foreign, _STOP, error=LedgerForeignError),
    StartRule(lambda q: q.ahead, _STOP, error=LedgerAheadError),
    StartRule(lambda q: q.outrun, _STOP, refusal=_outrun),
    StartRule(lambda q: q.unfinished, _STOP, refusal=_unfinished),
    StartRule(lambda q: q.regressed, _STOP, error=LedgerRegressionError),
    StartRule(lambda q: not q.unlike, StartDecision.READY),
    StartRule(lambda q: q.half_written and bool(q.other_topics), _STOP, refusal=_topic_changed),
    StartRule(lambda q: q.half_written, _STOP, refusal=_slots_changed),
    StartRule(lambda _: True, StartDecision.RESIZE),
)


@dataclass(frozen=True, slots=True)
class StartPlan:
    """What to commit before the first batch (nothing, when READY), and what the ledger then says, by slot.

    ``content``: what the first batch held, if every slot has committed it and it is known.
    """

    decision: StartDecision
    commits: Mapping[int, LedgerEntry]
    entries: Mapping[int, LedgerEntry]
    content: SlotContent | None = None


def plan_start(question: StartQuestion, rules: tuple[StartRule, ...] = START_RULES) -> StartPlan:
    """Return the plan of the first rule that applies; raises the BatchLedgerError of a refusal."""
    rule = next(rule for rule in rules if rule.applies(question))
    if rule.decision is StartDecision.REFUSE:
        raise _refusal(rule, question)
    if rule.decision is StartDecision.READY:
        return StartPlan(rule.decision, {}, question.live, question.whole_content)
    entries = {slot: _started(question, slot) for slot in range(question.identity.slots)}
    retired = {
        slot: LedgerEntry(question.batch_id, question.identity)
        for slot in question.entries
        if slot >= question.identity.slots
    }
    return StartPlan(rule.decision, {**entries, **retired}, entries, question.whole_content)


def _started(question: StartQuestion, slot: int) -> LedgerEntry:
    """Return the entry that ``slot`` starts with: what was committed of this batch stays committed."""
    if question.restored_batch is not None:
        return LedgerEntry(question.restored_batch, question.identity)
    found = question.live.get(slot)
    if found is not None and found.identity == question.identity and found.next_batch == question.batch_id + 1:
        return found
    whole = not question.unusable and all(e.next_batch > question.batch_id for e in question.live.values())
    if not (whole and question.live):
        return LedgerEntry(question.batch_id, question.identity)
    # Another topic leaves each row in its slot, so what the slot held of the batch can still be compared.
    is_same_slot = found is not None and found.identity.slotting == question.identity.slotting
    return LedgerEntry(question.batch_id + 1, question.identity, found.content if found and is_same_slot else None)


def _refusal(rule: StartRule, question: StartQuestion) -> BatchLedgerError:
    if rule.refusal is not None:
        return rule.refusal(question)
    slot_rule = next(each for each in SLOT_RULES if each.error is rule.error)
    return slot_rule.error(
        f"batch {question.batch_id} cannot be written: {slot_rule.reason}. {_way_to_adopt(question)}"
    )


def marker_of(found: LedgerEntry | None, identity: SinkIdentity, run: int) -> LedgerEntry:
    """Return the batch-complete marker that announces ``run``; its batch is a hint, the slots are the truth."""
    if found is None or found.identity.query_id != identity.query_id:
        return LedgerEntry(0, identity, run=run)
    return replace(found, identity=identity, run=run)
