"""One record through a transaction and back, with plain confluent-kafka: what any usable broker can do."""

import uuid

from confluent_kafka import Consumer, Producer

from tests.verification.leaving import leave

WAIT_S = 60.0


def write_in_transaction(bootstrap_servers, topic, value):
    producer = Producer(
        {"bootstrap.servers": bootstrap_servers, "transactional.id": uuid.uuid4().hex, "linger.ms": 0, "log_level": 0}
    )
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    producer.produce(topic, value)
    producer.commit_transaction(WAIT_S)


def read_committed(bootstrap_servers, topic, count=1, group_protocol="consumer"):
    """The first `count` committed values of the topic, read by a group of its own."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": uuid.uuid4().hex,
            "group.protocol": group_protocol,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "log_level": 0,
        }
    )
    consumer.subscribe([topic])
    try:
        return [message.value() for message in consumer.consume(count, WAIT_S)]
    finally:
        leave(consumer)
