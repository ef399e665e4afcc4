"""The actions of a starting query on the ledger that it finds, as one table; the first match wins.

The whole ledger is judged at once. Every slot has an entry from the first start on, so a missing entry is always an
error; and no batch begins before all slots have committed the one before, so entries that differ by more than one batch
were reset or lost.

Brokers delete the ledger of a query that is stopped for long (``offsets.retention.minutes``). So each run also leaves a
record beside the checkpoint. It says that there was a ledger and, once the run was closed, which batch is next.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum

from eos_client import errors
from eos_client.core.batch_ledger import (
    LedgerEntry,
    SinkIdentity,
    SlotContent,
    content_in,
    count_of,
    joined,
    slot_rules,
    token_of,
)
from eos_client.core.ledger_words import KAFKA_WORDS, LedgerWords

RECORD_VERSION = 1
ANY_QUERY = ""
"""The query id of a record that could not be read."""


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

    ``next_batch``: the batch after the last one of a run that was closed; every slot had committed that one and no
    batch was begun since. None where the run was not closed, or was closed during a batch. ``content``: of that last
    batch, if it is known.
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
    """Return the record that ``run`` has left. A record that cannot be read only says that there was a ledger."""
    try:
        fields = json.loads(line)
        if fields["eos"] != RECORD_VERSION:
            return RunRecord(run, ANY_QUERY)
        next_batch = count_of(fields["next"]) if "next" in fields else None
        return RunRecord(run, str(fields["query"]), next_batch, content_in(fields))
    except (ValueError, TypeError, KeyError, RecursionError):
        return RunRecord(run, ANY_QUERY)


@dataclass(frozen=True, slots=True)
class StartQuestion:
    """A whole ledger at the start of a query whose first batch is ``batch_id``; ``entries`` by slot.

    ``marker``: the batch-complete marker, if there is one. ``adopt``: the token with which the caller adopts the ledger
    in exactly this state. ``record``: what the last run of the sink has left beside the checkpoint, if anything.
    """

    entries: Mapping[int, LedgerEntry]
    identity: SinkIdentity
    batch_id: int
    marker: LedgerEntry | None = None
    adopt: str | None = None
    record: RunRecord | None = None

    @property
    def token(self) -> str:
        """The token that confirms adopting this ledger in this state at this batch; writing a batch invalidates it.

        The marker is not part of it, because a starting query announces its run there before it adopts anything.
        """
        found = [f"{slot} {entry.next_batch} {entry.encode()}" for slot, entry in sorted(self.entries.items())]
        last_run = 0 if self.record is None else self.record.run
        return token_of(self.identity.query_id, str(self.batch_id), str(last_run), *found)

    @property
    def live(self) -> dict[int, LedgerEntry]:
        """The entries in force. Entries beyond the recorded number of slots are retired."""
        return {slot: entry for slot, entry in self.entries.items() if entry.is_bare or slot < entry.identity.slots}

    @property
    def recorded_slots(self) -> int:
        """The number of slots that the ledger was written with; the requested number while it is empty."""
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
        return any(e.is_ahead_of(self.batch_id) for e in self.live.values())

    @property
    def bare(self) -> bool:
        """Whether some entry was committed without metadata."""
        return any(e.is_bare for e in self.live.values())

    @property
    def _own_marker(self) -> LedgerEntry:
        """This query's marker; otherwise a marker at batch 0."""
        return marker_of(self.marker, self.identity, run=0)

    @property
    def behind(self) -> list[int]:
        """The distinct next batches of entries that have not committed this batch, in order."""
        return sorted({e.next_batch for e in self.live.values() if not e.has_committed(self.batch_id)})

    @property
    def unfinished(self) -> bool:
        """Whether an earlier batch was written by some slots only."""
        behind = self.behind
        # Two consecutive batches, neither recorded as complete; anything older means that entries went back.
        return len(behind) == 2 and behind[1] == behind[0] + 1 and self._own_marker.next_batch <= behind[0]  # noqa: PLR2004

    @property
    def regressed(self) -> bool:
        """Whether some entry went back: no batch begins before all slots have committed the one before it."""
        complete = self._own_marker.next_batch
        return len(self.behind) > 1 or any(e.next_batch < complete for e in self.live.values())

    @property
    def used_other_ledger(self) -> bool:
        """Whether the record is of a later run than the marker: that run used another ledger."""
        record = self.own_record
        return bool(self.entries) and record is not None and record.run > (self.marker.run if self.marker else 0)

    @property
    def other_topics(self) -> list[str]:
        """The topics that entries in force were written to, without the requested one."""
        return sorted({e.identity.topic for e in self.live.values()} - {self.identity.topic})

    @property
    def unusable(self) -> bool:
        """Whether the ledger can only be used after an explicit adoption."""
        return self.bare or self.missing or self.foreign or self.ahead or self.used_other_ledger or self.regressed

    @property
    def own_record(self) -> RunRecord | None:
        """The record, if it is of a run of this query (or cannot be read)."""
        is_own = self.record is not None and self.record.query_id in {ANY_QUERY, self.identity.query_id}
        return self.record if is_own else None

    @property
    def restored_batch(self) -> int | None:
        """The next batch of every slot of a lost ledger, where the last run's record can replace it."""
        record = self.own_record
        if self.entries or record is None or record.next_batch is None:
            return None
        # The application may have skipped batches; a record further on than this batch means an old checkpoint.
        next_batch = max(record.next_batch, self.batch_id)
        return next_batch if next_batch <= self.batch_id + 1 else None

    @property
    def is_whole(self) -> bool:
        """Whether every slot has committed this batch, and the ledger can be used as it is."""
        return bool(self.live) and not (self.behind or self.unusable)

    @property
    def whole_content(self) -> SlotContent | None:
        """The content of this batch, where every slot has committed it and the content is known."""
        if self.record is not None and self.restored_batch == self.batch_id + 1:
            return self.record.content
        if not self.is_whole:
            return None
        contents = [entry.content for entry in self.live.values() if entry.content is not None]
        if len(contents) == len(self.live):
            return joined(contents)
        # Entries lose their content in a resize; the marker keeps the whole batch's.
        marker = self._own_marker
        return marker.content if marker.has_committed(self.batch_id) else None

    @property
    def half_written(self) -> bool:
        """Whether some slots have committed this batch and others have not."""
        return len({e.has_committed(self.batch_id) for e in self.live.values()}) > 1


