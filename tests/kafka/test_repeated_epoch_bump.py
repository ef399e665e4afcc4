"""An epoch bump that the client library requests twice, the second time of a coordinator that was just loaded.

The coordinator's log does not hold the epoch before a bump, by which a repeated request is recognised (KIP-360). So the
second request is refused as an older producer's, though no other instance has the id.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from eos_client import EosProducer
from eos_client.errors import AbortableError, ProducerFencedError, RebuildProducerError
from eos_client.kafka_python.transactions_admin import TransactionsAdmin
from eos_client.testing.embedded_kafka import EmbeddedKafka
from eos_client.testing.free_ports import free_ports
from tests.kafka.kafka_support import LIMITS
from tests.support.reading import read_to_the_end, reader
from tests.support.waiting import wait_for
from tests.verification.late_end_txn import arrive_late, sent_by
from tests.verification.proxy import KafkaProxy
from tests.verification.topics import create_topics
from tests.verification.wire import Api

pytestmark = pytest.mark.kafka

ABORT_S = 60.0
ONE_IN_FLIGHT = {"max.in.flight.requests.per.connection": 1, "message.timeout.ms": 2000, "linger.ms": 0}


@dataclass(frozen=True)
class Network:
    """A broker that restarts, behind a proxy that stays."""

    broker: EmbeddedKafka
    proxy: KafkaProxy
    id: str
    sink: str

    def producer(self, **more: object) -> EosProducer:
        settings = {"bootstrap.servers": self.broker.bootstrap_servers, "transactional.id": self.id}
        producer = EosProducer(settings | more, limits=LIMITS)
        producer.init_transactions()
        return producer

    def outputs(self) -> list[bytes | None]:
        """The values that were committed."""
        consumer = reader(self.broker.bootstrap_servers, "read_committed")
        return [message.value() for message in read_to_the_end(consumer, self.sink, 1)]

    def state(self) -> str:
        """The state of the transaction at its coordinator."""
        with TransactionsAdmin(self.broker.bootstrap_servers, {}) as admin:
            described = admin.describe(self.id)
        return "" if described is None else described.state


@pytest.fixture(scope="module")
def running() -> Iterator[tuple[EmbeddedKafka, KafkaProxy]]:
    (port,) = free_ports(1)
    with KafkaProxy(port) as proxy, EmbeddedKafka(port=port, advertised_port=proxy.port) as broker:
        yield broker, proxy


@pytest.fixture
def network(running: tuple[EmbeddedKafka, KafkaProxy], unique_name: Callable[[str], str]) -> Network:
    made = Network(*running, unique_name("repeats-its-bump"), unique_name("sink"))
    create_topics(made.broker.bootstrap_servers, {made.sink: 1})
    return made


def fail_a_transaction(network: Network, producer: EosProducer) -> None:
    """Let an output time out before it is sent, behind one that is not answered: its abort requests an epoch bump."""
    held = network.proxy.hold_next(Api.PRODUCE, sent_by(network.id))
    producer.begin_transaction()
    producer.produce(network.sink, b"sent")
    held.wait_until_caught()
    producer.produce(network.sink, b"queued")
    with pytest.raises(AbortableError):
        producer.commit_transaction()


def test_a_repeated_bump_that_a_loaded_coordinator_refuses_is_no_other_instance(network: Network) -> None:
    producer = network.producer(**ONE_IN_FLIGHT)
    fail_a_transaction(network, producer)
    lost = network.proxy.hold_next(Api.INIT_PRODUCER_ID, sent_by(network.id), cuts_off=True)
    repeated = network.proxy.hold_next(Api.INIT_PRODUCER_ID, sent_by(network.id))

    def restart_between_both() -> None:
        repeated.wait_until_caught()
        wait_for(lambda: network.state() == "CompleteAbort", "the end of the transaction")
        assert arrive_late(lost) == (0,)
        network.broker.restart()

    restarting = threading.Thread(target=restart_between_both)
    restarting.start()
    with pytest.raises(RebuildProducerError, match="requested the epoch bump more than once"):
        producer.abort_transaction(ABORT_S)
    restarting.join()
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(network.sink, b"committed")
    producer.commit_transaction()
    producer.close()
    wait_for(network.outputs, "the markers of the commit, which is answered before they are written")
    assert network.outputs() == [b"committed"]


def test_a_bump_that_was_requested_once_and_is_refused_is_another_instance(network: Network) -> None:
    producer = network.producer(**ONE_IN_FLIGHT)
    fail_a_transaction(network, producer)
    late = network.proxy.hold_next(Api.INIT_PRODUCER_ID, sent_by(network.id))

    def register_another() -> None:
        late.wait_until_caught()
        network.producer().close()
        late.deliver()

    registering = threading.Thread(target=register_another)
    registering.start()
    with pytest.raises(ProducerFencedError):
        producer.abort_transaction(ABORT_S)
    registering.join()
    with warnings.catch_warnings():  # it may say that its transaction is not its own to abort any more
        warnings.simplefilter("ignore", RuntimeWarning)
        producer.close()
