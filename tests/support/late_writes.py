"""A transactional write that arrives when its transaction is over (KAFKA-14402): what makes a transaction hang.

Brokers refuse it since 3.6, unless they are told not to. The client library never sends it by itself, so it is made
here.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from kafka import TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient
from kafka.protocol.producer import ProduceRequest
from kafka.record.default_records import DefaultRecordBatchBuilder

from tests.support.waiting import wait_for

NOBODYS_PRODUCER_ID = 987_654
_VERIFICATION = "transaction.partition.verification.enable"


def write_late(
    bootstrap_servers: str,
    place: TopicPartition,
    *,
    timestamp_ms: int,
    producer_id: int = NOBODYS_PRODUCER_ID,
    producer_epoch: int = 0,
) -> int:
    """Write one record to a partition that no coordinator has added to a transaction; return its offset.

    The broker, which tests may share, takes such a record for the time of this call only.
    """
    batch = DefaultRecordBatchBuilder(2, 0, True, producer_id, producer_epoch, 0, 1_000)
    batch.append(0, timestamp_ms, None, b"late", [])
    topic_data = ProduceRequest.TopicProduceData
    partition_data = topic_data.PartitionProduceData(index=place.partition, records=batch.build())
    request = ProduceRequest(
        transactional_id="late",
        acks=-1,
        timeout_ms=10_000,
        topic_data=[topic_data(name=place.topic, partition_data=[partition_data])],
        min_version=3,
        max_version=9,
    )
    with KafkaAdminClient(bootstrap_servers=bootstrap_servers) as client:
        manager = client._manager
        node_id = next(iter(manager.cluster.brokers())).node_id
        answers: list[Any] = []

        async def send() -> Any:
            return await manager.send(request, node_id=node_id)

        def written() -> Any:
            answers[:] = manager.run(send).responses[0].partition_responses
            return answers[0].error_code == 0

        with _unverified(client, str(node_id)):
            wait_for(written, lambda: f"the late write to be taken: {answers}")
        return int(answers[0].base_offset)


@contextmanager
def _unverified(client: KafkaAdminClient, node_id: str) -> Iterator[None]:
    """As before 3.6, a broker does not ask whether a coordinator has added the partition that is written to."""
    for_now = {_VERIFICATION: ("SET", "false")}
    as_before = {_VERIFICATION: ("DELETE", None)}
    client.alter_configs([ConfigResource(ConfigResourceType.BROKER, node_id, for_now)])
    try:
        yield
    finally:
        client.alter_configs([ConfigResource(ConfigResourceType.BROKER, node_id, as_before)])
