"""Commits offsets: on request, periodically, and when partitions are removed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping

from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException, TopicPartition

from eos_client.testing.simulator.brokers.link import ClientLink
from eos_client.testing.simulator.brokers.model import BrokerError, OffsetAndMetadata, PartitionKey
from eos_client.testing.simulator.brokers.network import Answer, RequestTimedOut
from eos_client.testing.simulator.clients.configuration import ConsumerSettings
from eos_client.testing.simulator.clients.group_session import GroupSession
from eos_client.testing.simulator.clients.inbox import CommitReport, Inbox
from eos_client.testing.simulator.clients.kafka_errors import kafka_error
from eos_client.testing.simulator.clients.topic_partitions import topic_partition_of

Offsets = Mapping[PartitionKey, OffsetAndMetadata]
Codes = dict[PartitionKey, str]
_OK = "NONE"
_STALE = "STALE_MEMBER_EPOCH"


def commit_error(code: str, why: str = "") -> KafkaError:
    """Return the error of a commit that ended with ``code``."""
    error = kafka_error(code, why)
    return kafka_error(code, f"Commit failed: {KafkaError(error.code()).str()}")


class OffsetCommits:
    """Stored and committed offsets. ``stored``: what a commit without arguments sends, unless it is committed."""

    def __init__(self, link: ClientLink, settings: ConsumerSettings, inbox: Inbox, session: GroupSession) -> None:
        self.stored: dict[PartitionKey, OffsetAndMetadata] = {}
        self.in_flight = 0
        self._link = link
        self._settings = settings
        self._inbox = inbox
        self._session = session
        self._committed: dict[PartitionKey, int] = {}
        self._next_s = link.clock() + settings.auto_commit_interval_s if settings.auto_commit else math.inf

    def store(self, partition: PartitionKey, offset: int, metadata: str = "") -> None:
        """Store ``offset``, the next one to process."""
        self.stored[partition] = OffsetAndMetadata(offset, metadata)

    def add(self, partition: PartitionKey) -> None:
        """Forget earlier offsets of ``partition``, which was assigned."""
        self.stored.pop(partition, None)
        self._committed.pop(partition, None)

    def remove(self, partitions: Iterable[PartitionKey], *, lost: bool) -> None:
        """Forget the offsets of ``partitions``, and commit the stored ones unless they are ``lost``."""
        removed = list(partitions)
        if self._settings.auto_commit and not lost:
            self.post(self.uncommitted(removed), reports=False)
        for partition in removed:
            self.add(partition)

    def uncommitted(self, partitions: Iterable[PartitionKey]) -> dict[PartitionKey, OffsetAndMetadata]:
        """Return the stored offsets of ``partitions`` that this consumer has not committed yet."""
        found = {p: self.stored[p] for p in partitions if p in self.stored}
        return {p: o for p, o in found.items() if o.offset > self._committed.get(p, -1)}

    # -- sending -------------------------------------------------------------------------------------------------

    def call(self, offsets: Offsets) -> Codes:
        """Commit and wait; raises KafkaException if nothing was committed."""
        if not offsets:
            raise KafkaException(commit_error("_NO_OFFSET"))
        deadline_s = self._link.clock() + self._settings.request_timeout_s
        try:
            codes = self._link.call("OffsetCommit", self._request(offsets), deadline_s=deadline_s)
        except BrokerError as refusal:
            self._session.on_commit_refused(refusal.code)
            raise KafkaException(commit_error(refusal.code, refusal.why)) from refusal
        except RequestTimedOut as late:
            raise KafkaException(commit_error("_TIMED_OUT")) from late
        self._record_committed(offsets, codes)
        failed = set(codes.values())
        if _OK not in failed:
            raise KafkaException(commit_error(_cause(failed)))
        return codes

    def post(self, offsets: Offsets, *, reports: bool = True) -> None:
        """Commit in the background; ``reports``: ``on_commit`` is called with the outcome."""
        if not offsets:
            if reports:
                self._report(kafka_error("_NO_OFFSET", "Local: No offset stored"), [])
            return

        def then(answer: Answer[Codes] | None) -> None:
            self.in_flight -= 1
            self._answered(offsets, answer, reports=reports)

        self.in_flight += 1
        self._link.post("OffsetCommit", self._request(offsets), then)

    def _request(self, offsets: Offsets) -> Callable[[], Codes]:
        membership, group_id, groups = self._session.membership, self._settings.group_id, self._link.brokers.groups
        return lambda: groups.commit_offsets(group_id, membership, offsets)

    def _answered(self, offsets: Offsets, answer: Answer[Codes] | None, *, reports: bool) -> None:
        code = "_TIMED_OUT" if answer is None else answer.refusal.code if answer.refusal is not None else _OK
        if answer is not None and answer.refusal is not None:
            self._session.on_commit_refused(code)
        codes = dict.fromkeys(offsets, code)
        if answer is not None and answer.value is not None:
            codes = answer.value
            self._record_committed(offsets, codes)
        if not reports and code == _STALE:
            self._next_s = self._link.clock() + self._settings.backoff_s
        if reports:
            failed = set(codes.values())
            error = None if _OK in failed else kafka_error(_cause(failed))
            self._report(error, committed_partitions(offsets, codes))

    def _record_committed(self, offsets: Offsets, codes: Codes) -> None:
        self._committed.update({p: o.offset for p, o in offsets.items() if codes.get(p, _OK) == _OK})

    def _report(self, error: KafkaError | None, offsets: list[TopicPartition]) -> None:
        if self._settings.on_commit is not None:
            self._inbox.put(CommitReport(error, offsets))

    # -- background work -----------------------------------------------------------------------------------------

    @property
    def due_s(self) -> float:
        """When the next automatic commit is due."""
        return self._next_s

    def work(self) -> None:
        """Commit the stored offsets."""
        if self._link.clock() >= self._next_s:
            self._next_s = self._link.clock() + self._settings.auto_commit_interval_s
            self.post(self.uncommitted(sorted(self.stored)), reports=False)


def _cause(codes: Iterable[str]) -> str:
    """Return why nothing was committed: the error of one partition is the reason for all others."""
    return min(codes, key=lambda code: (code == "OPERATION_NOT_ATTEMPTED", code))


def committed_partitions(offsets: Offsets, codes: Mapping[PartitionKey, str]) -> list[TopicPartition]:
    """Return ``offsets`` as confluent_kafka does, each refused one with its error."""
    partitions: list[TopicPartition] = []
    for partition, committed in offsets.items():
        code = codes.get(partition, _OK)
        error = None if code == _OK else kafka_error(code)
        partitions.append(topic_partition_of(partition, committed.offset, committed.metadata, error))
    return partitions


def valid_offsets(partitions: Iterable[TopicPartition]) -> dict[PartitionKey, OffsetAndMetadata]:
    """Return those of ``partitions`` that have a valid offset."""
    return {
        PartitionKey(p.topic, p.partition): OffsetAndMetadata(p.offset, p.metadata or "")
        for p in partitions
        if p.offset >= 0
    }


def already_committed(partitions: Iterable[PartitionKey]) -> list[TopicPartition]:
    """Return ``partitions`` as a commit reports those without a new offset."""
    return [TopicPartition(*p, OFFSET_INVALID) for p in partitions]
