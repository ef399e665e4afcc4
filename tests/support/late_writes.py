"""A transactional write that arrives when its transaction is over (KAFKA-14402): what makes a transaction hang.

Brokers refuse it since 3.6, unless they are told not to (``transaction.partition.verification.enable=false``). The
client library never sends it by itself, so it is made here.
"""

from __future__ import annotations

from typing import Any

from kafka import TopicPartition
from kafka.admin import KafkaAdminClient
from kafka.protocol.producer import ProduceRequest
from kafka.record.default_records import DefaultRecordBatchBuilder

from tests.support.waiting import wait_for

NOBODYS_PRODUCER_ID = 987_654
_NOT_LEADER_YET = 6


def write_late(
    bootstrap_servers: str,
    place: TopicPartition,
    *,
    timestamp_ms: int,
    producer_id: int = NOBODYS_PRODUCER_ID,
    producer_epoch: int = 0,
) -> int:
    """Write one record to a partition that no coordinator has added to a transaction; return its offset."""
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

        async def send() -> Any:
            return await manager.send(request, node_id=next(iter(manager.cluster.brokers())).node_id)

        def written() -> Any:
            (partition,) = manager.run(send).responses[0].partition_responses
            assert partition.error_code in {0, _NOT_LEADER_YET}, partition
            return partition if partition.error_code == 0 else None

        return int(wait_for(written, "the partition to have its leader").base_offset)
