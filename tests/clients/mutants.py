"""The power of the tests: each mutant of the client must be caught by a story.

    python -m tests.clients.mutants [--stories 70]

Prints the table; status 1 if a mutant survives, or if the unmutated client is caught.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

from confluent_kafka import KafkaException, TopicPartition
from msgspec import structs

from eos_client.clients.commit_outcomes import CommitOutcomes
from eos_client.clients.transaction_session import TransactionSession
from eos_client.confluent.consumer import membership
from eos_client.confluent.producer import registration
from eos_client.core import batch_ledger, commit_gate, partition_states, producer_recovery
from eos_client.core.commit_gate import CommitDecision, CommitGate, CommitRuling, RuleName
from eos_client.core.model import Outcome
from eos_client.core.partition_events import Aborted, Committed, Departed, WorkLost
from eos_client.core.partition_row import PartitionRow
from eos_client.core.partition_states import ConsumerState, next_state
from eos_client.core.producer_states import Registered
from eos_client.core.record_runs import Run
from eos_client.core.transaction_lifecycle import TransactionEvent
from eos_client.errors import EosError
from eos_client.listeners import RevocationListener
from eos_client.ports import MembershipSnapshot
from tests.clients.oracle import Oracle
from tests.clients.storytellers import Shelf
from tests.verification.tables import table

Patch = AbstractContextManager[Any]


@dataclass(frozen=True)
class Mutant:
    """One mistake, switched on by patching the client (or the reader) from outside. ``story``: one that catches it."""

    name: str
    patch: Callable[[], Patch]
    story: int = 0


def _without(*removed: RuleName) -> Patch:
    remaining = tuple(rule for rule in commit_gate.RULES if rule.name not in removed)
    decide = commit_gate.decide
    return mock.patch.object(commit_gate, "decide", lambda question, rules=remaining: decide(question, rules))


def _gate_off() -> Patch:
    off = CommitRuling(CommitDecision.COMMIT, RuleName.ALWAYS_OURS, "gate off")
    return mock.patch.object(CommitGate, "decide", return_value=off)


def _gate_stays_closed() -> Patch:
    closed = property(lambda question: question.state.revocation is not None)
    return mock.patch.object(commit_gate.Question, "on_revocation_generation", closed)


def _anonymous_metadata() -> Patch:
    snapshot = membership.Membership.snapshot

    def anonymous(self: Any) -> MembershipSnapshot:
        group = self._library.settings["group.id"].encode()
        nobody = b"CGMDv2:" + (-1).to_bytes(4, sys.byteorder, signed=True) + group + b"\0\0\1"
        return replace(snapshot(self), group_metadata=nobody)

    return mock.patch.object(membership.Membership, "snapshot", anonymous)


def _offsets_outside() -> Patch:
    def send(self: Any, positions: Any, *_: Any) -> None:
        offsets = [TopicPartition(p.topic, p.partition, at.next_offset) for p, at in positions.items()]
        with contextlib.suppress(KafkaException):
            self.consumer.library.raw.commit(offsets=offsets, asynchronous=False)

    return mock.patch.object(TransactionSession, "_send_offsets", send)


def _changed(event: type, change: Callable[[ConsumerState, Any], ConsumerState]) -> Patch:
    return mock.patch.dict(partition_states._CHANGES, {event: change})


def _no_rewind() -> Patch:
    return _changed(Aborted, lambda state, _: next_state(state, WorkLost(frozenset(state.positions))))


def _rewinds_too_far() -> Patch:
    rewound = PartitionRow.rewound

    def too_far(row: PartitionRow, reached: int) -> PartitionRow:
        return rewound(
            structs.replace(row, next_to_hand_over=row.next_to_hand_over and max(0, row.next_to_hand_over - 1)), reached
        )

    return mock.patch.object(PartitionRow, "rewound", too_far)


def _aborts_unanswered_commit() -> Patch:
    def ask(self: Any, *_: Any) -> Outcome:
        handle = self._producer
        with contextlib.suppress(EosError):
            handle.calls.tell(Registered())
            handle.abort_transaction(2.0)
        handle.calls.tell(Registered())
        return Outcome.ABORTED

    return mock.patch.object(CommitOutcomes, "resolve_commit_outcome", ask)


def _unknown_is_aborted() -> Patch:
    ask = CommitOutcomes.resolve_commit_outcome

    def asked(*arguments: Any) -> Outcome:
        with contextlib.suppress(EosError):
            ask(*arguments)
        return Outcome.ABORTED

    return mock.patch.object(CommitOutcomes, "resolve_commit_outcome", asked)


def _off_by(distance: int) -> Patch:
    send = TransactionSession._send_offsets

    def moved(self: Any, positions: Any, snapshot: Any, token: Any) -> None:
        wrong = {p: structs.replace(at, next_offset=at.next_offset + distance) for p, at in positions.items()}
        send(self, wrong, snapshot, token)

    return mock.patch.object(TransactionSession, "_send_offsets", moved)


def _metadata_of_the_first_commit() -> Patch:
    send = TransactionSession._send_offsets

    def kept(self: Any, positions: Any, snapshot: Any, token: Any) -> None:
        self.first_snapshot = getattr(self, "first_snapshot", snapshot)
        send(self, positions, self.first_snapshot, token)

    return mock.patch.object(TransactionSession, "_send_offsets", kept)


def _processes_committed_again() -> Patch:
    return _changed(Committed, lambda state, _: next_state(state, Aborted()))


def _gate_hears_of_no_revocation() -> Patch:
    return mock.patch.object(
        RevocationListener, "on_revoked", lambda _self, _partitions, between=lambda: None: between()
    )


def _drops_departed_offsets() -> Patch:
    leave = partition_states._departed
    return _changed(Departed, lambda state, event: next_state(leave(state, event), WorkLost(event.partitions)))


def _keeps_waiting_records() -> Patch:
    abort = partition_states._aborted
    return _changed(Aborted, lambda state, event: structs.replace(abort(state, event), waiting=state.waiting))


def _never_renews() -> Patch:
    return mock.patch.object(registration.Registration, "block_after_lost_connection", return_value=None)


def _sends_no_offsets() -> Patch:
    return mock.patch.object(TransactionSession, "_send_offsets", return_value=None)


def _commits_before_the_outputs() -> Patch:
    def flushed(_: Any, attempt: Any) -> TransactionEvent:
        return TransactionEvent.FLUSHED_IN_CALLBACK if attempt.inside_revoke else TransactionEvent.FLUSHED

    return mock.patch.object(TransactionSession, "_flush", flushed)


def _forgives_unanswered_requests() -> Patch:
    return mock.patch.object(producer_recovery, "UNANSWERED", frozenset())


def _no_commit_in_revoke() -> Patch:
    return mock.patch.object(TransactionSession, "commit_before_revoke", return_value=None)


def _starts_anywhere() -> Patch:
    received = PartitionRow.received

    def anywhere(row: PartitionRow, run: Run) -> tuple[PartitionRow, bool]:
        return received(structs.replace(row, start=None), run)

    return mock.patch.object(PartitionRow, "received", anywhere)


def _ignores_batch_ids() -> Patch:
    kept = tuple(rule for rule in batch_ledger.SLOT_RULES if rule.decision is not batch_ledger.SlotDecision.SKIP)
    return mock.patch.object(batch_ledger, "SLOT_RULES", kept)


def _reads_uncommitted() -> Patch:
    init = Oracle.__init__

    def reading(self: Oracle, cluster: Any, *names: str) -> None:
        init(self, cluster, *names)
        read = cluster.read
        cluster.read = lambda topic: read(topic, read_committed=False)

    return mock.patch.object(Oracle, "__init__", reading)


MUTANTS = (
    Mutant("gate off: every commit is sent", _gate_off, story=8),
    Mutant("gate never opens again", _gate_stays_closed, story=6),
    Mutant("lost and revoked work is committed", lambda: _without(RuleName.LOST_WORK, RuleName.NOT_OURS), story=18),
    Mutant(
        "a moved generation is not looked into",
        lambda: _without(RuleName.EPOCH_MOVED_BEFORE_REVOKE, RuleName.CALLBACKS_PENDING),
        story=25,
    ),
    Mutant("anonymous group metadata", _anonymous_metadata),
    Mutant("offsets committed outside the transaction", _offsets_outside),
    Mutant("offsets not committed at all", _sends_no_offsets),
    Mutant("no rewind after an abort", _no_rewind),
    Mutant("rewind one record too far", _rewinds_too_far),
    Mutant("an unanswered commit is aborted, its producer used again", _aborts_unanswered_commit, story=2),
    Mutant("an unknown outcome is told as aborted", _unknown_is_aborted, story=2),
    Mutant("commits the last record's offset, not the next", lambda: _off_by(-1)),
    Mutant("commits one offset too far", lambda: _off_by(1)),
    Mutant("group metadata kept from the first commit", _metadata_of_the_first_commit),
    Mutant("a committed batch is processed again", _processes_committed_again),
    Mutant("the gate hears of no revocation", _gate_hears_of_no_revocation, story=2),
    Mutant("offsets of departed partitions dropped from the transaction", _drops_departed_offsets, story=1),
    Mutant("records read before a rewind are kept", _keeps_waiting_records),
    Mutant("a producer whose request was sent twice is kept", _never_renews, story=2),
    Mutant("a producer whose request was not answered is kept", _forgives_unanswered_requests, story=45),
    Mutant("no commit in the revoke callback", _no_commit_in_revoke, story=41),
    Mutant(
        "a closed gate lets commits pass",
        lambda: _without(RuleName.REVOCATION_GENERATION, RuleName.HELD_TOO_LONG),
        story=8,
    ),
    Mutant("a new partition may start anywhere", _starts_anywhere, story=16),
    Mutant("Spark sink ignores batch ids", _ignores_batch_ids, story=5),
    Mutant("the verifier reads uncommitted records", _reads_uncommitted),
)


@dataclass(frozen=True)
class Catch:
    """Where a mutant was caught first."""

    number: int
    violation: str


def hunt(mutant: Mutant, numbers: Iterable[int]) -> Catch | None:
    """Tell these stories of the shelf with ``mutant`` on; return the first that is judged wrong."""
    with mutant.patch():
        for number in numbers:
            violations = Shelf.violations(number)
            if violations:
                return Catch(number, violations[0])
    return None


def main() -> int:
    """Hunt all of them and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stories", type=int, default=70)
    stories = range(parser.parse_args().stories)
    sound = hunt(Mutant("none", contextlib.nullcontext), stories)
    rows, caught = [], 0
    for mutant in MUTANTS:
        catch = hunt(mutant, (mutant.story, *stories))
        caught += catch is not None
        rows.append((mutant.name, *_told(catch)))
    print(table(("mutant", "caught", "story", "first violation"), rows))
    print(f"{caught} of {len(MUTANTS)} mutants caught; the client itself: {sound or f'{len(stories)} stories hold'}")
    return 0 if caught == len(MUTANTS) and sound is None else 1


def _told(catch: Catch | None) -> tuple[str, str, str]:
    if catch is None:
        return "SURVIVED", "", ""
    return "yes", Shelf.name(catch.number), catch.violation[:90]


if __name__ == "__main__":
    sys.exit(main())