Refusal = Callable[[StartQuestion, LedgerWords], errors.BatchLedgerError]


@dataclass(frozen=True, slots=True)
class StartRule:
    """One rule for a starting query; ``refusal`` makes the error of one that refuses."""

    applies: Callable[[StartQuestion], bool]
    decision: StartDecision = StartDecision.REFUSE
    refusal: Refusal | None = None


def _as_for_a_slot(error: type[errors.BatchLedgerError]) -> Refusal:
    """Return the ``refusal`` for which the slot's rule with the same ``error`` says why and what to do."""

    def refuse(question: StartQuestion, words: LedgerWords) -> errors.BatchLedgerError:
        reason = next(each.reason for each in slot_rules(words) if each.error is error)
        return error(f"batch {question.batch_id} cannot be written: {reason}. {_way_to_adopt(question, words)}")

    return refuse


def _slots_changed(question: StartQuestion, _: LedgerWords) -> errors.BatchLedgerError:
    return errors.SlotsChangedError(
        f"batch {question.batch_id} is half written with {question.recorded_slots} slots, now "
        f"{question.identity.slots} are requested: start with slots={question.recorded_slots} until the batch is "
        "whole, then change the number."
    )


def _topic_changed(question: StartQuestion, words: LedgerWords) -> errors.BatchLedgerError:
    written_to = question.other_topics[0]
    return words.changed(
        f"batch {question.batch_id} is half written to {written_to!r}, now {question.identity.topic!r} is "
        f"requested: start with {words.kind}={written_to!r} until the batch is whole, then change the {words.kind}."
    )


def _unfinished(question: StartQuestion, words: LedgerWords) -> errors.BatchLedgerError:
    begun = question.behind[0]
    written = [str(slot) for slot, entry in sorted(question.live.items()) if entry.has_committed(begun)]
    return errors.BatchUnfinishedError(
        f"batch {begun} was written only by slots {', '.join(written)}, and Spark has gone on to batch "
        f"{question.batch_id}: the error that ended batch {begun} was caught, and the rows of its other slots are not "
        f"in {words.output}. Let errors of the sink end the query: then Spark runs the batch again, as it does from a "
        "checkpoint in which it is not yet done. "
        f"{_way_to_adopt(question, words)}"
    )


