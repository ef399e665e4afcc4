"""Answers that are lost and requests that are late: what a producer makes of it, and what its log and group become.

A late request is delivered when its client has given it up; with librdkafka it may then act on the next transaction.
"""

from __future__ import annotations

import zlib

import pytest
from confluent_kafka import TopicPartition

from tests.conformance.backends import RealBackend, SimulatedBackend, closing, waits_long
from tests.conformance.failures import failure_of
from tests.conformance.versions import BROKER_PROPERTIES, NEWEST, TRANSACTION_CHECK_S, VERSIONS
from tests.verification.late_end_txn import sent_by
from tests.verification.wire import Api

GIVES_UP_S = 0.5
LATE_S = 4.0  # of simulated time: behind all repetitions, before ids are forgotten
CALL_S = 30.0
START_S = 60.0
APIS = {"EndTxn": Api.END_TXN, "AddOffsetsToTxn": Api.ADD_OFFSETS_TO_TXN, "TxnOffsetCommit": Api.TXN_OFFSET_COMMIT}


class SimulatedNetwork(SimulatedBackend):
    def lose_answer(self, request, transactional_id):
        self.cluster.lose_reply(request, transactional_id)

    def hold(self, request, transactional_id):
        self.cluster.delay(request, LATE_S, transactional_id)
        return lambda: self.wait(LATE_S)


class RealNetwork(RealBackend):
    def __init__(self, bootstrap, proxy):
        super().__init__(bootstrap, VERSIONS[NEWEST])
        self._proxy = proxy

    def lose_answer(self, request, transactional_id):
        self._proxy.lose_next_answer(APIS[request], sent_by(transactional_id))

    def hold(self, request, transactional_id):
        held = self._proxy.hold_next(APIS[request], sent_by(transactional_id))

        def deliver():
            held.deliver()
            held.wait_for_answer()

        return deliver


@pytest.fixture(
    scope="module",
    params=[
        pytest.param("simulated", id=f"simulated-{NEWEST}"),
        pytest.param("real", id=f"kafka-{NEWEST}", marks=pytest.mark.kafka),
    ],
)
def make_network(request):
    if request.param == "simulated":
        return lambda name: SimulatedNetwork(zlib.crc32(name.encode()), VERSIONS[NEWEST])
    broker = request.getfixturevalue("brokers").proxied(NEWEST, properties=BROKER_PROPERTIES)
    return lambda name: RealNetwork(broker.bootstrap, broker.proxy)


@pytest.fixture
def network(make_network, request):
    with closing(make_network(request.node.nodeid)) as made:
        yield made


class OffsetSender:
    """One producer, its topics, and the group whose offsets it sends."""

    def __init__(self, network, **settings):
        self.network = network
        self.inputs, self.outputs = network.topic(), network.topic()
        self.transactional_id, group_id = network.unique("id"), network.unique("group")
        self._reader = network.consumer({"group.id": group_id, "enable.auto.commit": False})
        self._metadata = self._reader.consumer_group_metadata()
        self.producer = network.producer(
            {"transactional.id": self.transactional_id, "socket.timeout.ms": round(GIVES_UP_S * 1000), **settings}
        )
        self.producer.list_topics(timeout=START_S)
        self.producer.init_transactions(START_S)

    def begin(self, *values):
        self.producer.begin_transaction()
        self.write(*values)

    def write(self, *values):
        for value in values:
            self.producer.produce(self.outputs, value)
        assert self.producer.flush(CALL_S) == 0

    def send(self, offset):
        self.producer.send_offsets_to_transaction([TopicPartition(self.inputs, 0, offset)], self._metadata, CALL_S)

    def commit(self, *values, offset=None):
        self.begin(*values)
        if offset is not None:
            self.send(offset)
        self.producer.commit_transaction(CALL_S)

    @property
    def committed(self):
        (found,) = self._reader.committed([TopicPartition(self.inputs, 0)], CALL_S)
        return found.offset if found.offset >= 0 else None

    def becomes(self, *values):
        self.network.until(lambda: self.network.values(self.outputs) == list(values), f"the outputs to be {values}")


