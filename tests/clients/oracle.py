"""Judges a story from the simulated logs alone. It imports nothing of the client that is under test.

Names of the rules: C1 none lost, C2 none doubled, C3 nothing aborted visible, C5 order, C7 told outcomes are true,
C8 no anonymous commit, C9 it comes to an end, C10 nothing done twice or refused while nothing fails,
O1 offsets never go back, O3 only owners commit, O5 the right value, O8 the gate is kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from eos_client.testing.simulator.brokers.model import Membership, PartitionKey, StoredRecord
from eos_client.testing.simulator.clients.group_metadata import decode
from eos_client.testing.simulator.clients.inbox import Rebalance, RebalanceKind


class Oracle:
    """Watches the group's commits as they happen, and reads the logs at the end."""

    def __init__(self, cluster: Any, group: str, input_topic: str, output_topic: str) -> None:
        self.violations: list[str] = []
        self.commits = Counter[str]()
        self._cluster = cluster
        self._group = group
        self._input = input_topic
        self._output = output_topic
        self._attempts = 0
        self._told: dict[str, str] = {}
        self._committed: dict[PartitionKey, int] = {}
        self._revoked_at: dict[Membership, frozenset[PartitionKey]] = {}
        self._in_callbacks = 0
        self._watch_commits()

    # -- what the members report ---------------------------------------------------------------------------------

    def attempt(self) -> str:
        """Return a new name for one processing of one record."""
        self._attempts += 1
        return f"attempt-{self._attempts}"

    def told(self, outcome: Any, attempts: Iterable[str]) -> None:
        """A member was told that ``attempts`` are committed or aborted."""
        for attempt in attempts:
            self._told[attempt] = str(outcome.value)

    # -- while it runs -------------------------------------------------------------------------------------------

    def _watch_commits(self) -> None:
        groups = self._cluster.brokers.groups
        accept = groups.commit_offsets_in_transaction

        def commit(group_id: str, membership: Membership, producer: Any, offsets: Mapping[PartitionKey, Any]) -> Any:
            owners = self._owned_by(membership.member_id)
            try:
                answer = accept(group_id, membership, producer, offsets)
            except Exception:
                self.commits["refused"] += 1
                raise
            self.commits["accepted"] += 1
            self._judge_commit(membership, frozenset(offsets), owners)
            return answer

        groups.commit_offsets_in_transaction = commit

    def watch_revocations(self, consumer: Any, then: Callable[[str], object]) -> None:
        """Remember at which generations ``on_revoke`` has returned; inside a callback, commits are in order.

        ``then`` is told the client's name before the group hears of it.
        """
        session, rebalance_now = consumer._background.session, consumer._rebalance
        served = session.on_served

        def in_callback(rebalance: Rebalance) -> None:
            self._in_callbacks += 1
            try:
                rebalance_now(rebalance)
            finally:
                self._in_callbacks -= 1

        def noting(rebalance: Rebalance) -> None:
            if rebalance.kind is RebalanceKind.REVOKE and rebalance.partitions:
                before = self._revoked_at.get(session.membership, frozenset())
                self._revoked_at[session.membership] = before.union(rebalance.partitions)
                then(consumer._link.name)
            elif rebalance.kind is RebalanceKind.ASSIGN:
                self._assigned_again(session.membership, rebalance.partitions)
            served(rebalance)

        session.on_served, consumer._rebalance = noting, in_callback

    def _assigned_again(self, membership: Membership, partitions: Iterable[PartitionKey]) -> None:
        """A restarted coordinator of a classic group may undo a revocation in the generation of it."""
        if away := self._revoked_at.pop(membership, frozenset()) - frozenset(partitions):
            self._revoked_at[membership] = away

    def watch_offsets(self, producer: Any) -> None:
        """Note what is sent between the return of ``on_revoke`` and the first newer generation (O8).

        Or the first assignment that gives back what was revoked.
        """
        send = producer.send_offsets_to_transaction

        def judged(positions: Any, metadata: bytes, *timeout: float) -> None:
            _, membership = decode(metadata)
            if membership in self._revoked_at and not self._in_callbacks:
                self._note("O8", f"{membership} sends offsets at the generation of its last revocation")
            send(positions, metadata, *timeout)

        producer.send_offsets_to_transaction = judged

    def _owned_by(self, member_id: str) -> frozenset[PartitionKey]:
        member = self._cluster.brokers.groups.describe(self._group).members.get(member_id)
        return frozenset() if member is None else member.assigned | member.awaiting_revocation

    def _judge_commit(
        self, membership: Membership, partitions: frozenset[PartitionKey], owned: frozenset[PartitionKey]
    ) -> None:
        if membership.is_anonymous:
            self._note("C8", "an anonymous commit reached the coordinator")
        elif not partitions <= owned:
            self._note("O3", f"{membership} committed {sorted(partitions - owned)}, which it does not own")

    def watch(self) -> None:
        """Look at the group's offsets: they never go back."""
        for partition, offset in self._cluster.committed(self._group).items():
            if offset < self._committed.get(partition, 0):
                self._note("O1", f"{partition} went back from {self._committed[partition]} to {offset}")
            self._committed[partition] = offset

    def _note(self, rule: str, what: str) -> None:
        self.violations.append(f"{rule} at {self._cluster.clock():.3f} s: {what}")

    # -- at the end ----------------------------------------------------------------------------------------------

    def is_drained(self) -> bool:
        """Whether the group has committed everything that was written."""
        committed = self._cluster.committed(self._group)
        return all(committed.get(p, 0) >= end for p, end in self._ends().items() if end) and not self._open()

    def _ends(self) -> dict[PartitionKey, int]:
        count = self._cluster.brokers.partition_count(self._input)
        keys = [PartitionKey(self._input, partition) for partition in range(count)]
        return {key: self._cluster.brokers.log(key).log_end_offset for key in keys}

    def _open(self) -> bool:
        count = self._cluster.brokers.partition_count(self._output)
        logs = [self._cluster.brokers.log(PartitionKey(self._output, partition)) for partition in range(count)]
        return any(log.last_stable_offset < log.high_watermark for log in logs)

    def judge(self, ended: Iterable[str] = ()) -> None:
        """Note everything that is wrong with the logs; ``ended`` are the processes that ended with an error."""
        if not self.is_drained():
            self._note("C9", f"not drained: {self._cluster.committed(self._group)} of {self._ends()}; {list(ended)}")
        for partition, offset in self._cluster.committed(self._group).items():
            if offset > self._ends()[partition]:
                self._note("O5", f"{partition} is committed up to {offset}, but ends at {self._ends()[partition]}")
        visible = self._cluster.read(self._output)
        self._judge_values(Counter(_header(record, "origin") for record in visible))
        self._judge_order(visible)
        self._judge_told({_header(record, "attempt") for record in visible})

    @property
    def done_again(self) -> int:
        """How many records were processed more than once, after an abort."""
        return max(0, self._attempts - sum(self._ends().values()))

    def judge_calm(self) -> None:
        """Note what was done again, or refused, in a story without any fault."""
        if self.done_again:
            self._note("C10", f"{self.done_again} records were processed again")
        if self.commits["refused"]:
            self._note("C10", f"{self.commits['refused']} commits were refused")

    def _judge_values(self, found: Counter[str]) -> None:
        expected = {f"{key.partition}:{offset}" for key, end in self._ends().items() for offset in range(end)}
        lost = sorted(expected - found.keys())
        if lost:
            self._note("C1", f"lost {lost}")
        doubled = sorted(origin for origin, times in found.items() if times > 1)
        if doubled:
            self._note("C2", f"doubled {doubled}")

    def _judge_order(self, visible: list[StoredRecord]) -> None:
        reached: dict[str, int] = {}
        for record in visible:
            partition, offset = _header(record, "origin").split(":")
            if int(offset) < reached.get(partition, -1):
                self._note("C5", f"{partition}:{offset} comes behind {reached[partition]}")
            reached[partition] = int(offset)

    def _judge_told(self, visible: set[str]) -> None:
        for attempt, outcome in self._told.items():
            if outcome == "aborted" and attempt in visible:
                self._note("C7", f"{attempt} is visible, and was told to be aborted")
            if outcome == "committed" and attempt not in visible:
                self._note("C7", f"{attempt} is not visible, and was told to be committed")


def _header(record: StoredRecord, name: str) -> str:
    return (dict(record.headers)[name] or b"").decode()
