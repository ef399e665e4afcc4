"""The assignment as the application sees and changes it: assign, seek, pause, positions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from confluent_kafka import OFFSET_INVALID, OFFSET_STORED, KafkaException, TopicPartition

from eos_client.testing.simulator.brokers.link import ClientLink
from eos_client.testing.simulator.brokers.model import PartitionKey
from eos_client.testing.simulator.clients.client_core import ClientCore, failed, key_of
from eos_client.testing.simulator.clients.flow import LEADER_EPOCH, Flow
from eos_client.testing.simulator.clients.kafka_errors import kafka_exception


class AssignmentCalls(ClientCore):
    """Methods of ``confluent_kafka.Consumer``."""

    def __init__(self, config: Mapping[str, Any], link: ClientLink) -> None:
        super().__init__(config, link)
        self._assigned: dict[PartitionKey, int] = {}
        self._changed_assignment = False
        self._losing = False

    # -- the assignment ------------------------------------------------------------------------------------------

    def assign(self, partitions: list[TopicPartition]) -> None:
        """Set the assignment; in a cooperative group use ``incremental_assign``."""
        _check_list(partitions)
        self._check_protocol("assign()", incremental=False)
        keys = [key_of(p) for p in partitions]
        if len(set(keys)) < len(keys):
            raise failed("Failed to set assignment", "_INVALID_ARG")
        self._remove_partitions(list(self._assigned))
        self._add_partitions(partitions)

    def unassign(self) -> None:
        """Drop the assignment."""
        self._use()
        self._remove_partitions(list(self._assigned))

    def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        """Add ``partitions`` to the assignment."""
        _check_list(partitions)
        self._check_protocol("incremental_assign()", incremental=True)
        for key in map(key_of, partitions):
            if key in self._assigned:
                why = f"{key.topic} [{key.partition}] is already part of the current assignment"
                raise kafka_exception("_CONFLICT", why)
        self._add_partitions(partitions)

    def incremental_unassign(self, partitions: list[TopicPartition]) -> None:
        """Remove ``partitions`` from the assignment."""
        _check_list(partitions)
        self._check_protocol("incremental_unassign()", incremental=True)
        for key in map(key_of, partitions):
            if key not in self._assigned:
                why = f"{key.topic} [{key.partition}] can't be unassigned since it is not in the current assignment"
                raise kafka_exception("_INVALID_ARG", why)
        self._remove_partitions([key_of(p) for p in partitions])

    def assignment(self) -> list[TopicPartition]:
        """Return the assignment, each partition with its start offset."""
        self._use()
        return [TopicPartition(*key, start) for key, start in self._assigned.items()]

    def _check_protocol(self, call: str, *, incremental: bool) -> None:
        background = self._use()
        if background.session.fatal is not None:
            raise KafkaException(background.session.fatal)
        if background.session.is_subscribed and background.settings.is_cooperative is not incremental:
            kind = "COOPERATIVE" if background.settings.is_cooperative else "EAGER"
            raise kafka_exception("_STATE", f"{call} cannot be used when the rebalance protocol type is {kind}")

    def _add_partitions(self, partitions: list[TopicPartition]) -> None:
        self._changed_assignment = True
        fetcher, commits = self._background.fetcher, self._background.commits
        for partition in partitions:
            key, start = key_of(partition), OFFSET_STORED if partition.offset == OFFSET_INVALID else partition.offset
            self._assigned[key] = start
            commits.add(key)
            fetcher.add(key, start)
        fetcher.release()

    def _remove_partitions(self, keys: list[PartitionKey]) -> None:
        self._changed_assignment = True
        for key in keys:
            del self._assigned[key]
        self._background.commits.remove(keys, lost=self._losing)
        self._background.fetcher.remove(keys)
        self._background.fetcher.release()

    # -- positions ------------------------------------------------------------------------------------------------

    def seek(self, partition: TopicPartition) -> None:
        """Continue at ``partition.offset``; refused after an error event of ``auto.offset.reset=error``.

        A seek to OFFSET_STORED is refused, too, and nothing more comes until another seek.
        """
        fetcher = self._use().fetcher
        _check_partition(partition)
        flow = fetcher.flows.get(key_of(partition))
        if flow is None or flow.stopped:
            raise failed(f"Failed to seek to offset {partition.offset}", "_STATE")
        if partition.offset == OFFSET_STORED:
            fetcher.stop(key_of(partition))
            raise failed(f"Failed to seek to offset {partition.offset}", "_INVALID_ARG")
        fetcher.seek(key_of(partition), partition.offset)

    def position(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """Return the positions; OFFSET_INVALID before the first record or transaction marker."""
        flows = self._use().fetcher.flows
        return [_position_of(key, flows.get(key)) for key in map(key_of, partitions)]

    def pause(self, partitions: list[TopicPartition]) -> None:
        """Stop fetching ``partitions``, also after they were revoked and assigned again."""
        self._use().fetcher.pause(map(key_of, partitions))

    def resume(self, partitions: list[TopicPartition]) -> None:
        """Fetch ``partitions`` again."""
        self._use().fetcher.resume(map(key_of, partitions))


def _position_of(partition: PartitionKey, flow: Flow | None) -> TopicPartition:
    if flow is None or flow.position is None:
        return TopicPartition(*partition, OFFSET_INVALID)
    return TopicPartition(*partition, flow.position, leader_epoch=LEADER_EPOCH)


def _check_list(partitions: object) -> None:
    if not isinstance(partitions, list):
        raise TypeError("requires list of TopicPartition")
    for partition in partitions:
        _check_partition(partition)


def _check_partition(partition: object) -> None:
    if not isinstance(partition, TopicPartition):
        raise TypeError("expected cimpl.TopicPartition")
