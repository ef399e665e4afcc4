"""The lag ends at the last stable offset, which only librdkafka's statistics tell, on a real broker."""

from __future__ import annotations

from confluent_kafka import Producer, TopicPartition

from eos_client.core.model import InputPartition
from eos_client.observe import Event, LagMeasured
from tests.kafka.kafka_support import Stage
from tests.support.waiting import wait_for


def test_the_lag_ends_where_an_open_transaction_begins_and_grows_with_its_commit(kafka_broker, unique_name):
    events: list[Event] = []
    with Stage(kafka_broker.bootstrap_servers, partitions=1) as stage:
        stage.load(3)
        other = Producer(
            {"bootstrap.servers": kafka_broker.bootstrap_servers, "transactional.id": unique_name("other")}
        )
        other.init_transactions(60)
        other.begin_transaction()
        for _ in range(4):
            other.produce(stage.source, b"open", partition=0)
        other.flush()
        consumer, source = stage.subscribed(hook=events.append, statistics_interval_ms=100), stage.source
        stage.collect(consumer, 3)

        def lag_is(expected):
            lags = [event.records for event in events if isinstance(event, LagMeasured)]
            return bool(lags) and lags[-1] == {InputPartition(source, 0): expected}

        wait_for(lambda: lag_is(3), "the lag of three records", lambda: consumer.poll(0.05))
        assert consumer.get_watermark_offsets(TopicPartition(source, 0), cached=True) == (0, 7), "the high watermark"
        other.commit_transaction(60)
        # Four records more, and the marker of their commit.
        wait_for(lambda: lag_is(8), "the lag of what was committed since", lambda: consumer.poll(0.05))
