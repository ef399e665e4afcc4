"""Plain, non-transactional commits behind the gate: what may not be sent now, or is not confirmed yet, stays pending.

The next allowed commit covers the pending offsets, or the one inside the revoke callback does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import Any

from eos_client.clients.gate_attempts import GateAttempts
from eos_client.core.commit_gate import CommitDecision, CommitRuling, GateRule
from eos_client.core.model import InputPartition, InputPosition, InputPositions
from eos_client.errors import EosError
from eos_client.observe import CommitRefused, EventHook
from eos_client.ports import GroupConsumer, MembershipSnapshot

_ANSWERED_FOR_SURE_S = 300.0
"""The client library has answered each commit by then: after it, an answer was lost with an exception from outside."""

_LEFT_MEANWHILE = CommitRuling(
    CommitDecision.ABORT,
    GateRule.NOT_OURS,
    "the partitions left while commit() served callbacks, and a newer owner may exist",
)

Offsets = Mapping[InputPartition, Any]
"""By partition, what confluent_kafka calls a TopicPartition: offset, and metadata and leader epoch where known."""


class PlainCommits:
    """The pending offsets of a consumer without a transaction. Fulfils RevocationWork."""

    def __init__(
        self, consumer: GroupConsumer, send: Callable[[Offsets], None], hook: EventHook, clock: Callable[[], float]
    ) -> None:
        self._consumer = consumer
        self._send = send
        self._hook = hook
        self._clock = clock
        self._attempts = GateAttempts(consumer, hook, clock)
        self._sent_at: dict[InputPartition, list[float]] = {}
        self.unfenced: set[InputPartition] = set()
        self.beside_transactions = False
        self.pending: dict[InputPartition, Any] = {}
        self._asking: list[set[InputPartition]] = []

    def decide(self, requested: Offsets) -> tuple[CommitRuling, Offsets]:
        """Decide on ``requested`` and what is pending; returns the gate's ruling and the offsets that it is about.

        Callbacks may be served meanwhile. What is requested is pending to them, so that a revocation commits it, and
        the ruling is not about it any more; what leaves without that is refused, also if it has come back since.
        Afterwards it is pending only where the gate is closed: a skip is noted and logged here.
        """
        before = {p: self.pending[p] for p in requested if p in self.pending}
        left: set[InputPartition] = set()
        decision = CommitDecision.ABORT
        self._asking.append(left)
        try:
            self.pending.update(requested)
            ruling, snapshot = self._attempts.decide_after_callbacks(
                lambda: self._positions(self.pending), lambda: left.isdisjoint(requested)
            )
            if not left.isdisjoint(requested):
                ruling = _LEFT_MEANWHILE
            asked = {**self.pending, **{p: offset for p, offset in requested.items() if p in left}}
            decision = ruling.decision
        finally:
            self._asking = [each for each in self._asking if each is not left]  # a callback may have asked, too
            if decision is CommitDecision.ABORT:
                self._take_back(requested, before)
            elif decision is CommitDecision.COMMIT:
                self._take_back(requested, {})  # what was pending of them, sent later, would take the group back
        self._note(ruling, snapshot, requested.keys() & asked.keys() - left)
        return ruling, asked

    def _take_back(self, requested: Offsets, before: Offsets) -> None:
        """Let be pending what was pending before ``requested`` was, unless callbacks have settled it."""
        for partition in requested:
            if self.pending.pop(partition, None) is not None and partition in before:
                self.pending[partition] = before[partition]

    def _note(self, ruling: CommitRuling, snapshot: MembershipSnapshot, refused: AbstractSet[InputPartition]) -> None:
        self._attempts.record(ruling, snapshot)
        if ruling.decision is CommitDecision.ABORT and refused:
            self._hook(CommitRefused(partitions=frozenset(refused), rule=ruling.rule, reason=ruling.reason))

    def unanswered(self) -> frozenset[InputPartition]:
        """Return the partitions for which an asynchronous commit was sent that is not answered yet.

        The client library may keep it until it knows the coordinator, and send it under a later membership.
        """
        since = self._clock() - _ANSWERED_FOR_SURE_S
        return frozenset(partition for partition, times in self._sent_at.items() if times[-1] >= since)

    def sends(self, partitions: Iterable[InputPartition]) -> None:
        """Note that offsets of ``partitions`` are about to be sent.

        They stay *unfenced* until the partition leaves this member; only then the group refuses a copy that is served
        late. Also where the commit was answered: if its connection was lost, the client library has sent it twice.
        """
        self.unfenced.update(partitions)

    def sent(self, offsets: Offsets) -> None:
        """``offsets`` are on their way, and pending until ``on_commit`` has confirmed them."""
        now = self._clock()
        for partition in offsets:
            self._sent_at.setdefault(partition, []).append(now)

    def answered(self, partition: InputPartition) -> None:
        """Note that the oldest commit of ``partition`` that was on its way was answered, or given up."""
        self.unfenced.add(partition)
        times = self._sent_at.get(partition, [])
        if times[1:]:
            del times[0]
        else:
            self._sent_at.pop(partition, None)

    def superseded(self, partitions: Iterable[InputPartition]) -> None:
        """Offsets of ``partitions`` were sent and answered: what was pending for them is out of date."""
        for partition in partitions:
            self.pending.pop(partition, None)

    def committed(self, partition: InputPartition, offset: int) -> None:
        """``offset`` was committed; another one that is pending for ``partition`` still is."""
        pending = self.pending.get(partition)
        if pending is not None and pending.offset == offset:
            del self.pending[partition]

    def _positions(self, offsets: Offsets) -> InputPositions:
        known, proven = self._consumer.positions_of_ours, self._consumer.proven
        return {p: known.get(p) or InputPosition(at.offset, at.offset, proven) for p, at in offsets.items()}

    # -- RevocationWork --------------------------------------------------------------------------------------------

    def snapshot(self) -> MembershipSnapshot:
        """Read the group metadata now."""
        return self._consumer.snapshot()

    def uncommitted(self) -> frozenset[InputPartition]:
        """Return nothing: plain offsets can be committed one partition without the other."""
        return frozenset()

    def commit_before_revoke(self, partitions: frozenset[InputPartition]) -> None:
        """Commit what is pending for the departing partitions."""
        due = {p: offset for p, offset in self.pending.items() if p in partitions}
        if not due or self._attempts.decide(self._positions(due))[0].decision is not CommitDecision.COMMIT:
            return
        try:
            self._send(due)
        except EosError as error:
            self._hook(CommitRefused(partitions=frozenset(due), rule=None, reason=str(error)))

    def on_callback_failed(self, partitions: frozenset[InputPartition], reason: str) -> None:
        """Commit what is pending: it was processed before the application's callback failed."""
        del reason
        self.commit_before_revoke(partitions)

    def departed(self, partitions: frozenset[InputPartition]) -> None:
        """Drop what is still pending for them: the next owner starts from the committed offset."""
        left = frozenset(self.pending) & partitions
        self.unfenced -= partitions
        for left_meanwhile in self._asking:
            left_meanwhile.update(left)
        for partition in left:
            del self.pending[partition]
        if not self.beside_transactions:
            self._consumer.forget(partitions)
        if left:
            self._hook(
                CommitRefused(partitions=left, rule=None, reason="the partitions left before a commit was confirmed")
            )
