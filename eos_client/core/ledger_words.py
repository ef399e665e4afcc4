"""What the refusals of a ledger call its place and the rows' place: one table of rules serves topics and tables."""

from __future__ import annotations

from dataclasses import dataclass

from eos_client import errors


@dataclass(frozen=True, slots=True)
class LedgerWords:
    """The words of one kind of ledger.

    ``kind``: what rows are written to, and the sink's parameter for it; ``output``: the same in a sentence. ``gone``,
    ``bare``, ``went_back``, ``other_ledger``: how the ledger comes to be so, and what to do. ``changed``: the error for
    an output that was changed while a batch is half written.
    """

    kind: str
    output: str
    gone: str
    bare: str
    went_back: str
    other_ledger: str
    changed: type[errors.BatchLedgerError]


KAFKA_WORDS = LedgerWords(
    kind="topic",
    output="the output topic",
    gone="deleted, or expired: offsets.retention.minutes",
    bare="has no metadata: somebody has reset the group's offsets, or the group is used by something else. If the "
    "group is shared, give the sink a sink_id of its own; if it was reset",
    went_back="the group's offsets were reset or lost",
    other_ledger="ledger_topic was changed since, or the group's offsets went back. Start with the ledger_topic of "
    "that run",
    changed=errors.TopicChangedError,
)
DATABASE_WORDS = LedgerWords(
    kind="table",
    output="the table",
    gone="its row was deleted, or this is another database",
    bare="names no query: somebody has changed its row, or something else than a sink uses the ledger's table. If the "
    "table is shared, name another one (ledger_table); if the row was changed",
    went_back="a backup of the database was restored, or rows of the ledger were changed by hand",
    other_ledger="The database or the ledger_table was changed since, or a backup of the database was restored. Start "
    "with the database and the ledger_table of that run",
    changed=errors.TableChangedError,
)
