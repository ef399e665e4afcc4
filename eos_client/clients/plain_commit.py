"""Non-transactional commits through the gate; offsets that may not be sent yet stay pending.

The next allowed commit covers the pending offsets, or the one inside the revoke callback does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from eos_client.clients.commit_decisions import CommitDecisions
from eos_client.config.client_settings import is_on
from eos_client.confluent.consumer.confluent_consumer import ConfluentConsumer
from eos_client.confluent.consumer.library_consumer import with_epoch
from eos_client.confluent.consumer.plain_offsets import Offsets, PlainUse
from eos_client.confluent.failures.consumer_failures import commit_refused, last_commit_errors, refuse_error_event
from eos_client.core.commit_gate import CommitDecision, CommitRuling
from eos_client.core.model import InputPartition, InputPosition, InputPositions
from eos_client.errors import EosError
from eos_client.observe import CommitRefused, EventHook
from eos_client.ports import Clock, input_partition, input_partitions

Callback = Callable[[Any, list[Any]], Any]


class PlainCommits:
    """The commits of a consumer outside transactions, a part of its RevocationWork.

    ``on_commit`` is the application's own.
    """

    def __init__(self, consumer: ConfluentConsumer, hook: EventHook, clock: Clock, on_commit: Callback | None) -> None:
        self._consumer = consumer
        self._offsets = consumer.plain
        self._hook = hook
        self._application_on_commit = on_commit
        self._decisions = CommitDecisions(consumer, hook, clock)
        self._departed_while_deciding: list[set[InputPartition]] = []

    # -- what the application commits --------------------------------------------------------------------------------

    def requested(self, message: Any, offsets: list[Any] | None) -> Offsets:
        """Return what a ``commit()`` with these arguments is about."""
        if message is not None and offsets is not None:
            raise ValueError("message and offsets are mutually exclusive")
        if message is not None:
            made_by_hand = refuse_error_event(message).offset() is None
            offsets = [] if made_by_hand else [self._consumer.offset_after(message)]
        if offsets is not None:
            return {input_partition(p): p for p in offsets}
        if not is_on(self._consumer.settings, "enable.auto.offset.store", default=True):
            return dict(self._offsets.stored)
        ours = self._consumer.state.owned_positions  # what was handed over, not what the library has counted as that
        return {p: with_epoch(p, position.next_offset, position.leader_epoch) for p, position in ours.items()}

    def commit(self, requested: Offsets, *, asynchronous: bool) -> list[Any] | None:
        """Commit what is ``requested`` and pending, if the gate lets it pass; see ``EosConsumer.commit``."""
        ruling, asked = self._decide(requested)
        if ruling.decision is CommitDecision.COMMIT:
            sent = self.send(asked, asynchronous=asynchronous) if asked else []
            if asynchronous or sent is None:
                return None
            # The rest was committed by a revocation that came first.
            return sent + [each for partition, each in requested.items() if partition not in asked]
        if ruling.decision is CommitDecision.ABORT and not asynchronous:
            refused = sorted(requested.keys() & asked.keys())
            raise commit_refused(
                f"nothing was committed for {', '.join(map(str, refused))}: {ruling.reason} (rule {ruling.rule})."
            )
        return None if asynchronous else []

    def send(self, offsets: Offsets, *, asynchronous: bool) -> list[Any] | None:
        """Commit ``offsets`` without asking the gate."""
        self._offsets.record_use(PlainUse.COMMIT)
        if asynchronous:
            self._offsets.pending.update(offsets)  # until on_commit has confirmed them
        library, topic_partitions = self._consumer.library, list(offsets.values())
        with library.naming_errors("commit()", (each.topic for each in topic_partitions)):
            sent: list[Any] | None = library.raw.commit(offsets=topic_partitions, asynchronous=asynchronous)
        self._offsets.drop_stored({partition: each.offset for partition, each in offsets.items()})
        if sent is not None:
            self._offsets.drop_pending(offsets)
            self._record_committed(each for each in sent if each.error is None)
        return sent

    def _record_committed(self, topic_partitions: Iterable[Any]) -> None:
        committed = {input_partition(each): each.offset for each in topic_partitions}
        for partition, offset in committed.items():
            self._offsets.record_commit(partition, offset)
        self._consumer.record_committed(committed)

    def on_commit(self, error: Any, topic_partitions: list[Any]) -> None:
        """Record the result of an asynchronous commit, then report it to the application as confluent_kafka does."""
        sent = [each for each in topic_partitions if each.offset >= 0]
        if error is None:
            self._record_committed(each for each in sent if each.error is None)
        failed = [(each, error or each.error) for each in sent if error is not None or each.error is not None]
        if failed:
            partitions = input_partitions(each for each, _ in failed)
            reason = f"{failed[0][1].name()}: {failed[0][1].str()}; the next commit covers these offsets"
            self._hook(CommitRefused(partitions=partitions, rule=None, reason=reason))
        if self._application_on_commit is not None:
            self._application_on_commit(error, topic_partitions)

    # -- asking the gate ---------------------------------------------------------------------------------------------

    def _decide(self, requested: Offsets) -> tuple[CommitRuling, Offsets]:
        """Ask the gate about ``requested`` and what is pending; returns its ruling and the offsets that it is about.

        Callbacks may run meanwhile. While they run, ``requested`` counts as pending, so a revocation commits it; what
        it committed is no longer part of the ruling. Offsets of partitions that left without a commit are refused, even
        if the partitions were assigned again. Afterwards they stay pending only if the gate is closed; the skip is
        logged here.
        """
        before = {p: self._offsets.pending[p] for p in requested if p in self._offsets.pending}
        departed: set[InputPartition] = set()
        decision = CommitDecision.ABORT
        self._departed_while_deciding.append(departed)
        try:
            self._offsets.pending.update(requested)
            ruling, snapshot = self._decisions.decide_after_callbacks(
                lambda: self._positions(self._offsets.pending),
                departed=lambda: frozenset(departed & requested.keys()),
            )
            asked = {**self._offsets.pending, **{p: each for p, each in requested.items() if p in departed}}
            decision = ruling.decision
        finally:
            decisions = self._departed_while_deciding  # a callback may have asked, too
            self._departed_while_deciding = [each for each in decisions if each is not departed]
            if decision is CommitDecision.ABORT:
                self._take_back(requested, before)
            elif decision is CommitDecision.COMMIT:
                self._take_back(requested, {})  # their pending offsets, sent later, would move the group's backwards
        self._decisions.record(ruling, snapshot)
        refused = frozenset(requested.keys() & asked.keys() - departed)
        if ruling.decision is CommitDecision.ABORT and refused:
            self._hook(CommitRefused(partitions=refused, rule=ruling.rule, reason=ruling.reason))
        return ruling, asked

    def _take_back(self, requested: Offsets, before: Offsets) -> None:
        """Restore the pending offsets from before ``requested``, unless callbacks have committed or dropped them."""
        for partition in requested:
            if self._offsets.pending.pop(partition, None) is not None and partition in before:
                self._offsets.pending[partition] = before[partition]

    def _positions(self, offsets: Offsets) -> InputPositions:
        known, synced = self._consumer.state.owned_positions, self._consumer.membership.state.synced_generation
        return {p: known.get(p) or InputPosition(each.offset, each.offset, synced) for p, each in offsets.items()}

    # -- its part of RevocationWork ------------------------------------------------------------------------------------

    def commit_before_revoke(self, partitions: frozenset[InputPartition]) -> None:
        """Commit what is pending for the departing partitions."""
        due = {p: each for p, each in self._offsets.pending.items() if p in partitions}
        if not due or self._decisions.decide(self._positions(due))[0].decision is not CommitDecision.COMMIT:
            return
        try:
            with last_commit_errors():
                self.send(due, asynchronous=False)
        except EosError as error:
            self._hook(CommitRefused(partitions=frozenset(due), rule=None, reason=str(error)))

    def drop_pending(self, partitions: frozenset[InputPartition]) -> None:
        """Drop the pending offsets of ``partitions``: the next owner starts from the committed offset."""
        dropped = frozenset(self._offsets.pending) & partitions
        for departed in self._departed_while_deciding:
            departed.update(dropped)
        self._offsets.drop_pending(partitions)
        self._offsets.forget_stored(partitions)
        if dropped:
            reason = "the partitions left before a commit was confirmed"
            self._hook(CommitRefused(partitions=dropped, rule=None, reason=reason))
