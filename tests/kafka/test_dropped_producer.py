"""Producers that were given up without close() while no broker answered: they take the id from nobody any more."""

import time

import pytest
from confluent_kafka import KafkaException, Producer

from eos_client import EosProducer
from eos_client.core.model import ProducerLimits
from eos_client.errors import ClusterUnavailableError
from eos_client.testing.free_ports import free_ports
from tests.support.waiting import WAIT_S
from tests.verification.proxy import KafkaProxy

RESTARTS = 3
INIT_S, BETWEEN_S = 0.3, 0.05
LIMITS = ProducerLimits(start_timeout_s=WAIT_S)


@pytest.mark.soak
def test_producers_given_up_while_no_broker_answered_do_not_fence_their_successor(kafka_broker, stage):
    (port,) = free_ports(1)
    settings = {"bootstrap.servers": f"127.0.0.1:{port}", "reconnect.backoff.max.ms": 100, "log_level": 0}
    bystander = Producer(settings | {"transactional.id": f"{stage.group}-bystander"})
    with pytest.raises(KafkaException):
        bystander.init_transactions(INIT_S)
    given_up = [EosProducer(settings | {"transactional.id": stage.group}) for _ in range(RESTARTS)]
    for producer in given_up:
        with pytest.raises(ClusterUnavailableError):
            producer.init_transactions(INIT_S)
    with KafkaProxy(kafka_broker.port, port=port):
        producer = EosProducer(settings | {"transactional.id": stage.group}, limits=LIMITS)
        producer.init_transactions()
        bystander.init_transactions(WAIT_S)  # whatever waited for a broker is served about now
        for number in range(10):
            producer.begin_transaction()
            producer.produce(stage.sink, str(number))
            producer.commit_transaction()
            time.sleep(BETWEEN_S)
        producer.close()
    assert stage.outputs() == [str(number) for number in range(10)]
