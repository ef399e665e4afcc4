"""All brokers gone in the middle of a transaction: the calls come back when the brokers do."""

from __future__ import annotations

from eos_client import Outcome
from eos_client.core.model import ProducerLimits
from tests.kafka.kafka_support import Stage
from tests.verification.conclusive import conclusive

PATIENT = ProducerLimits(commit_timeout_s=25.0, start_timeout_s=20.0, recovery_timeout_s=30.0)


def test_no_call_outlives_an_outage_of_all_brokers(make_kafka_broker):
    def story(broker):
        with Stage(broker.bootstrap_servers) as stage:
            written = stage.load(4)
            producer, consumer = stage.producer(limits=PATIENT), stage.subscribed()
            with producer.transaction(consumer) as txn:
                for message in stage.collect(consumer, 8):
                    txn.produce(stage.sink, message.value())
                assert producer.flush(20) == 0
                broker.restart()
            outcomes = [txn.outcome]
            while outcomes[-1] is not Outcome.COMMITTED:
                with producer.transaction(consumer) as txn:
                    for message in stage.collect(consumer, 8):
                        txn.produce(stage.sink, message.value())
                outcomes.append(txn.outcome)
            assert not [event for event in stage.named("producer_rebuilt") if "did not return" in event.reason]
            assert sorted(stage.outputs()) == sorted(written)

    conclusive(story, make_kafka_broker)
