"""The ledger of a Spark sink: which micro-batch each slot has committed, and what a slot does with the next one.

Theory of operation. A slot's entry is the committed offset of one partition of the ledger topic: the offset is the next
batch to write, the metadata string identifies the query. The entry is committed in the transaction that writes the
slot's records, so entry and records never disagree. Spark repeats at most its last batch
(``MicroBatchExecution.populateStartOffsets``), so one entry per slot is enough: an entry one past the batch means that
the batch was written, an entry further on means that the checkpoint is old.
``SLOT_RULES`` decides one slot of one batch, first match wins; ``batch_ledger_start`` decides for a starting query.

A sink that writes into a database keeps the same ledger in a table, a row for each slot (`batch_claims`). The rules are
the same, and ``slot_rules`` says them in the words of either place.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from enum import Enum

from eos_client import errors
from eos_client.core.ledger_words import KAFKA_WORDS, LedgerWords

CODEC_VERSION = 2
_FINGERPRINTS = 2**64
_TOKEN_LENGTH = 12
METADATA_BYTES_MAX = 4096
"""The default of the brokers' ``offset.metadata.max.bytes``."""


@dataclass(frozen=True, slots=True)
class SinkIdentity:
    """What all entries of one ledger have in common: everything that decides a row's slot and its topic.

    ``query_id`` is Spark's, from the checkpoint; ``topic`` is for rows that name no topic of their own, or the table of
    a sink that writes into a database.
    """

    query_id: str
    slots: int
    slot_function: int
    topic: str

    @property
    def slotting(self) -> tuple[int, int]:
        """What decides which slot a row belongs to."""
        return self.slots, self.slot_function


NO_IDENTITY = SinkIdentity("", 0, 0, "")
"""The identity of entries without metadata, such as those written by tools that reset a group's offsets."""


@dataclass(frozen=True, slots=True)
class SlotContent:
    """What one slot of one batch held: row count, and the sum of the rows' hashes (64 bits, whatever their order)."""

    rows: int
    fingerprint: int

    @property
    def fields(self) -> dict[str, int]:
        """The fields that an entry stores, for `content_in`."""
        return {"rows": self.rows, "sum": self.fingerprint}


def content_in(fields: Mapping[str, object]) -> SlotContent | None:
    """Return the content stored in ``fields``, None without one; raises TypeError or KeyError for a malformed one."""
    return SlotContent(count_of(fields["rows"]), count_of(fields["sum"])) if "rows" in fields else None


def token_of(*parts: str) -> str:
    """Return a short token of ``parts`` that a user passes back to confirm exactly this state."""
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:_TOKEN_LENGTH]


def joined(contents: Iterable[SlotContent]) -> SlotContent:
    """Return the content of several slots of one batch taken together."""
    found = list(contents)
    return SlotContent(sum(each.rows for each in found), sum(each.fingerprint for each in found) % _FINGERPRINTS)


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """One slot's entry, or the batch-complete marker.

    ``next_batch``: the first batch that is not committed. ``content``: of the last committed batch; None before the
    first one and after the number of slots changed. ``run``: counts the drivers that have taken the lease.
    """

    next_batch: int
    identity: SinkIdentity
    content: SlotContent | None = None
    run: int = 0

    @property
    def is_bare(self) -> bool:
        """Whether it was committed without metadata, so that only its offset is known."""
        return self.identity == NO_IDENTITY

    def has_committed(self, batch_id: int) -> bool:
        """Whether the batch was committed."""
        return self.next_batch > batch_id

    def is_ahead_of(self, batch_id: int) -> bool:
        """Whether a later batch was committed, too, which the query that is at this one knows nothing of."""
        return self.next_batch > batch_id + 1

    def encode(self) -> str:
        """Return the metadata string; the offset that goes with it is ``next_batch``."""
        fields: dict[str, object] = {
            "eos": CODEC_VERSION,
            "query": self.identity.query_id,
            "slots": self.identity.slots,
            "fn": self.identity.slot_function,
            "topic": self.identity.topic,
            "run": self.run,
        }
        if self.content is not None:
            fields |= self.content.fields
        text = json.dumps(fields, separators=(",", ":"))
        if len(text.encode()) > METADATA_BYTES_MAX:
            raise errors.LedgerUnreadableError(
                f"a ledger entry of {len(text.encode())} bytes exceeds {METADATA_BYTES_MAX}: shorten query_id."
            )
        return text


def decode_entry(offset: int, metadata: str | None) -> LedgerEntry:
    """Return the entry in a committed offset; raises LedgerUnreadableError for one that this sink did not write."""
    if not metadata:
        return LedgerEntry(offset, NO_IDENTITY)
    try:
        fields = json.loads(metadata)
        version = fields["eos"]
        if version != CODEC_VERSION:
            raise errors.LedgerUnreadableError(
                f"a ledger entry has format {version!r}, this version of the sink knows {CODEC_VERSION}: "
                "run the version that wrote it."
            )
        identity = SinkIdentity(
            _text(fields["query"]), count_of(fields["slots"]), count_of(fields["fn"]), _text(fields["topic"])
        )
        return LedgerEntry(count_of(offset), identity, content_in(fields), count_of(fields["run"]))
    except (ValueError, TypeError, KeyError, RecursionError) as error:  # RecursionError: thousands of open brackets
        raise errors.LedgerUnreadableError(
            f"the committed offset {offset} with metadata {metadata!r:.120} is no entry of a Spark sink: the group or "
            "the topic has another user. Give the sink a sink_id and a ledger_topic of its own."
        ) from error


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not a string")
    return value


