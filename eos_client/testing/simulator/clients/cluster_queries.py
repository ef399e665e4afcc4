"""The calls of a consumer that query the cluster."""

from __future__ import annotations

from typing import Any

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, OFFSET_INVALID, KafkaError, TopicPartition
from confluent_kafka.admin._metadata import BrokerMetadata, ClusterMetadata, PartitionMetadata, TopicMetadata

from eos_client.testing.simulator.brokers.brokers import Brokers
from eos_client.testing.simulator.brokers.group_requests import FetchedOffset
from eos_client.testing.simulator.brokers.model import BrokerError, PartitionKey
from eos_client.testing.simulator.brokers.network import RequestTimedOut
from eos_client.testing.simulator.clients.client_core import ClientCore, failed, key_of
from eos_client.testing.simulator.clients.kafka_errors import kafka_error
from eos_client.testing.simulator.clients.offset_lookup import committed_offsets, edge_offset
from eos_client.testing.simulator.clients.topic_partitions import topic_partition_of

CLUSTER_ID = "simulated"
_BROKER_ID = 1
_UNKNOWN_PARTITION = "_UNKNOWN_PARTITION"
_HANDLE_CLOSED = "Handle has been closed"


class ClusterQueries(ClientCore):
    """Methods of ``confluent_kafka.Consumer``."""

    def committed(self, partitions: list[TopicPartition], timeout: float = -1) -> list[TopicPartition]:
        """Read the group's committed offsets; pending ones are waited for (KIP-447). ``timeout`` in seconds."""
        settings = self._use().settings
        deadline_s = self._deadline_s(timeout)
        keys = [key_of(p) for p in partitions]
        try:
            found = committed_offsets(self._link, settings, keys, deadline_s)
        except BrokerError as refusal:
            code = "_TIMED_OUT" if refusal.code == "UNSTABLE_OFFSET_COMMIT" else refusal.code
            raise failed("Failed to get committed offsets", code) from refusal
        except RequestTimedOut as late:
            raise failed("Failed to get committed offsets", "_TIMED_OUT") from late
        answer: list[TopicPartition] = []
        for key in keys:
            entry = found.get(key, FetchedOffset(None))
            offset = OFFSET_INVALID if entry.offset is None else entry.offset
            error = None if entry.code == "NONE" else kafka_error(entry.code)
            answer.append(topic_partition_of(key, offset, entry.metadata, error))
        return answer

    def get_watermark_offsets(
        self, partition: TopicPartition, timeout: float = -1, cached: bool = False
    ) -> tuple[int, int]:
        """Return the first offset and the end of what may be read.

        ``cached``: those of the last fetch, with the high watermark, which a read_committed consumer may not reach.
        """
        background, key = self._use(), key_of(partition)
        if cached:
            flow = background.fetcher.flows.get(key)
            return (OFFSET_INVALID, OFFSET_INVALID) if flow is None else flow.watermarks
        committed = background.settings.read_committed

        def act() -> tuple[int, int]:
            self._check_exists(key)
            low = edge_offset(self._link, key, OFFSET_BEGINNING, read_committed=committed)
            return low, edge_offset(self._link, key, OFFSET_END, read_committed=committed)

        return self._call("ListOffsets", act, timeout, "Failed to get watermark offsets")

    def offsets_for_times(self, partitions: list[TopicPartition], timeout: float = -1) -> list[TopicPartition]:
        """Return the first offsets that are not older than the times in ``offset``, milliseconds since the epoch."""
        self._use()

        def act() -> list[TopicPartition]:
            answer = [self._offset_at(p) for p in partitions]
            if answer and all(each.error for each in answer):
                raise BrokerError(_UNKNOWN_PARTITION, "none of the partitions")
            return answer

        return self._call("ListOffsets", act, timeout, "Failed to get offsets")

    def _offset_at(self, wanted: TopicPartition) -> TopicPartition:
        key = key_of(wanted)
        try:
            self._check_exists(key)
        except BrokerError as refusal:
            return topic_partition_of(key, wanted.offset, error=kafka_error(refusal.code))
        found = self._link.brokers.log(key).offset_for_timestamp(wanted.offset)
        return topic_partition_of(key, OFFSET_END if found is None else found)

    def _check_exists(self, key: PartitionKey) -> None:
        # librdkafka takes the partitions from the metadata and sends no request.
        if not 0 <= key.partition < self._link.brokers.partition_count(key.topic):
            raise BrokerError(_UNKNOWN_PARTITION, f"{key.topic} [{key.partition}]")

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> ClusterMetadata:
        """Return the cluster's metadata, of ``topic`` alone if given."""
        self._use(_HANDLE_CLOSED)
        brokers = self._link.brokers
        return self._call("Metadata", lambda: cluster_metadata(brokers, topic), timeout, "Failed to get metadata")

    def cluster_id(self, timeout: float = -1) -> str:
        """Return the cluster's id."""
        self._use(_HANDLE_CLOSED)
        return self._call("Metadata", lambda: CLUSTER_ID, timeout, "Failed to retrieve cluster id")

    def set_sasl_credentials(self, username: str, password: str) -> None:  # noqa: ARG002
        """Do nothing: simulated brokers need no credentials."""
        self._use(_HANDLE_CLOSED)


def cluster_metadata(brokers: Brokers, topic: str | None = None) -> ClusterMetadata:
    """Return the result of ``list_topics``; an unknown ``topic`` has an error."""
    cluster: Any = ClusterMetadata()  # its attributes are typed by their first values
    broker: Any = BrokerMetadata()
    broker.id, broker.host, broker.port = _BROKER_ID, "simulated", 9092
    cluster.cluster_id, cluster.controller_id, cluster.brokers = CLUSTER_ID, _BROKER_ID, {_BROKER_ID: broker}
    cluster.orig_broker_id, cluster.orig_broker_name = _BROKER_ID, "simulated:9092/1"
    names = sorted(brokers.topics) if topic is None else [topic]
    cluster.topics = {name: _topic_metadata(name, brokers.partition_count(name)) for name in names}
    answer: ClusterMetadata = cluster
    return answer


def _topic_metadata(name: str, partitions: int) -> TopicMetadata:
    topic: Any = TopicMetadata()
    topic.topic = name
    if not partitions:
        topic.error = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
    for number in range(partitions):
        partition: Any = PartitionMetadata()
        partition.id, partition.leader = number, _BROKER_ID
        partition.replicas, partition.isrs = [_BROKER_ID], [_BROKER_ID]
        topic.partitions[number] = partition
    answer: TopicMetadata = topic
    return answer
