"""The driver's membership in a Spark sink's ledger group: a static member that fetches nothing.

It is a classic member on purpose: there the newest driver with this ``group.instance.id`` wins at once, while KIP-848
refuses it until the old one's session ends (UNRELEASED_INSTANCE_ID). A lease is held once: after a revocation or a loss
the member unsubscribes inside the callback, before librdkafka could rejoin and fence its own successor.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from confluent_kafka import OFFSET_END, KafkaError, KafkaException, TopicPartition

from eos_client.clock import MONOTONIC_CLOCK
from eos_client.confluent.consumer.safe_close import serve_before_close, unsubscribe_when_lost
from eos_client.confluent.failures.kafka_errors import is_fatal, kafka_error
from eos_client.confluent.group_metadata import GenerationReader
from eos_client.confluent.ledger.ledger_reader import ledger_consumer
from eos_client.core.batch_ledger import LedgerEntry
from eos_client.core.commit_gate import CommitGate, GateAssigned, GateLost, RevocationEnded, RevocationStarted
from eos_client.core.error_codes import INSTANCE_FENCED, LEASE_REFUSED, READING_FORBIDDEN
from eos_client.core.model import UNJOINED
from eos_client.errors import ClusterUnavailableError, ClusterUnfitError, RunFencedError
from eos_client.ports import Clock, MembershipSnapshot, input_partitions

_JOIN_SLICE_S = 0.05
_COMMIT_PAUSE_S = 0.1


class LeaseMember:
    """One membership, from joining to its end. Everything is called from one thread, the callbacks too."""

    def __init__(
        self,
        settings: Mapping[str, Any],
        group_id: str,
        instance_id: str,
        topic: str,
        gate: CommitGate,
        *,
        clock: Clock = MONOTONIC_CLOCK,
    ) -> None:
        self._clock = clock
        self._topic = topic
        self._group_id = group_id
        self._gate = gate
        self._generations = GenerationReader()
        self._assigned = False
        self._leaving = False
        self._last_error: KafkaError | None = None
        self.ended: str | None = None  # then nothing is asked of the group any more
        self.is_fenced = False
        own = {
            "group.id": group_id,
            "group.instance.id": instance_id,
            "group.protocol": "classic",
            "partition.assignment.strategy": "range",
            "auto.offset.reset": "error",
            "error_cb": self._on_error,
        }
        self._raw = ledger_consumer("lease", settings, own)

    def join(self, limit_s: float) -> None:
        """Take the lease: return once the ledger's partitions are assigned.

        Raises ClusterUnavailableError after ``limit_s`` seconds, RunFencedError when a newer driver came meanwhile,
        ClusterUnfitError where this client may not read the group.
        """
        self._raw.subscribe([self._topic], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost)
        deadline = self._clock() + limit_s
        while not self._assigned:
            self.serve(_JOIN_SLICE_S)
            self._refuse_forbidden(self._last_error)
            if self.ended is not None:
                raise RunFencedError(self.ended)
            if self._clock() > deadline:
                raise ClusterUnavailableError(
                    f"the lease on the ledger topic {self._topic!r} was not granted within {limit_s:g} s: the group's "
                    "coordinator does not answer."
                )

    def serve(self, timeout_s: float = 0.0) -> None:
        """Run pending callbacks and record errors."""
        if self.ended is not None:
            return
        try:
            message = self._raw.poll(timeout_s)
            error = None if message is None else message.error()
        except KafkaException as exception:
            error = kafka_error(exception)
        if error is not None:
            self._on_error(error)

    def snapshot(self) -> MembershipSnapshot:
        """Read the group metadata now."""
        try:
            metadata = self._raw.consumer_group_metadata()
        except RuntimeError:
            return MembershipSnapshot(None, UNJOINED)
        return MembershipSnapshot(metadata, self._generations.read(metadata, self._raw.memberid))

    def commit(self, entries: Mapping[int, LedgerEntry], limit_s: float) -> None:
        """Commit ``entries`` by partition, in one request that the broker checks against our generation.

        Raises RunFencedError when it is not ours any more, ClusterUnavailableError when nobody answers in ``limit_s``
        seconds.
        """
        deadline = self._clock() + limit_s
        offsets = [TopicPartition(self._topic, p, e.next_batch, metadata=e.encode()) for p, e in entries.items()]
        while (error := self._commit_once(offsets)) is not None:
            self.is_fenced = self.is_fenced or _is_superseded(error)
            if self.is_fenced or error.name() in LEASE_REFUSED:
                self._end(f"the group refused this driver's commit with {error.name()}")
                raise RunFencedError(f"{self.ended}: a newer driver runs this sink. Let this query end.")
            self._refuse_forbidden(error)
            self.serve()
            if self.ended is not None:
                raise RunFencedError(self.ended)
            if self._clock() >= deadline:
                raise ClusterUnavailableError(
                    f"the ledger in {self._topic!r} could not be committed within {limit_s:g} s: {error.name()}: "
                    f"{error.str()}"
                )
            self._clock.sleep(_COMMIT_PAUSE_S)

    def _commit_once(self, offsets: list[TopicPartition]) -> KafkaError | None:
        try:
            answer = self._raw.commit(offsets=offsets, asynchronous=False)
        except KafkaException as exception:
            return kafka_error(exception)
        return next((at.error for at in answer or [] if at.error is not None), None)

    def _end(self, reason: str) -> None:
        self.ended = self.ended or reason

    def close(self) -> None:
        """Close without LeaveGroup: a static member stays in the group until its session ends."""
        serve_before_close(self._raw, unsubscribe=False, is_classic=True)
        self._leaving = True
        self._raw.close()

    # -- callbacks, inside serve() ---------------------------------------------------------------------------------

    def _on_assign(self, _: Any, partitions: list[TopicPartition]) -> None:
        if self._leaving or self.ended is not None:
            return
        paused = [TopicPartition(p.topic, p.partition, OFFSET_END) for p in partitions]
        self._raw.assign(paused)
        self._raw.pause(paused)
        self._gate.tell(GateAssigned(input_partitions(partitions)))
        self._assigned = True

    def _on_revoke(self, _: Any, partitions: list[TopicPartition]) -> None:
        if self._leaving:
            return
        keys = input_partitions(partitions)
        self._gate.tell(RevocationStarted(keys))
        self._gate.tell(RevocationEnded(keys, self.snapshot().generation, uncommitted=keys))
        self._leave("the group revoked the lease")

    def _on_lost(self, _: Any, partitions: list[TopicPartition]) -> None:
        if self._leaving:
            return
        keys = input_partitions(partitions)
        self._gate.tell(GateLost(keys, uncommitted=keys))
        self._leave("the lease was lost (no contact with the group for longer than its session)")

    def _leave(self, reason: str) -> None:
        self._end(reason)
        unsubscribe_when_lost(self._raw)

    def _refuse_forbidden(self, error: KafkaError | None) -> None:
        if error is not None and error.name() in READING_FORBIDDEN:
            raise ClusterUnfitError(
                f"the lease on the ledger topic {self._topic!r} cannot be held: {error.name()}. Allow this client to "
                f"read that topic and group {self._group_id!r}."
            )

    def _on_error(self, error: KafkaError) -> None:
        self._last_error = error
        if _is_superseded(error):
            self.is_fenced = True
            self._end(f"the group fenced this driver: {error.str()}")


def _is_superseded(error: KafkaError) -> bool:
    """Whether only a newer member with our ``group.instance.id`` can cause it: a consumer has no other fatal error."""
    return is_fatal(error) or error.name() == INSTANCE_FENCED