@pytest.fixture
def sender(network):
    return OffsetSender(network)


# -- lost answers ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("request_lost", ["AddOffsetsToTxn", "TxnOffsetCommit", "EndTxn"])
def test_a_request_whose_answer_is_lost_is_sent_again_inside_and_happens_once(network, sender, request_lost):
    network.lose_answer(request_lost, sender.transactional_id)
    sender.commit(b"1", offset=1)
    sender.commit(b"2", offset=2)
    sender.becomes(b"1", b"2")
    assert sender.committed == 2


def test_an_abort_whose_answer_is_lost_is_an_abort(network, sender):
    network.lose_answer("EndTxn", sender.transactional_id)
    sender.begin(b"wrong")
    sender.send(7)
    sender.producer.abort_transaction(CALL_S)
    sender.commit(b"right")
    sender.becomes(b"right")
    assert sender.committed is None


def test_a_commit_whose_answer_is_lost_can_be_asked_for_again(network, sender):
    network.lose_answer("EndTxn", sender.transactional_id)
    sender.begin(b"1")
    assert failure_of(sender.producer.commit_transaction, GIVES_UP_S / 2) == ("_TIMED_OUT", "retriable")
    sender.becomes(b"1")
    assert failure_of(sender.producer.abort_transaction, CALL_S) == ("_CONFLICT", "retriable")
    sender.producer.commit_transaction(CALL_S)
    sender.commit(b"2")
    sender.becomes(b"1", b"2")


# -- late requests ---------------------------------------------------------------------------------------------------


def test_a_late_commit_ends_the_next_transaction_in_its_middle(network, sender):
    deliver_late = network.hold("EndTxn", sender.transactional_id)
    sender.commit(b"1")
    sender.begin(b"2")
    deliver_late()
    sender.becomes(b"1", b"2")
    assert failure_of(sender.producer.abort_transaction, CALL_S) == ("INVALID_TXN_STATE", "fatal")


def test_a_late_abort_ends_the_next_transaction_in_its_middle(network, sender):
    deliver_late = network.hold("EndTxn", sender.transactional_id)
    sender.begin(b"wrong")
    sender.producer.abort_transaction(CALL_S)
    sender.begin(b"lost")
    deliver_late()
    assert failure_of(sender.producer.commit_transaction, CALL_S) == ("INVALID_TXN_STATE", "fatal")
    assert network.values(sender.outputs) == []


def test_a_late_commit_that_finds_no_transaction_does_nothing(network, sender):
    deliver_late = network.hold("EndTxn", sender.transactional_id)
    sender.commit(b"1", offset=1)
    deliver_late()
    sender.commit(b"2", offset=2)
    sender.becomes(b"1", b"2")
    assert sender.committed == 2


def test_late_offsets_replace_those_of_the_next_transaction(network, sender):
    deliver_late = network.hold("TxnOffsetCommit", sender.transactional_id)
    sender.commit(offset=1)
    assert sender.committed == 1
    sender.begin()
    sender.send(2)
    deliver_late()
    sender.producer.commit_transaction(CALL_S)
    assert sender.committed == 1


def test_late_offsets_that_find_no_transaction_are_refused(network, sender):
    deliver_late = network.hold("TxnOffsetCommit", sender.transactional_id)
    sender.commit(offset=1)
    sender.commit(offset=2)
    assert sender.committed == 2  # with its marker there, the transaction is over for the group, too
    deliver_late()
    sender.commit(b"3")
    assert sender.committed == 2
    sender.becomes(b"3")


@waits_long
def test_a_late_request_that_begins_a_transaction_fences_its_idle_producer_in_time(network):
    sender = OffsetSender(network, **{"transaction.timeout.ms": 2000, "message.timeout.ms": 2000})
    deliver_late = network.hold("AddOffsetsToTxn", sender.transactional_id)
    sender.commit(offset=1)
    network.wait(0.5)  # a transaction that is still ending would refuse it
    deliver_late()
    network.wait(2 + 2 * TRANSACTION_CHECK_S)
    assert sender.committed == 1
    assert failure_of(sender.commit, b"2") == ("_FENCED", "fatal")