def _used_other_ledger(question: StartQuestion, words: LedgerWords) -> errors.BatchLedgerError:
    record = question.own_record
    ours = 0 if record is None else record.run
    known = 0 if question.marker is None else question.marker.run
    return errors.LedgerRegressionError(
        f"batch {question.batch_id} cannot be written: run {ours} of this query has used another ledger; the last run "
        f"of this one is {known}. {words.other_ledger}. {_way_to_adopt(question, words)}"
    )


def _way_to_adopt(question: StartQuestion, words: LedgerWords) -> str:
    stale = f"adopt_ledger={question.adopt!r} was printed for another state of it. " if question.adopt else ""
    behind = "" if question.missing else f", and that batches before {question.batch_id} count as written"
    return (
        f'{stale}To adopt this ledger as it is now, start once with adopt_ledger="{question.token}": this confirms '
        f"that you have checked what {words.output} holds{behind}."
    )


START_RULES: tuple[StartRule, ...] = (
    StartRule(lambda q: not q.entries and q.batch_id == 0 and q.own_record is None, StartDecision.INITIALISE),
    StartRule(lambda q: q.restored_batch is not None, StartDecision.RESTORE),
    StartRule(lambda q: q.unusable and q.adopt == q.token, StartDecision.ADOPT),
    StartRule(lambda q: q.bare, refusal=_as_for_a_slot(errors.LedgerUnreadableError)),
    StartRule(lambda q: q.missing, refusal=_as_for_a_slot(errors.LedgerMissingError)),
    StartRule(lambda q: q.foreign, refusal=_as_for_a_slot(errors.LedgerForeignError)),
    StartRule(lambda q: q.ahead, refusal=_as_for_a_slot(errors.LedgerAheadError)),
    StartRule(lambda q: q.used_other_ledger, refusal=_used_other_ledger),
    StartRule(lambda q: q.unfinished, refusal=_unfinished),
    StartRule(lambda q: q.regressed, refusal=_as_for_a_slot(errors.LedgerRegressionError)),
    StartRule(lambda q: all(entry.identity == q.identity for entry in q.live.values()), StartDecision.READY),
    StartRule(lambda q: q.half_written and bool(q.other_topics), refusal=_topic_changed),
    StartRule(lambda q: q.half_written, refusal=_slots_changed),
    StartRule(lambda _: True, StartDecision.RESIZE),
)


@dataclass(frozen=True, slots=True)
class StartPlan:
    """What to commit before the first batch (nothing when READY), and the ledger's entries after that, by slot.

    ``content``: of the first batch, if every slot has committed it and its content is known.
    """

    decision: StartDecision
    commits: Mapping[int, LedgerEntry]
    entries: Mapping[int, LedgerEntry]
    content: SlotContent | None = None


def plan_start(
    question: StartQuestion, rules: tuple[StartRule, ...] = START_RULES, words: LedgerWords = KAFKA_WORDS
) -> StartPlan:
    """Return the plan of the first rule that applies; raises the BatchLedgerError of a refusal, in these ``words``."""
    rule = next(rule for rule in rules if rule.applies(question))
    if rule.refusal is not None:
        raise rule.refusal(question, words)
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
    """Return the entry that ``slot`` starts with. What is committed of this batch stays committed."""
    if question.restored_batch is not None:
        return LedgerEntry(question.restored_batch, question.identity)
    found = question.live.get(slot)
    if found is not None and found.identity == question.identity and found.next_batch == question.batch_id + 1:
        return found
    if not question.is_whole:
        return LedgerEntry(question.batch_id, question.identity)
    # Another topic leaves each row in its slot, so what the slot held of the batch can still be compared.
    is_same_slot = found is not None and found.identity.slotting == question.identity.slotting
    return LedgerEntry(question.batch_id + 1, question.identity, found.content if found and is_same_slot else None)


def marker_of(found: LedgerEntry | None, identity: SinkIdentity, run: int) -> LedgerEntry:
    """Return the batch-complete marker that announces ``run``. Its batch is a hint; the slots' entries decide."""
    if found is None or found.identity.query_id != identity.query_id:
        return LedgerEntry(0, identity, run=run)
    return replace(found, identity=identity, run=run)