def count_of(value: object) -> int:
    """Return ``value``, a whole number that is not negative; raises TypeError for anything else."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise TypeError(f"{value!r} is not a count")
    return value


class SlotDecision(Enum):
    """What to do with one slot of one batch."""

    WRITE = "write"
    SKIP = "skip"
    REFUSE = "refuse"


@dataclass(frozen=True, slots=True)
class SlotQuestion:
    """One slot of one batch, with the entry that was read for it.

    ``floor``: the lowest ``next_batch`` that the entry may have, from what this run has seen committed. ``content``:
    what the batch holds now; None before its rows were read. ``accepts``: the user accepts that a committed batch has
    different rows now.
    """

    entry: LedgerEntry | None
    identity: SinkIdentity
    batch_id: int
    floor: int = 0
    content: SlotContent | None = None
    accepts: bool = False

    @property
    def known_entry(self) -> LedgerEntry:
        """The entry; raises LookupError if none was read."""
        if self.entry is None:
            raise LookupError("no entry was read")
        return self.entry

    @property
    def committed(self) -> bool:
        """Whether this batch was committed."""
        return self.known_entry.has_committed(self.batch_id)

    @property
    def differs(self) -> bool:
        """Whether the committed rows and the present ones are both known, and differ."""
        return None not in {self.content, self.known_entry.content} and self.content != self.known_entry.content


@dataclass(frozen=True, slots=True)
class SlotRule:
    """When the rule applies, what it decides, and why; for a refusal also the way out and the error class."""

    applies: Callable[[SlotQuestion], bool]
    decision: SlotDecision
    reason: str
    error: type[errors.BatchLedgerError] = errors.BatchLedgerError


_REFUSE = SlotDecision.REFUSE
_ADOPT = "start it once with the adopt_ledger token that a refused start prints"
_SLOT_RULES: tuple[SlotRule, ...] = (
    SlotRule(
        lambda q: q.entry is None,
        _REFUSE,
        "it has no ledger entry ({gone}; or the sink is new and begins with a later batch than 0), so it is unknown "
        "whether it was written. Find out what {output} holds, then {adopt}",
        errors.LedgerMissingError,
    ),
    SlotRule(
        lambda q: q.known_entry.is_bare,
        _REFUSE,
        "its ledger entry {bare}, find out what {output} holds, then {adopt}",
        errors.LedgerUnreadableError,
    ),
    SlotRule(
        lambda q: q.known_entry.identity.query_id != q.identity.query_id,
        _REFUSE,
        "the ledger belongs to another query; deleting the checkpoint also gives the query a new id, and its batch "
        "ids restart at 0. Give this query a sink_id of its own, or {adopt}",
        errors.LedgerForeignError,
    ),
    SlotRule(
        lambda q: q.known_entry.identity.topic != q.identity.topic,
        _REFUSE,
        "the ledger counts what was written to another {kind}: a newer driver has changed it, or two sinks "
        "share a sink_id. Restart the query, or give each sink a sink_id of its own",
        errors.TopicChangedError,
    ),
    SlotRule(
        lambda q: q.known_entry.identity.slotting != q.identity.slotting,
        _REFUSE,
        "the ledger was written with another number of slots (or slot function). Restart the query",
        errors.SlotsChangedError,
    ),
    SlotRule(
        lambda q: q.known_entry.next_batch < q.floor,
        _REFUSE,
        "the ledger is below what this run has seen committed: {went_back}. Find out why, then {adopt}",
        errors.LedgerRegressionError,
    ),
    SlotRule(
        lambda q: q.known_entry.is_ahead_of(q.batch_id),
        _REFUSE,
        "the ledger is past this batch: another driver of this query has gone on meanwhile, or the checkpoint is "
        "an old copy. Let this query end. If no other driver runs it, start it again; if that is refused, too, "
        "restore the newest checkpoint",
        errors.LedgerAheadError,
    ),
    SlotRule(
        lambda q: q.committed and q.differs and not q.accepts,
        _REFUSE,
        "the batch was committed with other rows than this re-run has: the query is not deterministic (rand(), "
        "uuid(), a changed source or lookup), or the sink was called twice for the batch. Make the query "
        'deterministic, or set stable_input="stage"; a restart says how this batch can be ended',
        errors.BatchContentError,
    ),
    SlotRule(lambda q: q.committed, SlotDecision.SKIP, "this batch was committed before"),
    SlotRule(lambda _: True, SlotDecision.WRITE, "this batch was not committed"),
)
"""In their reasons stand names of `LedgerWords`, and ``adopt``."""


def slot_rules(words: LedgerWords) -> tuple[SlotRule, ...]:
    """Return the rules of one slot of one batch, first match wins, in the words of the ledger's place."""
    named = {**asdict(words), "adopt": _ADOPT}
    return tuple(
        replace(
            rule,
            reason=rule.reason.format_map(named),
            error=words.changed if rule.error is errors.TopicChangedError else rule.error,
        )
        for rule in _SLOT_RULES
    )


SLOT_RULES = slot_rules(KAFKA_WORDS)


def decide_slot(question: SlotQuestion, rules: tuple[SlotRule, ...] = SLOT_RULES) -> SlotRule:
    """Return the first rule that applies."""
    return next(rule for rule in rules if rule.applies(question))
